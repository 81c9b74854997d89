// Command bindery keeps the binding ledger of a mesh: which provider serves
// which consumer, and why.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A terminal that is closed ends what runs in it in order, too.
	// The first signal ends what runs in order; from then on a second one kills.
	context.AfterFunc(ctx, stop)
	code := NewProgram().Run(ctx, os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	os.Exit(code)
}

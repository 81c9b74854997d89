package ledger

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// childEnv makes the test binary one of the children below instead of running
// tests: what must be another process is one.
const childEnv = "BINDERY_LEDGER_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case "lock":
		childLock(os.Args[1])
	case "append":
		childAppend(os.Args[1])
	}
}

func child(ctx context.Context, what string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	return cmd
}

// childLock locks a store, says so, and holds it until it is killed.
func childLock(dir string) {
	if _, err := AcquireLock(context.Background(), dir, LockConfig{Command: "bindery serve"}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	select {}
}

// childAppend appends commands of one and of several events for ever and prints
// the last sequence of each that is acknowledged.
func childAppend(dir string) {
	ctx := context.Background()
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	_, err := AcquireLock(ctx, dir, LockConfig{})
	die(err)
	srv, err := StartEmbedded(ctx, EmbeddedConfig{Dir: dir})
	die(err)
	nc, err := srv.Connect()
	die(err)
	l, err := Create(ctx, nc, testMesh, CreateOptions{})
	die(err)
	w := newWriter()
	for i := 0; ; i++ {
		after := w.seq
		sizes := [][]int{{1}, {7}, {1, 1, 1, 1}, {1, 40, 3}}[i%4]
		n, err := l.Append(ctx, after, w.commands(sizes...))
		if err == nil && n != len(sizes) {
			err = fmt.Errorf("%d of %d stored and no error", n, len(sizes))
		}
		die(err)
		fmt.Println(w.seq)
	}
}

package subscriber_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/commands/service"
	"bindery/commands/subscriber"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// A program that is told what serves its slots: first what there is, then what
// changes.
func ExampleStream() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, write, end := exampleLedger(ctx) // elsewhere: service.NewClient(nc, "home"), and SignWith(key)
	defer end()
	for item, err := range subscriber.Stream(ctx, client, subscriber.Options{Initial: true}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch {
		case item.Document != nil:
			fmt.Printf("%s/%s is served by %s at %s\n", item.Document.Assignment, item.Document.Slot, item.Document.Provider, item.Document.Endpoint)
		case item.CaughtUp:
			fmt.Println("caught up")
			write(commands.RelocateProvider{Provider: "pg", To: "beta", Endpoint: "beta:5432"}, commands.EndAssignment{Assignment: "wiki"})
		default:
			fmt.Printf("%s: %s\n", item.Change.Kind, item.Change.Text())
			if item.Change.Kind == projections.ChangeEnded {
				return
			}
		}
		// Here item.Cursor would be kept, where its Seq is not 0.
	}
	// Output:
	// wiki/db is served by pg at alpha:5432
	// caught up
	// relocated: pg: alpha → beta, now at beta:5432
	// released: pg
	// ended: pg
}

// exampleLedger is a small ledger in this process, what writes to it, and its end.
func exampleLedger(ctx context.Context) (client *service.Client, write func(...commands.Command), end func()) {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "bindery-example")
	must(err)
	srv, err := ledger.StartEmbedded(ctx, ledger.EmbeddedConfig{Dir: dir})
	must(err)
	nc, err := srv.Connect()
	must(err)
	l, err := ledger.Create(ctx, nc, "home", ledger.CreateOptions{})
	must(err)
	h, err := handler.Open(ctx, handler.Config{Log: l})
	must(err)
	svc, err := service.Serve(service.Config{Conn: nc, Mesh: "home", Handler: h, Log: l, Version: "0.0.0"})
	must(err)
	client, err = service.NewClient(nc, "home")
	must(err)
	newID := handler.NewIDs(time.Now)
	write = func(cs ...commands.Command) {
		for _, c := range cs {
			_, err := h.Do(ctx, commands.Request{Command: c, ID: newID(), Actor: "ann"})
			must(err)
		}
	}
	write(commands.CreateMesh{Name: "home"}, commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"},
		commands.DefineProvision{Name: "postgres", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "pg", Provision: "postgres", Node: "alpha", Endpoint: "alpha:5432"},
		commands.DeclareModule{Name: "wiki", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres"}}}},
		commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	return client, write, func() { must(svc.Stop()); h.Close(); nc.Close(); srv.Close(); _ = os.RemoveAll(dir) }
}

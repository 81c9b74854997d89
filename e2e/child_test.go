package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// node is a store as a process has it open: lock, server, log, handler.
type node struct {
	lock *ledger.Lock
	srv  *ledger.Embedded
	nc   *nats.Conn
	log  *ledger.Log
	h    *handler.Handler
}

// openNode opens a store in the order in which the program does, and makes what
// is not there.
func openNode(ctx context.Context, dir string) (n *node, err error) {
	n = &node{}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return n, err
	}
	if n.lock, err = ledger.AcquireLock(ctx, dir, ledger.LockConfig{Wait: 10 * time.Second}); err != nil {
		return n, err
	}
	if n.srv, err = ledger.StartEmbedded(ctx, ledger.EmbeddedConfig{Dir: dir}); err != nil {
		return n, err
	}
	if n.nc, err = n.srv.Connect(); err != nil {
		return n, err
	}
	n.log, err = ledger.Create(ctx, n.nc, "home", ledger.CreateOptions{})
	if errors.Is(err, ledger.ErrExists) {
		n.log, err = ledger.Open(ctx, n.nc, "home")
	}
	if err != nil {
		return n, err
	}
	n.h, err = handler.Open(ctx, handler.Config{Log: n.log})
	return n, err
}

// close closes what is open, in the reverse order.
func (n *node) close() {
	if n.h != nil {
		n.h.Close()
	}
	if n.nc != nil {
		n.nc.Close()
	}
	if n.srv != nil {
		n.srv.Close()
	}
	if n.lock != nil {
		_ = n.lock.Unlock()
	}
}

var newID = func() func() events.ID {
	var mu sync.Mutex
	return func() events.ID {
		mu.Lock()
		defer mu.Unlock()
		return events.ID(ulid.MustNew(ulid.Now(), rand.Reader))
	}
}()

// crashCallers are how many commands run at once in the process that is killed.
const crashCallers = 200

// childCommands runs commands of one and of several events for ever, and prints
// the id, the last sequence and the number of events of each that is
// acknowledged, before the same caller gives the next.
func childCommands(dir, round string) {
	ctx := context.Background()
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
	}
	n, err := openNode(ctx, dir)
	die(err)
	do := func(c commands.Command) error {
		req := commands.Request{Command: c, ID: newID(), Actor: "ann", Reason: "a trial"}
		r, err := n.h.Do(ctx, req)
		if err == nil && r.Changed {
			// One write, not buffered: what was printed was acknowledged.
			_, err = os.Stdout.WriteString(fmt.Sprintf("%s %d %d\n", req.ID, r.Seq, len(r.Events)))
			die(err)
		}
		return err
	}
	fresh := false
	n.h.View(func(s *projections.State) { fresh = s.Seq == 0 })
	if fresh {
		die(do(commands.CreateMesh{Name: "home"}))
	}
	for _, c := range groundwork() {
		if err := do(c); !isRefusal(err, commands.NameTaken) {
			die(err)
		}
	}
	var races atomic.Int64
	for caller := range crashCallers {
		go func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("a%s-%d-%d", round, caller, i)
				die(do(commands.CreateAssignment{Module: "shop", Node: "alpha", Name: name}))
				die(do(commands.SetOverride{Slot: name + "/db", Provider: "pg-beta"}))
				// Some callers race for one name.
				twin := fmt.Sprintf("r%s-%d", round, races.Add(1)/4)
				if err := do(commands.RegisterNode{Name: twin}); !isRefusal(err, commands.NameTaken) {
					die(err)
				}
				die(do(commands.MoveAssignment{Assignment: name, To: "beta", ReResolve: true}))
				if i%2 == 0 {
					die(do(commands.EndAssignment{Assignment: name}))
				}
			}
		}()
	}
	select {}
}

func isRefusal(err error, code commands.Code) bool {
	var r *commands.Refusal
	return errors.As(err, &r) && r.Code == code
}

// groundwork is what the commands of childCommands need.
func groundwork() []commands.Command {
	out := []commands.Command{commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"}}
	for _, p := range []string{"pg", "s3", "redis"} {
		out = append(out, commands.DefineProvision{Name: p, Scope: events.ScopeNode})
		for i, n := range []string{"alpha", "beta"} {
			out = append(out, commands.RegisterProvider{Name: p + "-" + n, Provision: p, Node: n, Endpoint: fmt.Sprintf("%s.mesh:%d", n, 1000+i+len(out))})
		}
	}
	return append(out, commands.DeclareModule{Name: "shop", Module: manifest.Module{Requires: map[string]manifest.Requirement{
		"db": {Provision: "pg"}, "files": {Provision: "s3"}, "cache": {Provision: "redis"}}}})
}

// childHold holds a store until it is killed.
func childHold(dir string) {
	if _, err := openNode(context.Background(), dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	select {}
}

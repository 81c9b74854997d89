package subscriber

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// patience bounds what is waited for.
const patience = 3 * time.Minute

// world is a ledger on a real server that can be stopped and started, on one port.
type world struct {
	t    testing.TB
	dir  string
	port int

	srv    *ledger.Embedded
	nc     *nats.Conn
	log    *ledger.Log
	h      *handler.Handler
	svc    *service.Service
	door   service.Door
	users  []ledger.User // nil: the server lets in whoever comes
	keys   []string      // of the guests
	synced bool          // with fsync, as ever; else without: what is tested is not the disk
	keeper *keeping      // nil where no documents are kept
}

func newWorld(t testing.TB) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: t.TempDir(), port: l.Addr().(*net.TCPAddr).Port}
	_ = l.Close()
	w.start()
	t.Cleanup(func() { w.stop() })
	w.do(commands.CreateMesh{Name: "home"})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start opens the ledger, or makes it.
func (w *world) start() {
	w.t.Helper()
	var err error
	w.srv, err = ledger.StartEmbedded(context.Background(), ledger.EmbeddedConfig{Dir: w.dir, Listen: true, Host: "127.0.0.1", Port: w.port, Users: w.users,
		Adjust: func(o *server.Options) { o.SyncAlways = w.synced }})
	w.must(err)
	w.nc, err = w.srv.Connect()
	w.must(err)
	w.log, err = ledger.Create(context.Background(), w.nc, "home", ledger.CreateOptions{})
	if errors.Is(err, ledger.ErrExists) {
		w.log, err = ledger.Open(context.Background(), w.nc, "home")
	}
	w.must(err)
	cfg := handler.Config{Log: w.log}
	if w.keeper != nil {
		cfg.Observe = w.keeper.prepare(w.log)
	}
	w.h, err = handler.Open(context.Background(), cfg)
	w.must(err)
	answering := service.Config{Conn: w.nc, Mesh: "home", Handler: w.h, Log: w.log, Version: "0.0.0", Door: w.door}
	if w.keeper != nil {
		w.keeper.run(w)
		answering.Keeper = w.keeper.k
	}
	w.svc, err = service.Serve(answering)
	w.must(err)
}

func (w *world) stop() {
	if w.srv == nil {
		return
	}
	w.must(w.svc.Stop())
	if w.keeper != nil {
		w.keeper.halt()
	}
	w.h.Close()
	w.nc.Close()
	w.srv.Close()
	w.srv = nil
}

// dial connects as another process does: it tries again for ever.
func (w *world) dial() *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", w.port), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	w.must(err)
	w.t.Cleanup(nc.Close)
	return nc
}

// client asks as another process does.
func (w *world) client() *service.Client { return w.clientOf(w.dial(), "home") }

func (w *world) clientOf(nc *nats.Conn, mesh string) *service.Client {
	w.t.Helper()
	c, err := service.NewClient(nc, mesh)
	w.must(err)
	return c
}

// newID mints ids for several goroutines.
var newID = func() func() events.ID {
	var mu sync.Mutex
	mint := handler.NewIDs(time.Now)
	return func() events.ID {
		mu.Lock()
		defer mu.Unlock()
		return mint()
	}
}()

func (w *world) do(cs ...commands.Command) (r commands.Result) {
	w.t.Helper()
	for _, c := range cs {
		var err error
		r, err = w.h.Do(context.Background(), commands.Request{Command: c, ID: newID(), Actor: "ann", Reason: "a trial"})
		if err != nil {
			w.t.Errorf("%s %+v: %v", c.Verb(), c, err)
		}
	}
	return r
}

// furnish makes two nodes with a provider each, and a module.
func (w *world) furnish() {
	w.t.Helper()
	w.do(commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"},
		commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "pg-alpha", Provision: "pg", Node: "alpha", Endpoint: "alpha:5432"},
		commands.RegisterProvider{Name: "pg-beta", Provision: "pg", Node: "beta", Endpoint: "beta:5432"},
		commands.DeclareModule{Name: "wiki", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "pg"}}}})
}

// assign makes n consumers on a node, some at once.
func (w *world) assign(prefix, node string, n int) {
	w.t.Helper()
	var wg sync.WaitGroup
	const callers = 32
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				w.do(commands.CreateAssignment{Module: "wiki", Node: node, Name: fmt.Sprintf("%s-%d", prefix, i),
					Bind: map[string]string{"db": "pg-" + node}})
			}
		})
	}
	wg.Wait()
}

// changes are all that the ledger's commands after a sequence change.
func (w *world) changes(after uint64, filter projections.DocumentFilter) (out []projections.Change) {
	w.t.Helper()
	f := projections.NewChangeFold(filter)
	last, err := w.log.Last(context.Background())
	w.must(err)
	for group, err := range w.log.Read(context.Background(), ledger.Position{}, last) {
		w.must(err)
		cs, err := f.Apply(group)
		w.must(err)
		if group[len(group)-1].Seq > after {
			out = append(out, cs...)
		}
	}
	return out
}

func (w *world) seq() (seq uint64) {
	w.h.View(func(s *projections.State) { seq = s.Seq })
	return seq
}

// node is the id of a node.
func (w *world) node(name string) (id events.ID) {
	w.h.View(func(s *projections.State) { id = s.Node(s.NodeNamed(name)).ID })
	return id
}

// copyStore copies the files of a store that nobody has open.
func copyStore(t testing.TB, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Clean(to), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

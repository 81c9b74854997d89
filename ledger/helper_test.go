package ledger

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"bindery/events"
)

const testMesh = "north"

// store is one embedded server and a connection to it.
type store struct {
	srv *Embedded
	nc  *nats.Conn
}

func startStore(t testing.TB, dir string) *store {
	t.Helper()
	return startStoreWith(t, EmbeddedConfig{Dir: dir})
}

// quickStore is a store without fsync, where that is not what is tested.
func quickStore(t testing.TB) *store {
	t.Helper()
	return startStoreWith(t, EmbeddedConfig{Dir: t.TempDir(), Adjust: func(o *server.Options) { o.SyncAlways = false }})
}

func startStoreWith(t testing.TB, cfg EmbeddedConfig) *store {
	t.Helper()
	srv, err := StartEmbedded(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	s := &store{srv: srv, nc: nc}
	t.Cleanup(s.stop)
	return s
}

func (s *store) stop() {
	s.nc.Close()
	s.srv.Close()
}

// patience is how long a test waits for what will come; it says only that something
// hangs, since a machine may be slow and busy.
const patience = 3 * time.Minute

func ctxT(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func newID() events.ID { return events.ID(ulid.MustNew(ulid.Now(), rand.Reader)) }

// writer makes well-formed commands in sequence: a small model of the handler.
type writer struct {
	mesh  events.ID
	name  string
	seq   uint64
	chain events.Chain
	n     int
}

func newWriter() *writer { return &writer{mesh: newID(), name: testMesh} }

// at puts the writer at the end of what is known.
func (w *writer) at(seq uint64, pos Position) {
	w.seq, w.chain = seq, pos.Chain
	if !pos.Mesh.IsZero() {
		w.mesh = pos.Mesh
	}
}

// command makes one command of n events.
func (w *writer) command(n int) events.Group {
	cmd, g := newID(), make(events.Group, 0, n)
	for k := 1; k <= n; k++ {
		w.n++
		e := events.Event{
			Envelope: events.Envelope{
				ID: newID(), Mesh: w.mesh, Time: time.Now().UTC().Truncate(time.Millisecond),
				Actor: "UABC", Command: cmd, Origin: events.OriginCommand, K: k, N: n,
			},
			Seq: w.seq + 1, MeshName: w.name, Entity: newID(),
		}
		if e.Seq == 1 {
			e.Data, e.Entity = &events.MeshCreated{Name: w.name}, w.mesh
		} else {
			e.Data = &events.NodeRegistered{Name: fmt.Sprintf("node-%d", w.n)}
		}
		e.Type = e.Data.EventType()
		r, err := e.Encode(w.chain)
		if err != nil {
			panic(err)
		}
		w.seq, w.chain = e.Seq, e.Chain
		g = append(g, r)
	}
	return g
}

// commands makes one command of each size.
func (w *writer) commands(sizes ...int) []events.Group {
	out := make([]events.Group, len(sizes))
	for i, n := range sizes {
		out[i] = w.command(n)
	}
	return out
}

func mustCreate(t testing.TB, s *store) *Log {
	t.Helper()
	l, err := Create(ctxT(t), s.nc, testMesh, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// readAll reads the whole ledger and fails the test on an error.
func readAll(t testing.TB, l *Log) [][]events.Event {
	t.Helper()
	out, err := tryRead(t, l)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryRead(t testing.TB, l *Log) (out [][]events.Event, err error) {
	t.Helper()
	ctx := ctxT(t)
	last, err := l.Last(ctx)
	if err != nil {
		return nil, err
	}
	for evs, err := range l.Read(ctx, Position{}, last) {
		if err != nil {
			return out, err
		}
		out = append(out, evs)
	}
	return out, nil
}

// flat returns the chain values of commands.
func chains(cmds []events.Group) (out []string) {
	for _, c := range cmds {
		for i := range c {
			out = append(out, c[i].Get(events.HeaderChain))
		}
	}
	return out
}

func readChains(cmds [][]events.Event) (out []string) {
	for _, c := range cmds {
		for i := range c {
			out = append(out, c[i].Chain.String())
		}
	}
	return out
}

package handler

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"
)

// store is a real embedded ledger.
type store struct {
	nc  *nats.Conn
	log *ledger.Log
}

func newStore(t testing.TB) *store {
	t.Helper()
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	log, err := ledger.Create(t.Context(), nc, "home", ledger.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &store{nc, log}
}

// open starts a handler on log; the mesh is created if it is not there.
func open(t testing.TB, cfg Config) *Handler {
	t.Helper()
	h, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	var fresh bool
	h.View(func(s *projections.State) { fresh = s.Seq == 0 })
	if fresh {
		must(t, h, commands.CreateMesh{Name: "home"})
	}
	return h
}

var idLock sync.Mutex

func newID() events.ID {
	idLock.Lock()
	defer idLock.Unlock()
	return events.ID(ulid.MustNew(ulid.Now(), rand.Reader))
}

func request(c commands.Command) commands.Request {
	return commands.Request{Command: c, ID: newID(), Actor: "ann"}
}

// patience is how long a test waits for what will come; it says only that something
// hangs, since a machine may be slow and busy.
const patience = 3 * time.Minute

func must(t testing.TB, h *Handler, cs ...commands.Command) commands.Result {
	t.Helper()
	var r commands.Result
	var err error
	for _, c := range cs {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if r, err = h.Do(ctx, request(c)); err != nil {
			t.Fatalf("%s: %v", c.Verb(), err)
		}
		cancel()
	}
	return r
}

// fold reads the whole log afresh.
func fold(t testing.TB, log *ledger.Log) (*projections.State, []events.Event) {
	t.Helper()
	last, err := log.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := projections.New()
	var all []events.Event
	for group, err := range log.Read(t.Context(), ledger.Position{}, last) {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ApplyCommand(group); err != nil {
			t.Fatal(err)
		}
		all = append(all, group...)
	}
	return s, all
}

func requires(slot, provision string) manifest.Module {
	return manifest.Module{Requires: map[string]manifest.Requirement{slot: {Provision: provision}}}
}

package snapshot

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/oklog/ulid/v2"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// world is a real ledger with a history, and what every prefix of it folds to.
type world struct {
	t    testing.TB
	log  *ledger.Log
	h    *handler.Handler
	made int // consumers
}

// newWorld is on a server without fsync: that is not what is tested.
func newWorld(t testing.TB) *world {
	t.Helper()
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir(), Adjust: func(o *server.Options) { o.SyncAlways = false }})
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
	h, err := handler.Open(t.Context(), handler.Config{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	w := &world{t: t, log: log, h: h}
	w.do(commands.CreateMesh{Name: "home"})
	m := manifest.Module{Requires: map[string]manifest.Requirement{}}
	for _, slot := range []string{"db", "cache", "files"} {
		w.do(commands.DefineProvision{Name: slot, Scope: events.ScopeNode})
		m.Requires[slot] = manifest.Requirement{Provision: slot}
	}
	for _, node := range []string{"alpha", "beta"} {
		w.do(commands.RegisterNode{Name: node})
		for slot := range m.Requires {
			w.do(commands.RegisterProvider{Name: slot + "-" + node, Provision: slot, Node: node, Endpoint: node + "." + slot + ":1"})
		}
	}
	w.do(commands.DeclareModule{Name: "app", Module: m})
	return w
}

// in is the world in a test within the test.
func (w *world) in(t testing.TB) *world {
	out := *w
	out.t = t
	return &out
}

func (w *world) do(c commands.Command) {
	w.t.Helper()
	if _, err := w.h.Do(w.t.Context(), commands.Request{Command: c, ID: events.ID(ulid.MustNew(ulid.Now(), rand.Reader)), Actor: "ann", Reason: "because"}); err != nil {
		w.t.Fatalf("%s: %v", c.Verb(), err)
	}
}

// grow makes consumers; each is four events of one command, and some are moved,
// renamed or ended: two to six events more.
func (w *world) grow(n int) {
	w.t.Helper()
	for range n {
		w.made++
		name := fmt.Sprintf("app-%d", w.made)
		w.do(commands.CreateAssignment{Module: "app", Node: "alpha", Name: name})
		switch w.made % 5 {
		case 0:
			w.do(commands.EndAssignment{Assignment: name})
		case 1:
			w.do(commands.MoveAssignment{Assignment: name, To: "beta", ReResolve: true})
		case 2:
			w.do(commands.RenameAssignment{Assignment: name, To: "new-" + name})
		case 3:
			w.do(commands.RebindSlot{Slot: name + "/db", Provider: "db-beta"})
		}
	}
}

func (w *world) last() uint64 {
	w.t.Helper()
	last, err := w.log.Last(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return last
}

// prefix is what the events up to the end of one command fold to.
type prefix struct {
	seq  uint64
	snap []byte
}

// prefixes folds the log from its beginning, command by command.
func (w *world) prefixes() []prefix {
	w.t.Helper()
	s := projections.New()
	out := []prefix{{0, bytesOf(w.t, s)}}
	for group, err := range w.log.Read(w.t.Context(), ledger.Position{}, w.last()) {
		if err != nil {
			w.t.Fatal(err)
		}
		if err := s.ApplyCommand(group); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, prefix{s.Seq, bytesOf(w.t, s)})
	}
	return out
}

// upTo is the longest prefix at or before seq.
func upTo(all []prefix, seq uint64) prefix {
	i, found := slices.BinarySearchFunc(all, seq, func(p prefix, seq uint64) int {
		if p.seq < seq {
			return -1
		}
		return int(min(p.seq-seq, 1))
	})
	if found {
		return all[i]
	}
	return all[i-1]
}

func bytesOf(t testing.TB, s *projections.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// store keeps a snapshot at every 100 events, and writes one after 50.
func (w *world) store() (s *Store, warnings *bytes.Buffer) {
	warnings = &bytes.Buffer{}
	s = In(filepath.Join(w.t.TempDir(), Dir), slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn})))
	s.tun = tuning{spacing: 100, opening: 50, stopping: 10, look: 5 * time.Millisecond}
	return s, warnings
}

// at is StateAt, compared with a fold from the beginning.
func (w *world) at(s *Store, all []prefix, seq uint64) {
	w.t.Helper()
	got, err := StateAt(w.t.Context(), w.log, s, seq)
	if err != nil {
		w.t.Fatalf("at %d: %v", seq, err)
	}
	want := upTo(all, min(seq, all[len(all)-1].seq))
	if got.Seq != want.seq || !bytes.Equal(bytesOf(w.t, got), want.snap) {
		w.t.Fatalf("at %d: the state at %d is not the fold of the events up to %d", seq, got.Seq, want.seq)
	}
}

func (s *Store) seqs(t testing.TB) []uint64 {
	t.Helper()
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var out []uint64
	for _, e := range all {
		out = append(out, e.Seq)
	}
	return out
}

package snapshot

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// old is a store with a year's history: n events, each of a command of its own, about
// a fleet of 10,000 bindings.
type old struct {
	b     testing.TB
	dir   string
	clock time.Time
	ids   func() events.ID
	state *projections.State
	log   *ledger.Log
	group []events.Group
	seq   uint64 // stored
}

var oldSlots = []string{"db", "cache", "files", "sso"}

const (
	oldConsumers = 2500 // of four slots
	oldProviders = 100  // of each
)

// newOld makes one on a server without fsync, and stops that in order.
func newOld(b testing.TB, n int) *old {
	b.Helper()
	o := &old{b: b, dir: b.TempDir(), clock: time.Now().AddDate(-1, 0, 0), state: projections.New()}
	o.ids = handler.NewIDs(func() time.Time { return o.clock })
	srv, err := ledger.StartEmbedded(b.Context(), ledger.EmbeddedConfig{Dir: o.dir, Adjust: func(opts *server.Options) { opts.SyncAlways = false }})
	fine(b, err)
	defer srv.Close()
	nc, err := srv.Connect()
	fine(b, err)
	defer nc.Close()
	o.log, err = ledger.Create(b.Context(), nc, "home", ledger.CreateOptions{})
	fine(b, err)
	o.fleet()
	o.rotate(n)
	o.flush()
	return o
}

func fine(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (o *old) fleet() {
	o.do(commands.CreateMesh{Name: "home"})
	m := manifest.Module{Requires: map[string]manifest.Requirement{}}
	for _, slot := range oldSlots {
		o.do(commands.DefineProvision{Name: slot, Scope: events.ScopeNode})
		m.Requires[slot] = manifest.Requirement{Provision: slot}
	}
	for i := range oldProviders {
		node := fmt.Sprintf("node-%d", i)
		o.do(commands.RegisterNode{Name: node})
		for slot := range m.Requires {
			o.do(commands.RegisterProvider{Name: fmt.Sprintf("%s-%d", slot, i), Provision: slot, Node: node, Endpoint: fmt.Sprintf("%s.%s:1", slot, node)})
		}
	}
	o.do(commands.DeclareModule{Name: "app", Module: m})
	for i := range oldConsumers {
		o.do(commands.CreateAssignment{Module: "app", Node: fmt.Sprintf("node-%d", i%oldProviders), Name: fmt.Sprintf("app-%d", i)})
	}
}

// rotate replaces the credential of every slot again and again, over a year, until
// there are n events: each is asked for, issued, taken up, and the one before revoked.
func (o *old) rotate(n int) {
	step := 365 * 24 * time.Hour / time.Duration(n)
	before := map[string]uint64{}
	for {
		for i := range oldConsumers {
			for _, slot := range oldSlots {
				if o.clock = o.clock.Add(4 * step); int(o.state.Seq) >= n {
					return
				}
				path := fmt.Sprintf("app-%d/%s", i, slot)
				now := o.do(commands.RequestCredential{Slot: path})
				issued := o.do(commands.IssueCredential{Slot: path, Generation: now, SecretRef: "file:/srv/" + path + ".env"})
				o.do(commands.AcknowledgeBinding{Slot: path, At: issued})
				if was := before[path]; was != 0 {
					o.do(commands.RevokeCredential{Slot: path, Generation: was})
				}
				before[path] = now
			}
		}
	}
}

// do decides a command; it is stored with others. It returns its last sequence.
func (o *old) do(c commands.Command) uint64 {
	d, err := commands.Decide(o.state, c, commands.Env{Now: o.clock.UTC().Truncate(time.Millisecond), NewID: o.ids, Actor: "ann@example", Reason: "every two weeks", Command: o.ids()})
	fine(o.b, err)
	o.state.Commit()
	if len(o.group) > 0 && o.pending()+len(d.Records) > 1000 {
		o.flush()
	}
	o.group = append(o.group, d.Records)
	return o.state.Seq
}

func (o *old) pending() (n int) {
	for _, g := range o.group {
		n += len(g)
	}
	return n
}

func (o *old) flush() {
	n, err := o.log.Append(context.Background(), o.seq, o.group)
	fine(o.b, err)
	if n != len(o.group) {
		o.b.Fatalf("%d of %d commands are stored", n, len(o.group))
	}
	last := o.group[n-1]
	o.seq, o.group = last[len(last)-1].Seq, nil
}

// opened starts the server on the store, as bare as it is or with the ledger opened
// and ready for commands; it returns how long that took, and ends it.
func (o *old) opened(store *Store, bare bool) time.Duration {
	ctx := context.Background()
	start := time.Now()
	if !bare {
		store.Ahead()
	}
	srv, err := ledger.StartEmbedded(ctx, ledger.EmbeddedConfig{Dir: o.dir})
	fine(o.b, err)
	defer srv.Close()
	if bare {
		return time.Since(start)
	}
	nc, err := srv.Connect()
	fine(o.b, err)
	defer nc.Close()
	log, err := ledger.Open(ctx, nc, "home")
	fine(o.b, err)
	state, err := Open(ctx, log, store)
	fine(o.b, err)
	h, err := handler.Open(ctx, handler.Config{Log: log, State: state})
	fine(o.b, err)
	took := time.Since(start)
	if h.Health().Seq != o.seq {
		o.b.Fatalf("it is at %d, not %d", h.Health().Seq, o.seq)
	}
	h.Close()
	return took
}

// unindexed is a store as after a kill: its server has not written what it knew of
// its messages.
func (o *old) unindexed() {
	found := 0
	fine(o.b, filepath.WalkDir(filepath.Join(o.dir, server.JetStreamStoreDir), func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "index.db" {
			found++
			err = os.Remove(path)
		}
		return err
	}))
	if found == 0 {
		o.b.Fatal("there is no index")
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// BenchmarkOpen gives the time of opening a ledger of 1,000,000 events, or
// BINDERY_BENCH_EVENTS, and 10,000 bindings from a snapshot over that of starting the
// bare server on the same store; and the time of folding its state at the middle
// between two snapshots over that of folding all of it. One b.N is many blocks.
func BenchmarkOpen(b *testing.B) {
	n := 1_000_000
	if v, err := strconv.Atoi(os.Getenv("BINDERY_BENCH_EVENTS")); err == nil {
		n = v
	}
	o := newOld(b, n)
	store := In(filepath.Join(b.TempDir(), Dir), nil)
	first := o.opened(store, false) // leaves all snapshots
	behind := In(filepath.Join(b.TempDir(), Dir), nil)
	o.with(func(log *ledger.Log) {
		state, err := StateAt(b.Context(), log, store, o.seq-defaultTuning.opening+1)
		fine(b, err)
		fine(b, behind.Write(state))
	})
	measure := func(name string, store *Store, before func()) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				var ratios, ours, raw []float64
				for range 7 {
					before()
					r := o.opened(store, true)
					before()
					t := o.opened(store, false)
					ratios, ours, raw = append(ratios, float64(t)/float64(r)), append(ours, t.Seconds()*1e3), append(raw, r.Seconds()*1e3)
				}
				b.ReportMetric(median(ratios), "x-raw")
				b.ReportMetric(median(raw), "raw-ms")
				b.ReportMetric(median(ours), "ours-ms")
				b.ReportMetric(first.Seconds()*1e3, "first-ms")
			}
		})
	}
	measure("stopped", store, func() {})
	measure("killed", behind, o.unindexed)
	b.Run("middle", func(b *testing.B) {
		o.with(func(log *ledger.Log) {
			for range b.N {
				var ratios []float64
				for range 3 {
					middle := timed(b, log, store, uint64(n/2+n/20))
					ratios = append(ratios, float64(middle)/float64(timed(b, log, nil, math.MaxUint64)))
				}
				b.ReportMetric(median(ratios), "x-fold")
			}
		})
	})
}

func timed(b *testing.B, log *ledger.Log, store *Store, seq uint64) time.Duration {
	start := time.Now()
	_, err := StateAt(b.Context(), log, store, seq)
	fine(b, err)
	return time.Since(start)
}

// with runs f with the ledger open.
func (o *old) with(f func(*ledger.Log)) {
	srv, err := ledger.StartEmbedded(o.b.Context(), ledger.EmbeddedConfig{Dir: o.dir})
	fine(o.b, err)
	defer srv.Close()
	var nc *nats.Conn
	nc, err = srv.Connect()
	fine(o.b, err)
	defer nc.Close()
	log, err := ledger.Open(o.b.Context(), nc, "home")
	fine(o.b, err)
	f(log)
}

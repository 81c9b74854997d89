package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands"
	"bindery/commands/readmodel"
	"bindery/projections"
)

// leaseOf is a lease of a node with its watch, as another tree's agent has it.
func (w *world) leaseOf(tree string, clock func() time.Time) (*lease, *nats.Conn) {
	w.t.Helper()
	nc, err := nats.Connect(w.srv.URL())
	w.must(err)
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	w.must(err)
	node := w.node("alpha").String()
	l := newLease(js, readmodel.Agents(testMesh), node, tree, clock, slog.New(slog.DiscardHandler))
	known := make(chan struct{})
	watching := &watch{nc: nc, bucket: readmodel.Agents(testMesh), pattern: node, entry: l.saw, listed: sync.OnceFunc(func() { close(known) }),
		logger: slog.New(slog.DiscardHandler)}
	go func() { _ = watching.run(w.t.Context()) }()
	<-known
	return l, nc
}

// Of several that want the lease one has it at a time; one that gives it up is
// followed at once, and one that vanishes when its entry does.
func TestLeaseIsOnes(t *testing.T) {
	w := newWorld(t)
	var holders, most atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		l, _ := w.leaseOf(newID().String(), time.Now)
		all.Go(func() {
			if err := l.acquire(t.Context()); err != nil {
				t.Error(err)
				return
			}
			now := holders.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			for range 3 {
				if err := l.renew(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			holders.Add(-1)
			l.release()
		})
	}
	all.Wait()
	if n := most.Load(); n != 1 {
		t.Errorf("%d had it at once", n)
	}
}

// One that finds another's entry after its own has lost the lease; one whose answer
// was lost, or whose entry vanished, has not.
func TestLeaseLost(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	l, _ := w.leaseOf("a", time.Now)
	w.must(l.acquire(ctx))
	l.mu.Lock()
	l.revision-- // the answer to the last renewal was lost
	l.mu.Unlock()
	w.must(l.renew(ctx))

	put := func(m *nats.Msg) {
		m.Subject = "$KV." + l.bucket + "." + l.key
		_, err := l.js.PublishMsg(ctx, m)
		w.must(err)
	}
	put(&nats.Msg{Header: nats.Header{jetstreamOperation: {operationDelete}}}) // somebody deleted it
	w.eventually("it is renewed", func() error { return l.renew(ctx) })

	put(&nats.Msg{Data: []byte(`{"holder":"another"}`)})
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.renew(limited); !errors.Is(err, errLeaseLost) {
		t.Errorf("%v", err)
	}
}

// Whoever has the lock of a tree takes over from the one that had it before, without
// waiting for its entry to vanish.
func TestLeaseOfTheSameTree(t *testing.T) {
	w := newWorld(t)
	killed, _ := w.leaseOf("tree", time.Now)
	w.must(killed.acquire(t.Context()))
	next, _ := w.leaseOf("tree", time.Now)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // less than an entry stays
	defer cancel()
	w.must(next.acquire(ctx))
	if err := killed.renew(ctx); !errors.Is(err, errLeaseLost) {
		t.Errorf("%v", err)
	}
}

// One that cannot renew is in doubt before the server lets go of its entry.
func TestLeaseInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{clock: time.Now}
		if l.held() {
			t.Error("it holds what it has not acquired")
		}
		l.revision, l.renewed = 1, time.Now()
		time.Sleep(11 * time.Second)
		if !l.held() {
			t.Error("it is in doubt too early")
		}
		time.Sleep(time.Second)
		if l.held() {
			t.Error("it is held for too long")
		}
		if leaseDoubt >= readmodel.AgentLease || leaseRenew*2 >= leaseDoubt {
			t.Error("the lease is in doubt too late, or renewed too seldom")
		}
	})
}

// Two agents of one node, each with a tree of its own: one acts, the other one takes
// over when that is gone.
func TestTwoAgentsOfANode(t *testing.T) {
	w := newWorld(t)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	first := w.spec("alpha")
	stop := w.start(w.agent(first))
	w.eventually("one acts", func() error { return w.exact("alpha") })

	second := first
	second.Root += "-2"
	second.Log += "-2"
	stop2 := w.start(w.agent(second))
	w.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "toy"}})
	w.eventually("one acts still", func() error { return w.exact("alpha") })
	seen := map[string]bool{}
	for _, in := range w.runs() {
		if key := in.Action + in.Tag; seen[key] {
			t.Errorf("%s of generation %d ran twice", in.Action, in.Generation)
		} else {
			seen[key] = true
		}
	}
	w.must(stop())
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "shop"})
	// What the first one has stored in its tree, the other one does not find.
	w.eventually("the other one has taken over", func() (err error) {
		w.h.View(func(s *projections.State) {
			for _, v := range s.ListBindings(projections.BindingFilter{}).Items {
				if v.Assignment == "shop" && v.AppliedSeq < v.ChangedSeq || v.Use.Provider == "" {
					err = fmt.Errorf("%+v", v)
				}
			}
		})
		return err
	})
	w.must(stop2())
}

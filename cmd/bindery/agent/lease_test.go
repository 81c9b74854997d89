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

	"bindery/commands"
	"bindery/commands/readmodel"
	"bindery/projections"
)

// leaseOf is a lease of a node, as another tree's agent has it.
func (w *world) leaseOf(tree string) *lease {
	w.t.Helper()
	a := w.agent(w.spec("alpha"))
	w.t.Cleanup(a.hangUp)
	return newLease(a.cfg.Ledger, w.node("alpha").String(), tree, time.Now, slog.New(slog.DiscardHandler))
}

// Of several that want the lease one has it at a time; one that gives it up is
// followed at once.
func TestLeaseIsOnes(t *testing.T) {
	w := newWorld(t)
	var holders, most atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		l := w.leaseOf(newID().String())
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

// What gets into the bucket takes the lease from nobody: neither an entry that says
// that it is another's, nor one that cannot be read, nor none.
func TestLeaseKeptAgainstJunk(t *testing.T) {
	w := newWorld(t)
	l := w.leaseOf("a")
	w.must(l.acquire(t.Context()))
	other := w.leaseOf("b")
	for what, value := range map[string]string{"another's": `{"holder":"another","tree":"t","host":"h"}`, "no JSON": "junk", "of nobody": "{}", "nothing": ""} {
		w.putIn(readmodel.Agents(testMesh), l.node, []byte(value))
		w.must(l.renew(t.Context()))
		var held *otherHolder
		if err := other.try(t.Context(), false); !errors.As(err, &held) || held.by.Holder != l.me.Holder {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !l.held() || other.held() {
		t.Error("the lease has another holder")
	}
}

// Junk in the bucket that a new writer finds there holds the lease until it expires,
// as one that it cannot read may, and is nobody to give it up for.
func TestLeaseJunkExpires(t *testing.T) {
	w := newWorld(t)
	l := w.leaseOf("a")
	w.putIn(readmodel.Agents(testMesh), l.node, []byte("junk"))
	if err := l.try(t.Context(), false); !errors.Is(err, errLeaseUnread) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.must(l.renew(ctx)) // it does not give up
	if !l.held() {
		t.Error("it has not the lease")
	}
}

// One that another took over from has lost the lease.
func TestLeaseLost(t *testing.T) {
	w := newWorld(t)
	l := w.leaseOf("a")
	w.must(l.acquire(t.Context()))
	l.release()
	next := w.leaseOf("b")
	w.must(next.acquire(t.Context()))
	if err := l.renew(t.Context()); !errors.Is(err, errLeaseLost) {
		t.Errorf("%v", err)
	}
	l.release() // it has none: the other one keeps its own
	w.must(next.renew(t.Context()))
}

// Whoever has the lock of a tree takes over from the one that had it before, without
// waiting for its lease to expire.
func TestLeaseOfTheSameTree(t *testing.T) {
	w := newWorld(t)
	killed := w.leaseOf("tree")
	w.must(killed.acquire(t.Context()))
	next := w.leaseOf("tree")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // less than a lease lasts
	defer cancel()
	w.must(next.acquire(ctx))
	if err := killed.renew(ctx); !errors.Is(err, errLeaseLost) {
		t.Errorf("%v", err)
	}
}

// A lease outlives the writer that gave it: the next one finds it in the bucket.
func TestLeaseSurvivesItsWriter(t *testing.T) {
	w := newWorld(t)
	l := w.leaseOf("a")
	w.must(l.acquire(t.Context()))
	w.down()
	w.again()
	var held *otherHolder
	if err := w.leaseOf("b").try(t.Context(), false); !errors.As(err, &held) || held.by.Holder != l.me.Holder {
		t.Errorf("%v", err)
	}
}

// One that cannot renew is in doubt before the writer lets go of its lease.
func TestLeaseInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{clock: time.Now}
		if l.held() {
			t.Error("it holds what it has not acquired")
		}
		l.has, l.renewed = true, time.Now()
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

package readmodel

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

// Kind: a change that a reader never hears of. Whatever is overwritten, and in
// whatever order changes become visible, who asks for what changed after a sequence
// gets each of them or is told that this is not known; and memory stays bounded.
func TestRecentMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecent()
		r.size = 8
		start := rapid.Uint64Range(1, 5).Draw(t, "start")
		r.reset(Mark{Seq: start}, start, nil)
		nodes := []events.ID{{1}, {2}, {3}}
		var all []remembered // every change there was
		written := start     // the highest sequence that a document tells of
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "write") {
				written += rapid.Uint64Range(0, 2).Draw(t, "ahead")
				node := rapid.SampledFrom(nodes).Draw(t, "node")
				c := Changed{Seq: max(written, r.at.Seq+1), Key: fmt.Sprintf("%s.%d", node, rapid.IntRange(0, 3).Draw(t, "key"))}
				written = c.Seq
				r.note(c, 0)
				all = append(all, remembered{Changed: c, node: node})
			} else {
				r.reach(Mark{Seq: r.at.Seq + rapid.Uint64Range(0, 3).Draw(t, "reach")})
			}
			node, seq := rapid.SampledFrom(nodes).Draw(t, "asks"), rapid.Uint64Range(0, written+2).Draw(t, "after")
			got, ok := r.after(node, seq)
			if ok && (seq < start || seq > r.at.Seq) {
				t.Fatalf("after %d is known; it began at %d and is at %d", seq, start, r.at.Seq)
			}
			want, visible := map[string]bool{}, 0
			for _, c := range all {
				if c.Seq <= r.at.Seq {
					visible++
				}
				if c.node == node && c.Seq > seq && c.Seq <= r.at.Seq {
					want[c.Key] = true
				}
			}
			if !ok && seq >= start && seq <= r.at.Seq && visible <= int(r.size) {
				t.Fatalf("after %d is not known, and all %d changes are remembered", seq, visible)
			}
			for _, c := range got {
				if ok && !want[c.Key] {
					t.Fatalf("after %d: %s is listed twice, or for nothing", seq, c.Key)
				}
				delete(want, c.Key)
			}
			if ok && len(want) > 0 {
				t.Fatalf("after %d: %v are missing", seq, want)
			}
			if len(r.ring) > int(r.size) || len(r.last) > int(r.size) {
				t.Fatalf("%d changes and %d nodes are remembered", len(r.ring), len(r.last))
			}
		}
	})
}

// here are the bindings that a keeper says have documents on a node.
func (w *world) here(node events.ID) map[projections.BindingRef]bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var seq uint64
	w.h.View(func(s *projections.State) { seq = s.Seq })
	w.must(w.k.AwaitKept(ctx, seq))
	out := map[projections.BindingRef]bool{}
	refs, _ := w.k.Here(node)
	for _, r := range refs {
		out[r] = true
	}
	return out
}

// Kind: a document that nobody finds. The keeper knows for each node whose documents
// there are, after a beginning and after whatever comes, and no more.
func TestHere(t *testing.T) {
	w := newWorld(t)
	w.fleet(3)
	w.again() // the changes come through a rebuild, too
	w.check()
	for _, c := range []commands.Command{
		commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:5433"},
		commands.MoveAssignment{Assignment: "app-0", To: "beta"},
		commands.SetOverride{Slot: "app-1/db", Provider: "pg-beta"},
		commands.ClearOverride{Slot: "app-1/db"},
		commands.EndAssignment{Assignment: "app-2"},
		commands.RetireProvider{Provider: "pg-beta", Force: true},
	} {
		w.do(c)
		w.check()
	}
}

// check compares what the keeper knows of each node with the state.
func (w *world) check() {
	w.t.Helper()
	want := map[events.ID]map[projections.BindingRef]bool{}
	w.h.View(func(s *projections.State) {
		for _, n := range s.ListNodes().Items {
			want[n.ID] = map[projections.BindingRef]bool{}
		}
		for i := 1; i <= s.BindingCount(); i++ {
			r := projections.BindingRef(i)
			if s.HasDocument(r) {
				want[s.BindingDocument(r).NodeID][r] = true
			}
			for _, d := range s.HolderDocuments(r) {
				want[d.NodeID][r] = true
			}
		}
	})
	for node, refs := range want {
		if got := w.here(node); len(got) != len(refs) || fmt.Sprint(got) != fmt.Sprint(refs) {
			w.t.Errorf("on %s there are %v, want %v", node, got, refs)
		}
	}
}

// Who waits is woken by a change of its node, and by a keeper that begins anew; and a
// wait that ends leaves the others.
func TestAwaitChange(t *testing.T) {
	r := newRecent()
	k := &Keeper{recent: r}
	node, other := events.ID{1}, events.ID{2}
	r.reset(Mark{Seq: 1}, 1, nil)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	all := func([]Changed) bool { return true }
	r.note(Changed{Seq: 2, Key: other.String() + ".x"}, 0)
	r.reach(Mark{Seq: 2})
	if err := k.AwaitChange(short, node, 1, all); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another node changed: %v", err)
	}
	woken := make(chan error, 1)
	wait := func(seq uint64) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			woken <- k.AwaitChange(ctx, node, seq, all)
		}()
	}
	wait(2)
	r.note(Changed{Seq: 4, Key: node.String() + ".x"}, 0)
	r.reach(Mark{Seq: 3}) // the document tells of more than all do
	if _, ok := r.after(node, 3); !ok || len(woken) > 0 {
		t.Error("it is told of a change before everything is up to it")
	}
	r.reach(Mark{Seq: 4})
	if err := <-woken; err != nil {
		t.Error(err)
	}
	wait(4)
	r.forget()
	r.reset(Mark{Seq: 9}, 9, nil)
	if err := <-woken; err != nil {
		t.Error(err)
	}
}

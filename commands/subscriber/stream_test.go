package subscriber

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/projections"
)

// heard is what a subscriber was told.
type heard struct {
	changes chan projections.Change
	err     chan error
}

// listen runs an iterator and passes on its changes; each is called before.
func listen(seq func(func(Item, error) bool), each func(Item)) *heard {
	h := &heard{changes: make(chan projections.Change, 100_000), err: make(chan error, 1)}
	go func() {
		for item, err := range seq {
			if err != nil {
				h.err <- err
				return
			}
			if each != nil {
				each(item)
			}
			if item.Change != nil {
				h.changes <- *item.Change
			}
		}
		h.err <- nil
	}()
	return h
}

// take takes n changes.
func (h *heard) take(t *testing.T, n int) (out []projections.Change) {
	t.Helper()
	end := time.After(patience)
	for len(out) < n {
		select {
		case c := <-h.changes:
			out = append(out, c)
		case err := <-h.err:
			t.Fatalf("it ended after %d of %d changes: %v", len(out), n, err)
		case <-end:
			t.Fatalf("%d of %d changes came", len(out), n)
		}
	}
	return out
}

// ends waits for the end.
func (h *heard) ends(t *testing.T) error {
	t.Helper()
	select {
	case err := <-h.err:
		return err
	case <-time.After(patience):
		t.Fatal("it does not end")
		return nil
	}
}

// same compares what was told with what is to be told, change by change.
func same(t *testing.T, want, got []projections.Change) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d changes, want %d", len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		if !reflect.DeepEqual(want[i], got[i]) { // of many, far faster than cmp
			t.Fatalf("change %d (-want +got)\n%s", i, cmp.Diff(want[i], got[i]))
		}
	}
}

func ready(t *testing.T, w *world, c *service.Client, o Options) (h *heard, caught chan Item) {
	t.Helper()
	caught = make(chan Item, 1)
	h = listen(Stream(t.Context(), c, o), func(i Item) {
		if i.CaughtUp {
			caught <- i
		}
	})
	select {
	case i := <-caught:
		if i.Cursor.Seq != i.Seq || i.Cursor.Chain == "" {
			t.Errorf("caught up: %+v", i)
		}
	case err := <-h.err:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("it does not catch up")
	}
	return h, caught
}

// What is told through restarts of the server is each change once, in order.
func TestStreamOverRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish()
	w.assign("a", "alpha", 20)
	from := w.seq()
	h, _ := ready(t, w, w.client(), Options{})
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 4 {
		w.assign(fmt.Sprintf("r%d", round), "beta", 30)
		to := []string{"alpha", "beta"}[round%2]
		w.do(commands.RelocateProvider{Provider: "pg-beta", To: to, Endpoint: fmt.Sprintf("there:%d", round+1)})
		for i := range 10 {
			w.do(commands.SetOverride{Slot: fmt.Sprintf("r%d-%d/db", round, i), Provider: "pg-alpha"})
		}
		if round < 3 {
			w.stop()
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			w.start()
		}
	}
	want := w.changes(from, projections.DocumentFilter{})
	same(t, want, h.take(t, len(want)))
	select {
	case c := <-h.changes:
		t.Errorf("more: %+v", c)
	case <-time.After(1500 * time.Millisecond): // a consumer that is replaced tells again what it told
	}
}

// A subscriber that is slow, and at times takes nothing, is told each of 10,000
// changes once, in order, and those of one command whole.
func TestStreamSlowly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish()
	from := w.seq()
	n := 0
	h := listen(Stream(t.Context(), w.client(), Options{From: from + 1}), func(i Item) {
		switch n++; {
		case n == 100:
			time.Sleep(3 * time.Second)
		case n%500 == 0:
			time.Sleep(50 * time.Millisecond)
		}
		if i.Change != nil && i.Cursor.Seq != 0 && i.Cursor.Seq != i.Change.Seq {
			t.Errorf("the cursor after %d is %+v", i.Change.Seq, i.Cursor)
		}
	})
	w.assign("a", "alpha", 3400)
	w.do(commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "there:1"})
	want := w.changes(from, projections.DocumentFilter{})
	if len(want) < 10_000 {
		t.Fatalf("%d changes", len(want))
	}
	same(t, want, h.take(t, len(want)))
}

// Whoever stops anywhere and goes on with the last cursor that was kept is told
// everything at least once: nothing is left out, and each run begins where the
// cursor is.
func TestStreamGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish()
	from := w.seq()
	w.assign("a", "alpha", 150)
	w.do(commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "there:1"})
	w.assign("b", "beta", 150)
	all := w.changes(from, projections.DocumentFilter{})
	place := map[string]int{}
	key := func(c projections.Change) string { return fmt.Sprint(c.Seq, c.Binding, c.Kind) }
	for i, c := range all {
		place[key(c)] = i
	}
	if len(place) != len(all) {
		t.Fatalf("%d changes, %d of them different", len(all), len(place))
	}
	rng := rand.New(rand.NewPCG(2, 2))
	client := w.client()
	o := Options{From: from + 1}
	done := 0 // how many are handled, up to a cursor that was kept or not
	runs := 0
	for done < len(all) {
		if runs++; runs > 500 {
			t.Fatal("it does not come to an end")
		}
		stopAt := rng.IntN(300) // one command changes 150 bindings
		kept, first := 0, true
		for item, err := range Stream(t.Context(), client, o) {
			if err != nil {
				t.Fatal(err)
			}
			if item.CaughtUp {
				break
			}
			at, known := place[key(*item.Change)]
			switch {
			case !known || item.Change.Seq <= from:
				t.Fatalf("told of %+v", item.Change)
			case first && at > done, !first && at > done:
				t.Fatalf("change %d is told, and %d was not", at, done)
			case first && o.Cursor != nil && item.Change.Seq <= o.Cursor.Seq:
				t.Fatalf("it begins at %d, the cursor is %d", item.Change.Seq, o.Cursor.Seq)
			}
			first = false
			done = max(done, at+1)
			if item.Cursor.Seq != 0 && rng.IntN(3) == 0 {
				c := item.Cursor
				o = Options{Cursor: &c}
			}
			if kept++; kept > stopAt {
				break
			}
		}
	}
	if runs < 5 {
		t.Errorf("%d runs", runs)
	}
}

// The present state comes first, then the mark, then what is new; what is before
// the first sequence asked for is in the state.
func TestStreamInitial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish()
	w.assign("a", "alpha", 5)
	middle := w.seq()
	w.assign("b", "beta", 5)
	w.do(commands.MoveAssignment{Assignment: "a-0", To: "beta"})
	client := w.client()
	for _, tt := range []struct {
		o             Options
		docs, changes int
	}{
		{Options{}, 0, 0},
		{Options{Initial: true}, 10, 0},
		{Options{From: middle + 1}, 0, 11},
		{Options{From: middle + 1, Initial: true}, 5, 11},
		{Options{From: 1}, 0, 21},
		{Options{From: 1 << 40, Initial: true}, 10, 0},
		{Options{Initial: true, Filter: projections.DocumentFilter{Node: w.node("alpha")}}, 4, 0},
		{Options{From: 1, Filter: projections.DocumentFilter{Node: w.node("alpha")}}, 0, 11}, // the move, too
	} {
		docs, changes := 0, 0
		for item, err := range Stream(t.Context(), client, tt.o) {
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case item.Document != nil && changes == 0:
				docs++
			case item.Change != nil:
				changes++
			case item.CaughtUp:
				if item.Seq != w.seq() {
					t.Errorf("caught up at %d, the ledger is at %d", item.Seq, w.seq())
				}
			default:
				t.Fatalf("%+v", item)
			}
			if item.CaughtUp {
				break
			}
		}
		if docs != tt.docs || changes != tt.changes {
			t.Errorf("%+v: %d documents and %d changes, want %d and %d", tt.o, docs, changes, tt.docs, tt.changes)
		}
	}
}

// A ledger that was restored to an earlier state, and went on otherwise or not at
// all, is told of: to who runs on, and to who comes with a cursor.
func TestStreamRestored(t *testing.T) {
	t.Parallel()
	for _, later := range []int{0, 3, 60} {
		t.Run(fmt.Sprintf("%d later", later), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.furnish()
			w.assign("a", "alpha", 5)
			early := w.seq()
			w.stop()
			saved := t.TempDir()
			copyStore(t, w.dir, saved)
			w.start()
			client := w.client()
			var last Cursor
			h, _ := ready(t, w, client, Options{From: 1})
			w.assign("b", "alpha", 20)
			h.take(t, 50) // what was there, and what has come
			for item, err := range Stream(t.Context(), client, Options{From: 1}) {
				if err != nil {
					t.Fatal(err)
				}
				if last = item.Cursor; item.CaughtUp {
					break
				}
			}
			w.stop()
			copyStore(t, saved, w.dir)
			w.start()
			w.assign("c", "beta", later)
			var r *RestoredError
			if err := h.ends(t); !errors.As(err, &r) {
				t.Fatalf("who runs on is told %v", err)
			}
			for _, err := range Stream(t.Context(), client, Options{Cursor: &last}) {
				if !errors.As(err, &r) {
					t.Fatalf("who comes with a cursor is told %v", err)
				}
			}
			// What it has in common with the other one is as good as ever.
			for item, err := range Stream(t.Context(), client, Options{From: early}) {
				if err != nil {
					t.Fatal(err)
				}
				if item.CaughtUp {
					break
				}
			}
		})
	}
}

// A cursor that no command ends at, of another mesh, or of a sequence that is not
// there is not taken.
func TestStreamBadCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish()
	w.assign("a", "alpha", 5)
	client := w.client()
	var good, within Cursor
	for item, err := range Stream(t.Context(), client, Options{From: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.CaughtUp {
			break
		}
		if good = item.Cursor; good.Seq == 0 {
			t.Log("within a command")
		} else {
			within = good
		}
	}
	good = within
	within.Seq-- // a consumer is made by a command of two events
	other, ahead, chain := good, good, good
	other.MeshID = events.ID{1}
	ahead.Seq += 1000
	chain.Chain = "00" + chain.Chain[2:]
	for _, c := range []Cursor{within, other, ahead, chain} {
		var r *RestoredError
		for _, err := range Stream(t.Context(), client, Options{Cursor: &c}) {
			if !errors.As(err, &r) || r.Cursor != c {
				t.Fatalf("%+v: %v", c, err)
			}
		}
	}
	for item, err := range Stream(t.Context(), client, Options{Cursor: &good}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.CaughtUp {
			break
		}
	}
}

// A context that ends, and a connection that is closed, end the iterator.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish()
	ctx, cancel := context.WithCancel(t.Context())
	h := listen(Stream(ctx, w.client(), Options{}), func(i Item) { cancel() })
	if err := h.ends(t); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context: %v", err)
	}
	nc := w.dial()
	h = listen(Stream(t.Context(), w.clientOf(nc, "home"), Options{}), func(i Item) { nc.Close() })
	if err := h.ends(t); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("after the connection: %v", err)
	}
	if err := (listen(Stream(t.Context(), w.clientOf(w.dial(), "away"), Options{}), nil)).ends(t); err == nil {
		t.Error("a ledger that is not there is followed")
	}
}

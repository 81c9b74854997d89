package subscriber

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/readmodel"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// newKept is a world whose documents are kept.
func newKept(t testing.TB, memory bool) *world {
	t.Helper()
	w := newWorld(t)
	w.stop()
	w.keeper = &keeping{memory: memory}
	w.start()
	return w
}

// follow waits until the documents are what the ledger says.
func (w *world) follow() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w.must(w.keeper.k.Synced(ctx, w.seq()))
}

// mirror keeps documents as a subscriber is told of them.
type mirror struct {
	t    *testing.T
	docs map[events.ID]projections.BindingDocument
	last map[events.ID]uint64
}

func newMirror(t *testing.T) *mirror {
	return &mirror{t: t, docs: map[events.ID]projections.BindingDocument{}, last: map[events.ID]uint64{}}
}

func (m *mirror) hear(c projections.Change) {
	m.t.Helper()
	if c.Seq < m.last[c.Binding] {
		m.t.Errorf("%s of %s at %d comes after one at %d", c.Kind, c.Binding, c.Seq, m.last[c.Binding])
	}
	m.last[c.Binding] = c.Seq
	if c.Document == nil {
		delete(m.docs, c.Binding)
	} else {
		m.docs[c.Binding] = *c.Document
	}
}

// is reports whether the documents are those of the ledger on a node.
func (w *world) is(docs map[events.ID]projections.BindingDocument, node events.ID) (diff string) {
	want, got := map[events.ID]projections.BindingDocument{}, map[events.ID]projections.BindingDocument{}
	w.h.View(func(s *projections.State) {
		for i := 1; i <= s.BindingCount(); i++ {
			r := projections.BindingRef(i)
			if !s.HasDocument(r) {
				continue
			}
			if d := s.BindingDocument(r); node.IsZero() || d.NodeID == node {
				want[*d.ID] = written(d)
			}
		}
	})
	for id, d := range docs {
		got[id] = written(d)
	}
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

// written is a document as it comes back from JSON, without its stamp.
func written(d projections.BindingDocument) (out projections.BindingDocument) {
	data, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic(err)
	}
	out.Stamp = projections.Stamp{}
	return out
}

// until hears changes until the documents are those of the ledger.
func (m *mirror) until(w *world, h *heard, node events.ID) (n int) {
	m.t.Helper()
	end := time.After(patience)
	for {
		select {
		case c := <-h.changes:
			m.hear(c)
			n++
			continue
		case err := <-h.err:
			m.t.Fatalf("it ended: %v", err)
		case <-time.After(50 * time.Millisecond):
			if w.is(m.docs, node) == "" {
				return n
			}
		case <-end:
			m.t.Fatalf("the documents are not those of the ledger (-want +got)\n%s", w.is(m.docs, node))
		}
	}
}

// Whoever listens to the bucket has the documents of the ledger, through restarts
// of the server that keep the bucket or lose it, and is told nothing that is not so.
func TestKVOverRestarts(t *testing.T) {
	t.Parallel()
	for _, memory := range []bool{false, true} {
		for _, narrow := range []bool{false, true} {
			t.Run(fmt.Sprintf("memory=%v,narrow=%v", memory, narrow), func(t *testing.T) {
				t.Parallel()
				w := newKept(t, memory)
				w.furnish()
				w.assign("a", "alpha", 20)
				w.assign("b", "beta", 20)
				w.follow()
				var o Options
				if narrow {
					o.Filter.Node = w.node("alpha")
				}
				o.Initial = true
				m := newMirror(t)
				caught := make(chan bool, 1)
				h := listen(KV(t.Context(), w.dial(), "home", o), func(i Item) {
					if i.Document != nil {
						m.docs[*i.Document.ID] = *i.Document
					}
					if i.CaughtUp {
						caught <- true
					}
				})
				<-caught
				if diff := w.is(m.docs, o.Filter.Node); diff != "" {
					t.Fatalf("at first: %s", diff)
				}
				for round := range 3 {
					w.assign(fmt.Sprintf("r%d", round), "alpha", 10)
					w.do(commands.RelocateProvider{Provider: "pg-beta", To: "alpha", Endpoint: fmt.Sprintf("there:%d", 2*round+1)},
						commands.RelocateProvider{Provider: "pg-beta", To: "beta", Endpoint: fmt.Sprintf("there:%d", 2*round+2)},
						commands.MoveAssignment{Assignment: fmt.Sprintf("a-%d", round), To: "beta"},
						commands.MoveAssignment{Assignment: fmt.Sprintf("b-%d", round), To: "alpha"},
						commands.EndAssignment{Assignment: fmt.Sprintf("a-%d", 10+round)})
					w.stop()
					w.start()
					w.do(commands.EndAssignment{Assignment: fmt.Sprintf("b-%d", 10+round)},
						commands.MoveAssignment{Assignment: fmt.Sprintf("r%d-0", round), To: "beta"})
					if n := m.until(w, h, o.Filter.Node); n == 0 {
						t.Error("nothing was told")
					}
				}
			})
		}
	}
}

// 10,000 bindings that change at one sequence are told once each, whole, and a
// subscriber that is slow is told no less.
func TestKVMany(t *testing.T) {
	t.Parallel()
	w := newKept(t, true)
	w.furnish()
	const n = 2500
	w.assign("a", "alpha", n)
	w.follow()
	slow := 0
	caught := make(chan bool, 1)
	h := listen(KV(t.Context(), w.dial(), "home", Options{}), func(i Item) {
		if i.CaughtUp {
			caught <- true
		}
		if slow++; slow == 100 {
			time.Sleep(2 * time.Second)
		}
	})
	<-caught
	for round := range 4 {
		r := w.do(commands.RelocateProvider{Provider: "pg-alpha", To: []string{"beta", "alpha"}[round%2], Endpoint: fmt.Sprintf("there:%d", round+1)})
		seen := map[events.ID]bool{}
		for _, c := range h.take(t, n) {
			if c.Kind != projections.ChangeRelocated || c.Seq != r.Seq || seen[c.Binding] {
				t.Fatalf("round %d: %s %s at %d, told before: %v", round, c.Kind, c.Binding, c.Seq, seen[c.Binding])
			}
			seen[c.Binding] = true
		}
	}
	select {
	case c := <-h.changes:
		t.Errorf("more: %+v", c)
	case <-time.After(500 * time.Millisecond):
	}
}

// Who goes on with a cursor is told of what may have changed since, and of what is
// gone.
func TestKVGoesOn(t *testing.T) {
	t.Parallel()
	w := newKept(t, false)
	w.furnish()
	w.assign("a", "alpha", 5)
	w.follow()
	nc := w.dial()
	var at Cursor
	docs := map[events.ID]projections.BindingDocument{}
	for item, err := range KV(t.Context(), nc, "home", Options{Initial: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Document != nil {
			docs[*item.Document.ID] = *item.Document
		}
		if at = item.Cursor; item.CaughtUp {
			break
		}
	}
	w.do(commands.RenameAssignment{Assignment: "a-1", To: "renamed"}, commands.EndAssignment{Assignment: "a-2"})
	w.assign("b", "alpha", 1)
	w.follow()
	kinds := map[projections.ChangeKind]int{}
	for item, err := range KV(t.Context(), nc, "home", Options{Cursor: &at}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.CaughtUp {
			if item.Cursor.Seq < w.seq()-1 {
				t.Errorf("the cursor is %d", item.Cursor.Seq)
			}
			break
		}
		kinds[item.Change.Kind]++
		if item.Change.Document == nil {
			delete(docs, item.Change.Binding)
		} else {
			docs[item.Change.Binding] = *item.Change.Document
		}
	}
	if diff := w.is(docs, events.ID{}); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if kinds[projections.ChangeGone] != 1 || kinds[projections.ChangeOther] < 2 {
		t.Errorf("%v", kinds)
	}
	for _, err := range KV(t.Context(), nc, "home", Options{From: 3}) {
		if !errors.Is(err, ErrNoPast) {
			t.Errorf("from a sequence: %v", err)
		}
	}
}

// What is older than what was told under a key is left out.
func TestKVOlder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish()
	w.assign("a", "alpha", 1)
	b, err := ledger.OpenBucket(t.Context(), w.nc, ledger.BucketConfig{Name: readmodel.Bindings("home")})
	w.must(err)
	var doc projections.BindingDocument
	w.h.View(func(s *projections.State) { doc = s.BindingDocument(1) })
	revision := uint64(0)
	put := func(at uint64, endpoint string) {
		d := doc
		d.At, d.Endpoint = at, endpoint
		data, err := json.Marshal(&d)
		w.must(err)
		revision, err = b.Write(t.Context(), []ledger.Entry{{Key: d.Key(), Value: data, Revision: revision,
			Header: nats.Header{readmodel.HeaderAt: {fmt.Sprint(at)}, readmodel.HeaderChain: {d.Chain}}}})
		w.must(err)
	}
	put(20, "there:1")
	_, err = b.Write(t.Context(), []ledger.Entry{{Key: readmodel.WholeKey, Value: []byte("{}")}})
	w.must(err)
	caught := make(chan bool, 1)
	h := listen(KV(t.Context(), w.dial(), "home", Options{}), func(i Item) {
		if i.CaughtUp {
			caught <- true
		}
	})
	<-caught
	told := func(seq uint64, from, to string) { // before the next is put: a bucket keeps the last one alone
		t.Helper()
		if c := h.take(t, 1)[0]; c.Kind != projections.ChangeEndpoint || c.Seq != seq || c.From != from || c.To != to {
			t.Errorf("%+v", c)
		}
	}
	put(19, "there:0")
	put(21, "there:2")
	told(21, "there:1", "there:2")
	put(20, "there:3")
	put(22, "there:2") // it says what it said
	put(23, "there:4")
	told(23, "there:2", "there:4")
}

// An agent of a node reads the documents of its node with the rights of its grant,
// and of no other.
func TestKVOfAnAgent(t *testing.T) {
	t.Parallel()
	w := newKept(t, true)
	key, err := ledger.NewKey()
	w.must(err)
	w.stop()
	w.users = []ledger.User{{Key: key.Public}}
	w.start()
	w.furnish()
	w.assign("a", "alpha", 3)
	w.assign("b", "beta", 3)
	w.follow()
	who := service.Caller{Mesh: "home", Key: key.Public, Role: events.RoleAgent, Node: w.node("alpha")}
	w.must(w.srv.SetUsers([]ledger.User{who.User()}))
	nc, err := nats.Connect(w.srv.URL(), key.Option(), nats.CustomInboxPrefix(service.InboxOf(key.Public)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Log(err) }))
	w.must(err)
	defer nc.Close()
	caught := make(chan int, 1)
	n := 0
	h := listen(KV(t.Context(), nc, "home", Options{Initial: true, Filter: projections.DocumentFilter{Node: w.node("alpha")}}), func(i Item) {
		if i.Document != nil {
			n++
		}
		if i.CaughtUp {
			caught <- n
		}
	})
	if n := <-caught; n != 3 {
		t.Errorf("%d documents", n)
	}
	w.do(commands.MoveAssignment{Assignment: "b-0", To: "alpha"}, commands.MoveAssignment{Assignment: "a-0", To: "beta"})
	kinds := map[projections.ChangeKind]int{}
	for _, c := range h.take(t, 2) {
		kinds[c.Kind]++
	}
	if kinds[projections.ChangeGone] != 1 || kinds[projections.ChangeMoved] != 1 {
		t.Errorf("%v", kinds)
	}
	other := listen(KV(t.Context(), nc, "home", Options{Filter: projections.DocumentFilter{Node: w.node("beta")}}), nil)
	if err := other.ends(t); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the documents of another node: %v", err)
	}
}

// A ledger that was restored is told of, whether its writer is asked or not.
func TestKVRestored(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprintf("asked=%v", asked), func(t *testing.T) {
			t.Parallel()
			w := newKept(t, false)
			w.furnish()
			w.assign("a", "alpha", 5)
			w.follow()
			w.stop()
			saved := t.TempDir()
			copyStore(t, w.dir, saved)
			w.start()
			w.do(commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "there:1"})
			w.follow()
			var o Options
			if asked {
				o.Check = func(ctx context.Context, c Cursor) error {
					records, err := w.log.Get(ctx, c.Seq, c.Seq)
					var none *ledger.NotFoundError
					if errors.As(err, &none) || err == nil && !bytes.Equal([]byte(records[0].Get(events.HeaderChain)), []byte(c.Chain)) {
						return commands.Restored("another ledger", "so it is")
					}
					return err
				}
			}
			caught := make(chan bool, 1)
			h := listen(KV(t.Context(), w.dial(), "home", o), func(i Item) {
				if i.CaughtUp {
					caught <- true
				}
			})
			<-caught
			w.stop()
			copyStore(t, saved, w.dir)
			w.start()
			var r *RestoredError
			if err := h.ends(t); !errors.As(err, &r) {
				t.Errorf("%v", err)
			}
		})
	}
}

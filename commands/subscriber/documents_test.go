package subscriber

import (
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

// on are the options for a node.
func (w *world) on(node string) Options {
	return Options{Filter: projections.DocumentFilter{Node: w.node(node)}}
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

// Whoever listens to a node has its documents, through restarts of the server that
// keep the buckets or lose them, and is told nothing that is not so.
func TestDocumentsOverRestarts(t *testing.T) {
	t.Parallel()
	for _, memory := range []bool{false, true} {
		t.Run(fmt.Sprintf("memory=%v", memory), func(t *testing.T) {
			t.Parallel()
			w := newKept(t, memory)
			w.furnish()
			w.assign("a", "alpha", 20)
			w.assign("b", "beta", 20)
			o := w.on("alpha")
			o.Initial = true
			m := newMirror(t)
			caught := make(chan bool, 1)
			h := listen(Documents(t.Context(), w.client(), o), func(i Item) {
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

// 10,000 bindings that change at one sequence are told once each, whole, and a
// subscriber that is slow is told no less.
func TestDocumentsMany(t *testing.T) {
	t.Parallel()
	w := newKept(t, true)
	w.furnish()
	const n = 2500
	w.assign("a", "alpha", n)
	w.follow()
	slow := 0
	caught := make(chan bool, 1)
	h := listen(Documents(t.Context(), w.client(), w.on("alpha")), func(i Item) {
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
// gone; of nothing else, where the server still knows.
func TestDocumentsGoOn(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%v", restarted), func(t *testing.T) {
			t.Parallel()
			w := newKept(t, true)
			w.furnish()
			w.assign("a", "alpha", 5)
			client, o := w.client(), w.on("alpha")
			var at Cursor
			docs := map[events.ID]projections.BindingDocument{}
			o.Initial = true
			for item, err := range Documents(t.Context(), client, o) {
				w.must(err)
				if item.Document != nil {
					docs[*item.Document.ID] = *item.Document
				}
				if at = item.Cursor; item.CaughtUp {
					break
				}
			}
			gone := events.ID{}
			for id, d := range docs {
				if d.Assignment == "a-2" {
					gone = id
				}
			}
			w.do(commands.RenameAssignment{Assignment: "a-1", To: "renamed"}, commands.EndAssignment{Assignment: "a-2"})
			w.assign("b", "alpha", 1)
			if restarted {
				w.stop()
				w.start()
				delete(docs, gone) // nobody can tell of it
			}
			kinds := map[projections.ChangeKind]int{}
			o.Cursor = &at
			for item, err := range Documents(t.Context(), client, o) {
				w.must(err)
				if item.CaughtUp {
					if item.Cursor.Seq != w.seq() {
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
			if diff := w.is(docs, o.Filter.Node); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			want := map[projections.ChangeKind]int{projections.ChangeGone: 1, projections.ChangeOther: 2}
			if restarted {
				want = map[projections.ChangeKind]int{projections.ChangeOther: 5}
			}
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is asked for wrongly is an error, and waits for nobody.
func TestDocumentsOptions(t *testing.T) {
	t.Parallel()
	w := newKept(t, true)
	w.furnish()
	o := w.on("alpha")
	o.From = 3
	if err := listen(Documents(t.Context(), w.client(), o), nil).ends(t); !errors.Is(err, ErrNoPast) {
		t.Errorf("from a sequence: %v", err)
	}
	if err := listen(Documents(t.Context(), w.client(), Options{}), nil).ends(t); !errors.Is(err, ErrNoNode) {
		t.Errorf("of no node: %v", err)
	}
	unknown := Options{Filter: projections.DocumentFilter{Node: events.ID{1}}}
	if err := listen(Documents(t.Context(), w.client(), unknown), nil).ends(t); service.AsRefusal(err).Code != commands.NodeNotFound {
		t.Errorf("of a node that is not there: %v", err)
	}
	if err := listen(Documents(t.Context(), w.clientOf(w.dial(), "away"), o), nil).ends(t); err == nil {
		t.Error("a mesh that is not there is watched")
	}
}

// as asks as the owner of a new key, who is granted a role or nothing.
func (w *world) as(name string, role events.Role, node string) *service.Client {
	w.t.Helper()
	key, err := ledger.NewKey()
	w.must(err)
	if role != "" {
		w.do(commands.GrantAccess{Name: name, Role: role, Node: node, NKey: key.Public})
	}
	w.keys = append(w.keys, key.Public)
	guests := make([]ledger.Guest, len(w.keys))
	for i, key := range w.keys {
		guests[i] = service.GuestOf("home", key)
	}
	w.must(w.srv.SetGuests(guests))
	w.must(w.svc.Admit(w.keys))
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", w.port), key.Option(), nats.CustomInboxPrefix(service.InboxOf(key.Public)))
	w.must(err)
	w.t.Cleanup(nc.Close)
	return w.clientOf(nc, "home").SignWith(key, w.svc.Identity())
}

// Kind: who may not read waits for ever, or is told all the same. An agent is told of
// its node and nothing else; an operator and an auditor of everything; a key that is
// granted nothing of nothing.
func TestWhoIsTold(t *testing.T) {
	t.Parallel()
	w := newKept(t, true)
	w.stop()
	w.door, w.users = service.Door{Signed: true}, []ledger.User{}
	w.start()
	w.furnish()
	w.assign("a", "alpha", 3)
	w.assign("b", "beta", 3)
	operator, auditor := w.as("root", events.RoleOperator, ""), w.as("eye", events.RoleAuditor, "")
	agent, stranger := w.as("hand", events.RoleAgent, "alpha"), w.as("", "", "")

	initially := func(items func(func(Item, error) bool)) (n int) {
		t.Helper()
		for item, err := range items {
			w.must(err)
			if item.CaughtUp {
				return n
			}
			n++
		}
		return n
	}
	alpha, beta := w.on("alpha"), w.on("beta")
	alpha.Initial, beta.Initial = true, true
	for name, c := range map[string]*service.Client{"operator": operator, "auditor": auditor} {
		if n := initially(Stream(t.Context(), c, Options{Initial: true})); n != 6 {
			t.Errorf("an %s is told of %d", name, n)
		}
		if n := initially(Documents(t.Context(), c, beta)); n != 3 {
			t.Errorf("an %s is told of %d on beta", name, n)
		}
	}
	refused := func(what string, items func(func(Item, error) bool)) {
		t.Helper()
		if err := listen(items, nil).ends(t); service.AsRefusal(err).Code != commands.NotPermitted {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("the ledger, to an agent", Stream(t.Context(), agent, Options{Initial: true}))
	refused("another node, to an agent", Documents(t.Context(), agent, beta))
	refused("the ledger, to a stranger", Stream(t.Context(), stranger, Options{Initial: true}))
	refused("a node, to a stranger", Documents(t.Context(), stranger, beta))

	caught, n := make(chan int, 1), 0
	h := listen(Documents(t.Context(), agent, alpha), func(i Item) {
		if i.Document != nil {
			n++
		}
		if i.CaughtUp {
			caught <- n
		}
	})
	if n := <-caught; n != 3 {
		t.Errorf("the agent is told of %d", n)
	}
	w.do(commands.MoveAssignment{Assignment: "b-0", To: "alpha"}, commands.MoveAssignment{Assignment: "a-0", To: "beta"})
	kinds := map[projections.ChangeKind]int{}
	for _, c := range h.take(t, 2) {
		kinds[c.Kind]++
	}
	if kinds[projections.ChangeGone] != 1 || kinds[projections.ChangeMoved] != 1 {
		t.Errorf("%v", kinds)
	}
	// Who is let in no more is told so, whether it waits or asks.
	w.do(commands.RevokeAccess{Name: "hand"}, commands.MoveAssignment{Assignment: "b-1", To: "alpha"})
	if err := h.ends(t); service.AsRefusal(err).Code != commands.NotPermitted {
		t.Errorf("an agent that was revoked: %v", err)
	}
}

// A ledger that was restored is told of, whatever it says by now, to who waits and to
// who comes with a cursor.
func TestDocumentsRestored(t *testing.T) {
	t.Parallel()
	for _, later := range []int{0, 1, 10} {
		t.Run(fmt.Sprintf("%d later", later), func(t *testing.T) {
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
			o := w.on("alpha")
			caught := make(chan Cursor, 1)
			h := listen(Documents(t.Context(), w.client(), o), func(i Item) {
				if i.CaughtUp {
					caught <- i.Cursor
				}
			})
			at := <-caught
			w.stop()
			copyStore(t, saved, w.dir)
			w.start()
			w.assign("b", "alpha", later)
			var r *RestoredError
			if err := h.ends(t); !errors.As(err, &r) {
				t.Errorf("who waits: %v", err)
			}
			o.Cursor = &at
			if err := listen(Documents(t.Context(), w.client(), o), nil).ends(t); !errors.As(err, &r) || r.Cursor != at {
				t.Errorf("who comes with a cursor: %v", err)
			}
		})
	}
}

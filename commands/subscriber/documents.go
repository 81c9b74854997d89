package subscriber

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands/service"
	"bindery/events"
	"bindery/projections"
)

// ErrNoNode is what Documents says where the filter names no node.
var ErrNoNode = errors.New("the documents are those of one node: the filter must name it")

// Documents tells what changes from the documents of the filter's node, which the
// ledger's writer answers with.
//
// The iterator ends with an error: ctx's; nats.ErrConnectionClosed where the
// connection is closed for good; a *RestoredError; or a *commands.Refusal that does
// not pass, with not_permitted where the client's key may not read the documents of
// the node. At the beginning it also ends where nobody answers.
func Documents(ctx context.Context, client *service.Client, o Options) iter.Seq2[Item, error] {
	return sequence(func(yield func(Item) error) error {
		switch {
		case o.From > 0:
			return ErrNoPast
		case o.Filter.Node.IsZero():
			return ErrNoNode
		}
		w := &watch{client: client, o: o, yield: yield, known: map[events.ID]*projections.BindingDocument{}}
		return w.run(ctx)
	})
}

// watch is one run of Documents.
type watch struct {
	client *service.Client
	o      Options
	yield  func(Item) error

	known map[events.ID]*projections.BindingDocument // by binding
	high  Cursor                                     // up to where it was told
}

// waiting is how long one question waits for a change.
const waiting = 20 * time.Second

func (w *watch) run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	for try := 0; ; {
		turn, cancel := context.WithTimeout(ctx, waiting+opening)
		d, err := w.since(turn, w.high, waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case w.client.Closed():
			return nats.ErrConnectionClosed
		case err != nil && !service.Passes(err):
			return err
		case err != nil:
			if err := pause(ctx, w.client, try); err != nil {
				return err
			}
			try++
			continue
		}
		try = 0
		if err := w.take(&d); err != nil {
			return err
		}
	}
}

// begin takes what is there, and with a cursor tells of what may have changed since.
func (w *watch) begin(ctx context.Context) error {
	var all, since service.Documents
	err := insist(ctx, w.client, func(ctx context.Context) (err error) {
		if all, err = w.client.Documents(ctx, w.query()); err == nil && w.o.Cursor != nil {
			// It is asked last: what changed between the two questions is in the answer.
			since, err = w.since(ctx, *w.o.Cursor, 0)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, k := range all.Bindings {
		w.known[*k.Document.ID] = k.Document
	}
	w.reach(&all)
	switch {
	case w.o.Cursor != nil:
		err = w.goOn(&since)
	case w.o.Initial:
		err = w.initial()
	}
	if err != nil {
		return err
	}
	return w.yield(Item{CaughtUp: true, Seq: w.high.Seq, Cursor: w.high})
}

// query asks for everything that is wanted of the node.
func (w *watch) query() service.DocumentsQuery {
	q := service.DocumentsQuery{Node: w.o.Filter.Node.String()}
	if len(w.o.Filter.Bindings) == 1 {
		q.Binding = w.o.Filter.Bindings[0]
	}
	return q
}

// since asks for what changed after a place.
func (w *watch) since(ctx context.Context, at Cursor, wait time.Duration) (service.Documents, error) {
	q := w.query()
	q.After, q.Chain, q.Wait = at.Seq, at.Chain, int(wait/time.Millisecond)
	d, err := w.client.Documents(ctx, q)
	if err == nil && at.Seq > 0 && d.MeshID != at.MeshID {
		err = &RestoredError{at, "the ledger's mesh has the id " + d.MeshID.String()}
	}
	return d, restored(at, err)
}

// reach notes up to where an answer tells.
func (w *watch) reach(d *service.Documents) {
	if d.Seq >= w.high.Seq {
		w.high = cursorAt(d.MeshID, d.Seq, d.Chain)
	}
}

// initial tells of the documents there are, by id of their bindings.
func (w *watch) initial() error {
	var docs []*projections.BindingDocument
	for _, d := range w.known {
		if w.o.Filter.Keeps(d) {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(x, y *projections.BindingDocument) int { return bytes.Compare(x.ID[:], y.ID[:]) })
	for _, d := range docs {
		if err := w.yield(Item{Document: d, Seq: d.At}); err != nil {
			return err
		}
	}
	return nil
}

// goOn tells of what may have changed since the cursor. Nobody knows what it was
// before.
func (w *watch) goOn(d *service.Documents) error {
	w.reach(d)
	told := w.news(d)
	var changes []projections.Change
	for _, n := range told {
		o := w.occasion(&n, d)
		switch {
		case n.doc == nil:
			delete(w.known, n.binding)
			if w.o.Filter.Provider.IsZero() && w.wants(n.binding) { // else nobody knows whose it was
				changes = append(changes, projections.Change{Kind: projections.ChangeGone, Seq: o.At, Time: o.Time, Chain: o.Chain,
					Mesh: o.Mesh, MeshID: o.MeshID, Binding: n.binding, NodeID: w.o.Filter.Node})
			}
		default:
			w.known[n.binding] = n.doc
			if w.o.Filter.Keeps(n.doc) {
				changes = append(changes, projections.ChangedSince(n.doc, &o))
			}
		}
	}
	return w.tell(changes)
}

// wants reports whether a binding is one that the filter names, if it names any.
func (w *watch) wants(binding events.ID) bool {
	return w.o.Filter.Bindings == nil || slices.Contains(w.o.Filter.Bindings, binding)
}

// take tells what an answer changed.
func (w *watch) take(d *service.Documents) error {
	w.reach(d)
	var changes []projections.Change
	for _, n := range w.news(d) {
		before := w.known[n.binding]
		if n.doc == nil {
			delete(w.known, n.binding)
		} else {
			w.known[n.binding] = n.doc
		}
		if !w.o.Filter.Keeps(before) && !w.o.Filter.Keeps(n.doc) {
			continue
		}
		o := w.occasion(&n, d)
		changes = append(changes, projections.Changes(before, n.doc, &o)...)
	}
	return w.tell(changes)
}

// news is what an answer says of one binding.
type news struct {
	binding events.ID
	doc     *projections.BindingDocument // nil: it is gone from the node
	at      uint64
}

// news lists what an answer says: in the order of the sequences in it, and those of
// one sequence by id of the binding.
func (w *watch) news(d *service.Documents) (out []news) {
	listed := map[events.ID]bool{}
	for _, k := range d.Bindings {
		n := news{doc: k.Document, at: d.Seq}
		if k.Document != nil {
			n.binding, n.at = *k.Document.ID, k.Document.At
		} else if _, binding, ok := parseKey(k.Key); ok {
			n.binding = binding
		}
		if listed[n.binding] = true; !n.binding.IsZero() {
			out = append(out, n)
		}
	}
	if d.All {
		for binding := range w.known {
			if !listed[binding] {
				out = append(out, news{binding: binding, at: d.Seq})
			}
		}
	}
	slices.SortFunc(out, func(x, y news) int {
		return cmp.Or(cmp.Compare(x.at, y.at), bytes.Compare(x.binding[:], y.binding[:]))
	})
	return out
}

// occasion is what is known of a change beside the document.
func (w *watch) occasion(n *news, d *service.Documents) projections.Occasion {
	o := projections.Occasion{Stamp: projections.Stamp{Mesh: d.Mesh, MeshID: d.MeshID, At: d.Seq, Chain: d.Chain},
		Time: time.Now().UTC(), Narrow: true}
	if n.doc != nil {
		o.Stamp = n.doc.Stamp
	}
	return o
}

// tell yields changes. What to keep comes with the last one: with it, everything from
// there on comes again.
func (w *watch) tell(changes []projections.Change) error {
	for i := range changes {
		item := Item{Change: &changes[i], Seq: changes[i].Seq}
		if i == len(changes)-1 {
			item.Cursor = w.high
		}
		if err := w.yield(item); err != nil {
			return err
		}
	}
	return nil
}

// parseKey reads a key of a binding's document: <node id>.<binding id>.
func parseKey(key string) (node, binding events.ID, ok bool) {
	if len(key) != 53 || key[26] != '.' {
		return node, binding, false
	}
	node, err := events.ParseID(key[:26])
	if err != nil {
		return node, binding, false
	}
	binding, err = events.ParseID(key[27:])
	return node, binding, err == nil
}

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
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// KV tells what changes from the bucket of documents: those of the filter's node,
// or all. It waits for a bucket that is not there yet.
//
// The iterator ends with an error: ctx's; nats.ErrConnectionClosed where the
// connection is closed for good; a *RestoredError; or one of the server's that will
// not pass, as where the connection may not read the node's keys.
func KV(ctx context.Context, nc *nats.Conn, mesh string, o Options) iter.Seq2[Item, error] {
	return sequence(func(yield func(Item) error) error {
		if o.From > 0 {
			return ErrNoPast
		}
		w := &watch{nc: nc, mesh: mesh, o: o, yield: yield, known: map[string]*entry{}}
		return w.run(ctx)
	})
}

// watch is one run of KV.
type watch struct {
	nc    *nats.Conn
	mesh  string
	o     Options
	yield func(Item) error

	known map[string]*entry // by binding (message.binding)
	high  Cursor            // the highest sequence seen in a document
	begun bool              // what was there at first has come

	behind int // looks in a row that found what is older than what is known
}

// entry is what is known of a binding.
type entry struct {
	key  string                       // its document's, the last one
	doc  *projections.BindingDocument // nil: it is deleted
	at   uint64
	seen bool // at the present look at everything
}

// Bounds of what is waited for.
const (
	// look is how often a new connection is looked for while nothing comes.
	look = 200 * time.Millisecond
	// opening is how long one question to the server may take.
	opening = 5 * time.Second
	// silences is how many questions in a row may go unanswered at first.
	silences = 2
	// maxBehind is how many looks in a row may find what is older than what is known.
	maxBehind = 8
)

func (w *watch) run(ctx context.Context) error {
	if w.o.Cursor != nil {
		w.high = *w.o.Cursor
	}
	status := w.nc.StatusChanged(nats.CONNECTED)
	defer w.nc.RemoveStatusListener(status)
	for try := 0; ; try++ {
		began := time.Now()
		err := w.session(ctx, status)
		switch {
		case ctx.Err() != nil && !errors.Is(err, errStop):
			return context.Cause(ctx)
		case errors.Is(err, errStop), isRestored(err), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			return err
		case !w.begun && errors.Is(err, context.DeadlineExceeded) && (try >= silences || errors.Is(w.nc.LastError(), nats.ErrPermissionViolation)):
			return err // it may not ask, or nobody is there to answer
		}
		if w.begun && time.Since(began) > lastPause {
			try = 0
		}
		if err := pause(ctx, w.nc, try); err != nil {
			return err
		}
	}
}

// errAgain ends a session that may have missed something.
var errAgain = errors.New("looking at everything again")

// session looks at everything and goes on with what comes, until something may
// have been missed.
func (w *watch) session(ctx context.Context, status <-chan nats.Status) error {
	for len(status) > 0 {
		<-status
	}
	if err := w.check(ctx); err != nil {
		return err
	}
	if err := w.whole(ctx, status); err != nil {
		return err
	}
	f, err := w.open(ctx, w.keys())
	if err != nil {
		return err
	}
	defer f.Close()
	if err := w.all(ctx, f); err != nil {
		return err
	}
	for {
		m, err := f.take(ctx, look)
		switch {
		case err == nil && !m.whole():
			if err := w.take(m); err != nil {
				return err
			}
		case err == nil:
		case !errors.Is(err, ledger.ErrFeedNothing):
			return err
		case len(status) > 0:
			return errAgain
		}
	}
}

// whole waits until the bucket says that all documents are in it: one in memory is
// empty when its server starts.
func (w *watch) whole(ctx context.Context, status <-chan nats.Status) error {
	f, err := w.open(ctx, readmodel.WholeKey)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		_, err := f.take(ctx, look)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ledger.ErrFeedNothing):
			return err
		case len(status) > 0:
			return errAgain
		}
	}
}

// keys are those whose documents are wanted.
func (w *watch) keys() string {
	if node := w.o.Filter.Node; !node.IsZero() {
		return node.String() + ".>"
	}
	return ">"
}

// check asks the writer whether the ledger is the one that was read.
func (w *watch) check(ctx context.Context) error {
	if w.o.Check == nil || w.high.Seq == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	return restored(w.high, w.o.Check(ctx, w.high))
}

// all takes what is there: in the order of the sequences in it.
func (w *watch) all(ctx context.Context, f feed) error {
	for _, e := range w.known {
		e.seen = false
	}
	there, err := w.collect(ctx, f)
	if err != nil {
		return err
	}
	// A document that moved to another node is put there before it is deleted here.
	slices.SortStableFunc(there, func(x, y message) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.deletes(), y.deletes()), cmp.Compare(x.key, y.key))
	})
	first := !w.begun
	lives := map[string]bool{}
	for _, m := range there {
		lives[m.binding()] = lives[m.binding()] || m.doc != nil
	}
	for _, m := range there {
		var err error
		switch {
		case m.doc == nil && lives[m.binding()]: // it is elsewhere
		case first:
			err = w.first(m)
		default:
			err = w.take(m)
		}
		if err != nil {
			return err
		}
		if e := w.known[m.binding()]; e != nil {
			e.seen = true
		}
	}
	if !first {
		return w.missing()
	}
	w.begun = true
	if w.o.Initial && w.o.Cursor == nil {
		if err := w.initial(); err != nil {
			return err
		}
	}
	return w.yield(Item{CaughtUp: true, Seq: w.high.Seq, Cursor: w.high})
}

// collect waits for what was there when the consumer was made.
func (w *watch) collect(ctx context.Context, f feed) (there []message, err error) {
	older := false
	for left := f.Pending; left > 0; left-- {
		m, err := f.take(ctx, opening)
		if err != nil {
			return nil, err
		}
		if !m.whole() {
			there = append(there, m)
			e := w.known[m.binding()]
			older = older || e != nil && m.doc != nil && m.at < e.at
		}
		if m.left == 0 {
			left = 1 // some were written over meanwhile
		}
	}
	if !older {
		w.behind = 0
		return there, nil
	}
	// A replica that lags has what is older, for a while; so has a ledger that was
	// restored, for good.
	if w.behind++; w.behind > maxBehind {
		return nil, &RestoredError{w.high, "the documents are older than those that were read"}
	}
	return nil, errAgain
}

// initial tells of the documents there are, by id of their bindings.
func (w *watch) initial() error {
	var docs []*projections.BindingDocument
	for _, e := range w.known {
		if w.o.Filter.Keeps(e.doc) {
			docs = append(docs, e.doc)
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

// first notes what is there at first. With a cursor it tells of what may have
// changed since.
func (w *watch) first(m message) error {
	if err := w.ours(m); err != nil {
		return err
	}
	w.note(m)
	c := w.o.Cursor
	if c == nil || m.at < c.Seq {
		return nil
	}
	o := w.occasion(m)
	if m.doc != nil {
		if !w.o.Filter.Keeps(m.doc) {
			return nil
		}
		return w.tell([]projections.Change{projections.ChangedSince(m.doc, &o)}, m)
	}
	node, binding, ok := parseKey(m.key)
	if !ok || !w.o.Filter.Provider.IsZero() || w.o.Filter.Bindings != nil && !slices.Contains(w.o.Filter.Bindings, binding) {
		return nil // whose it was, nobody knows any more
	}
	return w.tell([]projections.Change{{Kind: projections.ChangeGone, Seq: m.at, Time: m.time, Chain: m.chain, Mesh: w.mesh, MeshID: w.high.MeshID,
		Binding: binding, NodeID: node}}, m)
}

// take tells what a message changed.
func (w *watch) take(m message) error {
	if err := w.ours(m); err != nil {
		return err
	}
	was := w.known[m.binding()]
	if was != nil && (m.at < was.at || m.doc == nil && m.key != was.key) {
		return nil // an older state, or the place that it has left
	}
	o := w.occasion(m)
	var before *projections.BindingDocument
	if was != nil {
		before = was.doc
	}
	w.note(m)
	if !w.o.Filter.Keeps(before) && !w.o.Filter.Keeps(m.doc) {
		return nil
	}
	return w.tell(projections.Changes(before, m.doc, &o), m)
}

// missing takes for gone what was not there at the last look at everything.
func (w *watch) missing() error {
	var lost []message
	for binding, e := range w.known {
		switch {
		case e.seen:
		case e.doc == nil:
			delete(w.known, binding) // so is the mark of its deletion
		default:
			lost = append(lost, message{key: e.key, at: max(e.at, w.high.Seq), chain: w.high.Chain, time: time.Now().UTC()})
		}
	}
	slices.SortFunc(lost, func(x, y message) int { return cmp.Compare(x.key, y.key) })
	for _, m := range lost {
		if err := w.take(m); err != nil {
			return err
		}
	}
	return nil
}

// ours refuses what is of another ledger.
func (w *watch) ours(m message) error {
	if m.doc == nil || w.high.Seq == 0 {
		return nil
	}
	if m.doc.MeshID != w.high.MeshID {
		return &RestoredError{w.high, "a document is of the mesh with the id " + m.doc.MeshID.String()}
	}
	if m.at == w.high.Seq && m.chain != w.high.Chain {
		return &RestoredError{w.high, "a document has the chain value " + m.chain}
	}
	return nil
}

// note keeps what a message says.
func (w *watch) note(m message) {
	w.known[m.binding()] = &entry{key: m.key, doc: m.doc, at: m.at, seen: true}
	if m.at < w.high.Seq {
		return
	}
	mesh := w.high.MeshID
	if m.doc != nil {
		mesh = m.doc.MeshID
	}
	w.high = cursorAt(mesh, m.at, m.chain)
}

// occasion is what is known of a message beside the document.
func (w *watch) occasion(m message) projections.Occasion {
	o := projections.Occasion{Stamp: projections.Stamp{Mesh: w.mesh, MeshID: w.high.MeshID, At: m.at, Chain: m.chain},
		Time: m.time, Narrow: !w.o.Filter.Node.IsZero()}
	if m.doc != nil {
		o.Stamp = m.doc.Stamp
	}
	return o
}

// tell yields what a message changed. Its cursor is that of the last change: with
// it, everything from there on comes again.
func (w *watch) tell(changes []projections.Change, m message) error {
	for i := range changes {
		item := Item{Change: &changes[i], Seq: m.at}
		if i == len(changes)-1 {
			item.Cursor = w.high
		}
		if err := w.yield(item); err != nil {
			return err
		}
	}
	return nil
}

// parseKey reads a key of the bucket: <node id>.<binding id>.
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

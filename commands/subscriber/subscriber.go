package subscriber

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/projections"
)

// Cursor is a place in the ledger up to which somebody has handled what came.
type Cursor = service.Cursor

// Options say what is wanted, and from where on.
type Options struct {
	// Filter narrows whose documents and changes come. For Documents it names a node;
	// for Stream the zero one gives all.
	Filter projections.DocumentFilter
	// Cursor goes on after what was handled. It comes before From and Initial.
	Cursor *Cursor
	// From is the first sequence whose changes are wanted; 0, or one that the ledger
	// has not reached: what comes next. Only the stream has a past.
	From uint64
	// Initial asks for the documents first, as they are before the first change.
	Initial bool
}

// Item is one thing that comes: a document, the mark, or a change.
type Item struct {
	// Document is what is there before the first change.
	Document *projections.BindingDocument
	// CaughtUp marks the end of what was there when the iterator began: all that
	// follows is new. It comes once.
	CaughtUp bool
	// Change is what became different.
	Change *projections.Change
	// Seq is the ledger's sequence that the item is of.
	Seq uint64
	// Cursor is what to keep once this item is handled. Where its Seq is 0 there is
	// nothing to keep yet: the command goes on.
	Cursor Cursor
}

// RestoredError says that the ledger is not the one that was read: it was restored
// to an earlier state, or is another one. Whoever goes on must read what is there
// anew.
type RestoredError struct {
	Cursor Cursor // what was read
	Why    string
}

func (e *RestoredError) Error() string {
	return fmt.Sprintf("sequence %d is not what was read there: %s: the ledger was restored to an earlier state, or is another one", e.Cursor.Seq, e.Why)
}

// ErrNoPast is what Documents says where a sequence to begin at is given.
var ErrNoPast = errors.New("documents have no past: a sequence to begin at needs the ledger")

// errStop: whoever iterates wants no more.
var errStop = errors.New("stopped")

// sequence makes an iterator of something that runs until its yield says false,
// with errStop, or an error ends it, which is the last thing that comes.
func sequence(run func(yield func(Item) error) error) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		err := run(func(i Item) error {
			if !yield(i, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(Item{}, err)
		}
	}
}

// restored makes a RestoredError of a refusal that says so; other errors stay.
func restored(at Cursor, err error) error {
	var r *commands.Refusal
	if errors.As(err, &r) && r.Code == commands.LedgerRestored {
		return &RestoredError{Cursor: at, Why: r.Why}
	}
	return err
}

// Pauses between tries of what failed and may not fail again; they double.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// pause waits before try number n from 0, or returns why to wait no longer.
func pause(ctx context.Context, client *service.Client, n int) error {
	if client.Closed() {
		return nats.ErrConnectionClosed
	}
	t := time.NewTimer(min(firstPause<<min(n, 8), lastPause))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

const (
	// opening is how long one question at the beginning may take, and how much longer
	// than its wait any other.
	opening = 15 * time.Second
	// openings is how many such questions in a row may fail.
	openings = 3
)

// insist asks a question at the beginning: a few times where it may be answered at the
// next try.
func insist(ctx context.Context, client *service.Client, ask func(context.Context) error) error {
	for try := 0; ; try++ {
		turn, cancel := context.WithTimeout(ctx, opening)
		err := ask(turn)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case client.Closed():
			return nats.ErrConnectionClosed
		case try+1 >= openings || !service.Passes(err):
			return err
		}
		if err := pause(ctx, client, try); err != nil {
			return err
		}
	}
}

// cursorAt is the cursor at a place.
func cursorAt(mesh events.ID, seq uint64, chain string) Cursor {
	return Cursor{MeshID: mesh, Seq: seq, Chain: chain}
}

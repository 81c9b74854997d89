package subscriber

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Stream tells what changes from the ledger itself. It begins by folding the ledger up
// to where it is to start, which takes seconds for some hundred thousand events.
//
// The iterator ends with an error: ctx's; nats.ErrConnectionClosed where the
// connection is closed for good (go on with the cursor on another one); a
// *RestoredError; a *commands.Refusal, with not_permitted where the client's key may
// not read the ledger, and with ledger_damaged where the server finds damage; a
// *ledger.DamageError; one that wraps *events.UnknownTypeError where a newer program
// writes the ledger. At the beginning it also ends where nobody answers.
func Stream(ctx context.Context, client *service.Client, o Options) iter.Seq2[Item, error] {
	return sequence(func(yield func(Item) error) error {
		s := &stream{client: client, o: o, yield: yield, fold: projections.NewChangeFold(o.Filter)}
		return s.run(ctx)
	})
}

// stream is one run of Stream.
type stream struct {
	client *service.Client
	o      Options
	yield  func(Item) error
	fold   *projections.ChangeFold

	pos   ledger.Position // the last event folded
	after uint64          // changes are wanted after this sequence
	begun bool            // they have begun
}

func (s *stream) run(ctx context.Context) error {
	last, err := s.head(ctx)
	if err != nil {
		return err
	}
	switch {
	case s.o.Cursor != nil:
		s.after = s.o.Cursor.Seq
		last = max(last, s.after)
	case s.o.From > 0:
		s.after = min(s.o.From-1, last)
	default:
		s.after = last
	}
	caughtUp := false
	catchUp := func() error {
		if caughtUp || s.pos.Seq < last {
			return nil
		}
		caughtUp = true
		if err := s.begin(); err != nil {
			return err
		}
		at := s.cursor()
		return s.yield(Item{CaughtUp: true, Seq: at.Seq, Cursor: at})
	}
	if err := catchUp(); err != nil {
		return err
	}
	for group, err := range s.client.Commands(ctx, s.pos) {
		if err != nil {
			return s.judge(ctx, err)
		}
		if err := s.take(group); err != nil {
			return err
		}
		if err := catchUp(); err != nil {
			return err
		}
	}
	return nil
}

// head asks for the ledger's last sequence. A cursor beyond it is of another ledger,
// unless whoever answered lags.
func (s *stream) head(ctx context.Context) (seq uint64, err error) {
	err = insist(ctx, s.client, func(ctx context.Context) error {
		page, err := s.client.Records(ctx, service.RecordsQuery{First: 1, Limit: 1})
		seq = page.Seq
		if c := s.o.Cursor; err == nil && c != nil && c.Seq > seq {
			err = restored(*c, s.client.CheckCursor(ctx, *c))
		}
		return err
	})
	return seq, err
}

// judge tells a ledger that is another one from one that is damaged: to who reads it,
// both may be a chain that does not go on.
func (s *stream) judge(ctx context.Context, err error) error {
	at := s.cursor()
	var damage *ledger.DamageError
	var r *RestoredError
	if errors.As(err, &damage) && at.Seq > 0 && errors.As(restored(at, s.client.CheckCursor(ctx, at)), &r) {
		return r
	}
	return restored(at, err)
}

// take folds a command and tells of it.
func (s *stream) take(group []events.Event) error {
	last := &group[len(group)-1]
	if last.Seq <= s.after {
		if err := s.fold.Skip(group); err != nil {
			return err
		}
		return s.reach(last)
	}
	if err := s.begin(); err != nil {
		return err
	}
	changes, err := s.fold.Apply(group)
	if err != nil {
		return err
	}
	if err := s.reach(last); err != nil {
		return err
	}
	for i := range changes {
		item := Item{Change: &changes[i], Seq: last.Seq}
		if i == len(changes)-1 {
			item.Cursor = s.cursor()
		}
		if err := s.yield(item); err != nil {
			return err
		}
	}
	return nil
}

// reach notes the last event folded, and holds it against the cursor.
func (s *stream) reach(last *events.Event) error {
	s.pos = ledger.After(last)
	if c := s.o.Cursor; c != nil && c.Seq == last.Seq && c.Chain != last.Chain.String() {
		return &RestoredError{*c, "its chain value is " + last.Chain.String()}
	}
	return nil
}

// begin comes before the first change that is wanted.
func (s *stream) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	st := s.fold.State()
	if c := s.o.Cursor; c != nil {
		switch {
		case c.Seq > 0 && c.MeshID != st.Mesh.ID:
			return &RestoredError{*c, "the ledger's mesh has the id " + st.Mesh.ID.String()}
		case c.Seq != st.Seq:
			return &RestoredError{*c, fmt.Sprintf("no command of the ledger ends there; one ends at %d", st.Seq)}
		}
		return nil
	}
	if !s.o.Initial {
		return nil
	}
	docs := s.fold.Documents()
	for i := range docs {
		item := Item{Document: &docs[i], Seq: st.Seq}
		if i == len(docs)-1 {
			item.Cursor = s.cursor()
		}
		if err := s.yield(item); err != nil {
			return err
		}
	}
	return nil
}

// cursor is the place of the last event folded.
func (s *stream) cursor() Cursor { return cursorAt(s.pos.Mesh, s.pos.Seq, s.pos.Chain.String()) }

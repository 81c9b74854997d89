package subscriber

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Stream tells what changes from the ledger's own stream. It begins by folding the
// ledger up to where it is to start, which takes seconds for a million events.
//
// The iterator ends with an error: ctx's; nats.ErrConnectionClosed where the
// connection is closed for good (go on with the cursor on another one); a
// *RestoredError; a *ledger.DamageError; one that wraps *events.UnknownTypeError
// where a newer program writes the ledger. Until it has caught up, it also ends
// where the ledger cannot be opened.
func Stream(ctx context.Context, nc *nats.Conn, mesh string, o Options) iter.Seq2[Item, error] {
	return sequence(func(yield func(Item) error) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		s := &stream{nc: nc, o: o, yield: yield, fold: projections.NewChangeFold(o.Filter)}
		s.pos.Store(&ledger.Position{})
		err := s.run(ctx, mesh, cancel)
		if cause := context.Cause(ctx); isRestored(cause) && !errors.Is(err, errStop) {
			return cause
		}
		return err
	})
}

// stream is one run of Stream.
type stream struct {
	nc    *nats.Conn
	log   *ledger.Log
	o     Options
	yield func(Item) error
	fold  *projections.ChangeFold

	pos   atomic.Pointer[ledger.Position] // the last event folded
	after uint64                          // changes are wanted after this sequence
	begun bool                            // they have begun
}

func (s *stream) run(ctx context.Context, mesh string, cancel context.CancelCauseFunc) error {
	var err error
	if s.log, err = ledger.Open(ctx, s.nc, mesh); err != nil {
		return err
	}
	last, err := s.log.Last(ctx)
	if err != nil {
		return err
	}
	switch {
	case s.o.Cursor != nil && s.o.Cursor.Seq > last:
		return &RestoredError{*s.o.Cursor, fmt.Sprintf("the ledger ends at %d", last)}
	case s.o.Cursor != nil:
		s.after = s.o.Cursor.Seq
	case s.o.From > 0:
		s.after = min(s.o.From-1, last)
	default:
		s.after = last
	}
	if err := s.catchUp(ctx, last); err != nil {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	at := s.cursor()
	if err := s.yield(Item{CaughtUp: true, Seq: at.Seq, Cursor: at}); err != nil {
		return err
	}
	status := s.nc.StatusChanged(nats.CONNECTED)
	defer s.nc.RemoveStatusListener(status)
	go s.check(ctx, status, cancel)
	for group, err := range s.log.Follow(ctx, *s.pos.Load()) {
		if err != nil {
			return s.judge(ctx, err)
		}
		if err := s.take(group); err != nil {
			return err
		}
	}
	return nil
}

// catchUp reads up to a sequence that is stored, through whatever passes.
func (s *stream) catchUp(ctx context.Context, to uint64) error {
	for try := 0; ; try++ {
		err := s.read(ctx, to)
		if err == nil || !s.passes(ctx, err) {
			return s.judge(ctx, err)
		}
		if err := pause(ctx, s.nc, try); err != nil {
			return err
		}
	}
}

// read reads up to a sequence.
func (s *stream) read(ctx context.Context, to uint64) error {
	for group, err := range s.log.Read(ctx, *s.pos.Load(), to) {
		if err == nil {
			err = s.take(group)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// passes reports whether an error of reading may not be there at the next try.
func (s *stream) passes(ctx context.Context, err error) bool {
	var damage *ledger.DamageError
	var newer *events.UnknownTypeError
	var fold *projections.FoldError
	switch {
	case ctx.Err() != nil, s.nc.IsClosed(), errors.Is(err, errStop), isRestored(err),
		errors.As(err, &damage), errors.As(err, &newer), errors.As(err, &fold):
		return false
	}
	return true
}

// judge tells a ledger that is another one from one that is damaged: to who follows
// it, both are a chain that does not go on.
func (s *stream) judge(ctx context.Context, err error) error {
	var damage *ledger.DamageError
	if !errors.As(err, &damage) {
		return err
	}
	if found := s.still(ctx); isRestored(found) {
		return found
	}
	return err
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
	pos := ledger.After(last)
	s.pos.Store(&pos)
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
func (s *stream) cursor() Cursor {
	p := s.pos.Load()
	return cursorAt(p.Mesh, p.Seq, p.Chain.String())
}

// check looks after each new connection whether the ledger there is still the one
// that was read. What is followed continues the chain or is not yielded; without
// this it would be waited for without end.
func (s *stream) check(ctx context.Context, status <-chan nats.Status, cancel context.CancelCauseFunc) {
	for {
		select {
		case _, open := <-status:
			if !open {
				return
			}
		case <-ctx.Done():
			return
		}
		for try := 0; ; try++ {
			err := s.still(ctx)
			if isRestored(err) {
				cancel(err)
				return
			}
			if err == nil || pause(ctx, s.nc, try) != nil {
				break
			}
		}
	}
}

// still returns a *RestoredError where the ledger has not what was read of it.
func (s *stream) still(ctx context.Context) error {
	at := s.cursor()
	if at.Seq == 0 {
		return nil
	}
	records, err := s.log.Get(ctx, at.Seq, at.Seq)
	var none *ledger.NotFoundError
	switch {
	case errors.As(err, &none):
		return &RestoredError{at, "the ledger has no event there"}
	case err != nil:
		return err
	}
	if now := records[0].Get(events.HeaderChain); now != at.Chain {
		return &RestoredError{at, "its chain value is " + now}
	}
	return nil
}

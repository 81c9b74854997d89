package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/micro"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/projections"
)

// State is a fold of the log that grows; a *handler.Handler is one.
type State interface {
	// View runs f on the state; f must not keep it.
	View(f func(*projections.State))
	// Await returns when the state has events after seq, or ctx ends: with its last
	// sequence.
	Await(ctx context.Context, seq uint64) (uint64, error)
}

var _ State = (*handler.Handler)(nil)

// ServeReads starts answering queries from a state that follows the log, whoever
// writes it (ReadSubject). The handler of cfg is not used.
func ServeReads(cfg Config, state State) (*Service, error) {
	cfg.Handler = nil
	return start(cfg, state, "read", func(s *Service, add func(name, subject string, h micro.HandlerFunc) error) error {
		return add("read", ReadSubject(cfg.Mesh), s.query)
	})
}

// errWaitsFull is the answer where no more queries may wait for events.
var errWaitsFull = fmt.Errorf("too many queries wait for events already: %d in all, or %d of this key", parallelWaits, guestWaits)

// condition is what a query waits for before it is answered; it may be cut short
// by ctx.
type condition func(ctx context.Context) error

// when answers a query once all conditions are met, in order. It waits in a place
// of its own, so that those who wait keep none from being answered; where it may
// be long, it is refused if there is no place.
func (s *Service) when(req micro.Request, conditions []condition, long bool, ask func() (result any, seq uint64, err error)) {
	if len(conditions) == 0 {
		go s.answer(req, s.place(req), ask)
		return
	}
	leave, ok := s.waitingPlace(req, long)
	if !ok {
		s.running.Done()
		s.refuse(req, errWaitsFull)
		return
	}
	go func() {
		var err error
		for _, c := range conditions {
			if err = c(s.ending); err != nil {
				break
			}
		}
		leave()
		if err != nil {
			s.running.Done()
			s.refuse(req, err)
			return
		}
		s.answer(req, s.place(req), ask)
	}()
}

// readiness is what a query's answer must rest on. At the head that is what
// nobody else can have added to; at a follower, what the caller asks for.
func (s *Service) readiness(m QueryMessage) (out []condition) {
	h := s.cfg.Handler
	switch {
	case h != nil && h.Leased():
		out = append(out, h.Confirm, func(ctx context.Context) error { return h.Reach(ctx, m.AtLeast) })
	case h == nil && m.AtLeast > 0:
		out = append(out, func(ctx context.Context) error { return s.reach(ctx, m) })
	}
	return out
}

// reach waits until the followed state knows of what the caller does.
func (s *Service) reach(ctx context.Context, m QueryMessage) error {
	within := MaxReadWait
	if m.Within > 0 {
		within = min(within, time.Duration(m.Within)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	seq, err := s.state.Await(ctx, m.AtLeast-1)
	if errors.Is(err, context.DeadlineExceeded) {
		return &commands.Refusal{Code: commands.StillPending, Message: fmt.Sprintf("sequence %d has not been read here", m.AtLeast),
			Why: fmt.Sprintf("this instance follows the ledger and is at %d", seq), Fix: projections.Advise("the same query without --at-least"), Candidates: []commands.Candidate{}}
	}
	return closedBy(err)
}

// growth is met when there are events from q.First on, or the time of q is over.
func (s *Service) growth(q LogQuery) condition {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, min(time.Duration(q.Wait)*time.Millisecond, MaxLogWait))
		defer cancel()
		_, err := s.state.Await(ctx, max(q.First, 1)-1)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return closedBy(err)
	}
}

// closedBy is the answer to who waited when the service stopped.
func closedBy(err error) error {
	if errors.Is(err, context.Canceled) {
		return handler.ErrClosed
	}
	return err
}

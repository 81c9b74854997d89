package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// verdict is what an answer means for the message it answers.
type verdict int

const (
	unknown  verdict = iota // it may be stored, now or later
	conflict                // it was not stored by this try, but an earlier one may have
	tooLarge                // it was not stored and never will be
	refused                 // it was not stored; the server's fault
	busy                    // it was not stored; try again
)

// Error codes of the server (server/errors.json). What is not listed is a
// refusal: the server checks before it stores.
var verdicts = map[jetstream.ErrorCode]verdict{
	10071: conflict, // wrong last sequence, with the number
	10164: conflict, // the same without it: replicated, another in progress
	10070: conflict, // wrong last message id: the one before was not stored
	10063: unknown,  // expected sequence does not match, when a replica applies
	10176: unknown,  // batch incomplete: a gap, a timeout, a change of leader
	10201: unknown,  // batch contains a duplicate: of ourselves, from an earlier try
	10158: unknown,  // duplicate in process: the same
	10077: unknown,  // the store failed
	10008: unknown,  // system temporarily unavailable
	10009: unknown,  // not the leader
	10118: unknown,  // stream is offline
	10194: unknown,  // stream is offline, with a reason
	10210: busy,     // too many batches in progress
	10199: tooLarge, // batch too large
	10054: tooLarge, // message exceeds the stream's maximum
	10097: tooLarge, // header exceeds the maximum
}

func judge(err error) verdict {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		if v, ok := verdicts[api.ErrorCode]; ok {
			return v
		}
		return refused
	case errors.Is(err, nats.ErrMaxPayload):
		return tooLarge
	}
	return unknown
}

// settling finds out what became of one flight. Each sequence can be taken only
// once, so a record that has been sent is either the one that lies at its
// sequence, or, once another lies there, is never stored.
type settling struct {
	l       *Log
	f       *flight
	done    int   // records from the front that are known to be stored
	cause   error // the last trouble
	verdict verdict
	open    bool // a try may still be on its way, or stored unseen
}

// take notes a try's answers and reports whether all is stored.
func (s *settling) take(answers []answer) bool {
	recs := s.f.recs
	if s.f.batch {
		a := answers[0]
		if a.err == nil && a.seq == recs[len(recs)-1].Seq && a.batch == len(recs)-s.done {
			s.done = len(recs)
			return true
		}
		s.trouble(a, len(recs)-1)
		return false
	}
	// An acknowledged publish proves those before it: it was accepted on top of
	// them, by sequence and by id.
	first := s.done
	for i := len(answers) - 1; i >= 0; i-- {
		if a := answers[i]; a.err == nil && a.seq == recs[first+i].Seq {
			s.done = first + i + 1
			break
		}
	}
	if s.done == len(recs) {
		return true
	}
	s.trouble(answers[s.done-first], s.done)
	// Those behind may have been sent, too; nothing is known of the ones that
	// were not answered.
	for _, a := range answers[s.done-first:] {
		if a.err == nil || judge(a.err) == unknown {
			s.open = true
		}
	}
	return false
}

func (s *settling) trouble(a answer, i int) {
	s.cause = a.err
	if a.err == nil {
		s.cause = fmt.Errorf("sequence %d was acknowledged as %d", s.f.recs[i].Seq, a.seq)
	}
	s.verdict = judge(s.cause)
	if s.verdict == unknown {
		s.open = true
	}
}

// settle looks at the stream after a try that did not succeed. Not settled
// means: try again.
func (s *settling) settle(ctx context.Context, try int) (settled bool, stored int, err error) {
	if !s.open {
		// The first answer was clear, and no earlier try is in the air.
		switch s.verdict {
		case tooLarge:
			return true, s.commands(), s.refusal()
		case refused:
			return true, s.commands(), s.refusal()
		}
	}
	for look := 0; ; look++ {
		again, err := s.look(ctx)
		if s.done == len(s.f.recs) {
			return true, len(s.f.cmds), nil
		}
		var c *ConflictError
		if errors.As(err, &c) {
			if c.Actual >= c.Expected || try >= regressTries {
				return true, s.commands(), c
			}
			// The stream ends before what we know: a new leader may not have
			// applied everything yet.
		}
		if !pause(ctx, s.l.tun, try+look) {
			stored, err := s.giveUp(ctx.Err())
			return true, stored, err
		}
		if !again {
			return false, 0, nil
		}
	}
}

// regressTries is how often a stream that ends before the expected sequence is
// asked again before that is reported as a conflict.
const regressTries = 8

// look reads the stream's end. It moves done over records that turn out to be
// stored. A *ConflictError: another message lies at the next one's sequence, or
// the stream ends before it. again: look again before sending again.
func (s *settling) look(ctx context.Context) (again bool, err error) {
	next := s.f.recs[s.done].Seq
	last, err := s.l.Last(ctx)
	if err != nil {
		return false, err // sending again does no harm
	}
	if last < next {
		if last < next-1 {
			return false, &ConflictError{Expected: next - 1, Actual: last}
		}
		return false, nil
	}
	there := int(min(last, s.f.recs[len(s.f.recs)-1].Seq) - next + 1)
	n, err := s.compare(ctx, s.f.recs[s.done:s.done+there])
	if err != nil {
		return true, err
	}
	if s.f.batch && n == there && s.done+n < len(s.f.recs) {
		return true, nil // the front part of a batch that is being stored
	}
	if s.f.batch && n < there {
		n = 0 // not ours: a batch is stored as a whole
	}
	s.done += n
	if n < there {
		return false, &ConflictError{Expected: s.f.recs[s.done].Seq - 1, Actual: last}
	}
	return false, nil
}

// compare counts the records, from the front, that lie at their sequences.
func (s *settling) compare(ctx context.Context, recs []*events.Record) (int, error) {
	for n := 0; n < len(recs); {
		// One at first: where it is another's, the rest does not matter.
		k := min(len(recs)-n, max(1, n*4))
		found, err := s.l.Get(ctx, recs[n].Seq, recs[n+k-1].Seq)
		if err != nil {
			var missing *NotFoundError
			if errors.As(err, &missing) {
				return n, nil // deleted by force: not ours
			}
			return 0, err
		}
		for i := range found {
			if !same(&found[i], recs[n]) {
				return n, nil
			}
			n++
		}
	}
	return len(recs), nil
}

// same reports whether a stored record is the one that was sent: its chain
// value covers everything in it.
func same(stored, sent *events.Record) bool {
	return stored.Get(events.HeaderID) == sent.Get(events.HeaderID) &&
		stored.Get(events.HeaderChain) == sent.Get(events.HeaderChain)
}

// commands counts the whole commands in what is stored.
func (s *settling) commands() int {
	n := 0
	for i, cmd := range s.f.cmds {
		if n += len(cmd); n > s.done {
			return i
		}
	}
	return len(s.f.cmds)
}

func (s *settling) refusal() error {
	var api *jetstream.APIError
	errors.As(s.cause, &api)
	if s.verdict == tooLarge {
		return &TooLargeError{Err: s.cause}
	}
	return &StoreError{Code: int(api.ErrorCode), Err: s.cause}
}

// giveUp is the answer when ctx has ended.
func (s *settling) giveUp(ended error) (int, error) {
	after := s.f.recs[s.done].Seq - 1
	if !s.open {
		return s.commands(), fmt.Errorf("appending after sequence %d: %w", after, errors.Join(s.cause, ended))
	}
	return s.commands(), &UnknownError{After: after, Err: errors.Join(s.cause, ended)}
}

// pause waits between tries, longer each time, and not in step with others. It
// reports whether ctx still stands.
func pause(ctx context.Context, tun tuning, n int) bool {
	d := min(tun.maxPause, tun.backoff<<min(n, 16))
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

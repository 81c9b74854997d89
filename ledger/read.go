package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// Read yields the commands after from, up to and including the one that
// sequence to lies in, which must be stored (see Last). Each is whole: all
// events of one command, in order, decoded and verified against the chain; the
// slice is the caller's. The last thing yielded may be an error:
//
//   - *DamageError: the log is not what was appended
//   - one that wraps *events.UnknownTypeError: a newer program wrote it; what
//     came before has been yielded, and the chain is sound up to there
//   - one of ctx or of the connection
//
// A command that is being stored while it is read is waited for. Foreign
// messages are skipped (see Foreign).
func (l *Log) Read(ctx context.Context, from Position, to uint64) iter.Seq2[[]events.Event, error] {
	return func(yield func([]events.Event, error) bool) {
		a := newAssembler(l, from, false, func(evs []events.Event, _ []events.Record) bool { return yield(evs, nil) })
		if err := l.run(ctx, a, to, false); err != nil {
			yield(nil, err)
		}
	}
}

// Records is Read for those who need the stored bytes: records of types this
// program does not know are yielded as well. The headers of the server
// ("Nats-…") are left out.
func (l *Log) Records(ctx context.Context, from Position, to uint64) iter.Seq2[events.Group, error] {
	return func(yield func(events.Group, error) bool) {
		a := newAssembler(l, from, true, func(_ []events.Event, recs []events.Record) bool {
			for i := range recs {
				recs[i] = record(recs[i].Seq, recs[i].Subject, recs[i].Header, recs[i].Data)
			}
			return yield(recs, nil)
		})
		if err := l.run(ctx, a, to, false); err != nil {
			yield(nil, err)
		}
	}
}

// run drives a until it has everything up to to, or for ever if follow is set.
// It returns nil when that is done or when nobody wants more.
func (l *Log) run(ctx context.Context, a *assembler, to uint64, follow bool) error {
	if !follow && a.seen >= to {
		return nil
	}
	r := &run{l: l, a: a, to: to, follow: follow}
	for {
		done, err := r.short(ctx)
		again := false
		if !done && err == nil {
			again, err = r.feed(ctx)
		}
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil || !again {
			return err
		}
	}
}

// run is one Read or Follow.
type run struct {
	l      *Log
	a      *assembler
	to     uint64
	follow bool

	stalls int       // ticks without progress, while there should be some
	still  uint64    // the last sequence at the last tick that found nothing new
	since  time.Time // when that was first so
}

// How many messages are asked for one by one: on a cluster, and elsewhere, where a
// consumer costs about as much as this many questions.
const (
	shortRead   = 256
	shorterRead = 16
)

// short reads a short piece of the stream without a consumer. On a cluster, to make
// one takes the cluster's own leader, and who takes over the writing must not wait
// until another is elected. What it leaves is for feed.
func (r *run) short(ctx context.Context) (done bool, err error) {
	a, to, most := r.a, r.to, uint64(shortRead)
	if r.l.replicas.Load() <= 1 {
		if r.follow {
			return false, nil
		}
		most = shorterRead
	}
	if r.follow {
		if to, err = r.l.Last(ctx); err != nil {
			return false, nil
		}
	}
	if to <= a.seen || to-a.seen > most {
		return false, nil
	}
	recs, err := r.l.Get(ctx, a.seen+1, to)
	if err != nil {
		return false, nil // feed tells damage from trouble
	}
	if err := a.take(recs, r.limit()); err != nil {
		return false, err
	}
	if r.follow || a.seen < to || !a.whole() || a.claim != nil {
		return false, nil
	}
	return true, a.end()
}

// feed reads from the present place until it is done or the feed must be
// replaced (again).
func (r *run) feed(ctx context.Context) (again bool, err error) {
	a := r.a
	f, err := r.l.startFeed(ctx, a.seen+1, r.limit(), a.text, !a.raw)
	if err != nil {
		return r.trouble(ctx, err)
	}
	defer f.close()
	tick := time.NewTicker(r.l.tun.watch)
	defer tick.Stop()
	moved := false
	for {
		if !r.follow && a.seen >= r.to && a.whole() && a.claim == nil {
			return false, a.end()
		}
		select {
		case c := <-f.chunks:
			select {
			case <-c.ready:
			case <-ctx.Done():
				return false, ctx.Err()
			}
			before := a.seen
			err := a.add(c, r.limit())
			if a.seen > before {
				moved, r.stalls = true, 0
			}
			var gap *gapError
			if errors.As(err, &gap) {
				return r.gap(ctx, gap)
			}
			if err != nil {
				return false, err
			}
			if !r.follow && a.seen >= r.to && a.claim != nil {
				// A suspect at the end of what is asked for: look behind it now.
				if done, err := r.idle(ctx); done || err != nil {
					return false, err
				}
			}
		case <-tick.C:
			if moved {
				moved = false
				continue
			}
			last, err := r.l.Last(ctx)
			if err != nil {
				return r.trouble(ctx, err)
			}
			if last > a.seen {
				// The consumer is dead or slow, and another one will not be worse; or
				// what comes next cannot be read, and no consumer will bring it.
				if r.stalls++; r.stalls > 1 {
					return r.gap(ctx, &gapError{from: a.seen + 1, to: last})
				}
				return true, nil
			}
			if done, err := r.idle(ctx); done || err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, fmt.Errorf("reading from sequence %d: %w", a.seen+1, ctx.Err())
		}
	}
}

// limit is the sequence up to which commands are wanted.
func (r *run) limit() uint64 {
	if r.follow {
		return ^uint64(0)
	}
	return r.to
}

// idle judges what is left when the stream has nothing more. Done means a Read
// is at its end.
func (r *run) idle(ctx context.Context) (done bool, err error) {
	a := r.a
	last, err := r.l.Last(ctx)
	if err != nil || last > a.seen {
		return false, nil // the next tick will tell
	}
	if !r.follow && last < r.to {
		return false, &DamageError{Seq: last + 1, Why: fmt.Sprintf("the log ends here, %d was there", r.to)}
	}
	if last < a.seen {
		return false, &DamageError{Seq: last + 1, Why: fmt.Sprintf("the log ends here, %d was read", a.seen)}
	}
	if a.whole() && a.claim == nil {
		if !r.follow {
			return true, a.end()
		}
		return false, nil
	}
	if r.still != last {
		r.still, r.since = last, time.Now()
	}
	if !r.follow && a.whole() || time.Since(r.since) > r.l.tun.partial {
		return true, a.end()
	}
	return false, nil
}

// gap finds out whether sequences are missing in the stream or only in what a
// consumer delivered: it silently leaves out what it cannot read.
func (r *run) gap(ctx context.Context, gap *gapError) (again bool, err error) {
	_, err = r.l.Get(ctx, gap.from, gap.from)
	var missing *NotFoundError
	switch {
	case errors.As(err, &missing):
		return false, &DamageError{Seq: gap.from, Why: fmt.Sprintf("%v", gap)}
	case err == nil && r.stalls < maxStalls:
		r.stalls++
		return true, nil
	case err == nil:
		return r.direct(ctx, gap.to)
	}
	return r.unread(ctx, gap.from, err)
}

// maxStalls is how often a consumer that brings nothing is replaced before what it
// does not bring is read without one: a server may be slow, and that is no damage.
const maxStalls = 3

// direct reads up to a sequence without a consumer.
func (r *run) direct(ctx context.Context, to uint64) (again bool, err error) {
	a := r.a
	for a.seen < to {
		first, last := a.seen+1, min(a.seen+shortRead, to)
		recs, err := r.l.Get(ctx, first, last)
		for missing := (*NotFoundError)(nil); errors.As(err, &missing); { // it may not be the first one
			if missing.Seq == first {
				return false, &DamageError{Seq: first, Why: "no message is there"}
			}
			recs, err = r.l.Get(ctx, first, missing.Seq-1)
		}
		if err != nil {
			return r.unread(ctx, first, err)
		}
		if err := a.take(recs, r.limit()); err != nil {
			return false, err
		}
		if a.seen < first {
			return true, nil // there is what was asked for
		}
	}
	return true, nil
}

// unread decides what it means that messages could not be read.
func (r *run) unread(ctx context.Context, first uint64, err error) (again bool, _ error) {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return false, &DamageError{Seq: first, Why: "it cannot be read", Err: err}
	}
	return r.trouble(ctx, err)
}

// trouble decides what a failed question to the server means: for a Read it is
// the end; a Follow goes on until ctx ends or the connection is closed.
func (r *run) trouble(ctx context.Context, err error) (again bool, _ error) {
	if ctx.Err() != nil {
		return false, fmt.Errorf("reading from sequence %d: %w", r.a.seen+1, ctx.Err())
	}
	if !r.follow || errors.Is(err, nats.ErrConnectionClosed) {
		return false, err
	}
	r.stalls++
	pause(ctx, r.l.tun, r.stalls)
	return true, nil
}

package ledger

import (
	"context"
	"errors"
	"fmt"

	"bindery/events"
)

// Source is a stream that somebody else reads: what lies in it, message by message.
type Source interface {
	// Last is the stream's last sequence.
	Last(ctx context.Context) (uint64, error)
	// Sound is the sequence of the last event that is known to be one of the ledger's:
	// what lies behind it may be foreign.
	Sound(ctx context.Context) (uint64, error)
	// Stored are the messages from sequence first on, at most up to last and at least
	// one, as they are stored; a *NotFoundError where first is not there.
	Stored(ctx context.Context, first, last uint64) ([]events.Record, error)
}

// ReadFrom is the ledger of a mesh as a source gives it, to be read: nothing can be
// appended to it, and it cannot be followed. created is what its stream was created
// with.
func ReadFrom(src Source, mesh, created string) *Log {
	return &Log{src: src, stream: StreamName(mesh), mesh: mesh, made: created, tun: defaultTuning, turn: make(chan struct{}, 1)}
}

// errElsewhere is returned where a log that somebody else reads is to be appended to
// or followed.
var errElsewhere = errors.New("the ledger is read through another process: it cannot be appended to or followed here")

// elsewhere reads from the source until it is done.
func (r *run) elsewhere(ctx context.Context) error {
	if r.follow {
		return errElsewhere
	}
	a := r.a
	last, err := r.l.Last(ctx)
	if err != nil {
		return err
	}
	if last < r.to {
		return &DamageError{Seq: last + 1, Why: fmt.Sprintf("the log ends here, %d was there", r.to)}
	}
	for a.seen < last && (a.seen < r.to || !a.settled()) {
		recs, err := r.l.src.Stored(ctx, a.seen+1, last)
		var none *NotFoundError
		if errors.As(err, &none) {
			return &DamageError{Seq: none.Seq, Why: "no message is there", Err: err}
		}
		if err != nil {
			return err
		}
		before := a.seen
		if err := a.take(recs, r.limit()); err != nil {
			return err
		}
		if a.seen == before {
			break // what is wanted ends here
		}
	}
	return a.end()
}

// Stored are the messages from sequence first to last as they are stored, also those
// that are no part of the ledger; fewer where one is missing, and where that is the
// first a *NotFoundError.
func (l *Log) Stored(ctx context.Context, first, last uint64) ([]events.Record, error) {
	if l.src != nil {
		return l.src.Stored(ctx, first, last)
	}
	if last < first {
		return nil, nil
	}
	out := make([]events.Record, 0, last-first+1)
	if last-first >= shorterRead {
		if f, err := l.startFeed(ctx, first, last, "", false); err == nil {
			out = f.until(ctx, first, last, out, l)
			f.close()
		}
	}
	if first += uint64(len(out)); first > last {
		return out, nil
	}
	// What no consumer brings may be there all the same.
	rest, err := l.Get(ctx, first, last)
	var none *NotFoundError
	if errors.As(err, &none) {
		if none.Seq == first && len(out) > 0 {
			return out, nil
		}
		if none.Seq > first {
			rest, err = l.Get(ctx, first, none.Seq-1)
		}
	}
	return append(out, rest...), err
}

// until takes what a feed brings without a gap, as long as it brings something.
func (f *feed) until(ctx context.Context, first, last uint64, out []events.Record, l *Log) []events.Record {
	ctx, cancel := context.WithTimeout(ctx, l.tun.watch)
	defer cancel()
	for next := first; next <= last; {
		select {
		case c := <-f.chunks:
			select {
			case <-c.ready: // who decodes it reads the same records
			case <-ctx.Done():
				return out
			}
			for _, r := range c.recs {
				if r.Seq != next || r.Seq > last {
					return out
				}
				out = append(out, record(r.Seq, r.Subject, r.Header, r.Data))
				next++
			}
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// getElsewhere is Get through the source.
func (l *Log) getElsewhere(ctx context.Context, first, last uint64) (out []events.Record, err error) {
	for first <= last {
		recs, err := l.src.Stored(ctx, first, last)
		if err != nil {
			return nil, err
		}
		out = append(out, recs...)
		first += uint64(len(recs))
	}
	return out, nil
}

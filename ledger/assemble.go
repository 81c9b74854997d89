package ledger

import (
	"errors"
	"fmt"
	"slices"

	"bindery/events"
)

// assembler makes whole commands of the stream's messages, in order. It is the
// one place that decides what belongs to the ledger.
type assembler struct {
	l    *Log
	raw  bool
	emit func([]events.Event, []events.Record) bool

	pos  Position // the last event of the ledger
	seen uint64   // the last message looked at
	text string   // its chain header

	// The events of a command that began in an earlier chunk.
	evs  []events.Event
	recs []events.Record
	k, n int // of the last event; k == n between commands
	cmd  events.ID

	// Messages after pos that do not continue the chain. They are foreign as
	// soon as an event follows that does, over them; until then, one that has a
	// chain value may be an event that was altered.
	suspects  []uint64 // at most MaxForeign
	nSuspects uint64
	claim     *DamageError // about the first one with a chain value
}

func newAssembler(l *Log, from Position, raw bool, emit func([]events.Event, []events.Record) bool) *assembler {
	a := &assembler{l: l, raw: raw, emit: emit, pos: from, seen: from.Seq}
	if from.Seq > 0 {
		a.text = from.Chain.String()
	}
	return a
}

// errStop: the one who reads wants no more.
var errStop = errors.New("stopped")

// add takes the next chunk, up to and including the command that limit lies in.
func (a *assembler) add(c *chunk, limit uint64) error {
	start := 0 // where the present command begins in this chunk
	for i := range c.recs {
		r, e := &c.recs[i], &c.evs[i]
		if a.whole() && a.seen >= limit && (a.claim == nil || a.pos.Seq > limit) {
			return nil
		}
		if r.Seq != a.seen+1 {
			return &gapError{from: a.seen + 1, to: r.Seq - 1}
		}
		good := c.linked[i] && a.nSuspects == 0 && (e.Mesh == a.pos.Mesh || a.pos.Mesh.IsZero())
		if !good {
			// Rare. The message before may be no event of the ledger.
			_, err := events.Verify(a.pos.Chain, a.pos.Mesh, r)
			if good = err == nil; !good {
				a.keep(c, start, i)
				start = i + 1
				a.suspect(r, err)
				a.seen, a.text = r.Seq, r.Get(events.HeaderChain)
				continue
			}
		}
		a.acquit()
		if a.whole() && r.Seq > limit {
			return nil // it was read only to judge the suspects before it
		}
		if c.errs != nil && c.errs[i] != nil {
			return unreadable(r, c.errs[i])
		}
		if err := a.border(e); err != nil {
			return err
		}
		a.seen, a.text = r.Seq, r.Get(events.HeaderChain)
		a.pos = After(e)
		if e.K == e.N {
			if err := a.finish(c, start, i+1); err != nil {
				return err
			}
			start = i + 1
		}
	}
	a.keep(c, start, len(c.recs))
	return nil
}

// take adds records that were read one by one.
func (a *assembler) take(recs []events.Record, limit uint64) error {
	c := &chunk{recs: recs, prev: a.text, ready: make(chan struct{})}
	c.decode(!a.raw)
	return a.add(c, limit)
}

func (a *assembler) whole() bool { return a.k == a.n }

// border checks that e is the next of its command, or the first of one.
func (a *assembler) border(e *events.Event) error {
	switch {
	case a.whole() && e.K != 1:
		return &DamageError{Seq: e.Seq, Why: fmt.Sprintf("event %d of %d of a command that did not begin", e.K, e.N)}
	case !a.whole() && (e.K != a.k+1 || e.N != a.n || e.Command != a.cmd):
		return &DamageError{Seq: e.Seq, Why: fmt.Sprintf("event %d of %d of command %s stands where event %d of %d of command %s belongs",
			e.K, e.N, e.Command, a.k+1, a.n, a.cmd)}
	}
	a.k, a.n, a.cmd = e.K, e.N, e.Command
	return nil
}

// keep sets aside the events of an unfinished command.
func (a *assembler) keep(c *chunk, from, to int) {
	if from < to {
		a.evs = append(a.evs, c.evs[from:to]...)
		if a.raw {
			a.recs = append(a.recs, c.recs[from:to]...)
		}
	}
}

// finish hands out a whole command; without copying where it lies in one chunk.
func (a *assembler) finish(c *chunk, from, to int) error {
	evs, recs := c.evs[from:to:to], c.recs[from:to:to]
	if len(a.evs) > 0 {
		a.keep(c, from, to)
		evs, recs = a.evs, a.recs
		a.evs, a.recs = nil, nil
	}
	if !a.emit(evs, recs) {
		return errStop
	}
	return nil
}

func (a *assembler) suspect(r *events.Record, err error) {
	a.nSuspects++
	if len(a.suspects) < MaxForeign {
		a.suspects = append(a.suspects, r.Seq)
	}
	if a.claim == nil && len(r.Header[events.HeaderChain]) > 0 {
		a.claim = &DamageError{Seq: r.Seq, Why: "not the event that was appended", Err: err}
	}
}

// acquit notes the suspects as foreign: the chain has gone over them.
func (a *assembler) acquit() {
	if a.nSuspects == 0 {
		return
	}
	a.l.noteForeign(a.suspects, a.nSuspects)
	a.suspects, a.nSuspects, a.claim = nil, 0, nil
}

// end is called when nothing follows: what is left is damage, or foreign where
// it does not even look like an event.
func (a *assembler) end() error {
	if a.claim != nil {
		return a.claim
	}
	if !a.whole() {
		return &DamageError{Seq: a.seen, Why: fmt.Sprintf("the log ends after event %d of %d of command %s", a.k, a.n, a.cmd)}
	}
	a.acquit()
	return nil
}

// gapError: the consumer left out sequences; the stream may still have them.
type gapError struct{ from, to uint64 }

func (e *gapError) Error() string { return fmt.Sprintf("sequences %d to %d are missing", e.from, e.to) }

// unreadable is the error for an event whose chain value is right.
func unreadable(r *events.Record, err error) error {
	var newer *events.UnknownTypeError
	if errors.As(err, &newer) {
		return fmt.Errorf("reading sequence %d: %w", r.Seq, newer)
	}
	return &DamageError{Seq: r.Seq, Why: "an event that cannot be read", Err: err}
}

// noteForeign counts each foreign message once, however often it is read; past
// MaxForeign, only those beyond the last one counted.
func (l *Log) noteForeign(seqs []uint64, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.foreign
	more := n - uint64(len(seqs)) // not kept by the assembler either
	last := seqs[len(seqs)-1]
	for _, s := range seqs {
		i, known := slices.BinarySearch(f.Seqs, s)
		switch {
		case known:
		case len(f.Seqs) < MaxForeign:
			f.Seqs = slices.Insert(f.Seqs, i, s)
			f.Count++
		case s > l.foreignTo:
			f.Count++
		}
	}
	if last > l.foreignTo {
		f.Count += more
		l.foreignTo = last + more
	}
}

package ledger

import (
	"errors"
	"fmt"

	"bindery/events"
)

// assembler makes whole commands of the stream's messages, in order. It is the
// one place that decides what belongs to the ledger.
//
// It knows two places: pos, the last event that surely is the ledger's, and tail,
// the last one of what continues from there and is not decided yet: a command whose
// end has not come, or one that only the next message can tell from a forged one. The
// next message continues from either, or from neither. What continues from pos over
// the tail shows that the tail was no part of the ledger.
//
// Where commands must be proven, one counts when its last event comes with the proof
// of a writer. Where none is needed, or nobody can check it, the chain alone decides:
// of two commands that continue from the same event, the one that the next message
// continues from.
type assembler struct {
	l    *Log
	raw  bool
	hold bool // without proofs, a command is held until the next message tells
	emit func([]events.Event, []events.Record) bool

	pos  Position // the last event of the ledger
	seen uint64   // the last message looked at
	text string   // its chain header
	who  string   // who proved the last command that was emitted; empty: nobody had to

	writers *Writers // who may write after pos, on a server

	tail Position // the last event that continues from pos; pos where none does
	// The events of the command under way that came in an earlier chunk.
	evs  []events.Event
	recs []events.Record
	k, n int // of the last event; k == n between commands
	cmd  events.ID
	// first is the command's first sequence, bad why it cannot be taken even if it is
	// the ledger's, stray that it is none.
	first uint64
	bad   error
	stray bool
	held  bool // the command is whole, and kept in evs and recs

	// Messages after pos that do not continue the chain. They are foreign as soon
	// as a command follows that does, over them. Until then one of them may be an
	// event that was altered: doubt is about the first with a chain value, and it is
	// damage (claim) where no proof is needed, or a later event is proven.
	suspects spans
	doubt    *DamageError
	claim    *DamageError
}

func newAssembler(l *Log, from Position, raw bool, emit func([]events.Event, []events.Record) bool) *assembler {
	a := &assembler{l: l, raw: raw, emit: emit, pos: from, tail: from, seen: from.Seq, writers: from.Writers}
	a.pos.Writers, a.tail.Writers = nil, nil
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
		direct := c.linked[i] && a.tail.Seq == a.seen
		a.seen, a.text = r.Seq, r.Get(events.HeaderChain)
		if direct = direct && (e.Mesh == a.tail.Mesh || a.tail.Mesh.IsZero()); !direct {
			on, err := a.place(r)
			switch {
			case on == nowhere:
				a.keep(c, start, i)
				start = i + 1
				a.suspect(c, i, &DamageError{Seq: r.Seq, Why: "not the event that was appended", Err: err})
				continue
			case on == overTail:
				a.giveUp(c.evs[start:i])
				start = i
			}
		}
		if a.held {
			if err := a.release(); err != nil {
				return err
			}
		}
		if wrong := a.border(c, i); wrong != nil {
			a.keep(c, start, i)
			start = i + 1
			a.suspect(c, i, wrong)
			continue
		}
		a.tail = After(e)
		if !a.whole() {
			continue
		}
		if done, err := a.decide(c, start, i+1, limit); done || err != nil {
			return err
		}
		start = i + 1
	}
	a.keep(c, start, len(c.recs))
	return nil
}

// take adds records that were read one by one.
func (a *assembler) take(recs []events.Record, limit uint64) error {
	c := &chunk{recs: recs, prev: a.text, ready: make(chan struct{})}
	c.decode(!a.raw, a.l.secrets)
	return a.add(c, limit)
}

// whole reports whether no command has begun whose end has not come.
func (a *assembler) whole() bool { return a.k == a.n }

// settled reports whether no later message can change what was read.
func (a *assembler) settled() bool { return a.whole() && a.claim == nil }

// Where a message continues from.
const (
	nowhere = iota
	onTail
	overTail // from pos, while the tail is beyond it
)

// place finds where a message continues from; the error says why from nowhere. It is
// for the rare message that does not just follow the one before.
func (a *assembler) place(r *events.Record) (on int, err error) {
	if _, err = events.Verify(a.tail.Chain, a.tail.Mesh, r); err == nil {
		return onTail, nil
	}
	if a.tail.Seq == a.pos.Seq {
		return nowhere, err
	}
	if _, over := events.Verify(a.pos.Chain, a.pos.Mesh, r); over == nil {
		return overTail, nil
	}
	return nowhere, err
}

// border notes the next event of the command, or the first of one. What does not fit
// there is returned.
func (a *assembler) border(c *chunk, i int) *DamageError {
	r, e := &c.recs[i], &c.evs[i]
	if c.errs != nil && c.errs[i] != nil {
		if b, err := readBorder(r); err == nil {
			e.K, e.N, e.Command, e.Mesh, e.Chain = b.K, b.N, b.Command, b.Mesh, b.Chain
		} else {
			return &DamageError{Seq: r.Seq, Why: "an event that cannot be read", Err: c.errs[i]}
		}
	}
	if wrong := a.next(e); wrong != nil {
		return wrong
	}
	if e.K == 1 {
		a.first, a.bad, a.stray = r.Seq, nil, false
	}
	if c.errs != nil && c.errs[i] != nil && a.bad == nil {
		a.bad = unreadable(r, c.errs[i])
	}
	a.stray = a.stray || c.proofs[i].stray
	return nil
}

// next checks that e is the next event of its command, or the first of one.
func (a *assembler) next(e *events.Event) *DamageError {
	switch {
	case e.N > MaxEvents:
		return &DamageError{Seq: e.Seq, Why: fmt.Sprintf("event %d of %d of one command, which has %d at most", e.K, e.N, MaxEvents)}
	case a.whole() && e.K != 1:
		return &DamageError{Seq: e.Seq, Why: fmt.Sprintf("event %d of %d of a command that did not begin", e.K, e.N)}
	case !a.whole() && (e.K != a.k+1 || e.N != a.n || e.Command != a.cmd):
		return &DamageError{Seq: e.Seq, Why: fmt.Sprintf("event %d of %d of command %s stands where event %d of %d of command %s belongs",
			e.K, e.N, e.Command, a.k+1, a.n, a.cmd)}
	}
	a.k, a.n, a.cmd = e.K, e.N, e.Command
	return nil
}

// decide judges the command that ends with the event before to. done: it lies beyond
// what is wanted.
func (a *assembler) decide(c *chunk, from, to int, limit uint64) (done bool, err error) {
	proof := c.proofs[to-1]
	needed := a.needs(&c.recs[to-1])
	if needed && (a.stray || !a.proves(proof)) {
		if a.doubt == nil {
			a.doubt = &DamageError{Seq: a.first, Why: "a command that no writer of this ledger has proven"}
		}
		a.giveUp(c.evs[from:to])
		return false, nil
	}
	a.who = ""
	if !a.stray && a.proves(proof) {
		a.who = proof.who // also where it need not be
	} else if a.hold && a.first <= limit {
		a.acquit()
		a.held = true
		if len(a.evs) == 0 {
			a.evs, a.recs = c.evs[from:to:to], c.recs[from:to:to]
		} else {
			a.keep(c, from, to)
		}
		return false, nil
	}
	return a.accept(c, from, to, limit)
}

// accept takes a command for the ledger's, and hands it out; without copying where it
// lies in one chunk.
func (a *assembler) accept(c *chunk, from, to int, limit uint64) (done bool, err error) {
	if a.bad != nil {
		return false, a.bad
	}
	a.acquit()
	if a.first > limit {
		a.tail, a.seen = a.pos, a.first-1 // it was read only to judge what lies before it
		return true, nil
	}
	return false, a.hand(c, from, to)
}

// hand hands out the command at the tail.
func (a *assembler) hand(c *chunk, from, to int) error {
	evs, recs := c.evs[from:to:to], c.recs[from:to:to]
	if len(a.evs) > 0 {
		a.keep(c, from, to)
		evs, recs = a.evs, a.recs
		a.evs, a.recs = nil, nil
	}
	a.l.noteEvents(a.first, a.tail.Seq)
	a.pos = a.tail
	a.noteAccess(evs, recs)
	if !a.emit(evs, recs) {
		return errStop
	}
	return nil
}

// release hands out the command that was held: the ledger goes on from it, or ends.
func (a *assembler) release() error {
	a.held = false
	if a.bad != nil {
		return a.bad
	}
	return a.hand(&chunk{}, 0, 0)
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

// giveUp makes suspects of the command under way, of which more is the rest.
func (a *assembler) giveUp(more []events.Event) {
	for _, evs := range [][]events.Event{a.evs, more} {
		for i := range evs {
			a.suspects.add(evs[i].Seq)
		}
	}
	a.evs, a.recs, a.held = nil, nil, false
	a.k, a.n, a.tail = 0, 0, a.pos
}

// suspect notes a message that does not continue what was read.
func (a *assembler) suspect(c *chunk, i int, wrong *DamageError) {
	r := &c.recs[i]
	a.suspects.add(r.Seq)
	if len(r.Header[events.HeaderChain]) == 0 {
		return
	}
	if a.doubt == nil {
		a.doubt = wrong
	}
	if a.claim == nil && (!a.needs(r) || a.proves(c.proofs[i])) {
		a.claim = a.doubt
	}
}

// acquit notes the suspects as foreign: the chain has gone over them.
func (a *assembler) acquit() {
	if len(a.suspects) > 0 {
		a.l.noteForeign(a.suspects)
		a.suspects = nil
	}
	a.doubt, a.claim = nil, nil
}

// skipped notes, where nothing follows for now, what surely is no part of the ledger;
// a command whose end has not come only when that is long ago.
func (a *assembler) skipped(long bool) {
	if len(a.suspects) > 0 {
		a.l.noteForeign(a.suspects)
	}
	if long {
		for i := range a.evs {
			a.l.noteForeign(spans{{a.evs[i].Seq, a.evs[i].Seq}})
		}
	}
}

// end is called when nothing follows: what is left is damage where a claim stands,
// else foreign.
func (a *assembler) end() error {
	if a.held {
		if err := a.release(); err != nil {
			return err
		}
	}
	if a.claim != nil {
		return a.claim
	}
	if a.tail.Seq > a.pos.Seq {
		a.giveUp(nil)
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

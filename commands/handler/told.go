package handler

import (
	"errors"
	"time"

	"bindery/commands"
	"bindery/events"
)

// A client that hears nothing for a while sends its request again. What was carried out is
// told by the ledger, by the command's id; what was refused or changed nothing left no
// trace there, and the state may be another one when the second copy comes: it would be
// carried out, though the first was refused. So the writer tells every copy of a request
// what it told the first. The same command given later is another invocation, and decided
// anew.

// invocation tells one request from all others. A key knows of its own alone, and what is
// asked otherwise is another request, whatever it is called: a dry run is no answer to a
// command that is meant.
type invocation struct {
	key    string
	id     events.ID
	text   string
	hash   events.CommandHash
	dryRun bool
}

// verdict is what a request was told that wrote nothing.
type verdict struct {
	result commands.Result
	err    error
}

const (
	// toldFor is how long a verdict is kept at least, where there is room: clients give up
	// within that.
	toldFor = time.Minute
	// mostTold bounds what is kept, twice: verdicts, and objects and bindings in them.
	mostTold = 20_000
	// maxInvocation is the longest text that is looked at, in bytes.
	maxInvocation = 64
)

// told are the verdicts of the last minute, and the calls of the round that is decided.
// The older ones of them are forgotten together, so that nothing is looked for.
type told struct {
	now, before map[invocation]verdict
	size        int // of now
	changed     time.Time
	round       map[invocation]*call
}

func of(c *call) (i invocation, ok bool) {
	if c.req.Invocation == "" || len(c.req.Invocation) > maxInvocation {
		return i, false
	}
	return invocation{c.req.Key, c.req.ID, c.req.Invocation, c.hash, c.req.DryRun}, true
}

// begin is told that calls are decided (again): what was decided of them before does not
// count.
func (t *told) begin() { t.round = nil }

// decided notes a call of this round.
func (t *told) decided(c *call) {
	if i, ok := of(c); ok && wroteNothing(c) {
		if t.round == nil {
			t.round = map[invocation]*call{}
		}
		t.round[i] = c
	}
}

// again answers a copy of a request as the first one was answered. It reports false where
// that is not known.
func (t *told) again(c *call) bool {
	i, ok := of(c)
	if !ok {
		return false
	}
	if first := t.round[i]; first != nil {
		c.result, c.err = first.result, first.err
		return true
	}
	v, ok := t.now[i]
	if !ok {
		v, ok = t.before[i]
	}
	if ok {
		c.result, c.err = v.result, v.err
	}
	return ok
}

// note keeps what a call is told, if it wrote nothing.
func (t *told) note(c *call, now time.Time) {
	i, ok := of(c)
	if !ok || !wroteNothing(c) {
		return
	}
	if t.now == nil || t.size > mostTold || now.Sub(t.changed) > toldFor {
		t.now, t.before, t.size, t.changed = map[invocation]verdict{}, t.now, 0, now
	}
	t.now[i] = verdict{c.result, c.err}
	t.size += 1 + len(c.result.Objects) + len(c.result.Bindings) + len(c.result.Events)
}

// wroteNothing reports whether it is settled that a call has written nothing: it was
// refused, changed nothing, or was a dry run.
func wroteNothing(c *call) bool {
	if c.err == nil {
		return c.repeat == nil && len(c.group) == 0
	}
	var r *commands.Refusal
	var other *NotWriterError
	return errors.As(c.err, &r) && !errors.As(c.err, &other) && r.Code != commands.OutcomeUnknown && r.Code != commands.Unreachable
}

package handler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// write is the writer: it ends when the queue is closed and empty.
func (h *Handler) write() {
	defer func() {
		if h.unconfirmed == nil {
			close(h.done)
		} else {
			close(h.unconfirmed)
		}
	}()
	for first := range h.queue {
		group := h.gather(first)
		h.lastGroup = len(group)
		h.run(group)
	}
}

// gather takes what is queued. After a group of more than one it yields for a
// moment until as many have come as last time: they are likely to, since their
// callers were answered just now.
func (h *Handler) gather(first *call) []*call {
	group := []*call{first}
	var deadline time.Time
	for len(group) < maxGroup {
		select {
		case c, open := <-h.queue:
			if !open {
				return group
			}
			group = append(group, c)
			continue
		default:
		}
		if h.lastGroup <= 1 || len(group) >= h.lastGroup {
			return group
		}
		if now := time.Now(); deadline.IsZero() {
			deadline = now.Add(gather)
		} else if now.After(deadline) {
			return group
		}
		runtime.Gosched()
	}
	return group
}

// run decides the calls, appends what they wrote and answers them, in as many
// rounds as it takes.
func (h *Handler) run(calls []*call) {
	for try := 0; len(calls) > 0; try++ {
		h.mu.Lock()
		answered, rest := h.round(calls, try)
		h.mu.Unlock()
		for _, c := range answered {
			h.told.note(c, h.cfg.Clock())
			h.finish(c)
		}
		calls = rest
		if len(answered) > 0 {
			try = 0
		} else if len(rest) > 0 {
			time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond) << min(try, 6))))
		}
	}
}

// finish answers a settled call, at once where nobody can have written in
// between: while the lease is held, what a call has stored is among what the next
// writer reads before it answers anything.
func (h *Handler) finish(c *call) {
	if h.cfg.Lease == nil || c.err == nil && c.group != nil && h.cfg.Lease.Held() {
		h.reply(c)
		return
	}
	h.unconfirmed <- c
}

// answerConfirmed answers settled calls once the lease is confirmed, as many as
// there are with one confirmation. The writer does not wait for it.
func (h *Handler) answerConfirmed() {
	defer close(h.done)
	for first := range h.unconfirmed {
		calls := h.settled(first)
		ctx, cancel := context.WithTimeout(h.ctx, h.cfg.AppendTimeout)
		err := h.Confirm(ctx)
		cancel()
		for _, c := range calls {
			if err != nil {
				c.fail(&NotWriterError{ID: c.req.ID, MayBeDone: c.group != nil, Underlying: err.(*NotWriterError).Underlying})
			}
			h.reply(c)
		}
	}
}

// settled takes what waits for the same confirmation.
func (h *Handler) settled(first *call) []*call {
	calls := []*call{first}
	for len(calls) < maxGroup {
		select {
		case c, open := <-h.unconfirmed:
			if !open {
				return calls
			}
			calls = append(calls, c)
		default:
			return calls
		}
	}
	return calls
}

// reply answers one call; what it repeats is read from the log first.
func (h *Handler) reply(c *call) {
	if c.repeat != nil && c.err == nil {
		c.result, c.err = h.repeated(c)
	}
	h.cfg.Meter.Answered(c.req, c.result, c.err)
	c.answer(c.result, c.err)
}

// round decides calls in order and appends what they wrote. It returns those
// whose outcome is settled, and those that must be decided (again). h.mu is
// held.
func (h *Handler) round(calls []*call, try int) (answered, rest []*call) {
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.AppendTimeout)
	defer cancel()
	if h.stale || try > 0 {
		// Somebody else may have written. If that is the next writer, it decides
		// these: nothing of them is stored.
		if err := h.Confirm(ctx); err != nil {
			for _, c := range calls {
				c.group = nil
			}
			return failAll(calls, err), nil
		}
		err := h.catchUp(ctx)
		h.noteRead(err)
		if err != nil {
			h.cfg.Logger.Error("reading the log", "error", err)
			return failAll(calls, notSent(err)), nil
		}
	}
	after := h.head
	decided, groups, rest := h.decideAll(calls)
	stored, err := len(groups), error(nil)
	if len(groups) > 0 {
		stored, err = h.append(ctx, after, groups)
	}
	if err == nil {
		h.state.Commit()
		h.head = max(h.head, h.state.Seq)
		if len(groups) > 0 {
			h.durable()
			h.observeCalls(decided)
			h.growth.Announce()
			h.note(nil)
		}
		return decided, rest
	}
	return h.failed(decided, rest, stored, err, try)
}

// decideAll decides calls until a group is full. Everything is folded into the
// state under its journal.
func (h *Handler) decideAll(calls []*call) (decided []*call, groups []events.Group, rest []*call) {
	h.state.Begin()
	h.told.begin()
	n := 0
	for i, c := range calls {
		c.err, c.group, c.events, c.repeat, c.result, c.stepped = nil, nil, nil, nil, commands.Result{}, false
		c.mark = h.state.Mark()
		step := h.timed(c)
		if n+len(step)+len(c.group) > maxGroup && n > 0 {
			h.state.Rollback(c.mark)
			return decided, groups, calls[i:]
		}
		if step != nil {
			groups = append(groups, step)
		}
		if c.group != nil {
			groups = append(groups, c.group)
		}
		n += len(step) + len(c.group)
		decided = append(decided, c)
		h.told.decided(c)
	}
	return decided, groups, nil
}

// decide runs one call against the state with those before it. It may return a
// command of the writer's own that goes first: the clock went back.
func (h *Handler) decide(c *call) (step events.Group) {
	if c.ctx.Err() != nil {
		c.err = Unknown(c.req.ID, c.ctx.Err())
		return nil
	}
	if h.told.again(c) {
		return nil
	}
	now := h.cfg.Clock().UTC().Truncate(time.Millisecond)
	if c.err = h.admit(c, now); c.err != nil || c.repeat != nil {
		return nil
	}
	if c.err = h.mayWrite(c.req); c.err != nil {
		return nil
	}
	report, err := h.limit(c.req, now)
	if err != nil {
		c.err = err
		return nil
	}
	back := h.state.Time.Sub(now)
	env := commands.Env{Now: now, NewID: h.cfg.NewID, Actor: c.req.Actor, Reason: c.req.Reason,
		Command: c.req.ID, CommandHash: c.hash, After: h.head, Whole: c.req.DryRun}
	if back > 0 && back <= maxBackward {
		env.Now = h.state.Time
	}
	d, err := commands.Decide(h.state, c.req.Command, env)
	if err == nil && len(d.Events) > 0 && back > maxBackward {
		h.state.Rollback(c.mark)
		c.stepped = true
		if step, err = h.clockStepped(now); err == nil {
			d, err = commands.Decide(h.state, c.req.Command, env)
		}
	}
	if err == nil {
		err = h.keepsWriting(c.req.Command)
	}
	if err != nil {
		h.state.Rollback(c.mark)
		c.err, step = err, nil
		return nil
	}
	c.result = commands.Result{Seq: h.state.Seq, Changed: len(d.Events) > 0, DryRun: c.req.DryRun, CommandID: c.req.ID,
		Time: h.state.Time, Events: commands.ViewsOf(d.Events, d.Records), Effect: d.Effect}
	if c.req.DryRun {
		h.state.Rollback(c.mark)
		c.result.Seq = h.state.Seq
		return nil
	}
	c.group, c.events = d.Records, d.Events
	if report != nil && c.result.Changed {
		h.reports.spend(*report, now)
	}
	return step
}

// mayWrite refuses what no reader of the log would take: a command before this one, of
// the same group too, may have revoked the key that proves it. Another process may carry
// it out.
func (h *Handler) mayWrite(req commands.Request) error {
	if h.cfg.MayWrite == nil || req.DryRun {
		return nil
	}
	if err := h.cfg.MayWrite(h.state); err != nil {
		return &NotWriterError{ID: req.ID, Underlying: err}
	}
	return nil
}

// keepsWriting refuses a first grant of a writer that is not of this process's key: a
// key that was mistyped would end the ledger, since nobody could prove another grant.
func (h *Handler) keepsWriting(c commands.Command) error {
	g, ok := c.(commands.GrantAccess)
	if !ok || g.Role != events.RoleWriter || h.cfg.MayWrite == nil {
		return nil
	}
	if err := h.cfg.MayWrite(h.state); err != nil {
		return &commands.Refusal{Code: commands.LastWriter, Message: "the first writer must be the process that serves now",
			Why: err.Error() + "; from the first such grant on, nobody else can write the ledger", Fix: projections.Do("access list"), Candidates: []commands.Candidate{}}
	}
	return nil
}

// admit applies the rules about command ids and expected sequences.
func (h *Handler) admit(c *call, now time.Time) error {
	if c.req.Key != "" {
		actor, err := commands.Authorize(h.state, c.req.Key, c.req.Command)
		if err != nil {
			return err
		}
		c.req.Actor = actor
	}
	id := c.req.ID
	if !c.req.DryRun {
		if known, ok := h.state.Remembered(id); ok {
			if known.Hash != c.hash {
				return &commands.Refusal{Code: commands.CommandIDReused, Message: "command id " + id.String() + " was used for another command",
					Why: fmt.Sprintf("it wrote sequence %d", known.First), Fix: projections.Again().But("--command-id"), Candidates: []commands.Candidate{}}
			}
			c.repeat = &known
			return nil
		}
		if why := h.expired(id, now); why != "" {
			return &commands.Refusal{Code: commands.CommandIDExpired, Message: "command id " + id.String() + " cannot be used",
				Why: why, Fix: projections.Again().But("--command-id"), Candidates: []commands.Candidate{}}
		}
	}
	if want := c.req.ExpectSeq; want != nil && *want != h.state.Seq {
		return &commands.Refusal{Code: commands.LedgerMoved, Message: fmt.Sprintf("the ledger is not at sequence %d", *want),
			Why: fmt.Sprintf("it is at %d", h.state.Seq), Fix: projections.Do("log").With("--from", "seq:"+fmt.Sprint(*want+1)), Candidates: []commands.Candidate{}}
	}
	return nil
}

func (h *Handler) expired(id events.ID, now time.Time) string {
	switch {
	case id.IsZero():
		return "it is no id"
	case id.Milli() > now.Add(maxAhead).UnixMilli():
		return "its instant is more than ten minutes ahead of the writer's clock"
	case h.state.CommandForgotten(id):
		return "it is older than what is remembered, so that a repetition could not be told"
	}
	return ""
}

// clockStepped records that the clock went back, as a command of the writer's.
func (h *Handler) clockStepped(now time.Time) (events.Group, error) {
	c := commands.StepClock{From: h.state.Time, To: now}
	req := commands.Request{Command: c}
	hash, err := req.Hash()
	if err != nil {
		return nil, err
	}
	h.cfg.Logger.Warn("the clock went back", "from", c.From, "to", c.To)
	d, err := commands.Decide(h.state, c, commands.Env{Now: now, NewID: h.cfg.NewID, Actor: SystemActor,
		Command: h.cfg.NewID(), CommandHash: hash, After: h.head})
	if err != nil {
		return nil, err
	}
	return d.Records, nil
}

// failed takes back what is not durable and sorts the calls: what is settled is
// answered; what was decided on events that never were is decided again.
func (h *Handler) failed(decided, rest []*call, stored int, err error, try int) (answered, again []*call) {
	// The calls whose events are durable, and those between them that wrote
	// nothing, are settled. The first that is not ends that run.
	settled := 0
	for n := 0; settled < len(decided); settled++ {
		if c := decided[settled]; c.group != nil {
			n += c.groups()
			if n > stored {
				break
			}
		}
	}
	if settled < len(decided) {
		h.state.Rollback(decided[settled].mark)
	}
	h.state.Commit()
	if stored > 0 {
		h.durable()
	}
	h.observeCalls(decided[:settled])
	h.growth.Announce()
	h.stale = true
	answered = decided[:settled:settled]
	pending := append(decided[settled:], rest...)
	for _, c := range rest {
		c.group = nil // it was rolled back before it was sent
	}
	var conflict *ledger.ConflictError
	if errors.As(err, &conflict) && try < maxTries {
		return answered, pending
	}
	h.cfg.Logger.Error("appending", "error", err, "commands", len(decided)-settled)
	h.note(err)
	var unknown *ledger.UnknownError
	if errors.As(err, &unknown) {
		// Only what was sent is unknown; what was not can be decided once the log
		// is read again.
		for _, c := range pending {
			if c.group != nil {
				c.fail(Unknown(c.req.ID, err))
				answered = append(answered, c)
			} else {
				again = append(again, c)
			}
		}
		return answered, again
	}
	// The log refused the first of the pending; those behind it may be taken.
	var large *ledger.TooLargeError
	if errors.As(err, &large) {
		// It need not be the first that is too large: nothing of the others was sent.
		for i, c := range pending {
			if len(c.group) > 0 && large.Seq <= c.group[len(c.group)-1].Seq {
				c.fail(err)
				return append(answered, c), append(pending[:i:i], pending[i+1:]...)
			}
		}
	}
	return append(answered, failAll(pending, notSent(err))...), nil
}

// notSent gives a code to what kept commands from being stored at all.
func notSent(err error) error {
	out := &commands.Refusal{Code: commands.Unreachable, Message: "the ledger does not answer", Why: "nothing was written: " + err.Error(),
		Fix: projections.Again(), Candidates: []commands.Candidate{}}
	var conflict *ledger.ConflictError
	switch {
	case errors.As(err, &conflict):
		out.Code, out.Message = commands.LedgerMoved, "others write to this ledger without pause"
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
		return err
	}
	return out
}

// groupsOf is how many commands a call brought to the log: its own, and the
// writer's before it.
func (c *call) groups() int {
	if c.stepped {
		return 2
	}
	return 1
}

func failAll(calls []*call, err error) []*call {
	for _, c := range calls {
		c.fail(err)
	}
	return calls
}

func (c *call) fail(err error) { c.result, c.err, c.repeat = commands.Result{}, err, nil }

// repeated answers a command that was carried out before: its events are read
// from the log.
func (h *Handler) repeated(c *call) (commands.Result, error) {
	records, err := h.cfg.Log.Get(c.ctx, c.repeat.First, c.repeat.Last)
	if err != nil {
		return commands.Result{}, err
	}
	evs := make([]events.Event, 0, len(records))
	kept := records[:0]
	for i := range records {
		e, err := events.Decode(&records[i])
		if err != nil || e.Command != c.req.ID {
			continue // a foreign message between
		}
		evs, kept = append(evs, e), append(kept, records[i])
	}
	if len(evs) == 0 {
		return commands.Result{}, &ledger.DamageError{Seq: c.repeat.First, Why: "the events of a remembered command are not there"}
	}
	r := commands.Result{Seq: c.repeat.Last, Changed: true, CommandID: c.req.ID, Repeated: true,
		Time: evs[len(evs)-1].Time, Events: commands.ViewsOf(evs, kept)}
	h.View(func(s *projections.State) { r.Effect = commands.EffectOf(s, evs) })
	r.More = evs[len(evs)-1].Continues
	return r, nil
}

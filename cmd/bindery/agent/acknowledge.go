package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"bindery/commands"
)

// acknowledge says of each binding that the consumer runs with it, where that is
// news; and of those whose files could not be made, why.
func (c *consumption) acknowledge(ctx context.Context) error {
	var failed error
	for _, n := range c.needs {
		if err := c.faults[n]; isWaiting(err) {
			failed = errors.Join(failed, err) // nothing is wrong with it that is known
			continue
		} else if err != nil {
			failed = errors.Join(failed, c.sayFailed(ctx, n, c.r.try(n), err))
			continue
		}
		delete(c.r.Tries, n.binding)
		if !n.isNews() || c.r.Said[n.binding] >= n.at {
			continue
		}
		err := c.a.say(ctx, commands.AcknowledgeBinding{Slot: n.binding, At: n.at, Chain: n.chain}, "")
		if err != nil && !errors.Is(err, errMoot) {
			failed = errors.Join(failed, err)
			continue
		}
		c.a.crash("said")
		c.r.Said[n.binding] = n.at
	}
	if len(c.needs) == 0 {
		return failed
	}
	return errors.Join(failed, c.keepSaid())
}

// isNews reports whether the ledger does not know that the consumer runs with what
// it shall.
func (n *need) isNews() bool {
	return (n.usable || n.released) && (n.applied < n.changed || n.failed)
}

// keepSaid writes what was said, of the bindings that there still are.
func (c *consumption) keepSaid() error {
	there := map[string]bool{}
	for _, n := range c.needs {
		there[n.binding] = true
	}
	maps.DeleteFunc(c.r.Said, func(b string, _ uint64) bool { return !there[b] })
	maps.DeleteFunc(c.r.Tries, func(b string, _ tries) bool { return !there[b] })
	return c.keep()
}

// fail says why the consumer could not take up what it shall, of each binding that
// is concerned, and returns the reason: it is tried again.
func (c *consumption) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil || isWaiting(err) {
		return cmp.Or(ctx.Err(), err)
	}
	changed := c.r.changed()
	for _, n := range c.needs {
		switch {
		case isWaiting(c.faults[n]):
		case c.faults[n] != nil:
			err = errors.Join(err, c.sayFailed(ctx, n, c.r.try(n), c.faults[n]))
		case (n.usable || n.released) && (len(changed) == 0 || slices.Contains(changed, n.slot)):
			if again := c.sayFailed(ctx, n, max(c.r.Attempts, 1), err); errors.Is(again, errNotSaid) {
				err = errors.Join(err, again)
			}
		}
	}
	return &failedStep{errors.Join(err, c.keepSaid())}
}

// try counts a try to make the files of a slot.
func (r *assignmentRecord) try(n *need) uint64 {
	t := r.Tries[n.binding]
	if t.Source != n.source() {
		t = tries{Source: n.source()}
	}
	t.N++
	if r.Tries == nil {
		r.Tries = map[string]tries{}
	}
	r.Tries[n.binding] = t
	return t.N
}

// sayFailed says why a consumer could not take up what it shall, and returns why.
func (c *consumption) sayFailed(ctx context.Context, n *need, attempts uint64, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(why, errNotArrived) && attempts == 1 {
		return &failedStep{why} // it may be on its way
	}
	err := c.a.say(ctx, commands.FailBinding{Slot: n.binding, Attempts: attempts}, reasonOf(why))
	if errors.Is(err, errNotSaid) {
		why = errors.Join(why, err)
	}
	return &failedStep{why}
}

// reasonOf is an error fit for the ledger.
func reasonOf(err error) string {
	var run *runFailure
	if errors.As(err, &run) && err == error(run) {
		return run.reason // it is fit already
	}
	if text, ok := fit(err.Error(), nil); ok && text != "" {
		return text
	}
	return "it failed, and its message cannot be recorded"
}

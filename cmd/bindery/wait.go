package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"bindery/commands"
)

// A wait asks again and again how far something is, until it is over. It writes
// nothing: whoever stops it stops nothing else.

// asker is where a wait reads how far things are.
type asker interface {
	Ask(ctx context.Context, q commands.Query) (json.RawMessage, error)
}

// askEvery is how often a wait looks.
const askEvery = 500 * time.Millisecond

// mostMissing bounds whom a wait that ended too soon lists.
const mostMissing = 20

// waited is something that is waited for.
type waited interface {
	// look asks how far it is. An error ends the wait.
	look(ctx context.Context, a asker) (standing, error)
	// missing asks who has not done yet what is waited for.
	missing(ctx context.Context, a asker) ([]commands.Candidate, error)
	// verb and shows are the commands that wait for it, and that show who is
	// missing.
	verb() commands.Fix
	shows() commands.Fix
}

// standing is how far what is waited for has come.
type standing struct {
	what        string // "rotation of the holders of pg-alpha", "consumers of pg-alpha"
	done, total int
	over        bool // there is nothing left to wait for
}

func (s standing) String() string { return fmt.Sprintf("%d of %d done", s.done, s.total) }

// wait looks at something until it is over.
type wait struct {
	line   func(commands.Fix) string
	asker  asker
	served bool // somebody else can write meanwhile
	tick   <-chan time.Time
	limit  time.Duration    // what end comes after
	end    <-chan time.Time // nil: it waits for ever
	bar    *bar
}

// wait waits for something that a asks about; served says that others can write
// meanwhile, limited that --timeout was given.
func (c *cli) wait(ctx context.Context, a asker, served bool, w waited, limited bool) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	on := wait{line: c.line, asker: a, served: served, tick: tick.C, bar: &bar{ui: c.ui}}
	if limited {
		end := time.NewTimer(c.globals.timeout)
		defer end.Stop()
		on.limit, on.end = c.globals.timeout, end.C
	}
	return on.until(ctx, w)
}

// bounded gives each question the time that one may take.
type bounded struct {
	asker
	timeout time.Duration
}

func (b bounded) Ask(ctx context.Context, q commands.Query) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.asker.Ask(ctx, q)
}

// until returns when w is over. The bar appears with the first look that finds
// it is not.
func (on *wait) until(ctx context.Context, w waited) error {
	now, err := w.look(ctx, on.asker)
	if err != nil || now.over {
		return err
	}
	if !on.served {
		return on.needsServe(ctx, w, now)
	}
	on.bar.what, on.bar.total = "waiting for the "+now.what, now.total
	on.bar.start()
	defer on.bar.stop()
	for {
		on.bar.total = now.total
		on.bar.at(now.done, "who is missing: "+on.line(w.shows()))
		select {
		case <-on.tick:
		case <-on.end:
			return on.tooLong(ctx, w, now)
		case <-ctx.Done():
			return stoppedWaiting(w, now)
		}
		last := now
		if now, err = w.look(ctx, on.asker); err != nil && ctx.Err() != nil {
			return stoppedWaiting(w, last)
		}
		if err != nil || now.over {
			return err
		}
	}
}

// needsServe refuses to wait for what cannot come.
func (on *wait) needsServe(ctx context.Context, w waited, now standing) error {
	return on.lists(ctx, w, refusal(commands.NeedsServe, "waiting for the "+now.what+" would never end",
		now.String()+", and nobody else can write while this process holds the store: no bindery serve runs on it", w.shows()))
}

// tooLong is the end of --timeout.
func (on *wait) tooLong(ctx context.Context, w waited, now standing) error {
	return on.lists(ctx, w, refusal(commands.StillPending, fmt.Sprintf("waited %s for the %s", on.limit, now.what), now.String(), w.shows()))
}

// lists adds who is missing to a refusal.
func (on *wait) lists(ctx context.Context, w waited, r *commands.Refusal) error {
	missing, err := w.missing(ctx, on.asker)
	if err != nil {
		return err
	}
	r.Candidates = append(r.Candidates, missing[:min(len(missing), mostMissing)]...)
	if n := len(missing) - mostMissing; n > 0 {
		r.Candidates = append(r.Candidates, commands.Candidate{Name: "…", Why: fmt.Sprintf("and %d more", n)})
	}
	return r
}

// stoppedWaiting says after Ctrl-C that nothing is lost.
func stoppedWaiting(w waited, now standing) error {
	return refusal(commands.Interrupted, "only the waiting for the "+now.what+" has ended", now.String(), w.verb())
}

// read asks and reads the answer.
func read[T any](ctx context.Context, a asker, q commands.Query) (v T, err error) {
	data, err := a.Ask(ctx, q)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("reading an answer: %w", err)
	}
	return v, nil
}

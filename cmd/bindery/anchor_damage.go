package main

import (
	"errors"
	"fmt"
	"strings"

	"bindery/commands"
	"bindery/ledger"
	"bindery/projections"
)

// damage is what is wrong with a ledger: nothing more is written to it.
type damage struct {
	dir string
	err error // a *ledger.DamageError, *ledger.LossError, *ledger.ConfigError, or another
	// anchor is what was proved; its sequence is 0 where nothing was.
	anchor ledger.Anchor
	// aside is the fix where nothing can be recovered: the anchor is of what is gone.
	aside string
	// end is how far the ledger is sound, once it was read; unread: nothing of it
	// can be.
	end    ledger.Position
	unread bool
	mesh   string             // its name, once it was read
	state  *projections.State // what is left, once it was read
}

// gone is a ledger that is not there any more.
func gone(dir string, anchors ledger.Anchors, a ledger.Anchor) *damage {
	file := anchors.File(a.ID)
	return &damage{dir: dir, anchor: a, unread: true, aside: "mv " + quote(file) + " " + quote(strings.TrimSuffix(file, ".json")+".gone"),
		err: &ledger.LossError{Anchor: a, Why: "there is no ledger"}}
}

// first is the first sequence that is wrong or lost; 0 where it is no event.
func (d *damage) first() uint64 {
	var at *ledger.DamageError
	var loss *ledger.LossError
	switch {
	case errors.As(d.err, &at):
		return at.Seq
	case errors.As(d.err, &loss):
		return min(loss.Last+1, loss.Anchor.Seq)
	}
	return 0
}

// why says what is wrong, and what was proved.
func (d *damage) why() string {
	var at *ledger.DamageError
	if errors.As(d.err, &at) {
		return fmt.Sprintf("sequence %d is the first that is wrong: %s", at.Seq, d.what())
	}
	return d.what()
}

// what says what is wrong, without the sequence.
func (d *damage) what() string {
	var at *ledger.DamageError
	var loss *ledger.LossError
	text := d.err.Error()
	switch {
	case errors.As(d.err, &at):
		text = whyDamaged(at)
	case errors.As(d.err, &loss):
		text = loss.Why
	}
	if a := d.anchor; a.Seq > 0 {
		text += fmt.Sprintf("; its anchor of %s proves sequence %d", a.Time.UTC().Format("2006-01-02T15:04:05Z"), a.Seq)
	}
	return text
}

// refusal is what a write is told, and a read beside its answer: what is lost, and
// the two ways on.
func (d *damage) refusal() *commands.Refusal {
	r := refusal(commands.LedgerDamaged, "the ledger in "+d.dir+" has lost what was acknowledged; nothing is written to it", d.why(), do("restore", "FILE").With("--store", "DIR"))
	r.Candidates = append(r.Candidates, commands.Candidate{Name: "restore", Why: "brings back what a backup has, into an empty directory", Fix: do("restore", "FILE").With("--store", "DIR")})
	switch {
	case d.aside != "":
		r.Candidates = append(r.Candidates, commands.Candidate{Name: "begin anew", Why: "if the ledger was taken away on purpose: " + d.aside})
	case !d.unread:
		r.Candidates = append(r.Candidates, commands.Candidate{Name: "audit recover",
			Why: fmt.Sprintf("goes on from %s, without what is lost", d.from()),
			Fix: do("audit recover").With("--accept-loss").With("--reason", "TEXT").With("--store", d.dir)})
	}
	return r
}

// instead is what is said where a damaged ledger has refused something: that it is
// damaged, since what it says of anything else is what is left of it.
func (d *damage) instead(r *commands.Refusal) *commands.Refusal {
	switch r.Code.Exit() {
	case commands.ExitIntegrity, commands.ExitUsage, commands.ExitInterrupted:
		return r
	}
	out := d.refusal()
	out.Why += "; what is left of it says: " + r.Message
	return out
}

// from is where a recovery goes on.
func (d *damage) from() string {
	if d.end.Seq == 0 {
		return "the last event that is sound" // it was not read that far
	}
	return fmt.Sprintf("sequence %d", d.end.Seq)
}

// Error implements error.
func (d *damage) Error() string { return d.refusal().Error() }

// Unwrap returns the refusal first, so that it is found as what is shown.
func (d *damage) Unwrap() []error { return []error{d.refusal(), d.err} }

// warning is said beside what was read from a damaged ledger.
func (d *damage) warning() *commands.Refusal {
	r := d.refusal()
	r.Message = fmt.Sprintf("the ledger in %s has lost what was acknowledged; this is what is left, up to sequence %d", d.dir, d.end.Seq)
	return r
}

package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"bindery/events"
)

// Verifying says what Verify is to look at.
type Verifying struct {
	From Position // the last event that is known to be sound; zero: none
	To   uint64   // the sequence to end at, which must be stored (see Last)
	// Known are positions from elsewhere, such as a checkpoint's, that the log must
	// hold. One without a mesh is of any.
	Known []Position
	// Each, if not nil, gets each command that is sound, in order; its error ends
	// the walk and is returned as it is.
	Each func([]events.Event) error
	// Proven, if not nil, gets each run of commands that one secret or key has proven, and
	// each that nobody had to prove, in order.
	Proven func(Proven)
}

// Proven is a run of commands.
type Proven struct {
	By          string // the id of the secret, or the public key; empty: no proof was needed
	First, Last uint64 // sequences
}

// Verified is what Verify has found sound: all of the log up to Last.
type Verified struct {
	Last     Position // the last event; From where there is none after it
	Events   uint64   // after From
	Commands uint64   // after From
	Foreign  uint64   // messages after From that are no part of the ledger
	// FirstForeign is the sequence of the first of them after all known positions: by
	// them, those before had been there already. 0: there is none.
	FirstForeign uint64
}

// Verify reads the log, computes every chain value anew, decodes every event and
// holds the borders of the commands and v.Known against what it finds. The error
// is a *DamageError with the first sequence that is wrong, an *OtherMeshError, one
// that wraps *events.UnknownTypeError, or one of v.Each, of ctx or of the
// connection. What was sound before it is returned as well.
//
// A log whose events were all written anew with a chain of their own is told only
// by a known position, and only that it happened before it.
func (l *Log) Verify(ctx context.Context, v Verifying) (Verified, error) {
	w := walk{known: slices.Clone(v.Known), old: v.From.Seq, done: Verified{Last: v.From}}
	slices.SortFunc(w.known, func(a, b Position) int { return cmp.Compare(a.Seq, b.Seq) })
	if n := len(w.known); n > 0 {
		w.old = max(w.old, w.known[n-1].Seq)
	}
	w.known = slices.DeleteFunc(w.known, func(p Position) bool { return p.Seq <= v.From.Seq })
	var failed error
	var a *assembler
	by := Proven{}
	tell := func() {
		if v.Proven != nil && by.Last > 0 {
			v.Proven(by)
		}
	}
	a = newAssembler(l, v.From, false, func(evs []events.Event, _ []events.Record) bool {
		if by.Last == 0 || by.By != a.who {
			tell()
			by = Proven{By: a.who, First: evs[0].Seq}
		}
		by.Last = evs[len(evs)-1].Seq
		if failed = w.command(evs); failed == nil && v.Each != nil {
			failed = v.Each(evs)
		}
		return failed == nil
	})
	a.hold = true
	err := (&run{l: l, a: a, to: v.To, patient: true}).drive(ctx)
	tell()
	if failed != nil {
		err = failed
	}
	seen := w.done.Last.Seq
	if err == nil {
		seen = max(seen, a.seen) // foreign messages may lie behind the last event
		err = w.end()
	}
	w.done.Foreign = seen - v.From.Seq - w.done.Events
	w.passed(w.done.Last.Seq, seen+1)
	return w.done, err
}

// walk is one Verify under way.
type walk struct {
	known []Position // still to come, ascending
	old   uint64     // the sequence of the last position that is known
	held  uint64     // the sequence of the last known position that the log held
	done  Verified
}

// command holds a sound command against what is known.
func (w *walk) command(evs []events.Event) error {
	last := w.done.Last.Seq
	for i := range evs {
		e := &evs[i]
		w.passed(last, e.Seq)
		last = e.Seq
		for len(w.known) > 0 && w.known[0].Seq <= e.Seq {
			if err := w.compare(w.known[0], e); err != nil {
				return err
			}
			w.held, w.known = e.Seq, w.known[1:]
		}
	}
	w.done.Last = After(&evs[len(evs)-1])
	w.done.Events += uint64(len(evs))
	w.done.Commands++
	return nil
}

// passed notes that nothing of the ledger lies between two sequences.
func (w *walk) passed(last, next uint64) {
	if at := max(last, w.old) + 1; at < next && w.done.FirstForeign == 0 {
		w.done.FirstForeign = at
	}
}

// compare holds the first event at or after a known position against it.
func (w *walk) compare(p Position, e *events.Event) error {
	switch {
	case !p.Mesh.IsZero() && p.Mesh != e.Mesh:
		return &OtherMeshError{Want: p.Mesh, Found: e.Mesh}
	case p.Seq < e.Seq:
		return &DamageError{Seq: p.Seq, Why: "no event of the ledger is there, and one was"}
	case p.Chain != e.Chain:
		return &DamageError{Seq: p.Seq, Why: fmt.Sprintf("its chain value is %s, and was %s: what lies from sequence %d to here was written anew", e.Chain, p.Chain, w.held+1)}
	}
	return nil
}

// end judges what was known of a log that goes on beyond its end.
func (w *walk) end() error {
	if len(w.known) == 0 {
		return nil
	}
	p, last := w.known[len(w.known)-1], w.done.Last
	if !p.Mesh.IsZero() && !last.Mesh.IsZero() && p.Mesh != last.Mesh {
		return &OtherMeshError{Want: p.Mesh, Found: last.Mesh}
	}
	return &DamageError{Seq: last.Seq + 1, Why: fmt.Sprintf("the log ends at %d, and had reached %d", last.Seq, p.Seq)}
}

// OtherMeshError says that a log is that of another mesh.
type OtherMeshError struct{ Want, Found events.ID }

func (e *OtherMeshError) Error() string {
	return fmt.Sprintf("verifying: the log is that of the mesh with id %s, not %s", e.Found, e.Want)
}

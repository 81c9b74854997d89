package commands

import (
	"fmt"
	"strconv"
	"strings"

	"bindery/events"
	"bindery/projections"
)

// HeldBinding finds a slot's binding that a generation was asked of: the live
// one, one whose slot was pruned, or that of an assignment that has ended. What
// is over has holders still, and they are acknowledged by its name.
func (f Finder) HeldBinding(text string, generation uint64) (projections.BindingRef, error) {
	if generation == 0 {
		return 0, refuse(Usage, "the generation is not said", "a slot may have several credentials", do("credential list"))
	}
	all, err := f.everyBinding(text)
	if err != nil {
		return 0, err
	}
	var asked []projections.BindingRef
	for _, r := range all {
		if f.WasAsked(r, generation) {
			asked = append(asked, r)
		}
	}
	switch len(asked) {
	case 0:
	case 1:
		return asked[0], nil
	default:
		return 0, f.ambiguous(text, generation, asked)
	}
	refusal := refuse(GenerationUnknown, fmt.Sprintf("generation %d was never asked of %s", generation, clip(text)),
		"a generation is the sequence of the event that asked for it", do("credential list"))
	if a := f.State.Assignment(f.Binding(all[0]).Assignment); !a.Ended {
		refusal.Fix = refusal.Fix.With("--assignment", a.Name)
	}
	for _, r := range all {
		for c := range f.Credentials(r) {
			if len(refusal.Candidates) == MaxCandidates {
				return 0, refusal
			}
			n := strconv.FormatUint(c.Generation, 10)
			refusal.Candidates = append(refusal.Candidates, Candidate{Name: n, Why: c.State.String(), Flag: "--generation " + n})
		}
	}
	return 0, refusal
}

// ambiguous refuses a name that several bindings bear or bore, which one rotation
// asked for a credential each.
func (f Finder) ambiguous(text string, generation uint64, asked []projections.BindingRef) error {
	r := refuse(AmbiguousSlot, fmt.Sprintf("generation %d of %s is of %d bindings", generation, clip(text), len(asked)),
		"assignments bore the name one after the other; each binding has an id", Fix{})
	for _, b := range asked {
		id, what := f.Binding(b).ID, "the present one"
		if f.Binding(b).Released {
			what = fmt.Sprintf("released at sequence %d", f.Binding(b).Seq)
		}
		for c := range f.Credentials(b) {
			if c.Generation == generation {
				what += ", " + c.State.String()
			}
		}
		r.Candidates = append(r.Candidates, Candidate{Name: id.String(), ID: &id, Why: what})
	}
	r.Fix = advise("the same command with the id of one of them in place of " + text)
	return r
}

// everyBinding finds all bindings that assignment/slot means or meant, the
// newest first; at least one, or an error.
func (f Finder) everyBinding(text string) ([]projections.BindingRef, error) {
	name, slot, ok := strings.Cut(text, "/")
	if !ok {
		if !looksLikeID(text) {
			return nil, f.noSlot(text)
		}
		i, err := f.byID(refKind{events.EntityBinding, BindingNotFound}, text)
		return []projections.BindingRef{projections.BindingRef(i)}, err
	}
	var out []projections.BindingRef
	of := func(r projections.AssignmentRef) {
		for _, b := range f.EveryBinding(f.State.Assignment(r)) {
			if f.SlotName(f.Binding(b)) == slot {
				out = append(out, b)
			}
		}
	}
	if r, err := f.Assignment(name); err == nil {
		of(r)
	}
	for _, r := range f.EndedAssignments(name) {
		of(r)
	}
	if len(out) > 0 {
		return out, nil
	}
	if _, err := f.Slot(text); err != nil {
		return nil, err
	}
	return nil, refuse(BindingNotFound, "nothing was ever bound to "+clip(text), "", do("assignment resolve", name))
}

// lingering is the binding of a pruned slot that still has a document, or 0.
func (f Finder) lingering(text string) projections.BindingRef {
	all, err := f.everyBinding(text)
	if err != nil {
		return 0
	}
	for _, r := range all {
		if f.Lingers(f.Binding(r)) {
			return r
		}
	}
	return 0
}

// bindingsToApply finds the bindings a consumer speaks of: what serves the slot,
// and what is left of those of its name that were pruned and still have a
// document. At least one, or an error.
func (t *Tx) bindingsToApply(text string) ([]projections.BindingRef, error) {
	all, err := Finder{t.State}.everyBinding(text)
	if err != nil {
		return nil, err
	}
	var out []projections.BindingRef
	last := t.Binding(all[0])
	for _, r := range all {
		switch b := t.Binding(r); {
		case t.Lingers(b):
			out = append(out, r)
		case !b.Released && !b.Pending():
			out = append([]projections.BindingRef{r}, out...)
		case !b.Released:
			last = b
		}
	}
	if out != nil {
		return out, nil
	}
	return nil, t.nothingToApply(text, last)
}

// nothingToApply says why a consumer has nothing to run with.
func (t *Tx) nothingToApply(text string, b *projections.Binding) error {
	a := t.Assignment(b.Assignment)
	switch {
	case a.Ended:
		return refuse(BindingNotFound, clip(text)+" is no longer bound", fmt.Sprintf("assignment %s ended at sequence %d", a.Name, a.Seq), do("assignment list"))
	case b.Released:
		return refuse(BindingNotFound, clip(text)+" is no longer bound", fmt.Sprintf("its slot was pruned at sequence %d", b.Seq), do("assignment show", a.Name))
	}
	return refuse(BindingNotFound, "nothing serves "+clip(text)+" yet", "there is nothing to run with", do("assignment resolve", a.Name))
}

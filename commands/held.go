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
		return 0, refuse(Usage, "the generation is not said", "a slot may have several credentials", "bindery credential list")
	}
	all, err := f.everyBinding(text)
	if err != nil {
		return 0, err
	}
	for _, r := range all {
		if f.WasAsked(r, generation) {
			return r, nil
		}
	}
	refusal := refuse(GenerationUnknown, fmt.Sprintf("generation %d was never asked of %s", generation, clip(text)),
		"a generation is the sequence of the event that asked for it", "bindery credential list")
	if a := f.State.Assignment(f.Binding(all[0]).Assignment); !a.Ended {
		refusal.Fix += " --assignment " + a.Name
	}
	for _, r := range all {
		for _, c := range f.Credentials(r) {
			if len(refusal.Candidates) == MaxCandidates {
				return 0, refusal
			}
			n := strconv.FormatUint(c.Generation, 10)
			refusal.Candidates = append(refusal.Candidates, Candidate{Name: n, Why: c.State.String(), Flag: "--generation " + n})
		}
	}
	return 0, refusal
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
	return nil, refuse(BindingNotFound, "nothing was ever bound to "+clip(text), "", "bindery assignment resolve "+name)
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

// bindingToApply finds the binding a consumer speaks of: the live one, or one
// whose slot was pruned and that still has a document.
func (t *Tx) bindingToApply(text string) (projections.BindingRef, error) {
	all, err := Finder{t.State}.everyBinding(text)
	if err != nil {
		return 0, err
	}
	b := t.Binding(all[0])
	for _, r := range all {
		if o := t.Binding(r); !o.Released || t.Lingers(o) {
			b = o
			if o.Released || !o.Pending() {
				return r, nil
			}
			break
		}
	}
	a := t.Assignment(b.Assignment)
	switch {
	case a.Ended:
		return 0, refuse(BindingNotFound, clip(text)+" is no longer bound", fmt.Sprintf("assignment %s ended at sequence %d", a.Name, a.Seq), "bindery assignment list")
	case b.Released:
		return 0, refuse(BindingNotFound, clip(text)+" is no longer bound", fmt.Sprintf("its slot was pruned at sequence %d", b.Seq), "bindery assignment show "+a.Name)
	}
	return 0, refuse(BindingNotFound, "nothing serves "+clip(text)+" yet", "there is nothing to run with", "bindery assignment resolve "+a.Name)
}

// Rotation finds a rotation by id, or by the provider whose holders it is or was
// last about.
func (f Finder) Rotation(text string) (projections.RotationRef, error) {
	p := f.ProviderNamed(text)
	if gone := f.RetiredProviders(text); p == 0 && len(gone) > 0 {
		p = gone[0]
	}
	if p != 0 {
		if all := f.Rotations(p); len(all) > 0 {
			return all[len(all)-1], nil
		}
		return 0, refuse(RotationNotFound, "the holders of "+text+" were never rotated", "", "bindery rotation start --provider "+text)
	}
	if !looksLikeID(text) {
		return 0, refuse(RotationNotFound, fmt.Sprintf("no rotation is called %q", clip(text)),
			"a rotation is named by its id, or by the provider whose holders it is about", "bindery rotation list")
	}
	i, err := f.byID(refKind{events.EntityRotation, RotationNotFound}, text)
	return projections.RotationRef(i), err
}

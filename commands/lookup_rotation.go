package commands

import (
	"fmt"
	"strings"

	"bindery/events"
	"bindery/projections"
)

// Rotation finds a rotation by id; by a provider (name or id), the last one of
// its holders; by assignment/slot, the last one of its instance or about it alone.
func (f Finder) Rotation(text string) (projections.RotationRef, error) {
	if id, err := events.ParseID(text); err == nil {
		if i := f.ByID(events.EntityRotation, id); i != 0 {
			return projections.RotationRef(i), nil
		}
	}
	if strings.Contains(text, "/") {
		return f.rotationOfSlot(text)
	}
	p, err := f.Provider(text)
	if err != nil {
		if gone := f.RetiredProviders(text); len(gone) > 0 {
			p, err = gone[0], nil
		}
	}
	if err == nil {
		if all := f.Rotations(p); len(all) > 0 {
			return all[len(all)-1], nil
		}
		return 0, refuse(RotationNotFound, "the holders of "+f.State.Provider(p).Name+" were never rotated", "", do("rotation list"))
	}
	if looksLikeID(text) {
		i, err := f.byID(refKind{events.EntityRotation, RotationNotFound}, text)
		return projections.RotationRef(i), err
	}
	r := refuse(RotationNotFound, fmt.Sprintf("no rotation is called %q", clip(text)),
		"a rotation is named by its id, by the provider whose holders it is about, or by a slot", do("rotation list"))
	if b := f.FormerBearer(events.EntityProvider, text); b.Name != "" {
		r.Why = "the provider that bore this name is called " + b.Name + " now"
		id := b.ID
		r.Candidates = append(r.Candidates, Candidate{Name: b.Name, ID: &id, Why: "bore the name before"})
	}
	return 0, r
}

func (f Finder) rotationOfSlot(text string) (projections.RotationRef, error) {
	all, err := f.everyBinding(text)
	if err != nil {
		return 0, err
	}
	for _, r := range all {
		if o := f.RotationOf(r); o != 0 {
			return o, nil
		}
	}
	return 0, refuse(RotationNotFound, "no rotation was about "+clip(text)+" alone", "one of all holders is named by its provider", do("rotation list"))
}

package projections

import (
	"cmp"
	"slices"
	"strings"

	"bindery/events"
)

// Difference is what is different for one binding at two moments.
type Difference struct {
	Binding events.ID        `json:"binding"`
	Slot    string           `json:"slot"` // assignment/slot, as it was called last
	Kinds   []ChangeKind     `json:"kinds"`
	What    []string         `json:"what"` // a sentence each
	Before  *BindingDocument `json:"before"`
	After   *BindingDocument `json:"after"`
}

// Differences lists what is different for each binding in two states of one mesh,
// by assignment and slot. Only what lasted shows: what came and went between does
// not.
func Differences(before, after *State) []Difference {
	was, is := before.documentsByID(), after.documentsByID()
	occasion := &Occasion{Stamp: after.Stamp(), Time: after.Time}
	out := []Difference{}
	add := func(id events.ID, b, a *BindingDocument) {
		changes := Changes(b, a, occasion)
		if len(changes) == 0 {
			return
		}
		d := Difference{Binding: id, Before: b, After: a}
		last := cmp.Or(a, b)
		d.Slot = last.Assignment + "/" + last.Slot
		for i := range changes {
			d.Kinds, d.What = append(d.Kinds, changes[i].Kind), append(d.What, changes[i].Text())
		}
		out = append(out, d)
	}
	for id, b := range was {
		add(id, b, is[id])
	}
	for id, a := range is {
		if was[id] == nil {
			add(id, nil, a)
		}
	}
	slices.SortFunc(out, func(x, y Difference) int {
		return cmp.Or(strings.Compare(x.Slot, y.Slot), strings.Compare(x.Binding.String(), y.Binding.String()))
	})
	return out
}

func (s *State) documentsByID() map[events.ID]*BindingDocument {
	out := map[events.ID]*BindingDocument{}
	for i := 1; i <= s.BindingCount(); i++ {
		if r := BindingRef(i); s.HasDocument(r) {
			d := s.BindingDocument(r)
			out[*d.ID] = &d
		}
	}
	return out
}

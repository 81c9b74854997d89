package projections

import (
	"bytes"
	"encoding/json"
	"slices"

	"bindery/events"
)

// Trace picks from a log the events that made something what it is. It folds the
// log from its beginning: whom an event concerns depends on what was before.
type Trace struct {
	s   *State
	ids []events.ID
	all bool

	docs map[events.ID][]byte // of the bindings among ids, as they were last
}

// NewTrace makes a trace of the entities with these ids: bindings, or others. With
// all it also picks what merely refers to them.
func NewTrace(ids []events.ID, all bool) *Trace {
	return &Trace{s: New(), ids: ids, all: all, docs: map[events.ID][]byte{}}
}

// State is the state after the last command; it is not to be changed.
func (t *Trace) State() *State { return t.s }

// Apply folds one command and returns which of its events belong to the trace, by
// their index.
func (t *Trace) Apply(group []events.Event) ([]int, error) {
	var out []int
	for i := range group {
		e := &group[i]
		if err := t.s.Apply(e); err != nil {
			return nil, err
		}
		if t.concerns(e) {
			out = append(out, i)
		}
	}
	return out, nil
}

// concerns reports whether an event that has just been folded belongs to the trace.
func (t *Trace) concerns(e *events.Event) bool {
	found := slices.Contains(t.ids, e.Entity)
	near := map[BindingRef]bool{}
	elsewhere := t.s.Affected(e, func(r BindingRef) { near[r] = true })
	for _, id := range t.ids {
		switch r := t.s.byID[id]; {
		case r.index == 0:
		case r.kind == kBinding:
			found = t.changed(id, BindingRef(r.index), e, near[BindingRef(r.index)], elsewhere) || found
		case r.kind == kAssignment:
			for b := t.s.assignments.at(r.index).first; b != 0; b = t.s.Binding(b).next {
				found = found || t.about(b, e)
			}
		}
	}
	return found || t.all && t.refers(e)
}

// about reports whether an event is about a binding by itself: it stands under its
// id, or is an override of it.
func (t *Trace) about(b BindingRef, e *events.Event) bool {
	id := t.s.Binding(b).ID
	switch p := e.Data.(type) {
	case *events.OverrideSet:
		return p.Binding == id
	case *events.OverrideCleared:
		return p.Binding == id
	}
	return e.Entity == id
}

// changed reports whether an event is about a binding, about its assignment, or has
// changed its documents from afar: a provider that moved, a name, a rotation.
func (t *Trace) changed(id events.ID, r BindingRef, e *events.Event, near, elsewhere bool) bool {
	// Of a rotation its documents may not tell: an ask may have been open before.
	rotated := t.rotates(r, e)
	if !near && !elsewhere {
		return rotated
	}
	was := t.docs[id]
	now := t.s.contents(r)
	t.docs[id] = now
	if rotated || t.about(r, e) {
		return true
	}
	if e.Entity == t.s.Assignment(t.s.Binding(r).Assignment).ID {
		switch p := e.Data.(type) {
		case *events.ChoiceSet:
			return p.Binding == id
		case *events.ChoiceCleared:
			return p.Binding == id
		}
		return true
	}
	return !bytes.Equal(was, now)
}

// rotates reports whether an event is of a rotation that is about a credential of the
// binding.
func (t *Trace) rotates(r BindingRef, e *events.Event) bool {
	at := t.s.byID[e.Entity]
	if at.kind != kRotation || at.index == 0 {
		return false
	}
	o := t.s.rotations.at(at.index)
	for c := range t.s.Credentials(r) {
		if o.Has(&c) {
			return true
		}
	}
	return false
}

// contents are a binding's documents without their stamps.
func (s *State) contents(r BindingRef) []byte {
	var all []any
	if s.HasDocument(r) {
		d := s.BindingDocument(r)
		d.Stamp = Stamp{}
		all = append(all, d)
	}
	for _, h := range s.HolderDocuments(r) {
		h.Stamp = Stamp{}
		all = append(all, h)
	}
	data, err := json.Marshal(all)
	if err != nil {
		panic("projections: a document that is no JSON: " + err.Error())
	}
	return data
}

// refers reports whether an event names one of the entities.
func (t *Trace) refers(e *events.Event) bool {
	data, err := json.Marshal(e.Data)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(t.ids, func(id events.ID) bool { return bytes.Contains(data, []byte(id.String())) })
}

package commands

import (
	"strings"
	"time"

	"bindery/events"
	"bindery/projections"
)

// ResolveTrace asks whom a name means, for a history: those who bear it, or did.
type ResolveTrace struct {
	// Noun is what it is; empty: Named is assignment/slot, or the id of a binding.
	Noun  string `json:"noun,omitempty"`
	Named string `json:"name"`
}

// TraceView is whom a name means.
type TraceView struct {
	Noun string      `json:"noun"`
	Name string      `json:"name"` // as it is called now, or was last
	IDs  []events.ID `json:"ids"`  // the latest first
	Seq  uint64      `json:"seq"`  // the ledger's
}

// Name implements Query.
func (ResolveTrace) Name() string { return "history.resolve" }

// traceNouns are the nouns of what has a history, and how each is found by name.
var traceNouns = map[string]struct {
	entity events.Entity
	find   func(f Finder, text string) (uint32, error)
}{
	"node":       {events.EntityNode, found(Finder.Node)},
	"provision":  {events.EntityProvision, found(Finder.Provision)},
	"provider":   {events.EntityProvider, found(Finder.Provider)},
	"module":     {events.EntityModule, found(Finder.Module)},
	"assignment": {events.EntityAssignment, found(Finder.Assignment)},
	"rotation":   {events.EntityRotation, found(Finder.Rotation)},
}

// found makes a reference of any type an index.
func found[R ~uint32](find func(Finder, string) (R, error)) func(Finder, string) (uint32, error) {
	return func(f Finder, text string) (uint32, error) {
		r, err := find(f, text)
		return uint32(r), err
	}
}

// TraceNouns lists the nouns of what has a history, sorted.
func TraceNouns() []string {
	return []string{"assignment", "binding", "module", "node", "provider", "provision", "rotation"}
}

// Answer implements Query.
func (q ResolveTrace) Answer(s *projections.State, _ time.Time) (any, error) {
	f := Finder{s}
	v := TraceView{Noun: q.Noun, Name: q.Named, Seq: s.Seq}
	if q.Noun == "" || q.Noun == "binding" {
		all, err := f.everyBinding(q.Named)
		if err != nil {
			// Of an assignment that was renamed the former name means it, too.
			name, slot, _ := strings.Cut(q.Named, "/")
			if id := s.LastBearer(events.EntityAssignment, name); !id.IsZero() {
				all, _ = f.everyBinding(s.NameOf(id) + "/" + slot)
			}
		}
		if len(all) == 0 {
			return nil, err
		}
		v.Noun, v.Name = "binding", f.SlotPath(f.Binding(all[0]))
		for _, r := range all {
			v.IDs = append(v.IDs, f.Binding(r).ID)
		}
		return v, nil
	}
	n, ok := traceNouns[q.Noun]
	if !ok {
		return nil, refuse(Usage, clip(q.Noun)+" has no history", "nouns are "+strings.Join(TraceNouns(), ", "), do("history", "A/S"))
	}
	i, err := n.find(f, q.Named)
	id := events.ID{}
	switch {
	case err == nil:
		id = s.IDOf(n.entity, i)
	case n.entity != events.EntityRotation:
		id = s.LastBearer(n.entity, q.Named)
	}
	if id.IsZero() {
		return nil, err
	}
	v.IDs, v.Name = []events.ID{id}, s.NameOf(id)
	return v, nil
}

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
	kind refKind
	find func(f Finder, text string) (events.ID, error)
}{
	"node": {refNode, func(f Finder, text string) (events.ID, error) {
		r, err := f.Node(text)
		return idOrNone(err, func() events.ID { return f.State.Node(r).ID }), err
	}},
	"provision": {refProvision, func(f Finder, text string) (events.ID, error) {
		r, err := f.Provision(text)
		return idOrNone(err, func() events.ID { return f.State.Provision(r).ID }), err
	}},
	"provider": {refProvider, func(f Finder, text string) (events.ID, error) {
		r, err := f.Provider(text)
		return idOrNone(err, func() events.ID { return f.State.Provider(r).ID }), err
	}},
	"module": {refModule, func(f Finder, text string) (events.ID, error) {
		r, err := f.Module(text)
		return idOrNone(err, func() events.ID { return f.State.Module(r).ID }), err
	}},
	"assignment": {refAssignment, func(f Finder, text string) (events.ID, error) {
		r, err := f.Assignment(text)
		return idOrNone(err, func() events.ID { return f.State.Assignment(r).ID }), err
	}},
	"rotation": {refKind{events.EntityRotation, RotationNotFound}, func(f Finder, text string) (events.ID, error) {
		r, err := f.Rotation(text)
		return idOrNone(err, func() events.ID { return f.State.Rotation(r).ID }), err
	}},
}

func idOrNone(err error, id func() events.ID) events.ID {
	if err != nil {
		return events.ID{}
	}
	return id()
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
		return nil, refuse(Usage, clip(q.Noun)+" has no history", "nouns are "+strings.Join(TraceNouns(), ", "), "bindery history A/S")
	}
	id, err := n.find(f, q.Named)
	if err == nil {
		v.IDs, v.Name = []events.ID{id}, s.NameOf(id)
		return v, nil
	}
	if n.kind.entity != events.EntityRotation {
		v.IDs = s.Bearers(n.kind.entity, q.Named)
	}
	if len(v.IDs) == 0 {
		return nil, err
	}
	v.IDs = v.IDs[:1] // who bore it before bore it by chance
	v.Name = s.NameOf(v.IDs[0])
	return v, nil
}

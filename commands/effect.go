package commands

import (
	"encoding/json"

	"bindery/events"
	"bindery/projections"
)

// BindingChange is one binding that a command gives, changes or takes.
type BindingChange struct {
	Binding string      `json:"binding"` // assignment/slot
	ID      events.ID   `json:"id"`
	From    string      `json:"from"` // provider's name, "embedded", or "" for nothing
	To      string      `json:"to"`
	Rule    events.Rule `json:"rule"`
}

// EventView is one written event.
type EventView struct {
	Seq     uint64          `json:"seq"`
	Subject string          `json:"subject"`
	Type    string          `json:"type"`
	Data    json.RawMessage `json:"data"`
}

// Object is what apply did with one object of a manifest.
type Object struct {
	Object string `json:"object"` // "provider pg-alpha"
	Result string `json:"result"` // created, changed, unchanged, kept, needs --rebind, needs --prune
	Detail string `json:"detail,omitempty"`
}

// Effect is what a decision does, for people and for the JSON of a write.
type Effect struct {
	Lines    []string        `json:"lines,omitempty"` // a sentence an event
	Bindings []BindingChange `json:"bindings"`
	Objects  []Object        `json:"objects,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	More     bool            `json:"more,omitempty"` // a series that has not ended
}

func (t *Tx) effect() Effect {
	e := EffectOf(t.State, t.events)
	e.Objects, e.Warnings, e.More = t.objects, t.warnings, t.more
	return e
}

// EffectOf describes events that are folded into s.
func EffectOf(s *projections.State, evs []events.Event) Effect {
	out := Effect{Bindings: []BindingChange{}}
	for i := range evs {
		e := &evs[i]
		out.Lines = append(out.Lines, s.Describe(e))
		change := BindingChange{ID: e.Entity}
		switch p := e.Data.(type) {
		case *events.BindingBound:
			change.To, change.Rule = s.TargetName(p.Target), p.Rule
		case *events.BindingRebound:
			change.From, change.To, change.Rule = s.TargetName(p.From), s.TargetName(p.To), p.Rule
		case *events.BindingReleased:
			if change.From = s.TargetName(p.From); change.From == "" {
				continue // nothing served it
			}
		default:
			continue
		}
		if r := s.ByID(events.EntityBinding, e.Entity); r != 0 {
			change.Binding = s.SlotPath(s.Binding(projections.BindingRef(r)))
		}
		out.Bindings = append(out.Bindings, change)
	}
	return out
}

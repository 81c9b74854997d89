package events

import (
	"cmp"
	"errors"
)

// Memory is what lay under an override when it was set: where clearing leads
// back to.
type Memory struct {
	Target Target `json:"target,omitzero" jsonschema:"description=what served the slot; absent where nothing did"`
	Rule   Rule   `json:"rule,omitempty"`
	Basis  uint64 `json:"basis,omitempty"`
}

// OverrideSet is an operator's decision on one slot; it beats every other
// choice until it is cleared. A later one under the same id keeps the first
// one's memory, or (in a drain) replaces what it names.
type OverrideSet struct {
	Binding    ID     `json:"binding"`
	Assignment ID     `json:"assignment"`
	Slot       string `json:"slot"`
	Provider   ID     `json:"provider"`
	Under      Memory `json:"under,omitzero" jsonschema:"description=what was bound before the first override"`
}

// OverrideCleared withdraws an override.
type OverrideCleared struct {
	Binding ID `json:"binding"`
}

// EventType implements Payload, for each type of this file.
func (*OverrideSet) EventType() Type     { return Type{EntityOverride, "set", 1} }
func (*OverrideCleared) EventType() Type { return Type{EntityOverride, "cleared", 1} }

// Check implements Payload, for each type of this file.
func (p *OverrideSet) Check() error {
	if err := checkDecided(p.Assignment, p.Slot, RuleOverride); err != nil {
		return err
	}
	if p.Under.Target.IsZero() != (p.Under.Rule == "") {
		return errors.New("a memory has a target and a rule, or neither")
	}
	if err := p.Under.Target.check(); err != nil {
		return err
	}
	return cmp.Or(checkID("binding", p.Binding), checkID("provider", p.Provider))
}

func (p *OverrideCleared) Check() error { return checkID("binding", p.Binding) }

package events

import (
	"cmp"
	"fmt"
)

// AssignmentCreated places a module on a node. It is followed, in the same
// command, by a bound for each slot that resolved.
type AssignmentCreated struct {
	Name   string `json:"name"`
	Module ID     `json:"module"`
	Node   ID     `json:"node"`
	// Slots gives each slot of the module its binding's id, for good.
	Slots   map[string]ID `json:"slots,omitempty" jsonschema:"description=slot to binding id"`
	Choices map[string]ID `json:"choices,omitempty" jsonschema:"description=slot to the provider chosen for it"`
}

// AssignmentRenamed gives an assignment another name.
type AssignmentRenamed struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// AssignmentMoved puts the consumer on another node; its bindings stay.
type AssignmentMoved struct {
	From ID `json:"from" jsonschema:"description=the node it was on"`
	To   ID `json:"to" jsonschema:"description=the node it is on now"`
}

// ChoiceSet names the provider a slot shall have: intent, apart from the
// outcome. It rebinds nothing.
type ChoiceSet struct {
	Slot     string `json:"slot"`
	Binding  ID     `json:"binding"`
	Provider ID     `json:"provider"`
	Replaces ID     `json:"replaces,omitzero" jsonschema:"description=the provider chosen before"`
}

// ChoiceCleared withdraws a choice. It rebinds nothing.
type ChoiceCleared struct {
	Slot     string `json:"slot"`
	Binding  ID     `json:"binding"`
	Provider ID     `json:"provider" jsonschema:"description=the provider that was chosen"`
}

// AssignmentEnded ends the consumer; each of its bindings is released in the
// same command.
type AssignmentEnded struct{}

// EventType implements Payload, for each type of this file.
func (*AssignmentCreated) EventType() Type { return Type{EntityAssignment, "created", 1} }
func (*AssignmentRenamed) EventType() Type { return Type{EntityAssignment, "renamed", 1} }
func (*AssignmentMoved) EventType() Type   { return Type{EntityAssignment, "moved", 1} }
func (*ChoiceSet) EventType() Type         { return Type{EntityAssignment, "choice-set", 1} }
func (*ChoiceCleared) EventType() Type     { return Type{EntityAssignment, "choice-cleared", 1} }
func (*AssignmentEnded) EventType() Type   { return Type{EntityAssignment, "ended", 1} }

// Check implements Payload, for each type of this file.
func (p *AssignmentCreated) Check() error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	if len(p.Slots) > MaxSlots {
		return fmt.Errorf("%d slots; at most %d are allowed", len(p.Slots), MaxSlots)
	}
	for _, slot := range sortedKeys(p.Slots) {
		if err := CheckName(slot); err != nil {
			return err
		}
		if p.Slots[slot].IsZero() {
			return fmt.Errorf("slot %s has no binding id", slot)
		}
	}
	for _, slot := range sortedKeys(p.Choices) {
		if p.Slots[slot].IsZero() || p.Choices[slot].IsZero() {
			return fmt.Errorf("choice for slot %s: no such slot, or no provider", clip(slot))
		}
	}
	return cmp.Or(checkID("module", p.Module), checkID("node", p.Node))
}

func (p *AssignmentRenamed) Check() error { return checkNames(p.From, p.To) }
func (p *AssignmentMoved) Check() error {
	return cmp.Or(checkID("node", p.From), checkID("node", p.To))
}
func (p *AssignmentEnded) Check() error { return nil }

func (p *ChoiceSet) Check() error {
	if err := CheckName(p.Slot); err != nil {
		return err
	}
	return cmp.Or(checkID("binding", p.Binding), checkID("provider", p.Provider))
}

func (p *ChoiceCleared) Check() error {
	if err := CheckName(p.Slot); err != nil {
		return err
	}
	return cmp.Or(checkID("binding", p.Binding), checkID("provider", p.Provider))
}

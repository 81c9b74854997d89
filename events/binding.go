package events

import "errors"

// BindingBound gives a slot that nothing served its target.
type BindingBound struct {
	Assignment ID     `json:"assignment"`
	Slot       string `json:"slot"`
	Target     Target `json:"target"`
	Rule       Rule   `json:"rule"`
	Basis      uint64 `json:"basis,omitempty" jsonschema:"description=sequence of the fact the rule rests on: the choice\\, the default\\, the declaration …"`
}

// BindingRebound changes what serves a slot. No other event does.
type BindingRebound struct {
	Assignment ID     `json:"assignment"`
	Slot       string `json:"slot"`
	From       Target `json:"from"`
	To         Target `json:"to"`
	Rule       Rule   `json:"rule"`
	Basis      uint64 `json:"basis,omitempty" jsonschema:"description=sequence of the fact the rule rests on"`
}

// ReleaseCause is why a binding ended.
type ReleaseCause string

// The causes of a release.
const (
	ReleaseEnded  ReleaseCause = "ended"  // its assignment ended
	ReleasePruned ReleaseCause = "pruned" // its slot is no longer declared
)

var allCauses = []ReleaseCause{ReleaseEnded, ReleasePruned}

// BindingReleased ends a binding.
type BindingReleased struct {
	From  Target       `json:"from,omitzero" jsonschema:"description=what served it last"`
	Cause ReleaseCause `json:"cause"`
}

// BindingApplied says that the consumer runs with what the ledger gave it to use
// as of a sequence, which it read and did not assume.
type BindingApplied struct {
	At uint64 `json:"at" jsonschema:"description=the sequence"`
}

// BindingFailed says that the consumer could not take up what it is to use; why
// stands in ce-reason.
type BindingFailed struct {
	Attempts uint64 `json:"attempts" jsonschema:"description=how often it has been tried"`
}

// EventType implements Payload, for each type of this file.
func (*BindingBound) EventType() Type    { return Type{EntityBinding, "bound", 1} }
func (*BindingRebound) EventType() Type  { return Type{EntityBinding, "rebound", 1} }
func (*BindingReleased) EventType() Type { return Type{EntityBinding, "released", 1} }
func (*BindingApplied) EventType() Type  { return Type{EntityBinding, "applied", 1} }
func (*BindingFailed) EventType() Type   { return Type{EntityBinding, "failed", 1} }

// Check implements Payload, for each type of this file.
func (p *BindingBound) Check() error {
	if err := checkDecided(p.Assignment, p.Slot, p.Rule); err != nil {
		return err
	}
	if p.Target.IsZero() {
		return errors.New("bound to nothing")
	}
	return p.Target.check()
}

func (p *BindingRebound) Check() error {
	if err := checkDecided(p.Assignment, p.Slot, p.Rule); err != nil {
		return err
	}
	if p.From.IsZero() || p.To.IsZero() || p.From == p.To {
		return errors.New("rebound from nothing, to nothing, or to the same")
	}
	return errors.Join(p.From.check(), p.To.check())
}

func (p *BindingReleased) Check() error {
	if err := oneOf("cause", p.Cause, allCauses...); err != nil {
		return err
	}
	return p.From.check()
}

func (p *BindingApplied) Check() error {
	if p.At == 0 {
		return errors.New("applied as of no sequence")
	}
	return nil
}

func (p *BindingFailed) Check() error {
	if p.Attempts == 0 {
		return errors.New("a failure of no attempt")
	}
	return nil
}

func checkDecided(assignment ID, slot string, rule Rule) error {
	if err := checkID("assignment", assignment); err != nil {
		return err
	}
	if err := CheckName(slot); err != nil {
		return err
	}
	return oneOf("rule", rule, allRules...)
}

package projections

import "bindery/events"

// Flag says what is the matter with a binding.
type Flag string

// The flags.
const (
	// FlagPending: nothing serves the slot yet.
	FlagPending Flag = "pending"
	// FlagDrift: what is asked for by name (override, choice, module) is not what
	// is bound, or the slot is declared otherwise than it is served.
	FlagDrift Flag = "drift"
	// FlagUnsatisfied: the bound provider lacks a version or a feature the slot needs.
	FlagUnsatisfied Flag = "unsatisfied"
	// FlagStranded: the bound provider was retired by force.
	FlagStranded Flag = "stranded"
	// FlagSwitching: the consumer runs with another target than is decided, until
	// a credential for that is issued.
	FlagSwitching Flag = "switching"
	// FlagOutdated: the consumer has not said that it runs with what it is to use.
	FlagOutdated Flag = "outdated"
	// FlagCutOff: the credential in use was revoked or written off by force.
	FlagCutOff Flag = "cut-off"
)

// boundFlags are those that a slot can have which something serves.
var boundFlags = []Flag{FlagDrift, FlagUnsatisfied, FlagStranded, FlagSwitching, FlagOutdated, FlagCutOff}

// AllFlags lists the flags, in the order in which Flags gives them.
func AllFlags() []Flag { return append([]Flag{FlagPending}, boundFlags...) }

// Asked is the provider that is asked for by name, and the rung that asks: the
// override, the assignment's choice, or the module. 0 when nobody names one.
func (s *State) Asked(b *Binding, d *Slot) (ProviderRef, events.Rule) {
	switch {
	case b != nil && b.Override != 0:
		return s.Override(b.Override).Provider, events.RuleOverride
	case b != nil && b.Choice != 0 && (d == nil || d.Kind == Requires):
		return b.Choice, events.RuleAssignment
	case d != nil && d.Kind == Requires && d.Provider != 0:
		return d.Provider, events.RuleModule
	}
	return 0, ""
}

// Declared is the declaration of the binding's slot now, or nil where its
// module declares it no longer.
func (s *State) Declared(b *Binding) *Slot {
	m := s.Module(s.Assignment(b.Assignment).Module)
	for i := range m.Slots {
		if m.Slots[i].key == b.slot {
			return &m.Slots[i]
		}
	}
	return nil
}

// Flags lists what is the matter with a binding, in a fixed order.
func (s *State) Flags(r BindingRef) []Flag {
	b := s.Binding(r)
	if b.Released {
		if s.Lingers(b) {
			return []Flag{FlagOutdated}
		}
		return nil
	}
	var out []Flag
	d := s.Declared(b)
	if b.Pending() {
		if d != nil {
			out = append(out, FlagPending)
		} else {
			out = append(out, FlagDrift)
		}
		return out
	}
	if s.drifts(b, d) {
		out = append(out, FlagDrift)
	}
	if b.Provider != 0 {
		p := s.Provider(b.Provider)
		if d != nil && d.Unmet(p) != nil {
			out = append(out, FlagUnsatisfied)
		}
		if p.State == Retired {
			out = append(out, FlagStranded)
		}
	}
	if b.use != 0 && s.Credential(b.use).Provider != b.Provider {
		out = append(out, FlagSwitching)
	}
	if s.Outdated(b) {
		out = append(out, FlagOutdated)
	}
	if b.use != 0 && !s.useLive(b) {
		out = append(out, FlagCutOff)
	}
	return out
}

func (s *State) drifts(b *Binding, d *Slot) bool {
	if d == nil {
		return true
	}
	if d.Kind == Requires && b.Embedded {
		return true
	}
	if d.Kind == Embeds && b.Provider != 0 && b.Override == 0 {
		return true
	}
	asked, _ := s.Asked(b, d)
	return asked != 0 && asked != b.Provider
}

// Unmet is what a slot needs and a provider lacks.
type Unmet struct {
	Feature    string // the first feature that is missing, or
	Constraint string // the constraint that Version does not satisfy
	Version    string // "" where it is not known
}

func (u *Unmet) Error() string {
	switch {
	case u.Feature != "":
		return "lacks feature " + u.Feature
	case u.Version == "":
		return "version unknown, need " + u.Constraint
	}
	return "version " + u.Version + " does not satisfy " + u.Constraint
}

// Unmet is what the slot needs and p lacks, nil when p satisfies it. A version
// that is not known satisfies no constraint.
func (d *Slot) Unmet(p *Provider) *Unmet {
	if d.constraint != nil && (p.version == nil || !d.constraint.Check(p.version)) {
		return &Unmet{Constraint: d.Constraint, Version: p.Version}
	}
	have := 0
	for _, need := range d.Features {
		for have < len(p.Features) && p.Features[have] < need {
			have++
		}
		if have == len(p.Features) || p.Features[have] != need {
			return &Unmet{Feature: need}
		}
	}
	return nil
}

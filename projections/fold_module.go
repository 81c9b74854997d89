package projections

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"bindery/events"

	"github.com/Masterminds/semver/v3"
)

func (s *State) moduleDeclared(e *events.Event, p *events.ModuleDeclared) error {
	slots, err := s.slotsOf(p)
	if err != nil {
		return err
	}
	i, err := s.find(kModule, e.Entity)
	if err != nil {
		var m *Module
		i, m = s.modules.add(&s.j)
		*m = Module{ID: e.Entity, Name: p.Name, fromManifest: e.Origin == events.OriginManifest, made: fromManifest(e, 0)}
		if err := errors.Join(s.index(e.Entity, kModule, i), s.name(kModule, p.Name, i)); err != nil {
			return err
		}
	} else {
		m := s.modules.at(i)
		s.trackBool(e, &m.fromManifest, m.ID, FieldDecl, DeclText(m.Decl))
		s.moduleRefs(ModuleRef(i), m.Slots, false)
	}
	m := s.modules.at(i)
	set(&s.j, &m.Slots, slots)
	set(&s.j, &m.Decl, p)
	set(&s.j, &m.Seq, e.Seq)
	s.moduleRefs(ModuleRef(i), slots, true)
	return nil
}

// slotsOf turns a declaration into slots with resolved references.
func (s *State) slotsOf(p *events.ModuleDeclared) ([]Slot, error) {
	slots := make([]Slot, 0, len(p.Requires)+len(p.Embeds))
	for name, r := range p.Requires {
		provision, err := s.find(kProvision, r.Provision)
		if err != nil {
			return nil, err
		}
		slot := Slot{Name: name, Kind: Requires, Provision: ProvisionRef(provision),
			Constraint: r.Version, Features: r.Features, Optional: r.Optional, constraint: parseConstraint(r.Version)}
		if !r.Provider.IsZero() {
			provider, err := s.find(kProvider, r.Provider)
			if err != nil {
				return nil, err
			}
			slot.Provider = ProviderRef(provider)
		}
		slots = append(slots, slot)
	}
	for name, m := range p.Embeds {
		provision, err := s.find(kProvision, m.Provision)
		if err != nil {
			return nil, err
		}
		slot := Slot{Name: name, Kind: Embeds, Provision: ProvisionRef(provision), Embed: &m}
		if m.Needs != nil {
			slot.Constraint, slot.Features = m.Needs.Version, m.Needs.Features
			slot.constraint = parseConstraint(m.Needs.Version)
		}
		slots = append(slots, slot)
	}
	slices.SortFunc(slots, func(a, b Slot) int { return strings.Compare(a.Name, b.Name) })
	for i := range slots {
		slots[i].key = s.slotKey(slots[i].Name)
	}
	return slots, nil
}

// parseConstraint returns nil for no constraint.
func parseConstraint(text string) *semver.Constraints {
	if text == "" {
		return nil
	}
	c, err := semver.NewConstraint(text)
	if err != nil {
		return nil
	}
	return c
}

// moduleRefs adds m to, or takes it from, what its slots refer to. Those lists
// are short (modules, not consumers), so that leaving one is a scan.
func (s *State) moduleRefs(m ModuleRef, slots []Slot, add bool) {
	change := func(l *[]ModuleRef) {
		at := slices.Index(*l, m)
		switch {
		case add && at < 0:
			push(&s.j, l, m)
		case !add && at >= 0:
			set(&s.j, l, slices.Delete(slices.Clone(*l), at, at+1))
		}
	}
	for i := range slots {
		change(&s.Provision(slots[i].Provision).Modules)
		if slots[i].Provider != 0 {
			change(&s.Provider(slots[i].Provider).Modules)
		}
	}
}

func (s *State) moduleRemoved(e *events.Event) error {
	i, err := s.find(kModule, e.Entity)
	if err != nil {
		return err
	}
	m := s.modules.at(i)
	s.moduleRefs(ModuleRef(i), m.Slots, false)
	set(&s.j, &m.Removed, true)
	set(&s.j, &m.Seq, e.Seq)
	s.end(e, kModule, m.Name, m.made)
	return nil
}

// DeclText is a declaration as one comparable value.
func DeclText(p *events.ModuleDeclared) string {
	b, err := json.Marshal(p)
	if err != nil {
		panic("projections: a decoded declaration does not encode: " + err.Error())
	}
	return string(b)
}

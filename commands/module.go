package commands

import (
	"fmt"
	"slices"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

// DeclareModule declares a module, or declares it anew.
type DeclareModule struct {
	Name string `json:"name"`
	manifest.Module
}

// RemoveModule ends a module nothing is assigned of.
type RemoveModule struct {
	Module string `json:"module"`
}

// Verb implements Command.
func (DeclareModule) Verb() string { return "module.declare" }

// Verb implements Command.
func (RemoveModule) Verb() string { return "module.remove" }

// Decide implements Command.
func (c DeclareModule) Decide(t *Tx) error {
	p, err := c.payload(t)
	if err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return invalid(err)
	}
	r := t.ModuleNamed(c.Name)
	if r == 0 {
		return t.emit(t.NewID(), p)
	}
	m := t.Module(r)
	if projections.DeclText(m.Decl) == projections.DeclText(p) {
		return nil
	}
	if err := t.slotsFree(m, p); err != nil {
		return err
	}
	if err := t.emit(m.ID, p); err != nil {
		return err
	}
	if n := len(m.Assignments); n > 0 {
		t.warn("what %s of %s is bound to does not change; see bindery status", count(n, "assignment"), m.Name)
	}
	return nil
}

// payload resolves the names of a declaration.
func (c DeclareModule) payload(t *Tx) (*events.ModuleDeclared, error) {
	p := &events.ModuleDeclared{Name: c.Name}
	if err := events.CheckName(c.Name); err != nil {
		return nil, invalid(err)
	}
	f := Finder{t.State}
	for _, slot := range sortedKeys(c.Requires) {
		in := c.Requires[slot]
		provision, err := f.Provision(in.Provision)
		if err != nil {
			return nil, err
		}
		out := events.Requirement{Provision: t.Provision(provision).ID, Version: in.Version,
			Features: events.SortFeatures(in.Features), Optional: in.Optional}
		if in.Provider != "" {
			r, err := f.Provider(in.Provider)
			if err != nil {
				return nil, err
			}
			if t.Provider(r).Provision != provision {
				return nil, refuse(WrongProvision, fmt.Sprintf("slot %s of %s cannot name %s", slot, c.Name, in.Provider),
					fmt.Sprintf("it provides %s, the slot needs %s", t.Provision(t.Provider(r).Provision).Name, in.Provision),
					"bindery provider list")
			}
			out.Provider = t.Provider(r).ID
		}
		if p.Requires == nil {
			p.Requires = map[string]events.Requirement{}
		}
		p.Requires[slot] = out
	}
	for _, slot := range sortedKeys(c.Embeds) {
		in := c.Embeds[slot]
		provision, err := f.Provision(in.Provision)
		if err != nil {
			return nil, err
		}
		out := events.Embed{Provision: t.Provision(provision).ID, Version: in.Version, Features: events.SortFeatures(in.Features),
			Because: events.Because(in.Because), Replaceable: in.Replaceable}
		if in.Needs != nil {
			out.Needs = &events.Needs{Version: in.Needs.Version, Features: events.SortFeatures(in.Needs.Features)}
		}
		if in.Composition != nil {
			out.Composition = &events.Composition{File: in.Composition.File, Service: in.Composition.Service}
		}
		if p.Embeds == nil {
			p.Embeds = map[string]events.Embed{}
		}
		p.Embeds[slot] = out
	}
	return p, nil
}

// slotsFree refuses another provision for a slot that is bound somewhere.
func (t *Tx) slotsFree(m *projections.Module, p *events.ModuleDeclared) error {
	for i := range m.Slots {
		old := &m.Slots[i]
		now, declared := p.Requires[old.Name]
		provision := now.Provision
		if e, ok := p.Embeds[old.Name]; ok {
			provision, declared = e.Provision, true
		}
		if !declared || provision == t.Provision(old.Provision).ID {
			continue
		}
		var bound []string
		for _, r := range m.Assignments {
			a := t.Assignment(r)
			if b := t.BindingOf(a, old.Name); b != 0 && !t.Binding(b).Pending() {
				bound = append(bound, a.Name+"/"+old.Name)
			}
		}
		if len(bound) > 0 {
			return refuse(SlotInUse, fmt.Sprintf("slot %s of %s cannot change its provision", old.Name, m.Name),
				fmt.Sprintf("it is bound as %[2]s for %[1]s; declare a slot of another name", count(len(bound), "assignment"),
					t.Provision(old.Provision).Name), "bindery module show "+m.Name).of("bound", bound)
		}
	}
	return nil
}

// Decide implements Command.
func (c RemoveModule) Decide(t *Tx) error {
	r, err := Finder{t.State}.Module(c.Module)
	if err != nil {
		return err
	}
	m := t.Module(r)
	if m.Removed {
		return nil
	}
	if n := len(m.Assignments); n > 0 {
		names := t.AssignmentNames(m.Assignments)
		return refuse(ModuleInUse, "module "+m.Name+" is in use", count(n, "assignment")+" of it live",
			"bindery assignment end "+names[0]).of("an assignment of it", names)
	}
	return t.emit(m.ID, &events.ModuleRemoved{})
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

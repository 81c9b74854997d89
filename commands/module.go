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
		t.warn("what %s of %s is bound to does not change; status shows what now differs", count(n, "assignment"), m.Name)
	}
	return nil
}

// payload resolves the names of a declaration.
func (c DeclareModule) payload(t *Tx) (*events.ModuleDeclared, error) {
	p := &events.ModuleDeclared{Name: c.Name}
	if err := events.CheckName(c.Name); err != nil {
		return nil, invalid(err)
	}
	for _, slot := range sortedKeys(c.Requires) {
		in := c.Requires[slot]
		provision, err := t.liveProvision(in.Provision)
		if err != nil {
			return nil, err
		}
		out := events.Requirement{Provision: t.Provision(provision).ID, Version: in.Version,
			Features: someFeatures(in.Features), Optional: in.Optional}
		if in.Provider != "" {
			r, _, err := t.liveProvider(in.Provider)
			if err != nil {
				return nil, err
			}
			if t.Provider(r).Provision != provision {
				return nil, refuse(WrongProvision, fmt.Sprintf("slot %s of %s cannot name %s", slot, c.Name, in.Provider),
					fmt.Sprintf("it provides %s, the slot needs %s", t.Provision(t.Provider(r).Provision).Name, in.Provision),
					do("provider list"))
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
		provision, err := t.liveProvision(in.Provision)
		if err != nil {
			return nil, err
		}
		out := events.Embed{Provision: t.Provision(provision).ID, Version: in.Version, Features: someFeatures(in.Features),
			Because: events.Because(in.Because), Replaceable: in.Replaceable}
		if in.Needs != nil {
			out.Needs = &events.Needs{Version: in.Needs.Version, Features: someFeatures(in.Needs.Features)}
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

// slotsFree refuses a provision for a slot that is bound as another one
// somewhere: also a slot that was not declared for a while. Slots whose
// provision stays as it is need no look.
func (t *Tx) slotsFree(m *projections.Module, p *events.ModuleDeclared) error {
	want := map[string]events.ID{}
	for slot, r := range p.Requires {
		want[slot] = r.Provision
	}
	for slot, e := range p.Embeds {
		want[slot] = e.Provision
	}
	for _, slot := range sortedKeys(want) {
		if old := m.Slot(slot); old != nil && t.Provision(old.Provision).ID == want[slot] {
			continue
		}
		var bound []string
		as := ""
		for _, r := range m.Assignments {
			a := t.Assignment(r)
			b := t.BindingOf(a, slot)
			if b == 0 || t.Binding(b).Pending() || t.Provision(t.Binding(b).Provision).ID == want[slot] {
				continue
			}
			bound, as = append(bound, a.Name+"/"+slot), t.Provision(t.Binding(b).Provision).Name
		}
		if len(bound) > 0 {
			return refuse(SlotInUse, fmt.Sprintf("slot %s of %s cannot change its provision", slot, m.Name),
				fmt.Sprintf("it is bound as %s for %s; declare a slot of another name", as, count(len(bound), "assignment")),
				do("module show", m.Name)).of("bound", bound)
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
			do("assignment end", names[0])).of("an assignment of it", names)
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

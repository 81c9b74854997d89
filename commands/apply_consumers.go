package commands

import (
	"fmt"
	"slices"
	"strings"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

func (a *applier) assignment(name string) error {
	f, want := a.fields("assignment "+name), a.c.Manifest.Assignments[name]
	defer f.done()
	if want.Module == "" {
		want.Module = name
	}
	r := a.AssignmentNamed(name)
	if r == 0 && f.gone(events.EntityAssignment, name, "ended") {
		return nil
	}
	if r == 0 {
		f.note(Created, "%s on %s", want.Module, want.Node)
		if err := (CreateAssignment{Module: want.Module, Node: want.Node, Name: name, Bind: want.Bind}).Decide(a.Tx); err != nil {
			return err
		}
		return a.overridesOf(name)
	}
	as := a.Assignment(r)
	if m := a.Module(as.Module); m.Name != want.Module {
		return refuse(NameTaken, "assignment "+name+" cannot change its module",
			fmt.Sprintf("it is of %s, the manifest says %s", m.Name, want.Module), do("assignment end", name))
	}
	return a.assignmentFields(f, r, want)
}

func (a *applier) assignmentFields(f *fields, r projections.AssignmentRef, want manifest.Assignment) error {
	as := a.Assignment(r)
	to, err := a.nodeID(want.Node)
	if err != nil {
		return err
	}
	here := a.Node(as.Node).ID.String()
	if f.differs("node", to, here, a.BaseOfAssignment(as, projections.FieldNode, here), a.nameOf) {
		if err := (MoveAssignment{Assignment: as.Name, To: want.Node}).Decide(a.Tx); err != nil {
			return err
		}
	}
	for _, slot := range sortedKeys(want.Bind) {
		if err := a.choice(f, r, slot, want.Bind[slot]); err != nil {
			return err
		}
	}
	if a.c.Rebind {
		n := len(a.events)
		if err := (ResolveAssignment{Assignment: as.Name, Rebind: true}).Decide(a.Tx); err != nil {
			return err
		}
		if len(a.events) > n {
			f.note(Changed, "%s rebound", count(len(a.events)-n, "slot"))
		}
	}
	for _, v := range a.BindingViews(as) {
		if slices.Contains(v.Flags, projections.FlagPending) && (!v.Optional || want.Bind[v.Slot] != "") {
			f.note(NeedsRebind, "%s is pending", v.Slot)
		}
		if slices.Contains(v.Flags, projections.FlagDrift) {
			if a.Module(as.Module).Slot(v.Slot) == nil {
				f.note(NeedsPrune, "%s is declared no longer", v.Slot)
			} else {
				f.note(NeedsRebind, "%s is bound to %s", v.Slot, orEmpty(v.Provider))
			}
		}
	}
	return nil
}

// choice compares one slot's choice; it does not rebind.
func (a *applier) choice(f *fields, r projections.AssignmentRef, slot, provider string) error {
	as := a.Assignment(r)
	found, err := a.liveSlot(as.Name + "/" + slot)
	if err != nil {
		return err
	}
	if err := a.canChoose(as.Name+"/"+slot, found.Decl); err != nil {
		return err
	}
	id, err := a.providerID(provider)
	if err != nil {
		return err
	}
	have, base := "", projections.Base{}
	if found.Binding != 0 {
		b := a.Binding(found.Binding)
		if base = a.BaseOfChoice(b); b.Choice != 0 {
			have = a.Provider(b.Choice).ID.String()
		}
	}
	if have == "" && !base.Known {
		f.note(Changed, "%s chooses %s", slot, provider)
	} else if !f.differs("choice of "+slot, id, have, base, a.nameOf) {
		return nil
	}
	p, _, err := a.liveProvider(provider)
	if err != nil {
		return err
	}
	if found.Binding == 0 || a.Binding(found.Binding).Provider != p {
		if code, fault := ineligible(a.State, found.Decl, p); fault != "" {
			l := ladder{s: a.State, n: needOf(a.State, found), provision: a.Provision(found.Decl.Provision)}
			return l.choose(refuse(code, fmt.Sprintf("%s/%s cannot choose %s", as.Name, slot, a.Provider(p).Name), fault, Fix{}))
		}
	}
	return a.choose(found, p)
}

// overrideSlots lists the slots with an override in the manifest.
func overrideSlots(m *manifest.Manifest) []string {
	return slotsOf(m.Overrides, func(o manifest.Override) string { return o.Slot })
}

// slotsOf are the slots of a section's entries, sorted.
func slotsOf[T any](entries []T, slot func(T) string) []string {
	out := make([]string, len(entries))
	for i := range entries {
		out[i] = slot(entries[i])
	}
	slices.Sort(out)
	return out
}

// overridesOf sets the overrides of an assignment that is being created: they
// move nothing that anybody runs with.
func (a *applier) overridesOf(assignment string) error {
	for _, slot := range overrideSlots(a.c.Manifest) {
		if name, _, _ := strings.Cut(slot, "/"); name == assignment {
			if err := a.setOverride(a.overrideNamed(slot)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *applier) overrideNamed(slot string) manifest.Override {
	i := slices.IndexFunc(a.c.Manifest.Overrides, func(o manifest.Override) bool { return o.Slot == slot })
	return a.c.Manifest.Overrides[i]
}

func (a *applier) setOverride(o manifest.Override) error {
	if err := a.checkReason(o.Reason); err != nil {
		return err
	}
	reason := a.Reason
	a.Reason = o.Reason
	err := SetOverride{Slot: o.Slot, Provider: o.Provider}.Decide(a.Tx)
	a.Reason = reason
	return err
}

func (a *applier) override(slot string) error {
	f, want := a.fields("override of "+slot), a.overrideNamed(slot)
	defer f.done()
	assignment, _, _ := strings.Cut(slot, "/")
	if a.AssignmentNamed(assignment) == 0 && f.gone(events.EntityAssignment, assignment, "its assignment ended") {
		return nil
	}
	found, err := a.liveSlot(slot)
	if err != nil {
		return err
	}
	id, err := a.providerID(want.Provider)
	if err != nil {
		return err
	}
	have, base, bound := "", projections.Base{}, projections.ProviderRef(0)
	if found.Binding != 0 {
		b := a.Binding(found.Binding)
		if base = a.BaseOfOverride(b); b.Override != 0 {
			have = a.Provider(a.Override(b.Override).Provider).ID.String()
		}
		bound = b.Provider
	}
	switch {
	case have == id && a.setHere(found.Binding):
		f.note(Created, "%s", want.Provider)
		return nil
	case have == "" && !base.Known:
		f.note(Created, "%s", want.Provider)
	case !f.differs("provider", id, have, base, a.nameOf):
		return nil
	}
	p, _, err := a.liveProvider(want.Provider)
	if err != nil {
		return err
	}
	if bound != p && found.Binding != 0 && !a.Binding(found.Binding).Pending() && !a.c.Rebind {
		f.result, f.detail = 0, nil
		f.note(NeedsRebind, "it would move the slot from %s to %s", a.TargetName(a.Target(a.Binding(found.Binding))), want.Provider)
		return nil
	}
	return a.setOverride(want)
}

// setHere reports whether the slot's override was set by this very command.
func (a *applier) setHere(r projections.BindingRef) bool {
	return len(a.events) > 0 && a.Override(a.Binding(r).Override).Seq >= a.events[0].Seq
}

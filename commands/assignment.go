package commands

import (
	"fmt"
	"slices"

	"bindery/events"
	"bindery/projections"
)

// CreateAssignment places a module on a node and binds all its slots, or none.
type CreateAssignment struct {
	Module string            `json:"module"`
	Node   string            `json:"node"`
	Name   string            `json:"name,omitempty"` // the module's where it is not said
	Bind   map[string]string `json:"bind,omitempty"` // slot to provider
}

// MoveAssignment puts the consumer on another node; its bindings stay.
type MoveAssignment struct {
	Assignment string `json:"assignment"`
	To         string `json:"to"`
	ReResolve  bool   `json:"re_resolve,omitempty"`
}

// RenameAssignment gives an assignment another name.
type RenameAssignment struct {
	Assignment string `json:"assignment"`
	To         string `json:"to"`
}

// EndAssignment ends the consumer and releases its bindings.
type EndAssignment struct {
	Assignment string `json:"assignment"`
}

// ResolveAssignment binds the slots that are pending, and on demand moves those
// that drift and releases those no longer declared.
type ResolveAssignment struct {
	Assignment string `json:"assignment"`
	Rebind     bool   `json:"rebind,omitempty"`
	Prune      bool   `json:"prune,omitempty"`
}

// Verb implements Command.
func (CreateAssignment) Verb() string { return "assignment.create" }

// Verb implements Command.
func (MoveAssignment) Verb() string { return "assignment.move" }

// Verb implements Command.
func (RenameAssignment) Verb() string { return "assignment.rename" }

// Verb implements Command.
func (EndAssignment) Verb() string { return "assignment.end" }

// Verb implements Command.
func (ResolveAssignment) Verb() string { return "assignment.resolve" }

// Decide implements Command.
func (c CreateAssignment) Decide(t *Tx) error {
	f := Finder{t.State}
	mr, err := f.Module(c.Module)
	if err != nil {
		return err
	}
	m := t.Module(mr)
	if m.Removed {
		return refuse(ModuleNotFound, "module "+m.Name+" is removed", "nothing can be assigned of it", do("module list"))
	}
	node, err := t.liveNode(c.Node)
	if err != nil {
		return err
	}
	named := c.Name != ""
	if !named {
		c.Name = m.Name
	}
	if err := events.CheckName(c.Name); err != nil {
		return invalid(err)
	}
	if o := t.AssignmentNamed(c.Name); o != 0 {
		err := taken("assignment", c.Name, t.Assignment(o).ID).(*Refusal)
		if !named {
			err.Fix = do("assignment create", m.Name).With("--node", t.Node(node).Name).With("--name", m.Name+"-"+t.Node(node).Name)
		}
		return err
	}
	chosen, err := t.choices(m, c.Bind)
	if err != nil {
		return err
	}
	return c.create(t, m, node, chosen)
}

// choices resolves the names of --bind.
func (t *Tx) choices(m *projections.Module, bind map[string]string) (map[string]projections.ProviderRef, error) {
	out := map[string]projections.ProviderRef{}
	for _, slot := range sortedKeys(bind) {
		d := m.Slot(slot)
		if d == nil {
			names := make([]string, len(m.Slots))
			for i := range m.Slots {
				names[i] = m.Slots[i].Name
			}
			return nil, refuse(SlotNotDeclared, fmt.Sprintf("module %s has no slot %q", m.Name, clip(slot)),
				"it declares "+orNone(names), do("module show", m.Name)).of("a slot of "+m.Name, names)
		}
		if err := t.canChoose(m.Name+"/"+slot, d); err != nil {
			return nil, err
		}
		r, err := Finder{t.State}.Provider(bind[slot])
		if err != nil {
			return nil, err
		}
		out[slot] = r
	}
	return out, nil
}

// canChoose refuses a choice for an embedded slot: only an override, with its
// reason, takes an instance's place.
func (t *Tx) canChoose(path string, d *projections.Slot) error {
	if d.Kind != projections.Embeds {
		return nil
	}
	return refuse(EmbedNotReplaceable, "no provider can be chosen for "+path,
		"the module ships its own instance; where it is replaceable, an override consolidates it",
		do("override set", path).With("--provider", "PROVIDER").With("--reason", "TEXT"))
}

func (c CreateAssignment) create(t *Tx, m *projections.Module, node projections.NodeRef, chosen map[string]projections.ProviderRef) error {
	id := t.NewID()
	e := &events.AssignmentCreated{Name: c.Name, Module: m.ID, Node: t.Node(node).ID}
	for i := range m.Slots {
		if e.Slots == nil {
			e.Slots = map[string]events.ID{}
		}
		e.Slots[m.Slots[i].Name] = t.NewID()
	}
	for slot, p := range chosen {
		if e.Choices == nil {
			e.Choices = map[string]events.ID{}
		}
		e.Choices[slot] = t.Provider(p).ID
	}
	if err := t.emit(id, e); err != nil {
		return err
	}
	created := t.Seq
	for i := range m.Slots {
		d := &m.Slots[i]
		n := need{node: node, slot: d, choice: chosen[d.Name], choiceSeq: created, declSeq: m.Seq,
			path: c.Name + "/" + d.Name, flag: "--bind " + d.Name + "="}
		n.choosing = func(provider string) Fix { return c.line(t, m, node, d.Name).With("--bind", d.Name+"="+provider) }
		if t.origin == events.OriginManifest {
			n.flag = "bind: " + d.Name + ": "
			n.choosing = func(provider string) Fix {
				return advise("in the manifest, under assignments, " + c.Name + ": " + n.flag + provider)
			}
		}
		if _, err := t.bindPending(id, d, e.Slots[d.Name], n); err != nil {
			return err
		}
	}
	return nil
}

// line is the command line that asks for c, but for the choice of one slot.
func (c CreateAssignment) line(t *Tx, m *projections.Module, node projections.NodeRef, but string) Fix {
	out := do("assignment create", m.Name).With("--node", t.Node(node).Name).With("--name", c.Name)
	for _, slot := range sortedKeys(c.Bind) {
		if slot != but {
			out = out.With("--bind", slot+"="+c.Bind[slot])
		}
	}
	return out
}

// bindPending runs the ladder for a slot that nothing serves and binds it; an
// optional one that has no provider stays pending. It reports whether it bound.
func (t *Tx) bindPending(assignment events.ID, d *projections.Slot, binding events.ID, n need) (bool, error) {
	o, refusal := resolve(t.State, n, nil)
	if refusal != nil {
		if refusal.Code == NoProvider && d.Optional {
			if len(t.events) == 0 { // on creation it is no news
				t.warn("%s stays pending: %s", n.path, refusal.Why)
			}
			return false, nil
		}
		return false, refusal
	}
	return true, t.emit(binding, &events.BindingBound{Assignment: assignment, Slot: d.Name,
		Target: o.target(t.State), Rule: o.rule, Basis: o.basis})
}

// liveAssignment finds an assignment that has not ended.
func (t *Tx) liveAssignment(text string) (projections.AssignmentRef, *projections.Assignment, error) {
	r, err := Finder{t.State}.Assignment(text)
	if err != nil {
		return 0, nil, err
	}
	a := t.Assignment(r)
	if a.Ended {
		return 0, nil, refuse(AssignmentNotFound, "assignment "+a.Name+" has ended", fmt.Sprintf("at sequence %d", a.Seq), do("assignment list"))
	}
	return r, a, nil
}

// Decide implements Command.
func (c MoveAssignment) Decide(t *Tx) error {
	r, a, err := t.liveAssignment(c.Assignment)
	if err != nil {
		return err
	}
	to, err := t.liveNode(c.To)
	if err != nil {
		return err
	}
	if a.Node != to {
		if err := t.emit(a.ID, &events.AssignmentMoved{From: t.Node(a.Node).ID, To: t.Node(to).ID}); err != nil {
			return err
		}
	}
	if !c.ReResolve {
		return nil
	}
	for i := range t.Module(a.Module).Slots {
		d := &t.Module(a.Module).Slots[i]
		f := FoundSlot{Assignment: r, Name: d.Name, Binding: t.BindingOf(a, d.Name), Decl: d}
		if f.Binding != 0 && t.Binding(f.Binding).Override != 0 {
			t.warn("%s/%s stays as it is: an override stands on it", a.Name, d.Name)
			continue
		}
		if err := t.reResolve(f); err != nil {
			return err
		}
	}
	return nil
}

// reResolve runs the ladder for a slot and follows it.
func (t *Tx) reResolve(f FoundSlot) error {
	a := t.Assignment(f.Assignment)
	n := needOf(t.State, f)
	if f.Binding == 0 || t.Binding(f.Binding).Pending() {
		id := t.bindingID(f.Binding)
		_, err := t.bindPending(a.ID, f.Decl, id, n)
		return err
	}
	o, refusal := resolve(t.State, n, nil)
	if refusal != nil {
		return refusal
	}
	return t.serve(f, o)
}

// bindingID is the id of a binding, a new one where there is none yet.
func (t *Tx) bindingID(r projections.BindingRef) events.ID {
	if r == 0 {
		return t.NewID()
	}
	return t.Binding(r).ID
}

// serve gives a slot its outcome: bound, rebound, or nothing where it has it.
func (t *Tx) serve(f FoundSlot, o outcome) error {
	a := t.Assignment(f.Assignment)
	to := o.target(t.State)
	if f.Binding == 0 {
		f.Binding = t.BindingOf(a, f.Name) // an earlier event of this command may have made it
	}
	if f.Binding == 0 || t.Binding(f.Binding).Pending() {
		return t.emit(t.bindingID(f.Binding), &events.BindingBound{Assignment: a.ID, Slot: f.Name, Target: to, Rule: o.rule, Basis: o.basis})
	}
	b := t.Binding(f.Binding)
	from := t.Target(b)
	if from == to {
		return nil
	}
	t.warn("%s/%s leaves %s; its data does not move by itself", a.Name, f.Name, t.leaving(b))
	if err := t.emit(b.ID, &events.BindingRebound{Assignment: a.ID, Slot: f.Name, From: from, To: to, Rule: o.rule, Basis: o.basis}); err != nil {
		return err
	}
	if use := t.InUse(b); use != 0 && t.Credential(use).State.Live() {
		if ask, ok := t.Ask(f.Binding); ok {
			t.warn("%s/%s runs with generation %d until generation %d is issued", a.Name, f.Name, t.Credential(use).Generation, ask.Generation)
		}
	}
	return nil
}

// leaving is what a binding is about to leave, for people.
func (t *Tx) leaving(b *projections.Binding) string {
	if b.Provider == 0 {
		return "its own instance"
	}
	return t.Provider(b.Provider).Name
}

// Decide implements Command.
func (c RenameAssignment) Decide(t *Tx) error {
	_, a, err := t.liveAssignment(c.Assignment)
	if err != nil {
		return err
	}
	if err := events.CheckName(c.To); err != nil {
		return invalid(err)
	}
	if a.Name == c.To {
		return nil
	}
	if o := t.AssignmentNamed(c.To); o != 0 {
		return taken("assignment", c.To, t.Assignment(o).ID)
	}
	return t.emit(a.ID, &events.AssignmentRenamed{From: a.Name, To: c.To})
}

// Decide implements Command.
func (c EndAssignment) Decide(t *Tx) error {
	r, err := Finder{t.State}.Assignment(c.Assignment)
	if err != nil {
		return err
	}
	a := t.Assignment(r)
	if a.Ended {
		return nil
	}
	for _, b := range t.Bindings(a) {
		if err := t.release(b, events.ReleaseEnded); err != nil {
			return err
		}
	}
	if err := t.emit(a.ID, &events.AssignmentEnded{}); err != nil {
		return err
	}
	if n := t.liveCredentials(a); n > 0 {
		t.warn("%s live until the providers revoke them", stays(n, "credential"))
	}
	return nil
}

// liveCredentials counts those that an assignment's consumers can log in with.
func (t *Tx) liveCredentials(a *projections.Assignment) int {
	n := 0
	for _, b := range t.EveryBinding(a) {
		n += t.Live(b)
	}
	return n
}

// release ends a binding, and first the override that stands on it.
func (t *Tx) release(r projections.BindingRef, cause events.ReleaseCause) error {
	b := t.Binding(r)
	if b.Override != 0 {
		if err := t.emit(t.Override(b.Override).ID, &events.OverrideCleared{Binding: b.ID}); err != nil {
			return err
		}
	}
	return t.emit(b.ID, &events.BindingReleased{From: t.Target(b), Cause: cause})
}

// Decide implements Command.
func (c ResolveAssignment) Decide(t *Tx) error {
	r, a, err := t.liveAssignment(c.Assignment)
	if err != nil {
		return err
	}
	if c.Prune {
		for _, b := range t.Bindings(a) {
			if t.Declared(t.Binding(b)) == nil {
				if err := t.release(b, events.ReleasePruned); err != nil {
					return err
				}
			}
		}
	}
	for i := range t.Module(a.Module).Slots {
		d := &t.Module(a.Module).Slots[i]
		f := FoundSlot{Assignment: r, Name: d.Name, Binding: t.BindingOf(a, d.Name), Decl: d}
		pending := f.Binding == 0 || t.Binding(f.Binding).Pending()
		if pending || c.Rebind && slices.Contains(t.Flags(f.Binding), projections.FlagDrift) {
			if err := t.reResolve(f); err != nil {
				return err
			}
		}
	}
	return nil
}

package projections

import (
	"errors"
	"fmt"
	"slices"

	"bindery/events"
)

func (s *State) assignmentCreated(e *events.Event, p *events.AssignmentCreated) error {
	module, err := s.find(kModule, p.Module)
	if err != nil {
		return err
	}
	node, err := s.find(kNode, p.Node)
	if err != nil {
		return err
	}
	i, a := s.assignments.add(&s.j)
	*a = Assignment{ID: e.Entity, Name: p.Name, Module: ModuleRef(module), Node: NodeRef(node),
		Seq: e.Seq, MovedSeq: e.Seq, fromManifest: fromManifest(e, bitNode)}
	r := AssignmentRef(i)
	enlist(&s.j, &s.Node(a.Node).Assignments, r, &a.posInNode)
	enlist(&s.j, &s.Module(a.Module).Assignments, r, &a.posInModule)
	if err := errors.Join(s.index(e.Entity, kAssignment, i), s.name(kAssignment, p.Name, i)); err != nil {
		return err
	}
	for _, slot := range s.Module(a.Module).Slots {
		id, ok := p.Slots[slot.Name]
		if !ok {
			return fmt.Errorf("no binding id for slot %s", slot.Name)
		}
		b, err := s.newBinding(r, slot.Name, id)
		if err != nil {
			return err
		}
		if chosen, ok := p.Choices[slot.Name]; ok {
			if err := s.putChoice(e, b, chosen); err != nil {
				return err
			}
		}
	}
	return nil
}

// newBinding makes the record of a slot that no event has spoken of.
func (s *State) newBinding(r AssignmentRef, slot string, id events.ID) (BindingRef, error) {
	a := s.Assignment(r)
	i, b := s.bindings.add(&s.j)
	*b = Binding{ID: id, Assignment: r, slot: s.slotKey(slot), next: a.first}
	if d := s.Module(a.Module).Slot(slot); d != nil {
		b.Provision = d.Provision
	}
	set(&s.j, &a.first, BindingRef(i))
	set(&s.j, &s.live, s.live+1)
	set(&s.j, &s.pendingLive, s.pendingLive+1)
	return BindingRef(i), s.index(id, kBinding, i)
}

// bindingFor finds the binding of an event, or makes it: a slot added to a
// module later gets its id with the first event about it.
func (s *State) bindingFor(id, assignment events.ID, slot string) (BindingRef, *Binding, error) {
	a, err := s.find(kAssignment, assignment)
	if err != nil {
		return 0, nil, err
	}
	if known, ok := s.byID[id]; ok {
		r := BindingRef(known.index)
		if known.kind == kBinding && s.Binding(r).Released {
			return 0, nil, fmt.Errorf("binding %s is released", id)
		}
		if known.kind != kBinding || s.Binding(r).Assignment != AssignmentRef(a) || s.SlotName(s.Binding(r)) != slot {
			return 0, nil, fmt.Errorf("id %s is not the binding of slot %s", id, slot)
		}
		return r, s.Binding(r), nil
	}
	r, err := s.newBinding(AssignmentRef(a), slot, id)
	return r, s.Binding(r), err
}

func (s *State) assignmentOf(e *events.Event) (AssignmentRef, *Assignment, error) {
	i, err := s.find(kAssignment, e.Entity)
	if err != nil {
		return 0, nil, err
	}
	a := s.assignments.at(i)
	set(&s.j, &a.Seq, e.Seq)
	return AssignmentRef(i), a, nil
}

func (s *State) assignmentRenamed(e *events.Event, p *events.AssignmentRenamed) error {
	r, a, err := s.assignmentOf(e)
	if err != nil {
		return err
	}
	set(&s.j, &a.Name, p.To)
	return s.rename(kAssignment, p.From, p.To, uint32(r))
}

func (s *State) assignmentMoved(e *events.Event, p *events.AssignmentMoved) error {
	r, a, err := s.assignmentOf(e)
	if err != nil {
		return err
	}
	to, err := s.find(kNode, p.To)
	if err != nil {
		return err
	}
	s.trackBit(e, &a.fromManifest, a.ID, FieldNode, s.Node(a.Node).ID.String())
	s.leaveNode(a)
	set(&s.j, &a.Node, NodeRef(to))
	set(&s.j, &a.MovedSeq, e.Seq)
	enlist(&s.j, &s.Node(a.Node).Assignments, r, &a.posInNode)
	return nil
}

func (s *State) leaveNode(a *Assignment) {
	delist(&s.j, &s.Node(a.Node).Assignments, &a.posInNode,
		func(o AssignmentRef) *uint32 { return &s.Assignment(o).posInNode })
}

func (s *State) assignmentEnded(e *events.Event) error {
	i, a, err := s.assignmentOf(e)
	if err != nil {
		return err
	}
	ended := s.names[kAssignment].ended
	put(&s.j, ended, a.Name, append(slices.Clip(ended[a.Name]), uint32(i)))
	s.leaveNode(a)
	delist(&s.j, &s.Module(a.Module).Assignments, &a.posInModule,
		func(o AssignmentRef) *uint32 { return &s.Assignment(o).posInModule })
	set(&s.j, &a.Ended, true)
	for r := a.first; r != 0; r = s.Binding(r).next {
		s.over(e, r)
	}
	s.end(e, kAssignment, a.Name, a.fromManifest)
	return nil
}

func (s *State) choiceSet(e *events.Event, p *events.ChoiceSet) error {
	if _, _, err := s.assignmentOf(e); err != nil {
		return err
	}
	r, b, err := s.bindingFor(p.Binding, e.Entity, p.Slot)
	if err != nil {
		return err
	}
	s.trackBool(e, &b.choiceFromManifest, b.ID, FieldChoice, s.providerID(b.Choice))
	if err := s.putChoice(e, r, p.Provider); err != nil {
		return err
	}
	if b.Rule() == events.RuleOverride && b.Override == 0 && b.Provider == b.Choice {
		// The override is gone and what it bound was kept: the choice holds it now.
		s.decidedBy(b, events.RuleAssignment, e.Seq)
	}
	return nil
}

func (s *State) putChoice(e *events.Event, r BindingRef, provider events.ID) error {
	i, err := s.find(kProvider, provider)
	if err != nil {
		return err
	}
	b := s.Binding(r)
	s.dropChoice(b)
	if e.Type.Name == "created" {
		set(&s.j, &b.choiceFromManifest, e.Origin == events.OriginManifest)
	}
	set(&s.j, &b.Choice, ProviderRef(i))
	set(&s.j, &b.ChoiceSeq, e.Seq)
	enlist(&s.j, &s.Provider(b.Choice).Choices, r, &b.choicePos)
	return nil
}

func (s *State) dropChoice(b *Binding) {
	if b.Choice == 0 {
		return
	}
	delist(&s.j, &s.Provider(b.Choice).Choices, &b.choicePos,
		func(o BindingRef) *uint32 { return &s.Binding(o).choicePos })
	set(&s.j, &b.Choice, 0)
}

func (s *State) choiceCleared(e *events.Event, p *events.ChoiceCleared) error {
	if _, _, err := s.assignmentOf(e); err != nil {
		return err
	}
	_, b, err := s.bindingFor(p.Binding, e.Entity, p.Slot)
	if err != nil {
		return err
	}
	s.trackBool(e, &b.choiceFromManifest, b.ID, FieldChoice, s.providerID(b.Choice))
	s.dropChoice(b)
	set(&s.j, &b.ChoiceSeq, e.Seq)
	return nil
}

func (s *State) bindingBound(e *events.Event, p *events.BindingBound) error {
	r, b, err := s.bindingFor(e.Entity, p.Assignment, p.Slot)
	if err != nil {
		return err
	}
	if !b.Pending() {
		return errors.New("bound already")
	}
	set(&s.j, &s.pendingLive, s.pendingLive-1)
	return s.serve(e, r, p.Target, p.Rule, p.Basis)
}

func (s *State) bindingRebound(e *events.Event, p *events.BindingRebound) error {
	r, b, err := s.bindingFor(e.Entity, p.Assignment, p.Slot)
	if err != nil {
		return err
	}
	if s.Target(b) != p.From {
		return errors.New("it was not bound to what it is said to leave")
	}
	s.settle(r, e.Seq)
	s.leaveProvider(b)
	return s.serve(e, r, p.To, p.Rule, p.Basis)
}

// serve gives a binding that has no target one.
func (s *State) serve(e *events.Event, r BindingRef, t events.Target, rule events.Rule, basis uint64) error {
	b := s.Binding(r)
	set(&s.j, &b.Embedded, t.Embedded)
	if !t.Embedded {
		i, err := s.find(kProvider, t.Provider)
		if err != nil {
			return err
		}
		set(&s.j, &b.Provider, ProviderRef(i))
		enlist(&s.j, &s.providers.at(i).Bindings, r, &b.pos)
	}
	if d := s.Module(s.Assignment(b.Assignment).Module).Slot(s.SlotName(b)); d != nil {
		set(&s.j, &b.Provision, d.Provision)
	}
	v := s.Provision(b.Provision)
	set(&s.j, &v.Bindings, v.Bindings+1)
	set(&s.j, &b.Seq, e.Seq)
	s.decidedBy(b, rule, basis)
	if s.Managed(b) {
		s.ask(e, r)
	} else {
		drop(&s.j, s.troubles, r)
	}
	return nil
}

func (s *State) decidedBy(b *Binding, rule events.Rule, basis uint64) {
	set(&s.j, &b.rule, ruleNumber(rule))
	set(&s.j, &b.Basis, basis)
}

func (s *State) leaveProvider(b *Binding) {
	if b.Pending() {
		return
	}
	v := s.Provision(b.Provision)
	set(&s.j, &v.Bindings, v.Bindings-1)
	if b.Provider != 0 {
		delist(&s.j, &s.Provider(b.Provider).Bindings, &b.pos,
			func(o BindingRef) *uint32 { return &s.Binding(o).pos })
		set(&s.j, &b.Provider, 0)
	}
	set(&s.j, &b.Embedded, false)
}

func (s *State) bindingReleased(e *events.Event, p *events.BindingReleased) error {
	i, err := s.find(kBinding, e.Entity)
	if err != nil {
		return err
	}
	b := s.bindings.at(i)
	if b.Released || s.Target(b) != p.From {
		return errors.New("it was not bound to what it is said to leave")
	}
	if b.Override != 0 {
		return errors.New("an override still stands on it")
	}
	if b.Pending() {
		set(&s.j, &s.pendingLive, s.pendingLive-1)
	}
	s.settle(BindingRef(i), e.Seq)
	s.withdraw(b, e.Seq, e.Time.UnixMilli())
	set(&s.j, &b.left, b.Provider)
	s.leaveProvider(b)
	s.dropChoice(b)
	set(&s.j, &b.Released, true)
	set(&s.j, &b.Seq, e.Seq)
	set(&s.j, &s.live, s.live-1)
	return nil
}

func (s *State) overrideSet(e *events.Event, p *events.OverrideSet) error {
	r, b, err := s.bindingFor(p.Binding, p.Assignment, p.Slot)
	if err != nil {
		return err
	}
	provider, err := s.find(kProvider, p.Provider)
	if err != nil {
		return err
	}
	old := ""
	if b.Override == 0 {
		i, _ := s.overrides.add(&s.j)
		if err := s.index(e.Entity, kOverride, i); err != nil {
			return err
		}
		set(&s.j, &b.Override, OverrideRef(i))
	} else {
		o := s.Override(b.Override)
		if o.ID != e.Entity {
			return fmt.Errorf("override %s stands on the slot already", o.ID)
		}
		old = s.providerID(o.Provider)
		s.dropOverrideRefs(o)
	}
	s.trackBool(e, &b.overrideFromManifest, b.ID, FieldOverride, old)
	o := s.Override(b.Override)
	now := Override{ID: e.Entity, Binding: r, Provider: ProviderRef(provider), Under: p.Under,
		Seq: e.Seq, Actor: e.Actor, Reason: e.Reason, Time: e.Time}
	if !p.Under.Target.Provider.IsZero() {
		under, err := s.find(kProvider, p.Under.Target.Provider)
		if err != nil {
			return err
		}
		now.under = ProviderRef(under)
	}
	set(&s.j, o, now)
	enlist(&s.j, &s.Provider(o.Provider).Overrides, r, &o.pos)
	if o.under != 0 {
		enlist(&s.j, &s.Provider(o.under).Memories, r, &o.underPos)
	}
	return nil
}

func (s *State) dropOverrideRefs(o *Override) {
	of := func(r BindingRef) *Override { return s.Override(s.Binding(r).Override) }
	delist(&s.j, &s.Provider(o.Provider).Overrides, &o.pos, func(r BindingRef) *uint32 { return &of(r).pos })
	if o.under != 0 {
		delist(&s.j, &s.Provider(o.under).Memories, &o.underPos, func(r BindingRef) *uint32 { return &of(r).underPos })
	}
}

func (s *State) overrideCleared(e *events.Event, p *events.OverrideCleared) error {
	i, err := s.find(kOverride, e.Entity)
	if err != nil {
		return err
	}
	o := s.overrides.at(i)
	b := s.Binding(o.Binding)
	if o.Cleared || b.ID != p.Binding {
		return errors.New("no such override stands")
	}
	s.trackBool(e, &b.overrideFromManifest, b.ID, FieldOverride, s.providerID(o.Provider))
	s.dropOverrideRefs(o)
	set(&s.j, &o.Cleared, true)
	set(&s.j, &b.Override, 0)
	if !o.Under.Target.IsZero() && s.Target(b) == o.Under.Target {
		// What lay under the override is what it bound: nothing moves, and the
		// earlier rule holds again.
		s.decidedBy(b, o.Under.Rule, o.Under.Basis)
	}
	return nil
}

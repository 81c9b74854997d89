package projections

import "bindery/events"

// Affected calls yield with each binding whose documents an event may have
// changed, some of them more than once: those whom the state, as it is after the
// event or later, leads to from there. A binding that was led to and is no longer
// was left by a later event about that binding itself.
//
// elsewhere reports that documents may have changed, too, of bindings that nothing
// leads to from what the event is about (see Aside).
func (s *State) Affected(e *events.Event, yield func(BindingRef)) (elsewhere bool) {
	switch p := e.Data.(type) {
	case *events.OverrideSet:
		s.affectedByID(p.Binding, yield)
		return false
	case *events.OverrideCleared:
		s.affectedByID(p.Binding, yield)
		return false
	case *events.AccessGranted:
		if r, ok := s.byID[p.Node]; ok && r.kind == kNode {
			s.eachOnNode(NodeRef(r.index), yield)
		}
		return true
	}
	r, ok := s.byID[e.Entity]
	if !ok {
		return false
	}
	switch r.kind {
	case kBinding:
		yield(BindingRef(r.index))
	case kAssignment:
		s.ofAssignment(AssignmentRef(r.index), yield)
	case kModule:
		for _, a := range s.modules.at(r.index).Assignments {
			s.ofAssignment(a, yield)
		}
	case kProvider:
		s.atProvider(ProviderRef(r.index), yield)
		return true
	case kNode:
		n := s.nodes.at(r.index)
		s.eachOnNode(NodeRef(r.index), yield)
		for _, p := range n.Providers {
			s.atProvider(p, yield)
		}
		return true
	case kRotation:
		o := s.rotations.at(r.index)
		if o.Binding != 0 {
			yield(o.Binding)
		} else {
			s.atProvider(o.Provider, yield)
		}
	case kGrant:
		if g := s.grants.at(r.index); g.Node != 0 {
			s.eachOnNode(g.Node, yield)
		}
		return true
	}
	return false
}

func (s *State) affectedByID(id events.ID, yield func(BindingRef)) {
	if r, ok := s.byID[id]; ok && r.kind == kBinding {
		yield(BindingRef(r.index))
	}
}

func (s *State) ofAssignment(r AssignmentRef, yield func(BindingRef)) {
	for b := s.Assignment(r).first; b != 0; b = s.Binding(b).next {
		yield(b)
	}
}

func (s *State) eachOnNode(r NodeRef, yield func(BindingRef)) {
	for _, a := range s.Node(r).Assignments {
		s.ofAssignment(a, yield)
	}
}

// atProvider yields who is bound to a provider, and who can log in to it.
func (s *State) atProvider(r ProviderRef, yield func(BindingRef)) {
	p := s.Provider(r)
	for _, b := range p.Bindings {
		yield(b)
	}
	for _, c := range p.Holders.Live {
		if b := s.Credential(c).Binding; s.Binding(b).Provider != r {
			yield(b)
		}
	}
}

// Aside reports whether a binding has documents that may tell of a provider or a
// node that does not lead to the binding: its consumer is over, it was pruned,
// what it uses logs in no longer, or it has an ask that was withdrawn.
func (s *State) Aside(r BindingRef) bool {
	b := s.Binding(r)
	if b.Released || s.Assignment(b.Assignment).Ended {
		return s.HasDocument(r) || len(s.HolderDocuments(r)) > 0
	}
	if b.use != 0 && !s.useLive(b) {
		return true
	}
	for c := range s.Credentials(r) {
		if b.use != 0 && c.Generation <= s.Credential(b.use).Generation {
			break
		}
		if c.State == Withdrawn {
			return true
		}
	}
	return false
}

// BindingWithID is the binding with that id, or 0.
func (s *State) BindingWithID(id events.ID) BindingRef {
	return BindingRef(s.ByID(events.EntityBinding, id))
}

// BindingCount is how many bindings there ever were: their references are 1 to
// that.
func (s *State) BindingCount() int { return s.bindings.len() }

package projections

import (
	"slices"

	"bindery/events"
)

// Bearers lists who bears a name, or did: the live one first, then those who bore
// it to their end, then those who were renamed; the latest of each first.
func (s *State) Bearers(entity events.Entity, name string) []events.ID {
	k := kindOf(entity)
	n := &s.names[k]
	var refs []uint32
	add := func(i uint32) {
		if !slices.Contains(refs, i) {
			refs = append(refs, i)
		}
	}
	if i, ok := n.live[name]; ok {
		add(i)
	}
	for i := s.countOf(k); i > 0; i-- {
		if live, _ := s.liveName(k, uint32(i)); live == "" && s.nameOf(k, uint32(i)) == name {
			add(uint32(i))
		}
	}
	for _, i := range slices.Backward(n.former[name]) {
		add(i)
	}
	out := make([]events.ID, len(refs))
	for j, i := range refs {
		out[j] = s.idOf(k, i)
	}
	return out
}

// countOf is how many entities of a kind with names there ever were.
func (s *State) countOf(k kind) int {
	switch k {
	case kNode:
		return s.nodes.len()
	case kProvision:
		return s.provisions.len()
	case kProvider:
		return s.providers.len()
	case kModule:
		return s.modules.len()
	case kAssignment:
		return s.assignments.len()
	case kGrant:
		return s.grants.len()
	}
	return 0
}

// nameOf is the name that an entity bears, or bore last.
func (s *State) nameOf(k kind, i uint32) string {
	switch k {
	case kNode:
		return s.nodes.at(i).Name
	case kProvision:
		return s.provisions.at(i).Name
	case kProvider:
		return s.providers.at(i).Name
	case kModule:
		return s.modules.at(i).Name
	case kAssignment:
		return s.assignments.at(i).Name
	case kGrant:
		return s.grants.at(i).Name
	}
	return ""
}

func (s *State) idOf(k kind, i uint32) events.ID {
	switch k {
	case kNode:
		return s.nodes.at(i).ID
	case kProvision:
		return s.provisions.at(i).ID
	case kProvider:
		return s.providers.at(i).ID
	case kModule:
		return s.modules.at(i).ID
	case kAssignment:
		return s.assignments.at(i).ID
	case kGrant:
		return s.grants.at(i).ID
	}
	return events.ID{}
}

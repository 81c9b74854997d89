package projections

import (
	"slices"
	"strings"

	"bindery/events"
)

// nameIndex finds the live entities of one type by name.
type nameIndex struct {
	live   map[string]uint32
	former map[string][]uint32 // who bore the name before and was renamed
	ended  map[string][]uint32 // who bore the name to its end; of assignments
}

func newNameIndex() nameIndex {
	return nameIndex{live: map[string]uint32{}, former: map[string][]uint32{}, ended: map[string][]uint32{}}
}

func (s *State) name(k kind, name string, i uint32) error {
	n := &s.names[k]
	if _, taken := n.live[name]; taken {
		return &nameTakenError{entityOf[k], name}
	}
	put(&s.j, n.live, name, i)
	drop(&s.j, s.gone, goneKey{k, name})
	return nil
}

func (s *State) unname(k kind, name string) { drop(&s.j, s.names[k].live, name) }

func (s *State) rename(k kind, from, to string, i uint32) error {
	if err := s.name(k, to, i); err != nil {
		return err
	}
	s.unname(k, from)
	n := &s.names[k]
	put(&s.j, n.former, from, append(slices.Clip(n.former[from]), i))
	return nil
}

type nameTakenError struct {
	entity events.Entity
	name   string
}

func (e *nameTakenError) Error() string {
	return "a live " + string(e.entity) + " is named " + e.name + " already"
}

// NodeNamed is the live node of that name, or 0.
func (s *State) NodeNamed(name string) NodeRef { return NodeRef(s.names[kNode].live[name]) }

// ProvisionNamed is the live provision of that name, or 0.
func (s *State) ProvisionNamed(name string) ProvisionRef {
	return ProvisionRef(s.names[kProvision].live[name])
}

// ProviderNamed is the live provider of that name, or 0.
func (s *State) ProviderNamed(name string) ProviderRef {
	return ProviderRef(s.names[kProvider].live[name])
}

// ModuleNamed is the live module of that name, or 0.
func (s *State) ModuleNamed(name string) ModuleRef { return ModuleRef(s.names[kModule].live[name]) }

// AssignmentNamed is the live assignment of that name, or 0.
func (s *State) AssignmentNamed(name string) AssignmentRef {
	return AssignmentRef(s.names[kAssignment].live[name])
}

// Bearer is a live entity that bore a name before it was renamed.
type Bearer struct {
	ID   events.ID
	Name string // what it is called now
}

// FormerBearer is the live entity that bore name before and is called
// something else now, the latest where several did; the zero Bearer for none.
func (s *State) FormerBearer(entity events.Entity, name string) Bearer {
	k := kindOf(entity)
	was := s.names[k].former[name]
	for i := len(was) - 1; i >= 0; i-- {
		if now, id := s.liveName(k, was[i]); now != "" && now != name {
			return Bearer{ID: id, Name: now}
		}
	}
	return Bearer{}
}

// EndedAssignments are those that bore a name to their end, the latest first.
func (s *State) EndedAssignments(name string) []AssignmentRef {
	ended := s.names[kAssignment].ended[name]
	out := make([]AssignmentRef, 0, len(ended))
	for _, i := range slices.Backward(ended) {
		out = append(out, AssignmentRef(i))
	}
	return out
}

func kindOf(entity events.Entity) kind {
	for k, e := range entityOf {
		if e == entity {
			return kind(k)
		}
	}
	panic("projections: entity " + string(entity) + " has no names")
}

// liveName is the present name and the id of an entity, or "" when it is over.
func (s *State) liveName(k kind, i uint32) (string, events.ID) {
	if name, id, live := s.bearer(k, i); live {
		return name, id
	}
	return "", events.ID{}
}

// bearer is the name that an entity bears, or bore last, its id, and whether it is
// live.
func (s *State) bearer(k kind, i uint32) (name string, id events.ID, live bool) {
	switch k {
	case kNode:
		n := s.nodes.at(i)
		return n.Name, n.ID, !n.Retired
	case kProvision:
		p := s.provisions.at(i)
		return p.Name, p.ID, !p.Removed
	case kProvider:
		p := s.providers.at(i)
		return p.Name, p.ID, p.State != Retired
	case kModule:
		m := s.modules.at(i)
		return m.Name, m.ID, !m.Removed
	case kGrant:
		g := s.grants.at(i)
		return g.Name, g.ID, !g.Revoked
	case kAssignment:
		a := s.assignments.at(i)
		return a.Name, a.ID, !a.Ended
	}
	return "", events.ID{}, false
}

// LastBearer is who bears a name now; else who bore it to his end, the latest; else
// who bore it before he was renamed, the latest. The zero id for nobody. It reads
// every entity of the type where nobody bears the name: it is for a history.
func (s *State) LastBearer(entity events.Entity, name string) events.ID {
	k := kindOf(entity)
	if i, ok := s.names[k].live[name]; ok {
		return s.IDOf(entity, i)
	}
	var last uint32
	for _, r := range s.byID {
		if r.kind != k || r.index <= last {
			continue
		}
		if bore, _, live := s.bearer(k, r.index); !live && bore == name {
			last = r.index
		}
	}
	if former := s.names[k].former[name]; last == 0 && len(former) > 0 {
		last = former[len(former)-1]
	}
	if last == 0 {
		return events.ID{}
	}
	return s.IDOf(entity, last)
}

// IDOf is the id of the entity with an index that ByID gives, or a reference is.
func (s *State) IDOf(entity events.Entity, i uint32) events.ID {
	k := kindOf(entity)
	if k == kRotation {
		return s.rotations.at(i).ID
	}
	_, id, _ := s.bearer(k, i)
	return id
}

// Names lists the names of the live entities of a type, sorted. It is for
// refusals that suggest the nearest ones, not for the path of a command that
// succeeds.
func (s *State) Names(entity events.Entity) []string {
	n := &s.names[kindOf(entity)]
	out := make([]string, 0, len(n.live))
	for name := range n.live {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// ByID finds the entity with the given id, whether it is live or over; index 0
// means none. The reference is to be converted to the entity's own type.
func (s *State) ByID(entity events.Entity, id events.ID) uint32 {
	if r, ok := s.byID[id]; ok && r.kind == kindOf(entity) {
		return r.index
	}
	return 0
}

// MinPartialID is the least length of a part of an id that is looked up.
const MinPartialID = 6

// ByPartialID finds the entities of a type whose id begins or ends with part
// (upper case). It reads every id: names and whole ids are what scripts use.
func (s *State) ByPartialID(entity events.Entity, part string) []events.ID {
	k := kindOf(entity)
	var out []events.ID
	if len(part) < MinPartialID || len(part) > events.IDLen {
		return nil
	}
	for id, r := range s.byID {
		if r.kind != k {
			continue
		}
		if text := id.String(); strings.HasPrefix(text, part) || strings.HasSuffix(text, part) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b events.ID) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// RetiredProviders finds the retired providers of a name, the latest first. It
// reads every provider: it is for refusals.
func (s *State) RetiredProviders(name string) []ProviderRef {
	var out []ProviderRef
	for i := s.providers.len(); i > 0; i-- {
		if p := s.providers.at(uint32(i)); p.State == Retired && p.Name == name {
			out = append(out, ProviderRef(i))
		}
	}
	return out
}

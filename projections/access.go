package projections

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"bindery/events"
)

// Grant lets whoever has the secret half of a key do what a role may.
type Grant struct {
	ID      events.ID
	Name    string
	Role    events.Role
	Node    NodeRef // of an agent
	Key     string  // the public nkey
	Seq     uint64
	Time    time.Time
	Actor   string // who granted it
	Revoked bool
}

// GrantRef refers to a grant.
type GrantRef uint32

// Grant returns the grant r refers to.
func (s *State) Grant(r GrantRef) *Grant { return s.grants.at(uint32(r)) }

// GrantNamed is the standing grant of that name, or 0.
func (s *State) GrantNamed(name string) GrantRef { return GrantRef(s.names[kGrant].live[name]) }

// GrantOf is the standing grant of a key, or 0.
func (s *State) GrantOf(key string) GrantRef { return s.grantKeys[key] }

// WriterKeys are the keys that may prove commands of a ledger on a server, each by the
// id of its grant; nil where there is none.
func (s *State) WriterKeys() map[events.ID]string {
	var out map[events.ID]string
	for _, i := range s.names[kGrant].live {
		if g := s.Grant(GrantRef(i)); g.Role == events.RoleWriter {
			if out == nil {
				out = map[events.ID]string{}
			}
			out[g.ID] = g.Key
		}
	}
	return out
}

// WriterKeysAt are the keys that could prove commands after an earlier event, of a
// sequence and a time. Of a grant that was revoked since, only the time is known: it may
// name one too many, granted in the same millisecond.
func (s *State) WriterKeysAt(seq uint64, at time.Time) map[events.ID]string {
	out := map[events.ID]string{}
	for i := 1; i <= s.grants.len(); i++ {
		g := s.Grant(GrantRef(i))
		switch {
		case g.Role != events.RoleWriter:
		case !g.Revoked && g.Seq <= seq, g.Revoked && g.Seq > seq && !g.Time.After(at):
			out[g.ID] = g.Key
		}
	}
	return out
}

// Operators is how many grants of all commands stand.
func (s *State) Operators() int { return s.operators }

func (s *State) accessGranted(e *events.Event, p *events.AccessGranted) error {
	i, g := s.grants.add(&s.j)
	*g = Grant{ID: e.Entity, Name: p.Name, Role: p.Role, Key: p.NKey, Seq: e.Seq, Time: e.Time, Actor: e.Actor}
	if !p.Node.IsZero() {
		n, err := s.find(kNode, p.Node)
		if err != nil {
			return err
		}
		g.Node = NodeRef(n)
		if p.Role == events.RoleAgent {
			node := s.Node(g.Node)
			set(&s.j, &node.Agents, append(slices.Clip(node.Agents), GrantRef(i)))
		}
	}
	if s.grantKeys[p.NKey] != 0 {
		return fmt.Errorf("the key is granted to %s already", s.Grant(s.grantKeys[p.NKey]).Name)
	}
	put(&s.j, s.grantKeys, p.NKey, GrantRef(i))
	s.countOperators(g, 1)
	if err := s.index(e.Entity, kGrant, i); err != nil {
		return err
	}
	return s.name(kGrant, p.Name, i)
}

func (s *State) countOperators(g *Grant, by int) {
	if g.Role == events.RoleOperator {
		set(&s.j, &s.operators, s.operators+by)
	}
}

func (s *State) accessRevoked(e *events.Event) error {
	i, err := s.find(kGrant, e.Entity)
	if err != nil {
		return err
	}
	g := s.grants.at(i)
	if g.Revoked {
		return fmt.Errorf("it is revoked already")
	}
	set(&s.j, &g.Revoked, true)
	set(&s.j, &g.Seq, e.Seq)
	drop(&s.j, s.grantKeys, g.Key)
	s.countOperators(g, -1)
	if g.Role == events.RoleAgent {
		node := s.Node(g.Node)
		set(&s.j, &node.Agents, slices.DeleteFunc(slices.Clone(node.Agents), func(o GrantRef) bool { return o == GrantRef(i) }))
	}
	s.unname(kGrant, g.Name)
	return nil
}

// GrantView is a grant as readers see it.
type GrantView struct {
	Seq    uint64      `json:"seq"`
	ID     events.ID   `json:"id"`
	Name   string      `json:"name"`
	Role   events.Role `json:"role"`
	Node   string      `json:"node,omitempty"`
	NodeID *events.ID  `json:"node_id,omitempty"`
	NKey   string      `json:"nkey"`
	Actor  string      `json:"actor"`
	Time   time.Time   `json:"time"`
}

// GrantView makes the view of a grant.
func (s *State) GrantView(r GrantRef) GrantView {
	g := s.Grant(r)
	v := GrantView{Seq: g.Seq, ID: g.ID, Name: g.Name, Role: g.Role, NKey: g.Key, Actor: g.Actor, Time: g.Time}
	if g.Node != 0 {
		id := s.Node(g.Node).ID
		v.Node, v.NodeID = s.Node(g.Node).Name, &id
	}
	return v
}

// GrantedKeys are the keys of the grants that stand, sorted, but for those of writers,
// who ask nothing.
func (s *State) GrantedKeys() []string {
	out := slices.Sorted(maps.Keys(s.grantKeys))
	return slices.DeleteFunc(out, func(key string) bool { return s.Grant(s.grantKeys[key]).Role == events.RoleWriter })
}

// GrantsStamp is another one after each grant and each revocation.
func (s *State) GrantsStamp() [2]int { return [2]int{s.grants.len(), len(s.grantKeys)} }

// ListGrants lists the grants that stand, by name.
func (s *State) ListGrants() List[GrantView] {
	return list(s, views(s, events.EntityAccess, func(i uint32) GrantView { return s.GrantView(GrantRef(i)) }))
}

// AgentKeys lists the keys of the agents granted for a node, sorted.
func (s *State) AgentKeys(r NodeRef) []string {
	out := []string{}
	for _, g := range s.Node(r).Agents {
		out = append(out, s.Grant(g).Key)
	}
	slices.Sort(out)
	return out
}

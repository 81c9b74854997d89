package commands

import (
	"fmt"
	"regexp"

	"bindery/events"
	"bindery/projections"
)

// AgentOf finds the node for which the owner of a key acts as its agent, and refuses
// every other key and node. node is an id; empty: the key's own node. The key "" is
// of whoever can read the store's files: it acts for any node.
func (f Finder) AgentOf(key, node string) (projections.NodeRef, error) {
	r, err := f.nodeWithID(node)
	if key == "" {
		return r, err
	}
	ref := f.GrantOf(key)
	if ref == 0 {
		_, err := Authorize(f.State, key, nil)
		return 0, err
	}
	g := f.Grant(ref)
	switch {
	case g.Role == events.RoleAgent && (node == "" || err == nil && r == g.Node):
		return g.Node, nil
	case g.Role == events.RoleAgent:
		return 0, refuse(NotPermitted, g.Name+" may not act for another node", "it is granted as the agent of "+f.State.Node(g.Node).Name, do("access list"))
	}
	return 0, refuse(NotPermitted, g.Name+" may not act for a node", fmt.Sprintf("it is granted as %s since sequence %d", g.Role, g.Seq), do("access list"))
}

// nodeWithID finds a node by its whole id; none by "".
func (f Finder) nodeWithID(text string) (projections.NodeRef, error) {
	if text == "" {
		return 0, nil
	}
	id, err := events.ParseID(text)
	if err != nil {
		return 0, refuse(Usage, fmt.Sprintf("%q is not the id of a node", clip(text)), "an agent names its node by the whole id", do("node list"))
	}
	r := projections.NodeRef(f.ByID(events.EntityNode, id))
	if r == 0 {
		return 0, f.notFound(refNode, text, nil)
	}
	return r, nil
}

// A Secret is a sealed secret of a credential, as its maker names it.
type Secret struct {
	Binding    string `json:"binding"` // id
	Generation uint64 `json:"generation"`
	Tag        string `json:"tag"`
	Own        bool   `json:"own,omitempty"`
}

var askTag = regexp.MustCompile(`^[0-9a-f]{8}$`)

// NameBy is the name of the secret where a node's agent has made it.
func (f Finder) NameBy(maker projections.NodeRef, s Secret) (SealedName, error) {
	id, err := events.ParseID(s.Binding)
	if err != nil || maker == 0 || s.Generation == 0 || !askTag.MatchString(s.Tag) {
		return SealedName{}, refuse(Usage, "the secret is not named", "it takes the id of a binding, a generation, its tag, and the node that made it", do("credential list"))
	}
	return SealedName{Binding: id, Generation: s.Generation, Tag: s.Tag, Maker: f.State.Node(maker).ID, Own: s.Own}, nil
}

// MaySeal says for which node's agent a secret is sealed: the consumer's. It refuses
// where no such credential is issued at the maker's node now.
func (f Finder) MaySeal(maker projections.NodeRef, n SealedName) (consumer events.ID, err error) {
	r, err := f.HeldBinding(n.Binding.String(), n.Generation)
	if err != nil {
		return events.ID{}, err
	}
	for c := range f.Credentials(r) {
		if c.Generation != n.Generation {
			continue
		}
		what := fmt.Sprintf("generation %d of %s", n.Generation, f.SlotPath(f.Binding(r)))
		if now := f.Tag(&c); now != n.Tag {
			return events.ID{}, Restored(what+" is another one than it was", fmt.Sprintf("its tag is %s, not %s", now, n.Tag))
		}
		if f.ProviderNode(&c) != maker {
			return events.ID{}, refuse(ProviderMoved, what+" is not issued and revoked on "+f.State.Node(maker).Name,
				"its provider is on another node", do("provider list"))
		}
		if !c.State.Live() && c.State != projections.Asked && c.State != projections.Withdrawn {
			break
		}
		return f.State.Node(f.State.Assignment(f.Binding(r).Assignment).Node).ID, nil
	}
	return events.ID{}, refuse(GenerationUnknown, fmt.Sprintf("generation %d is over", n.Generation), "nobody logs in with it any more", do("credential list"))
}

// TagOf is the tag of a credential; empty where there is none.
func (f Finder) TagOf(binding events.ID, generation uint64) string {
	r := projections.BindingRef(f.ByID(events.EntityBinding, binding))
	if r == 0 {
		return ""
	}
	for c := range f.Credentials(r) {
		if c.Generation == generation {
			return f.Tag(&c)
		}
	}
	return ""
}

// AgentKeysOf lists the keys that are granted to agents of a node, sorted; none for a
// node that is not there.
func (f Finder) AgentKeysOf(node events.ID) []string {
	r := projections.NodeRef(f.ByID(events.EntityNode, node))
	if r == 0 {
		return []string{}
	}
	return f.AgentKeys(r)
}

package commands

import (
	"fmt"
	"strings"
	"time"

	"bindery/events"
	"bindery/projections"
)

// WhoAmI asks as whom one is known; it is answered to everybody who is granted
// anything.
type WhoAmI struct {
	// Key is the key that asks; whoever answers fills it in. Empty: of one who can
	// read the store's files.
	Key string `json:"-"`
}

// WhoAmIView is as whom one is known.
type WhoAmIView struct {
	Mesh   string      `json:"mesh"`
	MeshID events.ID   `json:"mesh_id"`
	Name   string      `json:"name"` // of the grant; empty for whoever can read the store's files
	Role   events.Role `json:"role"`
	Node   string      `json:"node,omitempty"` // of an agent
	NodeID *events.ID  `json:"node_id,omitempty"`
	Seq    uint64      `json:"seq"`
}

// Name implements Query.
func (WhoAmI) Name() string { return "access.whoami" }

// Answer implements Query.
func (q WhoAmI) Answer(s *projections.State, _ time.Time) (any, error) {
	v := WhoAmIView{Mesh: s.Mesh.Name, MeshID: s.Mesh.ID, Role: events.RoleOperator, Seq: s.Seq}
	if r := s.GrantOf(q.Key); r != 0 {
		g := s.Grant(r)
		v.Name, v.Role = g.Name, g.Role
		if g.Node != 0 {
			id := s.Node(g.Node).ID
			v.Node, v.NodeID = s.Node(g.Node).Name, &id
		}
	}
	return v, nil
}

// An ofNode says which nodes a command or a query concerns: an agent may ask
// about its own.
type ofNode interface {
	// concerns reports whether it is about node; not where what it names is not
	// found.
	concerns(f Finder, node projections.NodeRef) bool
}

// Authorize says as whom the owner of a key acts, or refuses what its grant does
// not allow. what is a Command, a Query, or anything else that is read.
func Authorize(s *projections.State, key string, what any) (actor string, err error) {
	r := s.GrantOf(key)
	if r == 0 {
		return "", refuse(NotPermitted, "the key is not granted any access", "nobody granted it, or it was revoked",
			do("access grant", "NAME").With("--role", "ROLE").With("--nkey", key))
	}
	g := s.Grant(r)
	command, writes := what.(Command)
	about, bound := what.(ofNode)
	_, who := what.(WhoAmI)
	switch {
	case g.Role == events.RoleOperator, who && g.Role != events.RoleWriter, !writes && g.Role == events.RoleAuditor:
		return g.Name, nil
	case g.Role == events.RoleAgent && bound && about.concerns(Finder{s}, g.Node):
		return g.Name, nil
	}
	as := "an " + string(g.Role)
	if g.Role == events.RoleAgent {
		as += " of " + s.Node(g.Node).Name
	}
	verb := "this"
	if writes {
		verb = command.Verb()
	} else if q, ok := what.(interface{ Name() string }); ok {
		verb = q.Name()
	}
	return "", refuse(NotPermitted, g.Name+" may not do "+strings.ReplaceAll(verb, ".", " ")+" here",
		fmt.Sprintf("it is granted as %s since sequence %d", as, g.Seq), do("access list"))
}

// DocumentsOf is what Authorize is asked about the documents of a node.
type DocumentsOf struct{ Node string }

// Name is how the documents are asked for.
func (DocumentsOf) Name() string { return "documents" }

// onNode reports whether a binding's consumer is on a node.
func (f Finder) onNode(r projections.BindingRef, node projections.NodeRef) bool {
	return f.State.Assignment(f.Binding(r).Assignment).Node == node
}

// consumerOn reports whether assignment/slot is of a consumer on a node.
func (f Finder) consumerOn(slot string, node projections.NodeRef) bool {
	if all, err := f.everyBinding(slot); err == nil {
		return f.onNode(all[0], node)
	}
	return false
}

// issuedOn reports whether a credential is issued and revoked on a node: its
// provider is there, or the instance it is embedded with.
func (f Finder) issuedOn(slot string, generation uint64, node projections.NodeRef) bool {
	r, err := f.HeldBinding(slot, generation)
	if err != nil {
		return false
	}
	for c := range f.Credentials(r) {
		if c.Generation == generation {
			return f.State.ProviderNode(&c) == node
		}
	}
	return false
}

// mayTell reports whether the agent of a node may tell of a credential that it was
// issued or revoked: it is, there; or the agent says that this was done there, and is
// told that the provider is elsewhere (Tx.doneAt).
func (f Finder) mayTell(slot string, generation uint64, at string, node projections.NodeRef) bool {
	if _, err := f.HeldBinding(slot, generation); err != nil {
		return false
	}
	return f.nodeIs(at, node) || f.issuedOn(slot, generation, node)
}

func (f Finder) providerOn(text string, node projections.NodeRef) bool {
	r, err := f.Provider(text)
	return err == nil && f.State.Provider(r).Node == node
}

func (f Finder) assignmentOn(text string, node projections.NodeRef) bool {
	r, err := f.Assignment(text)
	return err == nil && f.State.Assignment(r).Node == node
}

func (f Finder) nodeIs(text string, node projections.NodeRef) bool {
	r, err := f.Node(text)
	return err == nil && r == node
}

func (c AcknowledgeBinding) concerns(f Finder, n projections.NodeRef) bool {
	return f.consumerOn(c.Slot, n)
}
func (c FailBinding) concerns(f Finder, n projections.NodeRef) bool { return f.consumerOn(c.Slot, n) }
func (c IssueCredential) concerns(f Finder, n projections.NodeRef) bool {
	return f.mayTell(c.Slot, c.Generation, c.Node, n)
}
func (c FailCredential) concerns(f Finder, n projections.NodeRef) bool {
	return f.mayTell(c.Slot, c.Generation, c.Node, n)
}
func (c RevokeCredential) concerns(f Finder, n projections.NodeRef) bool {
	return !c.Force && f.mayTell(c.Slot, c.Generation, c.Node, n)
}

func (q DocumentsOf) concerns(f Finder, n projections.NodeRef) bool { return f.nodeIs(q.Node, n) }
func (q ShowNode) concerns(f Finder, n projections.NodeRef) bool    { return f.nodeIs(q.Node, n) }
func (q ShowProvider) concerns(f Finder, n projections.NodeRef) bool {
	return f.providerOn(q.Provider, n)
}
func (q ListHolders) concerns(f Finder, n projections.NodeRef) bool {
	return f.providerOn(q.Provider, n)
}
func (q ShowAssignment) concerns(f Finder, n projections.NodeRef) bool {
	return f.assignmentOn(q.Assignment, n)
}
func (q ShowBinding) concerns(f Finder, n projections.NodeRef) bool { return f.consumerOn(q.Slot, n) }
func (q Explain) concerns(f Finder, n projections.NodeRef) bool {
	return q.Slot != "" && f.consumerOn(q.Slot, n)
}
func (q ListBindings) concerns(f Finder, n projections.NodeRef) bool {
	return q.Node != "" && f.nodeIs(q.Node, n) || q.Assignment != "" && f.assignmentOn(q.Assignment, n) ||
		q.Provider != "" && f.providerOn(q.Provider, n)
}
func (q ListCredentials) concerns(f Finder, n projections.NodeRef) bool {
	return q.Assignment != "" && f.assignmentOn(q.Assignment, n) || q.Provider != "" && f.providerOn(q.Provider, n)
}
func (q ShowRotation) concerns(f Finder, n projections.NodeRef) bool {
	r, err := f.Rotation(q.Rotation)
	if err != nil {
		return false
	}
	if o := f.State.Rotation(r); o.Provider != 0 {
		return f.State.Provider(o.Provider).Node == n
	}
	return f.onNode(f.State.Rotation(r).Binding, n)
}

package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"bindery/events"
	"bindery/projections"
)

// GrantAccess lets whoever has the secret half of a key do what a role may.
type GrantAccess struct {
	Name string      `json:"name"`
	Role events.Role `json:"role"`
	Node string      `json:"node,omitempty"` // of an agent
	NKey string      `json:"nkey"`           // the public key
}

// RevokeAccess ends a grant.
type RevokeAccess struct {
	Name string `json:"name"`
}

// ListAccess lists the grants that stand.
type ListAccess struct{}

// Verb implements Command.
func (GrantAccess) Verb() string { return "access.grant" }

// Verb implements Command.
func (RevokeAccess) Verb() string { return "access.revoke" }

// Name implements Query.
func (ListAccess) Name() string { return "access.list" }

// Answer implements Query.
func (ListAccess) Answer(s *projections.State, _ time.Time) (any, error) { return s.ListGrants(), nil }

// Decide implements Command.
func (c GrantAccess) Decide(t *Tx) error {
	e := &events.AccessGranted{Name: c.Name, Role: c.Role, NKey: c.NKey}
	if err := events.CheckName(c.Name); err != nil {
		return invalid(err)
	}
	if !slices.Contains(events.Roles(), c.Role) {
		return refuse(Usage, fmt.Sprintf("role is %q, not one of operator, agent, auditor", clip(string(c.Role))), "", "bindery access grant --help")
	}
	if err := events.CheckNKey(c.NKey); err != nil {
		return codedAs(NKeyInvalid, err)
	}
	if !nkeys.IsValidPublicUserKey(c.NKey) {
		return refuse(NKeyInvalid, "the key is not the public nkey of a user", "its checksum is wrong", "bindery access keygen")
	}
	if (c.Role == events.RoleAgent) != (c.Node != "") {
		return refuse(Usage, "whether "+c.Name+" has a node is said wrongly", "an agent is of one node, an operator or an auditor of none",
			"bindery access grant "+c.Name+" --role agent --node NODE --nkey KEY")
	}
	var node projections.NodeRef
	if c.Node != "" {
		var err error
		if node, err = t.liveNode(c.Node); err != nil {
			return err
		}
		e.Node = t.Node(node).ID
	}
	if r := t.GrantNamed(c.Name); r != 0 {
		if g := t.Grant(r); g.Role != c.Role || g.Node != node || g.Key != c.NKey {
			out := taken("access", c.Name, g.ID).(*Refusal)
			out.Fix = "bindery access revoke " + c.Name
			return out
		}
		return nil
	}
	if r := t.GrantOf(c.NKey); r != 0 {
		g := t.Grant(r)
		return refuse(NKeyTaken, "the key is granted already", "to "+g.Name+" as "+string(g.Role)+"; who does what is told by the key",
			"bindery access revoke "+g.Name)
	}
	return t.emit(t.NewID(), e)
}

// Decide implements Command.
func (c RevokeAccess) Decide(t *Tx) error {
	r := t.GrantNamed(c.Name)
	if r == 0 {
		return Finder{t.State}.notFound(refKind{events.EntityAccess, AccessNotFound}, c.Name, t.Names(events.EntityAccess))
	}
	g := t.Grant(r)
	if g.Role == events.RoleOperator && t.Operators() == 1 {
		return refuse(LastOperator, g.Name+" is the last operator", "nobody could grant anything any more",
			"bindery access grant NAME --role operator --nkey KEY")
	}
	return t.emit(g.ID, &events.AccessRevoked{})
}

// WhoAmI asks as whom one is known; it is answered to everybody who is granted
// anything.
type WhoAmI struct{}

// Name implements Query.
func (WhoAmI) Name() string { return "access.whoami" }

// Answer implements Query. Whoever is asked as a grant is told by Authorize.
func (WhoAmI) Answer(s *projections.State, _ time.Time) (any, error) {
	return struct {
		Mesh string `json:"mesh"`
		Seq  uint64 `json:"seq"`
	}{s.Mesh.Name, s.Seq}, nil
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
			"bindery access grant NAME --role ROLE --nkey "+key)
	}
	g := s.Grant(r)
	command, writes := what.(Command)
	about, bound := what.(ofNode)
	_, who := what.(WhoAmI)
	switch {
	case g.Role == events.RoleOperator, who, !writes && g.Role == events.RoleAuditor:
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
	} else if q, ok := what.(Query); ok {
		verb = q.Name()
	}
	return "", refuse(NotPermitted, g.Name+" may not do "+strings.ReplaceAll(verb, ".", " ")+" here",
		fmt.Sprintf("it is granted as %s since sequence %d", as, g.Seq), "bindery access list")
}

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
	for _, c := range f.Credentials(r) {
		if c.Generation == generation {
			if c.Provider != 0 {
				return f.State.Provider(c.Provider).Node == node
			}
			return f.onNode(r, node)
		}
	}
	return false
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
	return f.issuedOn(c.Slot, c.Generation, n)
}
func (c FailCredential) concerns(f Finder, n projections.NodeRef) bool {
	return f.issuedOn(c.Slot, c.Generation, n)
}
func (c RevokeCredential) concerns(f Finder, n projections.NodeRef) bool {
	return !c.Force && f.issuedOn(c.Slot, c.Generation, n)
}

func (q ShowNode) concerns(f Finder, n projections.NodeRef) bool { return f.nodeIs(q.Node, n) }
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

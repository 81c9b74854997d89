package commands

import (
	"fmt"
	"slices"
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
		return refuse(Usage, fmt.Sprintf("role is %q, not one of operator, agent, auditor, writer", clip(string(c.Role))), "", do("access grant").With("--help"))
	}
	if err := events.CheckNKey(c.NKey); err != nil {
		return codedAs(NKeyInvalid, err)
	}
	if !nkeys.IsValidPublicUserKey(c.NKey) {
		return refuse(NKeyInvalid, "the key is not the public nkey of a user", "its checksum is wrong", do("access keygen", "FILE"))
	}
	if (c.Role == events.RoleAgent) != (c.Node != "") {
		return refuse(Usage, "whether "+c.Name+" has a node is said wrongly", "an agent is of one node, and nobody else has one",
			do("access grant", c.Name).With("--role", "agent").With("--node", "NODE").With("--nkey", "KEY"))
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
			out.Fix = do("access revoke", c.Name)
			return out
		}
		return nil
	}
	if r := t.GrantOf(c.NKey); r != 0 {
		g := t.Grant(r)
		return refuse(NKeyTaken, "the key is granted already", "to "+g.Name+" as "+string(g.Role)+"; who does what is told by the key",
			do("access revoke", g.Name))
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
			do("access grant", "NAME").With("--role", "operator").With("--nkey", "KEY"))
	}
	if g.Role == events.RoleWriter && len(t.WriterKeys()) == 1 {
		return refuse(LastWriter, g.Name+" is the last writer", "nothing could be written to this ledger any more",
			do("access grant", "NAME").With("--role", "writer").With("--nkey", "KEY"))
	}
	return t.emit(g.ID, &events.AccessRevoked{})
}

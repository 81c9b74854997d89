package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"bindery/commands"
	"bindery/projections"
)

// A credential that this agent made, and that its node's documents do not tell of, is
// over, or its provider has moved: the documents do not say which. Before anything of
// it is removed, that is asked.

// errIncomplete says that two answers do not fit together: the ledger has changed
// between them.
var errIncomplete = errors.New("the ledger has changed meanwhile")

// isNone reports whether an error says that a thing is not there, or not any more a
// thing of this node.
func isNone(err error) bool {
	var r *commands.Refusal
	if !errors.As(err, &r) {
		return false
	}
	switch r.Code {
	case commands.NotPermitted, commands.AssignmentNotFound, commands.ProviderNotFound:
		return true
	}
	return false
}

// nodeName is what the agent's node is called now. It can be asked while the agent
// is granted its node: so a refusal about something else is about that.
func (a *Agent) nodeName(ctx context.Context) (string, error) {
	var node projections.NodeView
	if err := a.cfg.Ledger.Ask(ctx, commands.ShowNode{Node: a.nodeID}, &node); err != nil {
		return "", fmt.Errorf("%w: %w", errNotSaid, err)
	}
	return node.Name, nil
}

// usesHere asks whether a consumer of this node is to use a secret that this agent has
// stored.
func (a *Agent) usesHere(ctx context.Context, in *hookInput, ref string) (bool, error) {
	if ref == "" {
		return false, nil
	}
	needs, err := a.needsNow(ctx, in.AssignmentID)
	return slices.ContainsFunc(needs, func(n *need) bool { return n.ref == ref }), err
}

// whereabouts is where an ask or a holder is that there is a record of here.
type whereabouts int

const (
	over      whereabouts = iota // the ledger has it no longer
	here                         // and this node's agent is the one to see to it
	elsewhere                    // its provider has moved to another node, or is another agent's
)

// whereIs asks where an ask or a holder is.
func (a *Agent) whereIs(ctx context.Context, in *hookInput) (whereabouts, error) {
	name, err := a.nodeName(ctx)
	if err != nil {
		return over, err
	}
	where, q := "", commands.ListCredentials{Provider: in.ProviderID}
	if in.Embedded {
		var v projections.AssignmentView
		err = a.cfg.Ledger.Ask(ctx, commands.ShowAssignment{Assignment: in.AssignmentID}, &v)
		where, q = v.Node, commands.ListCredentials{Assignment: in.AssignmentID}
	} else {
		var v commands.ProviderShow
		err = a.cfg.Ledger.Ask(ctx, commands.ShowProvider{Provider: in.ProviderID}, &v)
		where = v.Node
	}
	var r *commands.Refusal
	if errors.As(err, &r) && r.Code == commands.NotPermitted || err == nil && where != name {
		return elsewhere, nil
	}
	var list projections.List[projections.CredentialView]
	if err == nil {
		err = a.cfg.Ledger.Ask(ctx, q, &list)
	}
	switch {
	case isNone(err):
		return over, nil
	case err != nil:
		return over, fmt.Errorf("%w: %w", errNotSaid, err)
	}
	for _, c := range list.Items {
		if c.Binding.String() == in.Binding && c.Generation == in.Generation {
			return here, nil
		}
	}
	return over, nil
}

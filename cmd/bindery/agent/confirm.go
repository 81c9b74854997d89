package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"bindery/commands"
	"bindery/projections"
)

// What is not in a bucket may be gone, or not be there yet: after a restart of its
// server a bucket can be empty for a while. Before anything is removed because a
// document is missing, the ledger itself is asked.

// errIncomplete says that the documents are behind the ledger.
var errIncomplete = errors.New("the documents do not tell of all that the ledger has")

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

// assignmentHere asks for an assignment; nil where it is over or elsewhere.
func (a *Agent) assignmentHere(ctx context.Context, id string) (*projections.AssignmentView, error) {
	name, err := a.nodeName(ctx)
	if err != nil {
		return nil, err
	}
	var v projections.AssignmentView
	err = a.cfg.Ledger.Ask(ctx, commands.ShowAssignment{Assignment: id}, &v)
	switch {
	case isNone(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotSaid, err)
	case v.State == "ended" || v.Node != name:
		return nil, nil
	}
	return &v, nil
}

// slotsOf asks which slots of an assignment are served on this node; none where it
// is over or elsewhere.
func (a *Agent) slotsOf(ctx context.Context, id string) (map[string]bool, error) {
	v, err := a.assignmentHere(ctx, id)
	if v == nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, b := range v.Bindings {
		if !b.Released && (b.Use.Provider != "" || b.Use.Embedded) {
			out[b.Slot] = true
		}
	}
	return out, nil
}

// usesHere asks whether a consumer of this node is to use a secret that this agent has
// stored.
func (a *Agent) usesHere(ctx context.Context, in *hookInput, ref string) (bool, error) {
	if ref == "" {
		return false, nil
	}
	v, err := a.assignmentHere(ctx, in.AssignmentID)
	if v == nil {
		return false, err
	}
	return slices.ContainsFunc(v.Bindings, func(b projections.BindingView) bool { return b.Use.SecretRef == ref }), nil
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

package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bindery/projections"
)

// Queries without arguments.
type (
	// ListNodes lists the live nodes.
	ListNodes struct{}
	// ListProvisions lists the provisions.
	ListProvisions struct{}
	// ListProviders lists the live providers, and the retired ones that consumers
	// are stranded on.
	ListProviders struct{}
	// ListModules lists the modules.
	ListModules struct{}
	// ListAssignments lists the live assignments.
	ListAssignments struct{}
	// ListOverrides lists the overrides that stand.
	ListOverrides struct{}
	// Status tells what there is and what wants attention.
	Status struct{}
)

// Queries about one thing, by name or id.
type (
	// ShowNode shows a node.
	ShowNode struct {
		Node string `json:"node"`
	}
	// ShowProvision shows a provision.
	ShowProvision struct {
		Provision string `json:"provision"`
	}
	// ShowProvider shows a provider, who refers to it and what retiring it would say.
	ShowProvider struct {
		Provider string `json:"provider"`
	}
	// ShowModule shows a module.
	ShowModule struct {
		Module string `json:"module"`
	}
	// ShowAssignment shows an assignment with its bindings.
	ShowAssignment struct {
		Assignment string `json:"assignment"`
	}
	// ShowBinding shows what serves one slot.
	ShowBinding struct {
		Slot string `json:"slot"`
	}
	// ListBindings lists bindings; what is given narrows the list.
	ListBindings struct {
		Provider   string `json:"provider,omitempty"`
		Node       string `json:"node,omitempty"` // the consumer's
		Assignment string `json:"assignment,omitempty"`
		Flag       string `json:"flag,omitempty"` // that a binding must have
	}
)

// Name implements Query.
func (ListNodes) Name() string { return "node.list" }

// Name implements Query.
func (ListProvisions) Name() string { return "provision.list" }

// Name implements Query.
func (ListProviders) Name() string { return "provider.list" }

// Name implements Query.
func (ListModules) Name() string { return "module.list" }

// Name implements Query.
func (ListAssignments) Name() string { return "assignment.list" }

// Name implements Query.
func (ListOverrides) Name() string { return "override.list" }

// Name implements Query.
func (Status) Name() string { return "status" }

// Name implements Query.
func (ShowNode) Name() string { return "node.show" }

// Name implements Query.
func (ShowProvision) Name() string { return "provision.show" }

// Name implements Query.
func (ShowProvider) Name() string { return "provider.show" }

// Name implements Query.
func (ShowModule) Name() string { return "module.show" }

// Name implements Query.
func (ShowAssignment) Name() string { return "assignment.show" }

// Name implements Query.
func (ShowBinding) Name() string { return "binding.show" }

// Name implements Query.
func (ListBindings) Name() string { return "binding.list" }

// Answer implements Query.
func (ListNodes) Answer(s *projections.State, _ time.Time) (any, error) { return s.ListNodes(), nil }

// Answer implements Query.
func (ListProvisions) Answer(s *projections.State, _ time.Time) (any, error) {
	return s.ListProvisions(), nil
}

// Answer implements Query.
func (ListProviders) Answer(s *projections.State, _ time.Time) (any, error) {
	return s.ListProviders(), nil
}

// Answer implements Query.
func (ListModules) Answer(s *projections.State, _ time.Time) (any, error) {
	return s.ListModules(), nil
}

// Answer implements Query.
func (ListAssignments) Answer(s *projections.State, _ time.Time) (any, error) {
	return s.ListAssignments(), nil
}

// Answer implements Query.
func (ListOverrides) Answer(s *projections.State, _ time.Time) (any, error) {
	return s.ListOverrides(), nil
}

// Answer implements Query.
func (Status) Answer(s *projections.State, now time.Time) (any, error) { return s.Status(now), nil }

// Answer implements Query.
func (q ShowNode) Answer(s *projections.State, _ time.Time) (any, error) {
	r, err := Finder{s}.Node(q.Node)
	if err != nil {
		return nil, err
	}
	return s.NodeView(r), nil
}

// Answer implements Query.
func (q ShowProvision) Answer(s *projections.State, _ time.Time) (any, error) {
	r, err := Finder{s}.Provision(q.Provision)
	if err != nil {
		return nil, err
	}
	return s.ProvisionView(r), nil
}

// ProviderShow is a provider with all that refers to it.
type ProviderShow struct {
	projections.ProviderView
	// Retire is what "provider retire" would refuse with now; null when it would
	// not.
	Retire *Refusal `json:"retire"`
}

// Answer implements Query.
func (q ShowProvider) Answer(s *projections.State, _ time.Time) (any, error) {
	r, err := Finder{s}.Provider(q.Provider)
	if err != nil {
		return nil, err
	}
	out := ProviderShow{ProviderView: s.ProviderView(r)}
	if s.Provider(r).State != projections.Retired {
		out.Retire = retireRefusal(s, r)
	}
	return out, nil
}

// Answer implements Query.
func (q ShowModule) Answer(s *projections.State, _ time.Time) (any, error) {
	r, err := Finder{s}.Module(q.Module)
	if err != nil {
		return nil, err
	}
	return s.ModuleView(r), nil
}

// Answer implements Query.
func (q ShowAssignment) Answer(s *projections.State, _ time.Time) (any, error) {
	r, err := Finder{s}.Assignment(q.Assignment)
	if err != nil {
		return nil, err
	}
	return s.AssignmentView(r), nil
}

// Answer implements Query.
func (q ShowBinding) Answer(s *projections.State, _ time.Time) (any, error) {
	f, err := Finder{s}.Slot(q.Slot)
	if err != nil {
		if r := (Finder{s}).lingering(q.Slot); r != 0 {
			return s.BindingView(r), nil
		}
		return nil, err
	}
	if f.Binding != 0 {
		return s.BindingView(f.Binding), nil
	}
	return s.PendingView(s.Assignment(f.Assignment), f.Decl), nil
}

// Answer implements Query.
func (q ListBindings) Answer(s *projections.State, _ time.Time) (any, error) {
	var filter projections.BindingFilter
	var err error
	f := Finder{s}
	if q.Provider != "" {
		if filter.Provider, err = f.Provider(q.Provider); err != nil {
			return nil, err
		}
	}
	if q.Node != "" {
		if filter.Node, err = f.Node(q.Node); err != nil {
			return nil, err
		}
	}
	if q.Assignment != "" {
		if filter.Assignment, err = f.Assignment(q.Assignment); err != nil {
			return nil, err
		}
	}
	if q.Flag != "" {
		filter.Flag = projections.Flag(q.Flag)
		if !slices.Contains(projections.AllFlags(), filter.Flag) {
			names := make([]string, 0, len(projections.AllFlags()))
			for _, f := range projections.AllFlags() {
				names = append(names, string(f))
			}
			return nil, refuse(Usage, fmt.Sprintf("%q is no flag of a binding", clip(q.Flag)), "the flags are "+strings.Join(names, ", "), do("binding list"))
		}
	}
	return s.ListBindings(filter), nil
}

package commands

import (
	"fmt"
	"slices"

	"bindery/events"
	"bindery/projections"
)

// DefineProvision names a kind of service.
type DefineProvision struct {
	Name        string             `json:"name"`
	Scope       events.Scope       `json:"scope"`
	Credentials events.Credentials `json:"credentials,omitempty"` // managed where it is not said
}

// RescopeProvision changes how many providers a provision may have.
type RescopeProvision struct {
	Provision string       `json:"provision"`
	Scope     events.Scope `json:"scope"`
}

// RemoveProvision ends a provision nothing refers to.
type RemoveProvision struct {
	Provision string `json:"provision"`
}

// SetDefault declares the provider of consumers that name none.
type SetDefault struct {
	Provision string `json:"provision"`
	Provider  string `json:"provider"`
	Node      string `json:"node,omitempty"` // empty: of the mesh
}

// ClearDefault withdraws a default.
type ClearDefault struct {
	Provision string `json:"provision"`
	Node      string `json:"node,omitempty"`
}

// Verb implements Command.
func (DefineProvision) Verb() string { return "provision.define" }

// Verb implements Command.
func (RescopeProvision) Verb() string { return "provision.rescope" }

// Verb implements Command.
func (RemoveProvision) Verb() string { return "provision.remove" }

// Verb implements Command.
func (SetDefault) Verb() string { return "provision.default-set" }

// Verb implements Command.
func (ClearDefault) Verb() string { return "provision.default-clear" }

// Decide implements Command.
func (c DefineProvision) Decide(t *Tx) error {
	if c.Credentials == "" {
		c.Credentials = events.CredentialsManaged
	}
	p := &events.ProvisionDefined{Name: c.Name, Scope: c.Scope, Credentials: c.Credentials}
	if err := p.Check(); err != nil {
		return invalid(err)
	}
	r := t.ProvisionNamed(c.Name)
	if r == 0 {
		return t.emit(t.NewID(), p)
	}
	switch v := t.Provision(r); {
	case v.Scope != c.Scope:
		return refuse(NameTaken, "provision "+c.Name+" is defined already", fmt.Sprintf("with scope %s, not %s", v.Scope, c.Scope),
			do("provision rescope", c.Name).With("--scope", string(c.Scope)))
	case v.Credentials != c.Credentials:
		return refuse(NameTaken, "provision "+c.Name+" is defined already",
			fmt.Sprintf("with credentials %s, not %s; they are fixed when it is defined", v.Credentials, c.Credentials),
			do("provision remove", c.Name))
	}
	return nil
}

// Decide implements Command.
func (c RescopeProvision) Decide(t *Tx) error {
	r, err := t.liveProvision(c.Provision)
	if err != nil {
		return err
	}
	v := t.Provision(r)
	e := &events.ProvisionRescoped{From: v.Scope, To: c.Scope}
	if err := e.Check(); err != nil {
		return invalid(err)
	}
	if v.Scope == c.Scope {
		return nil
	}
	if c.Scope == events.ScopeMesh {
		if active := t.active(r); len(active) > 1 {
			names := t.ProviderNames(active)
			return refuse(MeshScopeTaken, "provision "+v.Name+" cannot have mesh scope",
				fmt.Sprintf("%d providers of it are active; one may be", len(active)),
				do("provider drain", names[1]).With("--to", names[0])).of("active", names)
		}
		if d := t.defaultNodes(r); len(d) > 0 {
			return refuse(ProvisionInUse, "provision "+v.Name+" cannot have mesh scope",
				"nodes declare defaults of it, and mesh scope has none",
				do("provision default", v.Name).With("--clear").With("--node", d[0])).of("declares a default", d)
		}
	}
	return t.emit(v.ID, e)
}

// Decide implements Command.
func (c RemoveProvision) Decide(t *Tx) error {
	r, err := Finder{t.State}.Provision(c.Provision)
	if err != nil {
		return err
	}
	v := t.Provision(r)
	if v.Removed {
		return nil
	}
	if len(v.Providers)+len(v.Modules)+v.Bindings > 0 || v.Default.Provider != 0 || len(t.defaultNodes(r)) > 0 {
		refusal := refuse(ProvisionInUse, "provision "+v.Name+" is in use",
			count(len(v.Providers), "provider")+", "+count(len(v.Modules), "module")+" and "+count(v.Bindings, "binding")+" refer to it",
			do("provision show", v.Name))
		return refusal.of("a provider of it", t.ProviderNames(v.Providers)).of("a module with a slot of it", t.ModuleNames(v.Modules))
	}
	return t.emit(v.ID, &events.ProvisionRemoved{})
}

// Decide implements Command.
func (c SetDefault) Decide(t *Tx) error {
	f := Finder{t.State}
	r, err := t.liveProvision(c.Provision)
	if err != nil {
		return err
	}
	v := t.Provision(r)
	pr, err := f.Provider(c.Provider)
	if err != nil {
		return err
	}
	old, nodeID := v.Default, events.ID{}
	if c.Node != "" {
		n, err := f.Node(c.Node)
		if err != nil {
			return err
		}
		if t.Node(n).Retired {
			return retiredNode(t.Node(n).Name)
		}
		if v.Scope == events.ScopeMesh {
			return refuse(MeshScopeTaken, "provision "+v.Name+" has no defaults on nodes",
				"it has mesh scope: its one active provider serves everybody",
				do("provision rescope", v.Name).With("--scope", "node"))
		}
		old, nodeID = v.NodeDefaults[n], t.Node(n).ID
	}
	if code, fault := ineligible(t.State, &projections.Slot{Provision: r}, pr); fault != "" {
		return refuse(code, fmt.Sprintf("%s cannot be a default of %s", t.Provider(pr).Name, v.Name), fault,
			do("provider list"))
	}
	if old.Provider == pr {
		return nil
	}
	e := &events.DefaultSet{Node: nodeID, Provider: t.Provider(pr).ID}
	if old.Provider != 0 {
		e.Replaces = t.Provider(old.Provider).ID
		t.warn("the default was %s and is %s now; no binding changes", t.Provider(old.Provider).Name, t.Provider(pr).Name)
	}
	return t.emit(v.ID, e)
}

// Decide implements Command.
func (c ClearDefault) Decide(t *Tx) error {
	f := Finder{t.State}
	r, err := t.liveProvision(c.Provision)
	if err != nil {
		return err
	}
	v := t.Provision(r)
	old, nodeID := v.Default, events.ID{}
	if c.Node != "" {
		n, err := f.Node(c.Node)
		if err != nil {
			return err
		}
		old, nodeID = v.NodeDefaults[n], t.Node(n).ID
	}
	if old.Provider == 0 {
		return nil
	}
	return t.emit(v.ID, &events.DefaultCleared{Node: nodeID, Provider: t.Provider(old.Provider).ID})
}

// liveProvision finds a provision that is not removed.
func (t *Tx) liveProvision(text string) (projections.ProvisionRef, error) {
	r, err := Finder{t.State}.Provision(text)
	if err == nil && t.Provision(r).Removed {
		return 0, refuse(ProvisionNotFound, "provision "+t.Provision(r).Name+" is removed", fmt.Sprintf("at sequence %d", t.Provision(r).Seq),
			do("provision list"))
	}
	return r, err
}

// active lists the active providers of a provision.
func (t *Tx) active(r projections.ProvisionRef) []projections.ProviderRef {
	var out []projections.ProviderRef
	for _, p := range t.Provision(r).Providers {
		if t.Provider(p).State == projections.Active {
			out = append(out, p)
		}
	}
	return out
}

// defaultNodes lists the nodes that declare a default of a provision, by name.
func (t *Tx) defaultNodes(r projections.ProvisionRef) []string {
	var out []string
	for n, d := range t.Provision(r).NodeDefaults {
		if d.Provider != 0 {
			out = append(out, t.Node(n).Name)
		}
	}
	slices.Sort(out)
	return out
}

// defaultsOn lists the provisions with a default on a node, by name.
func (t *Tx) defaultsOn(n projections.NodeRef) []string {
	if t.Node(n).Defaults == 0 {
		return nil
	}
	var out []string
	for _, name := range t.Names(events.EntityProvision) {
		if t.Provision(t.ProvisionNamed(name)).NodeDefaults[n].Provider != 0 {
			out = append(out, name)
		}
	}
	return out
}

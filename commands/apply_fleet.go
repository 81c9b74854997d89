package commands

import (
	"fmt"
	"slices"
	"strconv"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

func (a *applier) provision(name string) error {
	f, want := a.fields("provision "+name), a.c.Manifest.Provisions[name]
	r := a.ProvisionNamed(name)
	if r == 0 && f.gone(events.EntityProvision, name, "removed") {
		f.done()
		return nil
	}
	if r == 0 {
		f.note(Created, "")
		f.done()
		return DefineProvision{Name: name, Scope: events.Scope(want.Scope), Credentials: events.Credentials(want.Credentials)}.Decide(a.Tx)
	}
	p := a.Provision(r)
	if want.Credentials != "" && events.Credentials(want.Credentials) != p.Credentials {
		return DefineProvision{Name: name, Scope: p.Scope, Credentials: events.Credentials(want.Credentials)}.Decide(a.Tx)
	}
	if want.Scope == string(events.ScopeMesh) && p.Scope != events.ScopeMesh && !a.narrowing {
		return nil // when providers are cordoned as the manifest says: see narrow
	}
	if f.differs("scope", want.Scope, string(p.Scope), a.BaseOfProvision(p, projections.FieldScope, string(p.Scope)), nil) {
		if err := (RescopeProvision{Provision: name, Scope: events.Scope(want.Scope)}).Decide(a.Tx); err != nil {
			return err
		}
	}
	f.done()
	return nil
}

func (a *applier) node(name string) error {
	f := a.fields("node " + name)
	defer f.done()
	if a.NodeNamed(name) != 0 || f.gone(events.EntityNode, name, "retired") {
		return nil
	}
	f.note(Created, "")
	return RegisterNode{Name: name}.Decide(a.Tx)
}

func (a *applier) provider(name string) error {
	f, want := a.fields("provider "+name), a.c.Manifest.Providers[name]
	defer f.done()
	r := a.ProviderNamed(name)
	if r == 0 && f.gone(events.EntityProvider, name, "retired") {
		return nil
	}
	if r == 0 {
		f.note(Created, "%s on %s", want.Provision, want.Node)
		return RegisterProvider{Name: name, Provision: want.Provision, Node: want.Node, Endpoint: want.Endpoint,
			Version: want.Version, Features: want.Features, Cordoned: want.Cordoned}.Decide(a.Tx)
	}
	p := a.Provider(r)
	provision, err := Finder{a.State}.Provision(want.Provision)
	if err != nil {
		return err
	}
	if provision != p.Provision {
		return refuse(WrongProvision, "provider "+name+" cannot change its provision",
			fmt.Sprintf("it provides %s, the manifest says %s", a.Provision(p.Provision).Name, want.Provision),
			do("provider register", "NEW-NAME").With("--provision", want.Provision).With("--node", want.Node).With("--endpoint", want.Endpoint))
	}
	return a.providerFields(f, p, want)
}

func (a *applier) providerFields(f *fields, p *projections.Provider, want manifest.Provider) error {
	nodeID, err := a.nodeID(want.Node)
	if err != nil {
		return err
	}
	has := func(field, present string) projections.Base { return a.BaseOfProvider(p, field, present) }
	here := a.Node(p.Node).ID.String()
	moves := f.differs("node", nodeID, here, has(projections.FieldNode, here), a.nameOf)
	u := UpdateProvider{Provider: p.Name}
	endpoint := p.Endpoint
	if f.differs("endpoint", want.Endpoint, p.Endpoint, has(projections.FieldEndpoint, p.Endpoint), nil) {
		endpoint = want.Endpoint
		u.Endpoint = &endpoint
	}
	if moves {
		u.Endpoint = nil
		if err := (RelocateProvider{Provider: p.Name, To: want.Node, Endpoint: endpoint}).Decide(a.Tx); err != nil {
			return err
		}
	}
	if want.Version != "" && f.differs("version", want.Version, p.Version, has(projections.FieldVersion, p.Version), nil) {
		u.Version = &want.Version
	}
	features := events.SortFeatures(want.Features)
	if want.Features != nil && f.differs("features", projections.FeaturesText(features), projections.FeaturesText(p.Features),
		has(projections.FieldFeatures, projections.FeaturesText(p.Features)), nil) {
		u.Features = &features
	}
	if u.Endpoint != nil || u.Version != nil || u.Features != nil {
		if err := u.Decide(a.Tx); err != nil {
			return err
		}
	}
	return a.providerState(f, p, want.Cordoned)
}

// providerState compares whether a provider is cordoned. A manifest that never
// said so does not uncordon what an operator has cordoned.
func (a *applier) providerState(f *fields, p *projections.Provider, want bool) error {
	have := p.State == projections.Cordoned
	base := a.BaseOfProvider(p, projections.FieldCordoned, strconv.FormatBool(have))
	if !want && !base.Known {
		return nil
	}
	if !f.differs("cordoned", strconv.FormatBool(want), strconv.FormatBool(have), base, nil) {
		return nil
	}
	if want {
		return CordonProvider{Provider: p.Name}.Decide(a.Tx)
	}
	return UncordonProvider{Provider: p.Name}.Decide(a.Tx)
}

func (a *applier) defaultOf(index string) error {
	i, err := strconv.Atoi(index)
	if err != nil {
		return err
	}
	want := a.c.Manifest.Defaults[i]
	object := "default of " + want.Provision
	if want.Node != "" {
		object += " on " + want.Node
	}
	f := a.fields(object)
	defer f.done()
	find := Finder{a.State}
	pr, err := find.Provision(want.Provision)
	if err != nil {
		return err
	}
	id, err := a.providerID(want.Provider)
	if err != nil {
		return err
	}
	var node projections.NodeRef
	p := a.Provision(pr)
	have := p.Default
	if want.Node != "" {
		if node, err = a.liveNode(want.Node); err != nil {
			return err
		}
		have = p.NodeDefaults[node]
	}
	base := a.BaseOfDefault(p, node)
	now := ""
	if have.Provider != 0 {
		now = a.Provider(have.Provider).ID.String()
	}
	if now == "" && !base.Known {
		f.note(Created, "%s", want.Provider)
	} else if !f.differs("provider", id, now, base, a.nameOf) {
		return nil
	}
	return SetDefault{Provision: want.Provision, Provider: want.Provider, Node: want.Node}.Decide(a.Tx)
}

func (a *applier) module(name string) error {
	f := a.fields("module " + name)
	defer f.done()
	c := DeclareModule{Name: name, Module: a.c.Manifest.Modules[name]}
	r := a.ModuleNamed(name)
	if r == 0 && f.gone(events.EntityModule, name, "removed") {
		return nil
	}
	if r == 0 {
		f.note(Created, "%s", count(len(c.Requires)+len(c.Embeds), "slot"))
		return c.Decide(a.Tx)
	}
	p, err := c.payload(a.Tx)
	if err != nil {
		return err
	}
	m := a.Module(r)
	show := func(text string) string {
		return "declaration of " + strconv.Itoa(len(text)) + " bytes"
	}
	have, want := projections.DeclText(m.Decl), projections.DeclText(p)
	if !f.differs("declaration", want, have, a.BaseOfModule(m), show) {
		return nil
	}
	f.detail = []string{"declared anew"}
	return c.Decide(a.Tx)
}

// narrow gives provisions mesh scope, once their providers are as the manifest
// says.
func (a *applier) narrow(name string) error {
	p := a.ProvisionNamed(name)
	if p == 0 || a.Provision(p).Scope == events.ScopeMesh || a.c.Manifest.Provisions[name].Scope != string(events.ScopeMesh) {
		return nil
	}
	a.narrowing = true
	defer func() { a.narrowing = false }()
	return a.provision(name)
}

// cordonedFirst orders providers so that one takes over after the other was
// cordoned.
func (a *applier) cordonedFirst() []string {
	names := sortedKeys(a.c.Manifest.Providers)
	slices.SortStableFunc(names, func(x, y string) int {
		cx, cy := a.c.Manifest.Providers[x].Cordoned, a.c.Manifest.Providers[y].Cordoned
		switch {
		case cx == cy:
			return 0
		case cx:
			return -1
		}
		return 1
	})
	return names
}

// providerID is the id of the provider a manifest names; that of one that a
// command has retired since a manifest created it, too: what still names it may
// be unchanged.
func (a *applier) providerID(name string) (string, error) {
	if a.ProviderNamed(name) == 0 {
		if g, ok := a.Gone(events.EntityProvider, name); ok {
			return g.ID.String(), nil
		}
	}
	r, err := Finder{a.State}.Provider(name)
	if err != nil {
		return "", err
	}
	return a.Provider(r).ID.String(), nil
}

// nodeID is providerID for nodes.
func (a *applier) nodeID(name string) (string, error) {
	if a.NodeNamed(name) == 0 {
		if g, ok := a.Gone(events.EntityNode, name); ok {
			return g.ID.String(), nil
		}
	}
	r, err := a.liveNode(name)
	if err != nil {
		return "", err
	}
	return a.Node(r).ID.String(), nil
}

package commands

import (
	"fmt"
	"slices"
	"strconv"

	"bindery/events"
	"bindery/projections"
)

// RegisterProvider adds one running server.
type RegisterProvider struct {
	Name      string   `json:"name"`
	Provision string   `json:"provision"`
	Node      string   `json:"node"`
	Endpoint  string   `json:"endpoint"`
	Version   string   `json:"version,omitempty"`
	Features  []string `json:"features,omitempty"`
	Cordoned  bool     `json:"cordoned,omitempty"`
}

// UpdateProvider changes what a provider is like; nil leaves a field as it is.
type UpdateProvider struct {
	Provider string    `json:"provider"`
	Endpoint *string   `json:"endpoint,omitempty"`
	Version  *string   `json:"version,omitempty"`
	Features *[]string `json:"features,omitempty"` // the whole set
}

// RenameProvider gives a provider another name.
type RenameProvider struct {
	Provider string `json:"provider"`
	To       string `json:"to"`
}

// RelocateProvider moves a provider to another node; no binding changes.
type RelocateProvider struct {
	Provider     string `json:"provider"`
	To           string `json:"to"`
	Endpoint     string `json:"endpoint,omitempty"`
	KeepEndpoint bool   `json:"keep_endpoint,omitempty"`
}

// CordonProvider stops a provider from being given consumers.
type CordonProvider struct {
	Provider string `json:"provider"`
}

// UncordonProvider lets it have consumers again.
type UncordonProvider struct {
	Provider string `json:"provider"`
}

// RetireProvider ends a provider.
type RetireProvider struct {
	Provider string `json:"provider"`
	Force    bool   `json:"force,omitempty"`
}

// Verb implements Command.
func (RegisterProvider) Verb() string { return "provider.register" }

// Verb implements Command.
func (UpdateProvider) Verb() string { return "provider.update" }

// Verb implements Command.
func (RenameProvider) Verb() string { return "provider.rename" }

// Verb implements Command.
func (RelocateProvider) Verb() string { return "provider.relocate" }

// Verb implements Command.
func (CordonProvider) Verb() string { return "provider.cordon" }

// Verb implements Command.
func (UncordonProvider) Verb() string { return "provider.uncordon" }

// Verb implements Command.
func (RetireProvider) Verb() string { return "provider.retire" }

// Decide implements Command.
func (c RegisterProvider) Decide(t *Tx) error {
	if err := events.CheckName(c.Name); err != nil {
		return invalid(err)
	}
	if err := checkServer(&c.Endpoint, &c.Version, &c.Features); err != nil {
		return err
	}
	if r := t.ProviderNamed(c.Name); r != 0 {
		return taken("provider", c.Name, t.Provider(r).ID)
	}
	provision, err := t.liveProvision(c.Provision)
	if err != nil {
		return err
	}
	node, err := t.liveNode(c.Node)
	if err != nil {
		return err
	}
	if !c.Cordoned {
		if err := t.roomFor(provision, 0, c.Name, c.line().With("--cordoned")); err != nil {
			return err
		}
	}
	if err := t.endpointFree(provision, 0, c.Endpoint); err != nil {
		return err
	}
	return t.emit(t.NewID(), &events.ProviderRegistered{Name: c.Name, Provision: t.Provision(provision).ID,
		Node: t.Node(node).ID, Endpoint: c.Endpoint, Version: c.Version, Features: someFeatures(c.Features), Cordoned: c.Cordoned})
}

// someFeatures is a set of features as an event that leaves out an empty one is read: the
// state that a decision leaves must be the one that a replay gives.
func someFeatures(features []string) []string {
	if len(features) == 0 {
		return nil
	}
	return events.SortFeatures(features)
}

// line is the command line that asks for c.
func (c RegisterProvider) line() Fix {
	out := do("provider register", c.Name).With("--provision", c.Provision).With("--node", c.Node).With("--endpoint", c.Endpoint)
	if c.Version != "" {
		out = out.With("--version", c.Version)
	}
	for _, f := range c.Features {
		out = out.With("--feature", f)
	}
	return out
}

// checkServer checks what a provider is like, and sorts its features.
func checkServer(endpoint, version *string, features *[]string) error {
	if endpoint != nil {
		if err := events.CheckEndpoint(*endpoint); err != nil {
			return codedAs(EndpointInvalid, err)
		}
	}
	if version != nil && *version != "" {
		if err := events.CheckVersion(*version); err != nil {
			return codedAs(VersionInvalid, err)
		}
	}
	if features != nil {
		*features = events.SortFeatures(*features)
		if err := events.CheckFeatures(*features); err != nil {
			return codedAs(FeatureInvalid, err)
		}
	}
	return nil
}

// codedAs is invalid, with code for what is not a secret or a name.
func codedAs(code Code, err error) error {
	r := invalid(err).(*Refusal)
	if r.Code == Usage {
		r.Code = code
	}
	return r
}

// roomFor refuses a second active provider of a mesh-scoped provision.
func (t *Tx) roomFor(provision projections.ProvisionRef, self projections.ProviderRef, name string, fix Fix) error {
	v := t.Provision(provision)
	if v.Scope != events.ScopeMesh {
		return nil
	}
	for _, p := range t.active(provision) {
		if p == self {
			continue
		}
		first := t.Provider(p)
		r := refuse(MeshScopeTaken, fmt.Sprintf("%s cannot be an active provider of %s", name, v.Name),
			fmt.Sprintf("it has mesh scope, and %s is its one active provider; register a successor cordoned, then drain %s to it",
				first.Name, first.Name), fix)
		id := first.ID
		r.Candidates = append(r.Candidates, Candidate{Name: first.Name, ID: &id, Node: t.Node(first.Node).Name, Why: "active"})
		return r
	}
	return nil
}

// endpointFree refuses an endpoint that another provider of the provision has.
func (t *Tx) endpointFree(provision projections.ProvisionRef, self projections.ProviderRef, endpoint string) error {
	r := t.At(provision, endpoint)
	if r == 0 || r == self {
		return nil
	}
	o := t.Provider(r)
	refusal := refuse(EndpointTaken, "endpoint "+endpoint+" is taken",
		"provider "+o.Name+" of the same provision answers there", do("provider show", o.Name))
	id := o.ID
	refusal.Candidates = append(refusal.Candidates, Candidate{Name: o.Name, ID: &id, Node: t.Node(o.Node).Name, Why: "has the endpoint"})
	return refusal
}

func (t *Tx) liveNode(text string) (projections.NodeRef, error) {
	r, err := Finder{t.State}.Node(text)
	if err == nil && t.Node(r).Retired {
		return 0, retiredNode(t.Node(r).Name)
	}
	return r, err
}

// liveProvider finds a provider that is not retired.
func (t *Tx) liveProvider(text string) (projections.ProviderRef, *projections.Provider, error) {
	r, err := Finder{t.State}.Provider(text)
	if err != nil {
		return 0, nil, err
	}
	p := t.Provider(r)
	if p.State == projections.Retired {
		return 0, nil, refuse(ProviderRetired, "provider "+p.Name+" is retired",
			fmt.Sprintf("since sequence %d", p.StateSeq), do("provider list"))
	}
	return r, p, nil
}

// Decide implements Command.
func (c UpdateProvider) Decide(t *Tx) error {
	if err := checkServer(c.Endpoint, c.Version, c.Features); err != nil {
		return err
	}
	r, p, err := t.liveProvider(c.Provider)
	if err != nil {
		return err
	}
	e := &events.ProviderUpdated{}
	if c.Endpoint != nil && *c.Endpoint != p.Endpoint {
		if err := t.endpointFree(p.Provision, r, *c.Endpoint); err != nil {
			return err
		}
		e.Endpoint = c.Endpoint
	}
	if c.Version != nil && *c.Version != p.Version {
		e.Version = c.Version
	}
	if c.Features != nil && !slices.Equal(*c.Features, p.Features) {
		e.Features = c.Features
	}
	if *e == (events.ProviderUpdated{}) {
		return nil
	}
	return t.emit(p.ID, e)
}

// Decide implements Command.
func (c RenameProvider) Decide(t *Tx) error {
	_, p, err := t.liveProvider(c.Provider)
	if err != nil {
		return err
	}
	if err := events.CheckName(c.To); err != nil {
		return invalid(err)
	}
	if p.Name == c.To {
		return nil
	}
	if o := t.ProviderNamed(c.To); o != 0 {
		return taken("provider", c.To, t.Provider(o).ID)
	}
	return t.emit(p.ID, &events.ProviderRenamed{From: p.Name, To: c.To})
}

// Decide implements Command.
func (c RelocateProvider) Decide(t *Tx) error {
	r, p, err := t.liveProvider(c.Provider)
	if err != nil {
		return err
	}
	to, err := t.liveNode(c.To)
	if err != nil {
		return err
	}
	switch {
	case c.KeepEndpoint && c.Endpoint != "":
		return refuse(Usage, "both an endpoint and --keep-endpoint are given", "one of them says where it answers", Fix{})
	case c.KeepEndpoint:
		c.Endpoint = p.Endpoint
	case c.Endpoint == "":
		return refuse(Usage, "no endpoint is given for "+p.Name+" on "+t.Node(to).Name,
			"where it answers must be said: "+p.Endpoint+" was on "+t.Node(p.Node).Name,
			do("provider relocate", p.Name).With("--to", t.Node(to).Name).With("--endpoint", "HOST:PORT"))
	}
	if err := checkServer(&c.Endpoint, nil, nil); err != nil {
		return err
	}
	if p.Node == to && p.Endpoint == c.Endpoint {
		return nil
	}
	if err := t.endpointFree(p.Provision, r, c.Endpoint); err != nil {
		return err
	}
	if p.Node == to {
		return t.emit(p.ID, &events.ProviderUpdated{Endpoint: &c.Endpoint})
	}
	if n := len(p.Bindings); n > 0 {
		t.warn("%s bound to %s as before; its data does not move by itself", stays(n, "slot"), p.Name)
	}
	return t.emit(p.ID, &events.ProviderRelocated{From: t.Node(p.Node).ID, To: t.Node(to).ID,
		FromEndpoint: p.Endpoint, Endpoint: c.Endpoint})
}

// Decide implements Command.
func (c CordonProvider) Decide(t *Tx) error {
	_, p, err := t.liveProvider(c.Provider)
	if err != nil || p.State == projections.Cordoned {
		return err
	}
	return t.emit(p.ID, &events.ProviderCordoned{})
}

// Decide implements Command.
func (c UncordonProvider) Decide(t *Tx) error {
	r, p, err := t.liveProvider(c.Provider)
	if err != nil || p.State == projections.Active {
		return err
	}
	if err := t.roomFor(p.Provision, r, p.Name, do("provider drain", "OLD").With("--to", p.Name)); err != nil {
		return err
	}
	return t.emit(p.ID, &events.ProviderUncordoned{})
}

// Decide implements Command.
func (c RetireProvider) Decide(t *Tx) error {
	r, err := Finder{t.State}.Provider(c.Provider)
	if err != nil {
		return err
	}
	p := t.Provider(r)
	if p.State == projections.Retired {
		return nil
	}
	refusal := retireRefusal(t.State, r)
	if refusal == nil {
		return t.emit(p.ID, &events.ProviderRetired{})
	}
	if !c.Force {
		return refusal
	}
	if err := t.needReason("retiring a provider that is in use"); err != nil {
		return err
	}
	if n := len(p.Bindings); n > 0 {
		t.warn("%s stranded on %s", stays(n, "slot"), p.Name)
	}
	if n := len(p.Holders.Live); n > 0 {
		t.warn("%s live at %s, and nobody will revoke them", stays(n, "credential"), p.Name)
	}
	if o := p.Holders.Open; o != 0 {
		if err := t.emit(t.Rotation(o).ID, &events.RotationAborted{}); err != nil {
			return err
		}
	}
	return t.emit(p.ID, &events.ProviderRetired{Forced: true})
}

// retireRefusal is what retiring a provider would say now, nil if it may go.
func retireRefusal(s *projections.State, r projections.ProviderRef) *Refusal {
	p := s.Provider(r)
	refs := len(p.Choices) + len(p.Overrides) + len(p.Memories) + len(p.Modules) + p.Defaults
	held := len(p.Holders.Live)
	if len(p.Bindings)+refs+held == 0 && p.Holders.Open == 0 {
		return nil
	}
	why := count(len(p.Bindings), "binding") + " and " + count(refs, "reference") + " lead to it"
	if held > 0 {
		why += "; credentials that log in to it: " + strconv.Itoa(held)
	}
	out := refuse(ProviderInUse, "provider "+p.Name+" is in use", why, do("provider drain", p.Name).With("--to", "OTHER"))
	if o := p.Holders.Open; o != 0 {
		id := s.Rotation(o).ID
		out.Candidates = append(out.Candidates, Candidate{Name: id.String(), ID: &id, Why: "a rotation of its holders is open"})
	}
	out.of("bound to it", s.SlotNames(p.Bindings)).
		of("an override names it", s.SlotNames(p.Overrides)).
		of("an override remembers it", s.SlotNames(p.Memories)).
		of("a choice names it", s.SlotNames(p.Choices)).
		of("a module names it", s.ModuleNames(p.Modules))
	if p.Defaults > 0 {
		v := s.Provision(p.Provision)
		if v.Default.Provider == r {
			out.of("the mesh's default", []string{v.Name})
		}
		var nodes []string
		for n, d := range v.NodeDefaults {
			if d.Provider == r {
				nodes = append(nodes, s.Node(n).Name)
			}
		}
		out.of("a node whose default it is", nodes)
	}
	if held > 0 {
		out.of("a credential of it logs in", holderNames(s, r))
	}
	switch {
	case len(p.Bindings)+len(p.Choices)+len(p.Overrides)+len(p.Memories)+p.Defaults > 0:
	case held > 0:
		out.Fix = do("provider holders", p.Name)
	case p.Holders.Open != 0:
		out.Fix = do("rotation abort", s.Rotation(p.Holders.Open).ID.String()).With("--reason", "TEXT")
	default:
		out.Fix = do("module show", s.ModuleNames(p.Modules)[0])
	}
	return out
}

// holderNames lists who can log in to a provider, a slot as often as it has
// credentials there.
func holderNames(s *projections.State, r projections.ProviderRef) []string {
	refs := s.Provider(r).Holders.Live
	out := make([]string, len(refs))
	for i, c := range refs {
		out[i] = s.SlotPath(s.Binding(s.Credential(c).Binding))
	}
	return out
}

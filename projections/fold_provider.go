package projections

import (
	"errors"
	"strconv"

	"bindery/events"

	"github.com/Masterminds/semver/v3"
)

func (s *State) nodeRegistered(e *events.Event, p *events.NodeRegistered) error {
	i, n := s.nodes.add(&s.j)
	*n = Node{ID: e.Entity, Name: p.Name, Seq: e.Seq, fromManifest: fromManifest(e, 0)}
	return errors.Join(s.index(e.Entity, kNode, i), s.name(kNode, p.Name, i))
}

func (s *State) nodeRenamed(e *events.Event, p *events.NodeRenamed) error {
	i, err := s.find(kNode, e.Entity)
	if err != nil {
		return err
	}
	n := s.nodes.at(i)
	set(&s.j, &n.Seq, e.Seq)
	set(&s.j, &n.Name, p.To)
	return s.rename(kNode, p.From, p.To, i)
}

func (s *State) nodeRetired(e *events.Event) error {
	i, err := s.find(kNode, e.Entity)
	if err != nil {
		return err
	}
	n := s.nodes.at(i)
	set(&s.j, &n.Seq, e.Seq)
	set(&s.j, &n.Retired, true)
	s.end(e, kNode, n.Name, n.fromManifest)
	return nil
}

func (s *State) provisionDefined(e *events.Event, p *events.ProvisionDefined) error {
	i, v := s.provisions.add(&s.j)
	*v = Provision{ID: e.Entity, Name: p.Name, Scope: p.Scope, Credentials: p.Credentials, Seq: e.Seq,
		NodeDefaults: map[NodeRef]Default{}, fromManifest: fromManifest(e, bitScope)}
	return errors.Join(s.index(e.Entity, kProvision, i), s.name(kProvision, p.Name, i))
}

func (s *State) provisionRescoped(e *events.Event, p *events.ProvisionRescoped) error {
	i, err := s.find(kProvision, e.Entity)
	if err != nil {
		return err
	}
	v := s.provisions.at(i)
	s.trackBit(e, &v.fromManifest, v.ID, FieldScope, string(v.Scope))
	set(&s.j, &v.Scope, p.To)
	set(&s.j, &v.Seq, e.Seq)
	return nil
}

func (s *State) provisionRemoved(e *events.Event) error {
	i, err := s.find(kProvision, e.Entity)
	if err != nil {
		return err
	}
	v := s.provisions.at(i)
	set(&s.j, &v.Removed, true)
	set(&s.j, &v.Seq, e.Seq)
	s.end(e, kProvision, v.Name, v.fromManifest)
	return nil
}

// defaultRefs finds what a default event is about; node is 0 for the mesh.
func (s *State) defaultRefs(e *events.Event, nodeID, providerID events.ID) (v *Provision, node NodeRef, p ProviderRef, err error) {
	i, err := s.find(kProvision, e.Entity)
	if err != nil {
		return nil, 0, 0, err
	}
	if !nodeID.IsZero() {
		n, err := s.find(kNode, nodeID)
		if err != nil {
			return nil, 0, 0, err
		}
		node = NodeRef(n)
	}
	pr, err := s.find(kProvider, providerID)
	return s.provisions.at(i), node, ProviderRef(pr), err
}

func (s *State) defaultSet(e *events.Event, p *events.DefaultSet) error {
	v, node, provider, err := s.defaultRefs(e, p.Node, p.Provider)
	if err != nil {
		return err
	}
	old := v.Default
	if node != 0 {
		old = v.NodeDefaults[node]
	}
	d := Default{Provider: provider, Seq: e.Seq, fromManifest: old.fromManifest}
	s.trackBool(e, &d.fromManifest, v.ID, DefaultField(p.Node), s.providerID(old.Provider))
	s.putDefault(v, node, old, d)
	set(&s.j, &v.Seq, e.Seq)
	return nil
}

func (s *State) defaultCleared(e *events.Event, p *events.DefaultCleared) error {
	v, node, _, err := s.defaultRefs(e, p.Node, p.Provider)
	if err != nil {
		return err
	}
	old := v.Default
	if node != 0 {
		old = v.NodeDefaults[node]
	}
	flag := old.fromManifest
	s.trackBool(e, &flag, v.ID, DefaultField(p.Node), s.providerID(old.Provider))
	s.putDefault(v, node, old, Default{fromManifest: flag})
	set(&s.j, &v.Seq, e.Seq)
	return nil
}

// putDefault replaces a default and keeps the counts of who is one.
func (s *State) putDefault(v *Provision, node NodeRef, old, now Default) {
	count := func(d Default, by int) {
		if d.Provider == 0 {
			return
		}
		p := s.Provider(d.Provider)
		set(&s.j, &p.Defaults, p.Defaults+by)
		if node != 0 {
			n := s.Node(node)
			set(&s.j, &n.Defaults, n.Defaults+by)
		}
	}
	count(old, -1)
	count(now, 1)
	switch {
	case node == 0:
		set(&s.j, &v.Default, now)
	case now.Provider == 0 && !now.fromManifest:
		drop(&s.j, v.NodeDefaults, node)
	default:
		put(&s.j, v.NodeDefaults, node, now)
	}
}

func (s *State) providerRegistered(e *events.Event, p *events.ProviderRegistered) error {
	provision, err := s.find(kProvision, p.Provision)
	if err != nil {
		return err
	}
	node, err := s.find(kNode, p.Node)
	if err != nil {
		return err
	}
	i, v := s.providers.add(&s.j)
	*v = Provider{ID: e.Entity, Name: p.Name, Provision: ProvisionRef(provision), Node: NodeRef(node),
		Endpoint: p.Endpoint, Version: p.Version, Features: p.Features, version: parseVersion(p.Version),
		State: Active, StateSeq: e.Seq, StateTime: e.Time, Seq: e.Seq, ChangedSeq: e.Seq,
		fromManifest: fromManifest(e, bitNode|bitEndpoint|bitVersion|bitFeatures|bitCordoned)}
	if p.Cordoned {
		v.State = Cordoned
	}
	put(&s.j, s.endpoints, endpointKey{v.Provision, v.Endpoint}, ProviderRef(i))
	s.enlistInProvision(ProviderRef(i))
	s.enlistInNode(ProviderRef(i))
	return errors.Join(s.index(e.Entity, kProvider, i), s.name(kProvider, p.Name, i))
}

// parseVersion returns nil for a version that is not known.
func parseVersion(s string) *semver.Version {
	v, err := semver.NewVersion(s)
	if err != nil {
		return nil
	}
	return v
}

func (s *State) enlistInProvision(r ProviderRef) {
	v := s.Provider(r)
	enlist(&s.j, &s.Provision(v.Provision).Providers, r, &v.posInProvision)
}

func (s *State) enlistInNode(r ProviderRef) {
	v := s.Provider(r)
	enlist(&s.j, &s.Node(v.Node).Providers, r, &v.posInNode)
}

func (s *State) delistInNode(r ProviderRef) {
	v := s.Provider(r)
	delist(&s.j, &s.Node(v.Node).Providers, &v.posInNode,
		func(o ProviderRef) *uint32 { return &s.Provider(o).posInNode })
}

func (s *State) providerOf(e *events.Event) (ProviderRef, *Provider, error) {
	i, err := s.find(kProvider, e.Entity)
	if err != nil {
		return 0, nil, err
	}
	v := s.providers.at(i)
	set(&s.j, &v.Seq, e.Seq)
	return ProviderRef(i), v, nil
}

func (s *State) providerUpdated(e *events.Event, p *events.ProviderUpdated) error {
	r, v, err := s.providerOf(e)
	if err != nil {
		return err
	}
	if p.Endpoint != nil {
		s.trackBit(e, &v.fromManifest, v.ID, FieldEndpoint, v.Endpoint)
		s.putEndpoint(r, *p.Endpoint)
		set(&s.j, &v.ChangedSeq, e.Seq)
	}
	if p.Version != nil {
		s.trackBit(e, &v.fromManifest, v.ID, FieldVersion, v.Version)
		set(&s.j, &v.Version, *p.Version)
		set(&s.j, &v.version, parseVersion(*p.Version))
	}
	if p.Features != nil {
		s.trackBit(e, &v.fromManifest, v.ID, FieldFeatures, FeaturesText(v.Features))
		set(&s.j, &v.Features, *p.Features)
	}
	return nil
}

// putEndpoint changes where a provider answers.
func (s *State) putEndpoint(r ProviderRef, endpoint string) {
	v := s.Provider(r)
	drop(&s.j, s.endpoints, endpointKey{v.Provision, v.Endpoint})
	set(&s.j, &v.Endpoint, endpoint)
	put(&s.j, s.endpoints, endpointKey{v.Provision, endpoint}, r)
}

func (s *State) providerRenamed(e *events.Event, p *events.ProviderRenamed) error {
	r, v, err := s.providerOf(e)
	if err != nil {
		return err
	}
	set(&s.j, &v.Name, p.To)
	return s.rename(kProvider, p.From, p.To, uint32(r))
}

func (s *State) providerRelocated(e *events.Event, p *events.ProviderRelocated) error {
	r, v, err := s.providerOf(e)
	if err != nil {
		return err
	}
	to, err := s.find(kNode, p.To)
	if err != nil {
		return err
	}
	s.trackBit(e, &v.fromManifest, v.ID, FieldNode, s.Node(v.Node).ID.String())
	if v.Endpoint != p.Endpoint {
		s.trackBit(e, &v.fromManifest, v.ID, FieldEndpoint, v.Endpoint)
	}
	s.delistInNode(r)
	set(&s.j, &v.Node, NodeRef(to))
	s.putEndpoint(r, p.Endpoint)
	set(&s.j, &v.ChangedSeq, e.Seq)
	s.enlistInNode(r)
	return nil
}

func (s *State) providerState(e *events.Event, to ProviderState) error {
	_, v, err := s.providerOf(e)
	if err != nil {
		return err
	}
	s.trackBit(e, &v.fromManifest, v.ID, FieldCordoned, strconv.FormatBool(v.State == Cordoned))
	set(&s.j, &v.State, to)
	set(&s.j, &v.StateSeq, e.Seq)
	set(&s.j, &v.StateTime, e.Time)
	return nil
}

func (s *State) providerRetired(e *events.Event) error {
	r, v, err := s.providerOf(e)
	if err != nil {
		return err
	}
	set(&s.j, &v.State, Retired)
	set(&s.j, &v.StateSeq, e.Seq)
	set(&s.j, &v.StateTime, e.Time)
	s.end(e, kProvider, v.Name, v.fromManifest)
	s.delistInNode(r)
	drop(&s.j, s.endpoints, endpointKey{v.Provision, v.Endpoint})
	delist(&s.j, &s.Provision(v.Provision).Providers, &v.posInProvision,
		func(o ProviderRef) *uint32 { return &s.Provider(o).posInProvision })
	return nil
}

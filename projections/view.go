package projections

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"bindery/events"
)

// The views are the JSON contract of the command line: fields are only ever
// added. Ids are ULIDs, instants RFC 3339 in UTC, sequences the stream's.

// List is the answer to every list.
type List[T any] struct {
	Mesh  string    `json:"mesh"`
	Seq   uint64    `json:"seq"`
	Time  time.Time `json:"time"`
	Items []T       `json:"items"`
}

func list[T any](s *State, items []T) List[T] {
	if items == nil {
		items = []T{}
	}
	return List[T]{Mesh: s.Mesh.Name, Seq: s.Seq, Time: s.Time, Items: items}
}

// NodeView is a node as readers see it.
type NodeView struct {
	Seq         uint64    `json:"seq"`
	ID          events.ID `json:"id"`
	Name        string    `json:"name"`
	State       string    `json:"state"`
	Providers   []string  `json:"providers"`
	Assignments []string  `json:"assignments"`
}

// NodeView makes the view of a node.
func (s *State) NodeView(r NodeRef) NodeView {
	n := s.Node(r)
	v := NodeView{Seq: n.Seq, ID: n.ID, Name: n.Name, State: string(Active),
		Providers: s.ProviderNames(n.Providers), Assignments: s.AssignmentNames(n.Assignments)}
	if n.Retired {
		v.State = string(Retired)
	}
	return v
}

// ProviderNames lists the names of the providers, sorted.
func (s *State) ProviderNames(refs []ProviderRef) []string {
	return sortedNames(refs, func(r ProviderRef) string { return s.Provider(r).Name })
}

// AssignmentNames lists the names of the assignments, sorted.
func (s *State) AssignmentNames(refs []AssignmentRef) []string {
	return sortedNames(refs, func(r AssignmentRef) string { return s.Assignment(r).Name })
}

// ModuleNames lists the names of the modules, sorted.
func (s *State) ModuleNames(refs []ModuleRef) []string {
	return sortedNames(refs, func(r ModuleRef) string { return s.Module(r).Name })
}

// SlotNames lists the bindings as assignment/slot, sorted.
func (s *State) SlotNames(refs []BindingRef) []string {
	return sortedNames(refs, func(r BindingRef) string { return s.SlotPath(s.Binding(r)) })
}

// SlotPath is assignment/slot.
func (s *State) SlotPath(b *Binding) string {
	return s.Assignment(b.Assignment).Name + "/" + s.SlotName(b)
}

func sortedNames[T any](refs []T, name func(T) string) []string {
	out := make([]string, len(refs))
	for i, r := range refs {
		out[i] = name(r)
	}
	slices.Sort(out)
	return out
}

// ListNodes lists the live nodes by name.
func (s *State) ListNodes() List[NodeView] {
	return list(s, views(s, events.EntityNode, func(i uint32) NodeView { return s.NodeView(NodeRef(i)) }))
}

// views makes the view of each live entity of a type, sorted by name.
func views[T any](s *State, entity events.Entity, view func(uint32) T) []T {
	index := s.names[kindOf(entity)].live
	names := s.Names(entity)
	out := make([]T, len(names))
	for i, name := range names {
		out[i] = view(index[name])
	}
	return out
}

// DefaultView is one default of a provision.
type DefaultView struct {
	Node       string    `json:"node,omitempty"` // empty: of the mesh
	Provider   string    `json:"provider"`
	ProviderID events.ID `json:"provider_id"`
	Seq        uint64    `json:"seq"`
}

// ProvisionView is a provision as readers see it.
type ProvisionView struct {
	Seq         uint64             `json:"seq"`
	ID          events.ID          `json:"id"`
	Name        string             `json:"name"`
	Scope       events.Scope       `json:"scope"`
	Credentials events.Credentials `json:"credentials"`
	Providers   []string           `json:"providers"`
	Defaults    []DefaultView      `json:"defaults"`
	Modules     []string           `json:"modules"`
}

// ProvisionView makes the view of a provision.
func (s *State) ProvisionView(r ProvisionRef) ProvisionView {
	p := s.Provision(r)
	v := ProvisionView{Seq: p.Seq, ID: p.ID, Name: p.Name, Scope: p.Scope, Credentials: p.Credentials,
		Providers: s.ProviderNames(p.Providers), Defaults: []DefaultView{}, Modules: s.ModuleNames(p.Modules)}
	add := func(node string, d Default) {
		if d.Provider != 0 {
			provider := s.Provider(d.Provider)
			v.Defaults = append(v.Defaults, DefaultView{node, provider.Name, provider.ID, d.Seq})
		}
	}
	add("", p.Default)
	for node, d := range p.NodeDefaults {
		add(s.Node(node).Name, d)
	}
	slices.SortFunc(v.Defaults, func(a, b DefaultView) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.Seq, b.Seq))
	})
	return v
}

// ListProvisions lists the provisions by name.
func (s *State) ListProvisions() List[ProvisionView] {
	return list(s, views(s, events.EntityProvision, func(i uint32) ProvisionView { return s.ProvisionView(ProvisionRef(i)) }))
}

// ProviderView is a provider as readers see it.
type ProviderView struct {
	Seq       uint64        `json:"seq"`
	ID        events.ID     `json:"id"`
	Name      string        `json:"name"`
	Provision string        `json:"provision"`
	Scope     events.Scope  `json:"scope"`
	Node      string        `json:"node"`
	Endpoint  string        `json:"endpoint"`
	Version   string        `json:"version"`
	Features  []string      `json:"features"`
	State     ProviderState `json:"state"`
	Bindings  int           `json:"bindings"`
	Holders   int           `json:"holders"`            // who can log in to it
	Rotation  *events.ID    `json:"rotation,omitempty"` // the one that is open
}

// ProviderView makes the view of a provider.
func (s *State) ProviderView(r ProviderRef) ProviderView {
	p := s.Provider(r)
	v := ProviderView{Seq: p.Seq, ID: p.ID, Name: p.Name, Provision: s.Provision(p.Provision).Name,
		Scope: s.Provision(p.Provision).Scope, Node: s.Node(p.Node).Name, Endpoint: p.Endpoint,
		Version: p.Version, Features: p.Features, State: p.State, Bindings: len(p.Bindings), Holders: len(p.Holders.Live)}
	if v.Features == nil {
		v.Features = []string{}
	}
	if p.Holders.Open != 0 {
		id := s.Rotation(p.Holders.Open).ID
		v.Rotation = &id
	}
	return v
}

// ListProviders lists the live providers by name, and those retired by force
// that consumers are still bound to or can log in to.
func (s *State) ListProviders() List[ProviderView] {
	items := views(s, events.EntityProvider, func(i uint32) ProviderView { return s.ProviderView(ProviderRef(i)) })
	for i := 1; i <= s.providers.len(); i++ {
		if p := s.providers.at(uint32(i)); p.State == Retired && len(p.Bindings)+len(p.Holders.Live) > 0 {
			items = append(items, s.ProviderView(ProviderRef(i)))
		}
	}
	return list(s, items)
}

// SlotView is one declared slot.
type SlotView struct {
	Slot      string        `json:"slot"`
	Kind      string        `json:"kind"` // requires, embeds
	Provision string        `json:"provision"`
	Version   string        `json:"version,omitempty"` // constraint; of an embed, what it ships
	Features  []string      `json:"features,omitempty"`
	Provider  string        `json:"provider,omitempty"`
	Optional  bool          `json:"optional,omitempty"`
	Embed     *events.Embed `json:"embed,omitempty"`
}

// ModuleView is a module as readers see it.
type ModuleView struct {
	Seq         uint64     `json:"seq"`
	ID          events.ID  `json:"id"`
	Name        string     `json:"name"`
	Slots       []SlotView `json:"slots"`
	Assignments []string   `json:"assignments"`
}

// ModuleView makes the view of a module.
func (s *State) ModuleView(r ModuleRef) ModuleView {
	m := s.Module(r)
	v := ModuleView{Seq: m.Seq, ID: m.ID, Name: m.Name, Slots: []SlotView{}, Assignments: s.AssignmentNames(m.Assignments)}
	for i := range m.Slots {
		d := &m.Slots[i]
		slot := SlotView{Slot: d.Name, Kind: "requires", Provision: s.Provision(d.Provision).Name,
			Version: d.Constraint, Features: d.Features, Optional: d.Optional, Embed: d.Embed}
		if d.Kind == Embeds {
			slot.Kind, slot.Version, slot.Features = "embeds", d.Embed.Version, d.Embed.Features
		}
		if d.Provider != 0 {
			slot.Provider = s.Provider(d.Provider).Name
		}
		v.Slots = append(v.Slots, slot)
	}
	return v
}

// ListModules lists the modules by name.
func (s *State) ListModules() List[ModuleView] {
	return list(s, views(s, events.EntityModule, func(i uint32) ModuleView { return s.ModuleView(ModuleRef(i)) }))
}

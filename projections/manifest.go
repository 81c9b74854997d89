package projections

import (
	"strings"

	"bindery/events"
)

// A FieldKey names one value that a manifest can set: a field of an entity.
type FieldKey struct {
	Entity events.ID
	Field  string
}

// The fields a manifest can set. A choice and an override are fields of their
// binding, a default is one of its provision (DefaultField).
const (
	FieldScope     = "scope"
	FieldNode      = "node"
	FieldEndpoint  = "endpoint"
	FieldVersion   = "version"
	FieldFeatures  = "features"
	FieldCordoned  = "cordoned"
	FieldDecl      = "declaration"
	FieldChoice    = "choice"
	FieldOverride  = "override"
	fieldOfDefault = "default:"
)

// DefaultField is the field of a provision that holds the default of a node, or
// (zero id) of the mesh.
func DefaultField(node events.ID) string {
	if node.IsZero() {
		return fieldOfDefault
	}
	return fieldOfDefault + node.String()
}

// Bits of fromManifest: the field's present value came from a manifest.
const (
	bitScope uint8 = 1 << iota
	bitNode
	bitEndpoint
	bitVersion
	bitFeatures
	bitCordoned
	bitMade // the entity itself: a manifest created it
)

// diverged is kept of a field whose value came from a manifest and was then
// changed by a command.
type diverged struct {
	value string // the manifest's
	by    string
	seq   uint64
}

// Base is what the last manifest said about a field.
type Base struct {
	Known bool   // a manifest has set it at some time
	Value string // what it set; meaningful when Known
	// By and Seq tell of the last command that changed the field since; empty
	// and 0 when none did.
	By  string
	Seq uint64
}

// base is the last value a manifest gave the field: the present one where it
// came from a manifest, else what was noted when a command changed it.
func (s *State) base(key FieldKey, fromManifest bool, present string) Base {
	if fromManifest {
		return Base{Known: true, Value: present}
	}
	d, ok := s.manifest[key]
	return Base{Known: ok, Value: d.value, By: d.by, Seq: d.seq}
}

// BaseOfProvision is the base of a field of p; present is its value now.
func (s *State) BaseOfProvision(p *Provision, field, present string) Base {
	return s.base(FieldKey{p.ID, field}, p.fromManifest&bitOf(field) != 0, present)
}

// BaseOfProvider is the base of a field of p; present is its value now.
func (s *State) BaseOfProvider(p *Provider, field, present string) Base {
	return s.base(FieldKey{p.ID, field}, p.fromManifest&bitOf(field) != 0, present)
}

// BaseOfAssignment is the base of a field of a; present is its value now.
func (s *State) BaseOfAssignment(a *Assignment, field, present string) Base {
	return s.base(FieldKey{a.ID, field}, a.fromManifest&bitOf(field) != 0, present)
}

// BaseOfModule is the base of m's declaration.
func (s *State) BaseOfModule(m *Module) Base {
	return s.base(FieldKey{m.ID, FieldDecl}, m.fromManifest, DeclText(m.Decl))
}

// BaseOfDefault is the base of a default of p.
func (s *State) BaseOfDefault(p *Provision, node NodeRef) Base {
	d := p.Default
	var id events.ID
	if node != 0 {
		d, id = p.NodeDefaults[node], s.Node(node).ID
	}
	return s.base(FieldKey{p.ID, DefaultField(id)}, d.fromManifest, s.providerID(d.Provider))
}

// BaseOfChoice is the base of a slot's choice, an id or "".
func (s *State) BaseOfChoice(b *Binding) Base {
	return s.base(FieldKey{b.ID, FieldChoice}, b.choiceFromManifest, s.providerID(b.Choice))
}

// BaseOfOverride is the base of a slot's override, a provider's id or "".
func (s *State) BaseOfOverride(b *Binding) Base {
	present := ""
	if b.Override != 0 {
		present = s.providerID(s.Override(b.Override).Provider)
	}
	return s.base(FieldKey{b.ID, FieldOverride}, b.overrideFromManifest, present)
}

func (s *State) providerID(r ProviderRef) string {
	if r == 0 {
		return ""
	}
	return s.Provider(r).ID.String()
}

func bitOf(field string) uint8 {
	switch field {
	case FieldScope:
		return bitScope
	case FieldNode:
		return bitNode
	case FieldEndpoint:
		return bitEndpoint
	case FieldVersion:
		return bitVersion
	case FieldFeatures:
		return bitFeatures
	case FieldCordoned:
		return bitCordoned
	}
	panic("projections: field " + field + " has no bit")
}

// FeaturesText is a set of features as one value.
func FeaturesText(f []string) string { return strings.Join(f, ",") }

// trackBit notes who set a field kept in a bit set; old is its value before.
func (s *State) trackBit(e *events.Event, bits *uint8, id events.ID, field, old string) {
	bit := bitOf(field)
	was := *bits&bit != 0
	now := s.track(e, FieldKey{id, field}, was, old)
	if now != was {
		set(&s.j, bits, *bits^bit)
	}
}

// trackBool is trackBit for a field with a flag of its own.
func (s *State) trackBool(e *events.Event, flag *bool, id events.ID, field, old string) {
	if now := s.track(e, FieldKey{id, field}, *flag, old); now != *flag {
		set(&s.j, flag, now)
	}
}

// track notes that e changed a field, and returns whether the new value comes
// from a manifest.
func (s *State) track(e *events.Event, key FieldKey, was bool, old string) bool {
	d, noted := s.manifest[key]
	if e.Origin == events.OriginManifest {
		if noted {
			drop(&s.j, s.manifest, key)
		}
		return true
	}
	if was {
		d, noted = diverged{value: old}, true
	}
	if noted {
		d.by, d.seq = e.Actor, e.Seq
		put(&s.j, s.manifest, key, d)
	}
	return false
}

// fromManifest is the bit set of an entity all of whose fields e gave.
func fromManifest(e *events.Event, bits uint8) uint8 {
	if e.Origin == events.OriginManifest {
		return bits | bitMade
	}
	return 0
}

// Bygone tells of an entity that a manifest created and a command ended.
type Bygone struct {
	ID  events.ID
	By  string
	Seq uint64
}

type goneKey struct {
	kind kind
	name string
}

// Gone is the last bearer of a name, where a manifest created it, a command
// ended it, and nobody has borne the name since. A manifest that still speaks
// of it says nothing new.
func (s *State) Gone(entity events.Entity, name string) (Bygone, bool) {
	g, ok := s.gone[goneKey{kindOf(entity), name}]
	return g, ok
}

// end frees the name of an entity that is over.
func (s *State) end(e *events.Event, k kind, name string, made uint8) {
	s.unname(k, name)
	if made&bitMade != 0 && e.Origin == events.OriginCommand {
		put(&s.j, s.gone, goneKey{k, name}, Bygone{e.Entity, e.Actor, e.Seq})
	}
}

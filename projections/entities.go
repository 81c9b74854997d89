package projections

import (
	"time"

	"bindery/events"

	"github.com/Masterminds/semver/v3"
)

// References between entities in memory: dense indexes into the state, 0 for
// none. They mean nothing outside one State; events refer by id.
type (
	NodeRef       uint32
	ProvisionRef  uint32
	ProviderRef   uint32
	ModuleRef     uint32
	AssignmentRef uint32
	BindingRef    uint32
	OverrideRef   uint32
	CredentialRef uint32
	RotationRef   uint32
)

// Mesh is the ledger's own record.
type Mesh struct {
	ID        events.ID
	Name      string
	Created   time.Time
	Sealed    bool
	Successor string // where a sealed ledger went
}

// Node is a machine of the mesh.
type Node struct {
	ID      events.ID
	Name    string
	Retired bool
	Seq     uint64 // of the last event about it

	fromManifest uint8

	Providers   []ProviderRef   // on it and not retired
	Assignments []AssignmentRef // on it and not ended
	Defaults    int             // provisions with a default for it
	Agents      []GrantRef      // granted for it
}

// Default is the provider of consumers that name none.
type Default struct {
	Provider     ProviderRef
	Seq          uint64 // of the event that set it
	fromManifest bool
}

// Provision is a kind of service.
type Provision struct {
	ID           events.ID
	Name         string
	Scope        events.Scope
	Credentials  events.Credentials
	Removed      bool
	Seq          uint64
	fromManifest uint8

	Providers    []ProviderRef // not retired, cordoned ones among them
	Default      Default       // of the mesh; zero for none
	NodeDefaults map[NodeRef]Default
	Modules      []ModuleRef // that have a slot of it
	Bindings     int         // bound as it, stranded and embedded ones among them
}

// ProviderState is whether a provider may have consumers.
type ProviderState string

// The states of a provider.
const (
	Active   ProviderState = "active"
	Cordoned ProviderState = "cordoned"
	Retired  ProviderState = "retired"
)

// Provider is one running server of one provision.
type Provider struct {
	ID           events.ID
	Name         string
	Provision    ProvisionRef
	Node         NodeRef
	Endpoint     string
	Version      string
	Features     []string
	State        ProviderState
	StateSeq     uint64 // of the event that gave it its state
	StateTime    time.Time
	Seq          uint64 // of the last event about it
	ChangedSeq   uint64 // of the last event its consumers must follow: relocation, endpoint
	fromManifest uint8
	version      *semver.Version // nil where unknown

	// Who refers to it.
	Bindings  []BindingRef // bound to it
	Choices   []BindingRef // whose slot's choice names it
	Overrides []BindingRef // whose override names it
	Memories  []BindingRef // whose override remembers it
	Modules   []ModuleRef  // that name it in a requirement
	Defaults  int          // provisions and nodes it is the default of

	Holders Holders // who can log in to it

	posInProvision, posInNode uint32
}

// SlotKind says how a slot is served.
type SlotKind uint8

// The kinds of slots.
const (
	Requires SlotKind = iota // by a provider
	Embeds                   // by the module's own instance
)

// Slot is one slot of a module as it is declared now.
type Slot struct {
	Name       string
	Kind       SlotKind
	Provision  ProvisionRef
	Constraint string // on a provider's version, "" for any; of an embed, its needs'
	Features   []string
	Provider   ProviderRef // named by the module itself
	Optional   bool
	Embed      *events.Embed // of an embed

	constraint *semver.Constraints
	key        uint32 // the interned name
}

// Module is an application's declaration.
type Module struct {
	ID           events.ID
	Name         string
	Slots        []Slot // sorted by name
	Decl         *events.ModuleDeclared
	Removed      bool
	Seq          uint64
	fromManifest bool  // the declaration
	made         uint8 // bitMade where a manifest created it

	Assignments []AssignmentRef // not ended
}

// Slot returns the named slot, or nil.
func (m *Module) Slot(name string) *Slot {
	for i := range m.Slots {
		if m.Slots[i].Name == name {
			return &m.Slots[i]
		}
	}
	return nil
}

// Assignment is a module placed on a node: the consumer.
type Assignment struct {
	ID           events.ID
	Name         string
	Module       ModuleRef
	Node         NodeRef
	first        BindingRef
	Seq          uint64
	MovedSeq     uint64
	Ended        bool
	fromManifest uint8

	posInNode, posInModule uint32
}

// Binding is what serves one slot of one assignment. It holds no pointers: a
// mesh has many.
type Binding struct {
	ID         events.ID
	Seq        uint64 // of the last bound, rebound or released, 0 while pending
	Basis      uint64 // of the fact the rule rests on
	ChoiceSeq  uint64
	Applied    uint64 // the consumer runs with what it was to use as of here
	settled    uint64 // its asks are on record as of here
	Assignment AssignmentRef
	Provision  ProvisionRef // of the slot when it was last declared
	Provider   ProviderRef  // bound to it; 0 when embedded or pending
	Choice     ProviderRef
	Override   OverrideRef
	next       BindingRef    // of the same assignment
	newest     CredentialRef // of its credentials
	use        CredentialRef // the one in use, or 0
	ask        CredentialRef // the open ask on record, or 0
	left       ProviderRef   // what served it when it was released
	slot       uint32
	pos        uint32 // in Provider.Bindings
	choicePos  uint32 // in the choice's Choices
	live       uint32 // how many of its credentials log in
	rule       uint8
	Embedded   bool
	Released   bool

	choiceFromManifest   bool
	overrideFromManifest bool
}

// Target is what serves the binding now.
func (s *State) Target(b *Binding) events.Target {
	if b.Provider != 0 {
		return events.Target{Provider: s.Provider(b.Provider).ID}
	}
	return events.Target{Embedded: b.Embedded}
}

// Pending reports whether nothing serves the slot.
func (b *Binding) Pending() bool { return b.Provider == 0 && !b.Embedded }

// Rule is what decided the binding, "" while it is pending.
func (b *Binding) Rule() events.Rule { return rules[b.rule] }

// Override is an operator's decision on one slot.
type Override struct {
	ID       events.ID
	Binding  BindingRef
	Provider ProviderRef
	Under    events.Memory
	under    ProviderRef // the provider in Under
	Seq      uint64
	Actor    string
	Reason   string
	Time     time.Time
	Cleared  bool

	pos, underPos uint32
}

// rules numbers the rules; 0 is none.
var rules = append([]events.Rule{""}, events.Rules()...)

func ruleNumber(r events.Rule) uint8 {
	for i, v := range rules {
		if v == r {
			return uint8(i)
		}
	}
	panic("projections: rule " + string(r) + " passed the codec")
}

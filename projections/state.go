package projections

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bindery/events"
)

// State is the mesh as the events up to Seq made it. It has one owner at a
// time: whoever reads it while another writes holds the handler's lock.
type State struct {
	Mesh  Mesh
	Seq   uint64       // of the last event folded
	Chain events.Chain // at Seq
	Time  time.Time    // of the last event

	nodes       arena[Node]
	provisions  arena[Provision]
	providers   arena[Provider]
	modules     arena[Module]
	assignments arena[Assignment]
	bindings    arena[Binding]
	overrides   arena[Override]
	credentials arena[Credential]
	rotations   arena[Rotation]
	grants      arena[Grant]

	byID        map[events.ID]ref
	names       [kinds]nameIndex
	endpoints   map[endpointKey]ProviderRef
	slotKeys    map[string]uint32 // interned slot names; grows only
	slotNames   []string
	pendingLive int // bindings that exist, are not released and have no target
	live        int // bindings not released

	instances map[BindingRef]*Holders // of embedded instances
	failures  map[CredentialRef]Failure
	troubles  map[BindingRef]Failure
	narrow    map[BindingRef]RotationRef // the last rotation about one binding alone
	finished  []RotationRef
	grantKeys map[string]GrantRef
	operators int
	texts     texts

	manifest map[FieldKey]diverged
	gone     map[goneKey]Bygone
	commands commandLog
	inside   inside
	j        journal
}

// inside is the command whose events are being folded.
type inside struct {
	first uint64
	next  int // the k expected next; 0 between commands
}

// kind numbers the entities that have ids; the order is that of names.
type kind uint8

const (
	kNode kind = iota
	kProvision
	kProvider
	kModule
	kAssignment
	kBinding
	kOverride
	kRotation
	kGrant
	kinds
)

// ref is a kind and an index in it.
type ref struct {
	kind  kind
	index uint32
}

// endpointKey is where the providers of one provision answer.
type endpointKey struct {
	provision ProvisionRef
	endpoint  string
}

// At is the provider of a provision that answers at an endpoint and is not
// retired, or 0.
func (s *State) At(provision ProvisionRef, endpoint string) ProviderRef {
	return s.endpoints[endpointKey{provision, endpoint}]
}

// New returns the state before the first event.
func New() *State {
	s := &State{
		byID:      map[events.ID]ref{},
		endpoints: map[endpointKey]ProviderRef{},
		slotKeys:  map[string]uint32{},
		instances: map[BindingRef]*Holders{},
		failures:  map[CredentialRef]Failure{},
		grantKeys: map[string]GrantRef{},
		narrow:    map[BindingRef]RotationRef{},
		troubles:  map[BindingRef]Failure{},
		manifest:  map[FieldKey]diverged{},
		gone:      map[goneKey]Bygone{},
		commands:  newCommandLog(),
	}
	for i := range s.names {
		s.names[i] = newNameIndex()
	}
	return s
}

// A FoldError says that an event does not fit the events before it: the log is
// not one this program wrote, or it is damaged.
type FoldError struct {
	Seq  uint64
	Type events.Type
	Why  string
}

func (e *FoldError) Error() string {
	return fmt.Sprintf("event %d (%s) does not fold: %s", e.Seq, e.Type.Short(), e.Why)
}

// ApplyCommand folds the events of one command, whole.
func (s *State) ApplyCommand(group []events.Event) error {
	for i := range group {
		if err := s.Apply(&group[i]); err != nil {
			return err
		}
	}
	return nil
}

// Apply folds the event that follows the last one folded; foreign messages may
// lie between. It returns a *FoldError where the event does not fit.
func (s *State) Apply(e *events.Event) error {
	if e.Seq <= s.Seq {
		return &FoldError{e.Seq, e.Type, fmt.Sprintf("the state is at %d already", s.Seq)}
	}
	if err := s.border(e); err != nil {
		return err
	}
	if err := s.fold(e); err != nil {
		return &FoldError{e.Seq, e.Type, err.Error()}
	}
	set(&s.j, &s.Seq, e.Seq)
	set(&s.j, &s.Chain, e.Chain)
	set(&s.j, &s.Time, e.Time)
	return nil
}

// border keeps commands whole.
func (s *State) border(e *events.Event) error {
	in := s.inside
	if e.K != in.next+1 {
		return &FoldError{e.Seq, e.Type, fmt.Sprintf("event %d of its command, expected %d", e.K, in.next+1)}
	}
	if e.K == 1 {
		in.first = e.Seq
	}
	in.next = e.K
	set(&s.j, &s.inside, in)
	if e.Last() {
		s.Close(e)
	}
	return nil
}

// Close ends the command whose events are being folded: last is its last event,
// encoded. Apply does it by itself; a decision, which does not know how many
// events it will have, folds them open and closes at its end.
func (s *State) Close(last *events.Event) {
	s.commands.remember(&s.j, last.Command,
		CommandRecord{Hash: last.CommandHash, First: s.inside.first, Last: last.Seq}, last.Time)
	set(&s.j, &s.inside, inside{})
	set(&s.j, &s.Chain, last.Chain)
}

// fold changes the state by one event's payload.
func (s *State) fold(e *events.Event) error {
	switch p := e.Data.(type) {
	case *events.MeshCreated:
		return s.meshCreated(e, p)
	case *events.MeshClockStepped, *events.MeshRecovered:
		return nil // facts for people; nothing is decided on them
	case *events.MeshSealed:
		m := s.Mesh
		m.Sealed, m.Successor = true, p.Successor
		set(&s.j, &s.Mesh, m)
		return nil
	case *events.NodeRegistered:
		return s.nodeRegistered(e, p)
	case *events.NodeRenamed:
		return s.nodeRenamed(e, p)
	case *events.NodeRetired:
		return s.nodeRetired(e)
	case *events.ProvisionDefined:
		return s.provisionDefined(e, p)
	case *events.ProvisionRescoped:
		return s.provisionRescoped(e, p)
	case *events.ProvisionRemoved:
		return s.provisionRemoved(e)
	case *events.DefaultSet:
		return s.defaultSet(e, p)
	case *events.DefaultCleared:
		return s.defaultCleared(e, p)
	case *events.ProviderRegistered:
		return s.providerRegistered(e, p)
	case *events.ProviderUpdated:
		return s.providerUpdated(e, p)
	case *events.ProviderRenamed:
		return s.providerRenamed(e, p)
	case *events.ProviderRelocated:
		return s.providerRelocated(e, p)
	case *events.ProviderCordoned:
		return s.providerState(e, Cordoned)
	case *events.ProviderUncordoned:
		return s.providerState(e, Active)
	case *events.ProviderRetired:
		return s.providerRetired(e)
	case *events.ModuleDeclared:
		return s.moduleDeclared(e, p)
	case *events.ModuleRemoved:
		return s.moduleRemoved(e)
	case *events.AssignmentCreated:
		return s.assignmentCreated(e, p)
	case *events.AssignmentRenamed:
		return s.assignmentRenamed(e, p)
	case *events.AssignmentMoved:
		return s.assignmentMoved(e, p)
	case *events.AssignmentEnded:
		return s.assignmentEnded(e)
	case *events.ChoiceSet:
		return s.choiceSet(e, p)
	case *events.ChoiceCleared:
		return s.choiceCleared(e, p)
	case *events.BindingBound:
		return s.bindingBound(e, p)
	case *events.BindingRebound:
		return s.bindingRebound(e, p)
	case *events.BindingReleased:
		return s.bindingReleased(e, p)
	case *events.OverrideSet:
		return s.overrideSet(e, p)
	case *events.OverrideCleared:
		return s.overrideCleared(e, p)
	case *events.BindingApplied:
		return s.bindingApplied(e, p)
	case *events.BindingFailed:
		return s.bindingFailed(e, p)
	case *events.CredentialRequested:
		return s.credentialRequested(e, p)
	case *events.CredentialIssued:
		return s.credentialIssued(e, p)
	case *events.CredentialFailed:
		return s.credentialFailed(e, p)
	case *events.CredentialLoginTold:
		return s.credentialLoginTold(e, p)
	case *events.CredentialRevoked:
		return s.credentialRevoked(e, p)
	case *events.CredentialWrittenOff:
		return s.credentialWrittenOff(e, p)
	case *events.RotationStarted:
		return s.rotationStarted(e, p)
	case *events.RotationUrged:
		return s.rotationUrged(e)
	case *events.RotationCompleted:
		return s.rotationClosed(e, Completed)
	case *events.RotationAborted:
		return s.rotationClosed(e, Aborted)
	case *events.AccessGranted:
		return s.accessGranted(e, p)
	case *events.AccessRevoked:
		return s.accessRevoked(e)
	}
	return fmt.Errorf("no fold for %T", e.Data)
}

func (s *State) meshCreated(e *events.Event, p *events.MeshCreated) error {
	if !s.Mesh.ID.IsZero() {
		return fmt.Errorf("mesh %q exists already", s.Mesh.Name)
	}
	set(&s.j, &s.Mesh, Mesh{ID: e.Entity, Name: p.Name, Created: e.Time})
	return nil
}

// index gives the entity of e an index under its id.
func (s *State) index(e events.ID, k kind, i uint32) error {
	if _, taken := s.byID[e]; taken {
		return fmt.Errorf("id %s exists already", e)
	}
	put(&s.j, s.byID, e, ref{k, i})
	return nil
}

// find is the index of the entity with that id, or an error.
func (s *State) find(k kind, id events.ID) (uint32, error) {
	r, ok := s.byID[id]
	if !ok || r.kind != k {
		return 0, fmt.Errorf("no %s with id %s", entityOf[k], id)
	}
	return r.index, nil
}

var entityOf = [kinds]events.Entity{
	events.EntityNode, events.EntityProvision, events.EntityProvider, events.EntityModule,
	events.EntityAssignment, events.EntityBinding, events.EntityOverride, events.EntityRotation, events.EntityAccess,
}

// slotKey interns a slot's name: a mesh has many slots and few names.
func (s *State) slotKey(name string) uint32 {
	if k, ok := s.slotKeys[name]; ok {
		return k
	}
	k := uint32(len(s.slotNames))
	s.slotNames = append(s.slotNames, name)
	s.slotKeys[name] = k
	return k
}

// Accessors by reference; r must not be 0.

// Node returns the node r refers to.
func (s *State) Node(r NodeRef) *Node { return s.nodes.at(uint32(r)) }

// Provision returns the provision r refers to.
func (s *State) Provision(r ProvisionRef) *Provision { return s.provisions.at(uint32(r)) }

// Provider returns the provider r refers to.
func (s *State) Provider(r ProviderRef) *Provider { return s.providers.at(uint32(r)) }

// Module returns the module r refers to.
func (s *State) Module(r ModuleRef) *Module { return s.modules.at(uint32(r)) }

// Assignment returns the assignment r refers to.
func (s *State) Assignment(r AssignmentRef) *Assignment { return s.assignments.at(uint32(r)) }

// Binding returns the binding r refers to.
func (s *State) Binding(r BindingRef) *Binding { return s.bindings.at(uint32(r)) }

// Override returns the override r refers to.
func (s *State) Override(r OverrideRef) *Override { return s.overrides.at(uint32(r)) }

// SlotName is the name of the binding's slot.
func (s *State) SlotName(b *Binding) string { return s.slotNames[b.slot] }

// Bindings lists the bindings of an assignment that are not released, by slot.
func (s *State) Bindings(a *Assignment) []BindingRef {
	return s.listed(a, func(r BindingRef) bool { return !s.Binding(r).Released })
}

func (s *State) listed(a *Assignment, keep func(BindingRef) bool) []BindingRef {
	var out []BindingRef
	for r := a.first; r != 0; r = s.Binding(r).next {
		if keep(r) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(x, y BindingRef) int {
		return strings.Compare(s.slotNames[s.Binding(x).slot], s.slotNames[s.Binding(y).slot])
	})
	return out
}

// EveryBinding lists all bindings an assignment ever had, by slot, the newest
// of a slot first.
func (s *State) EveryBinding(a *Assignment) []BindingRef {
	return s.listed(a, func(BindingRef) bool { return true })
}

// BindingOf is the binding of an assignment's slot, or 0 where no event has
// spoken of it yet.
func (s *State) BindingOf(a *Assignment, slot string) BindingRef {
	key, ok := s.slotKeys[slot]
	if !ok {
		return 0
	}
	for r := a.first; r != 0; {
		b := s.Binding(r)
		if b.slot == key && !b.Released {
			return r
		}
		r = b.next
	}
	return 0
}

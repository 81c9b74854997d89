package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Entity is the kind of thing an event is about; it is a token of the subject.
type Entity string

// The entities of a mesh.
const (
	EntityMesh       Entity = "mesh"
	EntityNode       Entity = "node"
	EntityProvision  Entity = "provision"
	EntityProvider   Entity = "provider"
	EntityModule     Entity = "module"
	EntityAssignment Entity = "assignment"
	EntityBinding    Entity = "binding"
	EntityOverride   Entity = "override"
	EntityCredential Entity = "credential" // under the binding's id
	EntityRotation   Entity = "rotation"
	EntityAccess     Entity = "access"
)

// Type names one kind of event, with the version of its payload.
type Type struct {
	Entity  Entity
	Name    string
	Version int
}

// String is the CloudEvents type: bindery.provider.relocated.v1.
func (t Type) String() string {
	return SubjectRoot + "." + string(t.Entity) + "." + t.Name + ".v" + strconv.Itoa(t.Version)
}

// Short is the type without root and version, for people: provider.relocated.
func (t Type) Short() string { return string(t.Entity) + "." + t.Name }

// ParseType reads what String writes.
func ParseType(s string) (Type, error) {
	p := strings.Split(s, ".")
	if len(p) != 4 || p[0] != SubjectRoot || !strings.HasPrefix(p[3], "v") {
		return Type{}, fmt.Errorf("event type %q: not bindery.<entity>.<event>.v<n>", clip(s))
	}
	n, err := strconv.Atoi(p[3][1:])
	if err != nil || n < 1 || strconv.Itoa(n) != p[3][1:] {
		return Type{}, fmt.Errorf("event type %q: version %q is no number from 1", clip(s), clip(p[3]))
	}
	return Type{Entity: Entity(p[1]), Name: p[2], Version: n}, nil
}

// Payload is the body of one event: a pointer to a struct of this package.
type Payload interface {
	// EventType is the type this version writes.
	EventType() Type
	// Check reports what is missing or malformed in the payload itself; what
	// depends on other events is not its business.
	Check() error
}

// UpcastError says that a payload of an older version could not be lifted.
type UpcastError struct {
	Type Type
	Err  error
}

func (e *UpcastError) Error() string { return fmt.Sprintf("lifting %s: %v", e.Type, e.Err) }

// Unwrap returns the cause.
func (e *UpcastError) Unwrap() error { return e.Err }

// UnknownTypeError is returned for an event of a type or a version that this
// program does not know: the ledger was written by a newer one.
type UnknownTypeError struct{ Type string }

func (e *UnknownTypeError) Error() string { return fmt.Sprintf("event type %q is not known", e.Type) }

// An Upcast lifts a payload from one version to the next.
type Upcast func(json.RawMessage) (json.RawMessage, error)

// Registry knows the types of events: how each is made, and how its older
// versions are lifted to the present one. The package's own (Types) is closed;
// a separate one is only made in tests.
type Registry struct {
	byType map[string]*spec // by ce-type, each known version
	specs  []*spec          // present versions
}

type spec struct {
	typ     Type
	elem    reflect.Type
	upcasts []Upcast // empty for the present version; else applied in order
}

// NewRegistry makes a registry of the given payloads at their present version.
func NewRegistry(payloads ...Payload) *Registry {
	r := &Registry{byType: map[string]*spec{}}
	for _, p := range payloads {
		s := &spec{typ: p.EventType(), elem: reflect.TypeOf(p).Elem()}
		if _, dup := r.byType[s.typ.String()]; dup {
			panic("events: registered twice: " + s.typ.String())
		}
		r.byType[s.typ.String()] = s
		r.specs = append(r.specs, s)
	}
	slices.SortFunc(r.specs, func(a, b *spec) int { return cmp.Compare(a.typ.String(), b.typ.String()) })
	return r
}

// AddUpcasts makes older versions of p readable: the first of steps lifts
// version 1 to 2, the last one to the present version.
func (r *Registry) AddUpcasts(p Payload, steps ...Upcast) {
	now := p.EventType()
	if len(steps) != now.Version-1 {
		panic(fmt.Sprintf("events: %s needs %d upcasts, not %d", now, now.Version-1, len(steps)))
	}
	for v := 1; v < now.Version; v++ {
		old := Type{Entity: now.Entity, Name: now.Name, Version: v}
		r.byType[old.String()] = &spec{typ: now, elem: reflect.TypeOf(p).Elem(), upcasts: steps[v-1:]}
	}
}

// Types lists the present version of each type, sorted by name.
func (r *Registry) Types() []Type {
	out := make([]Type, len(r.specs))
	for i, s := range r.specs {
		out[i] = s.typ
	}
	return out
}

// New makes an empty payload of type t at its present version, or nil.
func (r *Registry) New(t Type) Payload {
	s := r.byType[t.String()]
	if s == nil {
		return nil
	}
	return reflect.New(s.elem).Interface().(Payload)
}

// decode reads a payload of the named ce-type. Unknown fields are let pass: a
// newer writer may have added them, and they stay in the stored bytes.
func (r *Registry) decode(ceType string, data []byte) (Payload, Type, error) {
	s := r.byType[ceType]
	if s == nil {
		if _, err := ParseType(ceType); err != nil {
			return nil, Type{}, err
		}
		return nil, Type{}, &UnknownTypeError{Type: ceType}
	}
	for _, up := range s.upcasts {
		lifted, err := up(data)
		if err != nil {
			return nil, Type{}, &UpcastError{Type: s.typ, Err: err}
		}
		data = lifted
	}
	p := reflect.New(s.elem).Interface().(Payload)
	if err := json.Unmarshal(data, p); err != nil {
		return nil, Type{}, fmt.Errorf("payload of %s: %w", ceType, err)
	}
	return p, s.typ, nil
}

// Known is the registry of every event this program writes and reads.
var Known = NewRegistry(
	&MeshCreated{}, &MeshClockStepped{}, &MeshRecovered{}, &MeshSealed{},
	&NodeRegistered{}, &NodeRenamed{}, &NodeRetired{},
	&ProvisionDefined{}, &ProvisionRescoped{}, &ProvisionRemoved{}, &DefaultSet{}, &DefaultCleared{},
	&ProviderRegistered{}, &ProviderUpdated{}, &ProviderRenamed{}, &ProviderRelocated{},
	&ProviderCordoned{}, &ProviderUncordoned{}, &ProviderRetired{},
	&ModuleDeclared{}, &ModuleRemoved{},
	&AssignmentCreated{}, &AssignmentRenamed{}, &AssignmentMoved{}, &ChoiceSet{}, &ChoiceCleared{}, &AssignmentEnded{},
	&BindingBound{}, &BindingRebound{}, &BindingReleased{}, &BindingApplied{}, &BindingFailed{},
	&OverrideSet{}, &OverrideCleared{},
	&CredentialRequested{}, &CredentialIssued{}, &CredentialLoginTold{}, &CredentialFailed{}, &CredentialRevoked{}, &CredentialWrittenOff{},
	&RotationStarted{}, &RotationUrged{}, &RotationCompleted{}, &RotationAborted{},
	&AccessGranted{}, &AccessRevoked{},
)

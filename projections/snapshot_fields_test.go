package projections

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"bindery/events"

	"github.com/Masterminds/semver/v3"
)

// leftOut are the fields that stand in no snapshot: those that are worked out anew,
// and those that are empty at the border of a command.
var leftOut = map[string]bool{
	"State.byID": true, "State.endpoints": true, "State.slotKeys": true, "State.grantKeys": true,
	"State.texts":  true, // what credentials refer to stands with them
	"State.inside": true, "State.j": true,
	"nameIndex.live": true, "nameIndex.ended": true,
	"commandLog.kept": true,                          // the program's
	"commandLog.head": true, "commandLog.gone": true, // what is forgotten is left out
	"commandLog.saved": true, // byID stands for it
	"arena.n":          true, // the count
	"Module.Slots":     true, "Provider.version": true,
	"Provider.posInProvision": true, "Provider.posInNode": true, "Assignment.posInNode": true, "Assignment.posInModule": true,
	"Binding.pos": true, "Binding.choicePos": true, "Binding.live": true, "Override.pos": true, "Override.underPos": true, "Credential.pos": true,
}

// step goes from a value to one inside it.
type step func(reflect.Value) reflect.Value

// leaf is one field of a state that has no fields itself.
type leaf struct {
	name string // State.bindings.Binding.Seq
	typ  reflect.Type
	path []step
}

// leaves lists all of a type that are not left out. A list and an arena are their
// first element, a map is its one key and value.
func leaves(typ reflect.Type, name string, path []step) []leaf {
	on := func(s step) []step { return append(slices.Clip(path), s) }
	switch {
	case typ == reflect.TypeFor[time.Time](), typ == reflect.TypeFor[events.ID](), typ == reflect.TypeFor[*semver.Version]():
		return []leaf{{name, typ, path}}
	}
	switch typ.Kind() {
	case reflect.Struct:
		var out []leaf
		short, _, _ := strings.Cut(typ.Name(), "[")
		if short == "arena" {
			elem := typ.Field(0).Type.Elem().Elem()
			return leaves(elem, name, on(func(v reflect.Value) reflect.Value { return open(v.Field(0)).Index(0).Index(1) }))
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if full := short + "." + f.Name; !leftOut[full] {
				out = append(out, leaves(f.Type, name+"."+f.Name, on(func(v reflect.Value) reflect.Value { return open(v.Field(i)) }))...)
			}
		}
		return out
	case reflect.Pointer:
		return leaves(typ.Elem(), name, on(func(v reflect.Value) reflect.Value {
			if v.IsNil() {
				v.Set(reflect.New(typ.Elem()))
			}
			return v.Elem()
		}))
	case reflect.Slice:
		return leaves(typ.Elem(), name+"[]", on(func(v reflect.Value) reflect.Value {
			if v.Len() == 0 {
				v.Set(reflect.MakeSlice(typ, 1, 1))
				if first := v.Index(0); isRef(first.Type()) {
					first.SetUint(1)
				}
			}
			return v.Index(0)
		}))
	case reflect.Array:
		if typ.Elem().Kind() != reflect.Uint8 {
			return leaves(typ.Elem(), name+"[1]", on(func(v reflect.Value) reflect.Value { return v.Index(1) }))
		}
	}
	return []leaf{{name, typ, path}}
}

// open makes an unexported field one that can be set.
func open(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

func isRef(t reflect.Type) bool {
	return t.Kind() == reflect.Uint32 && strings.HasSuffix(t.Name(), "Ref")
}

// fill makes a value another one than zero, and one that may stand there.
func fill(r *rand.Rand, v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<33), r.Int64N(1e9)).UTC()))
	case v.Type() == reflect.TypeFor[textRef]():
		v.SetUint(1) // where the text of the base stands
	case isRef(v.Type()):
		v.SetUint(1)
	default:
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Uint8:
			v.SetUint(1 + r.Uint64N(7))
		case reflect.Uint32:
			v.SetUint(1)
		case reflect.Uint64:
			v.SetUint(1 + r.Uint64())
		case reflect.Int:
			v.SetInt(1 + r.Int64N(1<<40))
		case reflect.Int64:
			v.SetInt(-1 - r.Int64N(1<<40))
		case reflect.String:
			v.SetString(fmt.Sprintf("text %d", r.Uint64()))
		case reflect.Array:
			for i := range v.Len() {
				fill(r, v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				fill(r, open(v.Field(i)))
			}
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range v.Len() {
				fill(r, v.Index(i))
			}
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key)
			fill(r, value)
			v.SetMapIndex(key, value)
		default:
			panic("no value for " + v.Type().String())
		}
	}
}

// one is a state with one of everything, each of it empty.
func one() *State {
	s := New()
	off := &journal{}
	s.nodes.add(off)
	s.provisions.add(off)
	s.providers.add(off)
	_, m := s.modules.add(off)
	m.Decl = &events.ModuleDeclared{}
	s.assignments.add(off)
	s.bindings.add(off)
	s.overrides.add(off)
	s.credentials.add(off)
	s.rotations.add(off)
	s.grants.add(off)
	s.slotNames = []string{"db", "files"}
	s.texts.add("secret://one")
	s.commands.order = []events.ID{{}}
	return s
}

// carry takes the fields of a state to bytes and back, and works out nothing.
func carry(t *testing.T, s *State) *State {
	t.Helper()
	var b bytes.Buffer
	out := newArchive(&b, nil)
	out.state(s)
	if err := out.seal(); err != nil {
		t.Fatal(err)
	}
	in, got := newArchive(nil, &b), New()
	in.state(got)
	if err := in.unseal(); err != nil {
		t.Fatal(err)
	}
	return got
}

func (l leaf) of(s *State) reflect.Value {
	v := reflect.ValueOf(s).Elem()
	for _, step := range l.path {
		v = step(v)
	}
	return v
}

// Kind: a field is added to the state, and a snapshot loses it. Whatever is set
// comes back, field by field, in every type the state is made of.
func TestSnapshotLosesNoField(t *testing.T) {
	all := leaves(reflect.TypeFor[State](), "State", nil)
	for _, l := range all {
		t.Run(l.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(len(l.name))))
			s := one()
			fill(r, l.of(s))
			if l.name == "State.commands.byID" {
				s.commands.order = []events.ID{}
				for id := range s.commands.byID {
					s.commands.order = append(s.commands.order, id)
				}
			}
			want := l.of(s).Interface()
			if l.name == "State.commands.byID" {
				got := carry(t, s)
				for id, r := range s.commands.byID {
					if now, ok := got.Remembered(id); !ok || now != r {
						t.Errorf("%v came back as %v", r, now)
					}
				}
				return
			}
			if got := l.of(carry(t, s)).Interface(); !reflect.DeepEqual(got, want) {
				t.Errorf("%v came back as %v", want, got)
			}
		})
	}
	if len(all) < 150 {
		t.Errorf("only %d fields were looked at", len(all))
	}
}

// Kind: what is left out is not there any more, so that a name stays excused.
func TestSnapshotLeavesOutWhatIsThere(t *testing.T) {
	there := map[string]bool{}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Struct:
			short, _, _ := strings.Cut(typ.Name(), "[")
			for i := range typ.NumField() {
				there[short+"."+typ.Field(i).Name] = true
				walk(typ.Field(i).Type)
			}
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(typ.Elem())
		case reflect.Map:
			walk(typ.Key())
			walk(typ.Elem())
		}
	}
	walk(reflect.TypeFor[State]())
	for name := range leftOut {
		if !there[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// shapes is a sum over all fields of a state and their types, as they were when
// SnapshotVersion was last raised.
const shapes = "37168f79b3e6bd5c"

// Kind: the form of snapshots changes and their version does not, so that old ones
// are read as what they are not.
func TestSnapshotVersionFollowsTheFields(t *testing.T) {
	h := sha256.New()
	fmt.Fprintln(h, SnapshotVersion)
	for _, l := range leaves(reflect.TypeFor[State](), "State", nil) {
		fmt.Fprintln(h, l.name, l.typ)
	}
	if got := hex.EncodeToString(h.Sum(nil)[:8]); got != shapes {
		t.Errorf("the fields of a state have changed: raise SnapshotVersion and set shapes to %q", got)
	}
}

package events

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// doorOpened is at version 3: version 1 called its field "n", version 2 had it
// as a string.
type doorOpened struct {
	Number int `json:"number"`
}

func (*doorOpened) EventType() Type { return Type{"door", "opened", 3} }
func (p *doorOpened) Check() error {
	if p.Number < 0 {
		return errors.New("negative")
	}
	return nil
}

func TestUpcast(t *testing.T) {
	reg := NewRegistry(&doorOpened{})
	reg.AddUpcasts(&doorOpened{},
		func(b json.RawMessage) (json.RawMessage, error) {
			return []byte(strings.Replace(string(b), `"n"`, `"number"`, 1)), nil
		},
		func(b json.RawMessage) (json.RawMessage, error) {
			var v2 struct {
				Number json.Number `json:"number"`
			}
			err := json.Unmarshal(b, &v2)
			return []byte(`{"number":` + v2.Number.String() + `}`), err
		})
	for ceType, data := range map[string]string{
		"bindery.door.opened.v1": `{"n":"7"}`,
		"bindery.door.opened.v2": `{"number":"7"}`,
		"bindery.door.opened.v3": `{"number":7}`,
	} {
		_, r := encoded(t, boundSample())
		r.Subject = "bindery.demo.door." + bindingID.String() + ".opened"
		r.Header[hType] = []string{ceType}
		r.Data = []byte(data)
		e, err := decodeWith(reg, &r)
		if err != nil {
			t.Errorf("%s: %v", ceType, err)
			continue
		}
		if diff := cmp.Diff(&doorOpened{Number: 7}, e.Data); diff != "" || e.Type != (Type{"door", "opened", 3}) {
			t.Errorf("%s: %v %s", ceType, e.Type, diff)
		}
		if string(r.Data) != data {
			t.Errorf("%s: the stored bytes have changed to %s", ceType, r.Data)
		}
	}
	_, _, err := reg.decode("bindery.door.opened.v2", []byte(`{"number":[]}`))
	var up *UpcastError
	if !errors.As(err, &up) || up.Type.Name != "opened" || errors.Unwrap(up) == nil {
		t.Errorf("a payload that cannot be lifted: %v", err)
	}
	var unknown *UnknownTypeError
	if _, _, err := reg.decode("bindery.door.opened.v4", nil); !errors.As(err, &unknown) {
		t.Errorf("version 4: %v", err)
	}
	if got := reg.Types(); len(got) != 1 || got[0].Version != 3 {
		t.Errorf("types %v", got)
	}
}

func TestRegistryPanics(t *testing.T) {
	for what, f := range map[string]func(){
		"twice":        func() { NewRegistry(&doorOpened{}, &doorOpened{}) },
		"too few":      func() { NewRegistry(&doorOpened{}).AddUpcasts(&doorOpened{}) },
		"none to lift": func() { NewRegistry(&NodeRetired{}).AddUpcasts(&NodeRetired{}, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}()
	}
}

func TestKnown(t *testing.T) {
	for _, typ := range Known.Types() {
		got, err := ParseType(typ.String())
		if err != nil || got != typ {
			t.Errorf("%s: parsed as %v, %v", typ, got, err)
		}
		p := Known.New(typ)
		if p == nil || p.EventType() != typ {
			t.Errorf("%s: New makes %T", typ, p)
		}
		// Tokens of a subject.
		if CheckName(string(typ.Entity)) != nil || CheckName(typ.Name) != nil {
			t.Errorf("%s is not made of names", typ)
		}
		if mesh, short, id, err := ParseSubject(SubjectFor("demo", typ, nodeID)); err != nil || mesh != "demo" ||
			id != nodeID || short.Short() != typ.Short() {
			t.Errorf("subject of %s: %v %v %v %v", typ, mesh, short, id, err)
		}
	}
	if Known.New(Type{"door", "opened", 1}) != nil {
		t.Error("New makes an unknown type")
	}
	if got := StreamSubjects("demo"); got != "bindery.demo.>" {
		t.Error(got)
	}
}

// Every field has a name in JSON, and one that is left out when optional: the
// canonical form depends on it.
func TestPayloadTags(t *testing.T) {
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
		case reflect.Struct:
			if typ.PkgPath() != reflect.TypeFor[Event]().PkgPath() || typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
				return
			}
			for i := range typ.NumField() {
				f := typ.Field(i)
				name, opt, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" || name != strings.ToLower(name) {
					t.Errorf("%s.%s: JSON name %q", typ, f.Name, name)
				}
				zeroer := f.Type.Kind() == reflect.Struct || f.Type.Kind() == reflect.Array
				if opt != "" && (opt == "omitzero") != zeroer {
					t.Errorf("%s.%s: %s leaves nothing out", typ, f.Name, opt)
				}
				walk(f.Type)
			}
		}
	}
	for _, typ := range Known.Types() {
		walk(reflect.TypeOf(Known.New(typ)))
	}
}

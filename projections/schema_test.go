package projections

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"bindery/events"
)

var update = flag.Bool("update", false, "write the generated schemas anew")

// described are the things with a schema.
var described = []struct {
	name string
	v    any
}{
	{SchemaBinding, BindingDocument{}},
	{SchemaHolder, HolderDocument{}},
	{SchemaChange, Change{}},
}

func oneOf[T ~string](all ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range all {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

func generate(t *testing.T, name string, v any) []byte {
	t.Helper()
	r := &jsonschema.Reflector{
		Anonymous: true, DoNotReference: true, ExpandedStruct: true, AllowAdditionalProperties: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			switch t {
			case reflect.TypeFor[events.ID]():
				return &jsonschema.Schema{Type: "string", Pattern: `^[0-7][0-9A-HJKMNP-TV-Z]{25}$`}
			case reflect.TypeFor[time.Time]():
				return &jsonschema.Schema{Type: "string", Format: "date-time"}
			case reflect.TypeFor[events.Rule]():
				return oneOf(append([]events.Rule{""}, events.Rules()...)...)
			case reflect.TypeFor[Flag]():
				return oneOf(AllFlags()...)
			case reflect.TypeFor[Duty]():
				return oneOf(DutyNone, DutyIssue, DutyRevoke, DutyClean)
			case reflect.TypeFor[ChangeKind]():
				return oneOf(ChangeKinds()...)
			case reflect.TypeFor[uint64]():
				return &jsonschema.Schema{Type: "integer", Minimum: "0"}
			}
			return nil
		},
	}
	if err := r.AddGoComments("bindery/projections", ".", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	for k, c := range r.CommentMap {
		r.CommentMap[k] = strings.Join(strings.Fields(c), " ")
	}
	s := r.Reflect(v)
	s.ID = jsonschema.ID("urn:bindery:" + name + ":v1")
	s.Title = name
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

func TestGeneratedSchemas(t *testing.T) {
	want := map[string]bool{}
	for _, d := range described {
		file := filepath.Join("schemas", d.name+".v1.json")
		want[file] = true
		text := generate(t, d.name, d.v)
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !bytes.Equal(Schema(d.name), text) {
			t.Errorf("%s is not what the program is; run go generate ./projections", file)
		}
	}
	files, _ := filepath.Glob("schemas/*")
	for _, f := range files {
		if !want[f] {
			t.Errorf("%s belongs to nothing", f)
		}
	}
	if Schema("no-such") != nil {
		t.Error("there is a schema of what is not there")
	}
}

func compiled(t *testing.T, name string) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(Schema(name)))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("urn:"+name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// example is a value of a type with no field empty.
func example(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)))
	case v.Type() == reflect.TypeFor[events.ID]():
		v.Set(reflect.ValueOf(events.ID{1, 2, 3}))
	case v.Type() == reflect.TypeFor[Flag]():
		v.SetString(string(FlagDrift))
	case v.Type() == reflect.TypeFor[Duty]():
		v.SetString(string(DutyIssue))
	case v.Type() == reflect.TypeFor[ChangeKind]():
		v.SetString(string(ChangeBound))
	case v.Type() == reflect.TypeFor[events.Rule]():
		v.SetString(string(events.RuleOverride))
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.Kind() == reflect.Uint64:
		v.SetUint(7)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		example(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		example(v.Index(0))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			example(v.Field(i))
		}
	}
}

// The schemas take what is written, with every field and with none that may be
// left out, and take neither a field of a wrong type nor one that is missing.
func TestSchemasTakeWhatIsWritten(t *testing.T) {
	for _, d := range described {
		s := compiled(t, d.name)
		v := reflect.New(reflect.TypeOf(d.v))
		for _, full := range []bool{false, true} {
			if full {
				example(v.Elem())
			} else {
				leanest(v.Elem())
			}
			data, err := json.Marshal(v.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if err := check(t, s, data); err != nil {
				t.Errorf("%s does not take %s: %v", d.name, data, err)
			}
			if !full {
				continue
			}
			var fields map[string]json.RawMessage
			var schema struct{ Required []string }
			if err := json.Unmarshal(data, &fields); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(Schema(d.name), &schema); err != nil {
				t.Fatal(err)
			}
			for name, was := range fields {
				fields[name] = json.RawMessage(`[0.5]`)
				if bad, _ := json.Marshal(fields); check(t, s, bad) == nil {
					t.Errorf("%s takes %s", d.name, bad)
				}
				delete(fields, name)
				without, _ := json.Marshal(fields)
				if got, want := check(t, s, without) == nil, !slices.Contains(schema.Required, name); got != want {
					t.Errorf("%s without %s: valid %t, want %t", d.name, name, got, want)
				}
				fields[name] = was
			}
		}
	}
}

// leanest sets what is never empty in what is written, and nothing else.
func leanest(v reflect.Value) {
	id := reflect.ValueOf(events.ID{1})
	for i := range v.NumField() {
		f, typ := v.Field(i), v.Type().Field(i)
		omitted := strings.Contains(typ.Tag.Get("json"), "omitempty")
		switch {
		case typ.Anonymous:
			leanest(f)
		case f.Type() == id.Type():
			f.Set(id)
		case f.Type() == reflect.PointerTo(id.Type()) && !omitted:
			f.Set(reflect.New(id.Type()))
			f.Elem().Set(id)
		case f.Kind() == reflect.Slice && !omitted:
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		case f.Type() == reflect.TypeFor[ChangeKind]():
			f.SetString(string(ChangeEnded))
		}
	}
}

func check(t *testing.T, s *validator.Schema, data []byte) error {
	t.Helper()
	v, err := validator.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

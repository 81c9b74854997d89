package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	patternID   = `^[0-7][0-9A-HJKMNP-TV-Z]{25}$`
	patternName = `^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`
	patternRef  = `^[a-z0-9-]+:[A-Za-z0-9._/@-]+$`
	patternTime = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$`
)

func enum[T ~string](all []T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range all {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// schemaOf generates the schema of the type's present payload.
func schemaOf(t testing.TB, typ Type) *jsonschema.Schema {
	t.Helper()
	r := &jsonschema.Reflector{
		Anonymous: true, DoNotReference: true, ExpandedStruct: true, AllowAdditionalProperties: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			switch t {
			case reflect.TypeFor[ID]():
				return &jsonschema.Schema{Type: "string", Pattern: patternID}
			case reflect.TypeFor[time.Time](), reflect.TypeFor[Moment]():
				return &jsonschema.Schema{Type: "string", Format: "date-time", Pattern: patternTime}
			case reflect.TypeFor[Scope]():
				return enum(allScopes)
			case reflect.TypeFor[Credentials]():
				return enum(allCredentials)
			case reflect.TypeFor[Rule]():
				return enum(allRules)
			case reflect.TypeFor[Because]():
				return enum(allBecause)
			case reflect.TypeFor[ReleaseCause]():
				return enum(allCauses)
			case reflect.TypeFor[Role]():
				return enum(allRoles)
			case reflect.TypeFor[SecretRef]():
				return &jsonschema.Schema{Type: "string", Pattern: patternRef}
			case reflect.TypeFor[uint64]():
				return &jsonschema.Schema{Type: "integer", Minimum: "0"}
			}
			return nil
		},
	}
	if err := r.AddGoComments("bindery/events", ".", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	for k, v := range r.CommentMap {
		r.CommentMap[k] = strings.Join(strings.Fields(v), " ")
	}
	s := r.Reflect(Known.New(typ))
	s.ID = jsonschema.ID("urn:bindery:event:" + typ.file())
	s.Title = typ.String()
	nameNames(typ, s)
	return s
}

// nameNames adds the form of names, which are plain strings in Go: fields called
// name or slot, the two of a renaming, and the keys of each map, which are slots.
func nameNames(typ Type, s *jsonschema.Schema) {
	if s.Properties == nil {
		return
	}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		renaming := typ.Name == "renamed" && (p.Key == "from" || p.Key == "to")
		if p.Key == "name" || p.Key == "slot" || renaming {
			p.Value.Pattern = patternName
		}
		if a := p.Value.AdditionalProperties; a != nil {
			p.Value.PropertyNames = &jsonschema.Schema{Pattern: patternName}
			nameNames(typ, a)
		}
		nameNames(typ, p.Value)
	}
}

func TestGeneratedSchemas(t *testing.T) {
	want := map[string]bool{}
	for _, typ := range Known.Types() {
		b, err := json.MarshalIndent(schemaOf(t, typ), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("schemas", typ.file()+".json")
		golden(t, file, append(b, '\n'))
		want[file] = true
		if !*update && len(Schema(typ)) == 0 {
			t.Errorf("%s: no schema is embedded", typ)
		}
	}
	files, _ := filepath.Glob("schemas/*")
	for _, file := range files {
		// The schema of an older version stays, as long as it can be read.
		typ, err := ParseType("bindery." + strings.TrimSuffix(filepath.Base(file), ".json"))
		if !want[file] && (err != nil || Known.byType[typ.String()] == nil) {
			t.Errorf("%s belongs to no type", file)
		}
	}
	if got := Schema(Type{EntityMesh, "exploded", 1}); got != nil {
		t.Errorf("schema of an unknown type: %s", got)
	}
}

func compiled(t *testing.T, typ Type) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(Schema(typ)))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	url := "urn:bindery:event:" + typ.file()
	if err := c.AddResource(url, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validates(t *testing.T, s *validator.Schema, payload []byte) error {
	t.Helper()
	v, err := validator.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

func TestSchemasTakeThePayloads(t *testing.T) {
	for _, p := range samples() {
		s := compiled(t, p.EventType())
		_, r := encoded(t, p)
		if err := validates(t, s, r.Data); err != nil {
			t.Errorf("%s: %v", p.EventType(), err)
		}
		more := withField(r.Data, `"added_later":{"x":[1]}`)
		if err := validates(t, s, more); err != nil {
			t.Errorf("%s with an unknown field: %v", p.EventType(), err)
		}
		for _, bad := range []string{`[]`, `null`, `"x"`} {
			if validates(t, s, []byte(bad)) == nil {
				t.Errorf("%s takes %s", p.EventType(), bad)
			}
		}
		// Without any one required field, and with each field of a wrong type.
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(r.Data, &fields); err != nil {
			t.Fatal(err)
		}
		var required struct{ Required []string }
		if err := json.Unmarshal(Schema(p.EventType()), &required); err != nil {
			t.Fatal(err)
		}
		for name, v := range fields {
			delete(fields, name)
			b, _ := json.Marshal(fields)
			if got, want := validates(t, s, b) == nil, !slices.Contains(required.Required, name); got != want {
				t.Errorf("%s without %s: valid %t, want %t", p.EventType(), name, got, want)
			}
			fields[name] = json.RawMessage(`[0.5]`)
			b, _ = json.Marshal(fields)
			if validates(t, s, b) == nil {
				t.Errorf("%s takes %s", p.EventType(), b)
			}
			fields[name] = v
		}
	}
}

func TestSchemasRefuse(t *testing.T) {
	id := testID(1).String()
	for _, tt := range []struct {
		p    Payload
		json string
	}{
		{&NodeRegistered{}, `{"name":"PG-A"}`},
		{&NodeRegistered{}, `{"name":"a-"}`},
		{&NodeRegistered{}, `{"name":""}`},
		{&NodeRenamed{}, `{"from":"a","to":"B"}`},
		{&AssignmentMoved{}, `{"from":"` + id + `","to":"` + strings.ToLower(id) + `"}`},
		{&AssignmentMoved{}, `{"from":"` + id + `","to":"8` + id[1:] + `"}`},
		{&AssignmentMoved{}, `{"from":"` + id + `","to":"` + id[1:] + `"}`},
		{&ProvisionDefined{}, `{"name":"a","scope":"global","credentials":"none"}`},
		{&ProvisionDefined{}, `{"name":"a","scope":"node","credentials":""}`},
		{&BindingReleased{}, `{"cause":"why not"}`},
		{&BindingBound{}, `{"assignment":"` + id + `","slot":"db","target":{"embedded":true},"rule":"guess"}`},
		{&BindingBound{}, `{"assignment":"` + id + `","slot":"db","target":{"provider":"x"},"rule":"drain"}`},
		{&BindingBound{}, `{"assignment":"` + id + `","slot":"db","target":{"embedded":true},"rule":"drain","basis":-1}`},
		{&BindingBound{}, `{"assignment":"` + id + `","slot":"db","target":{"embedded":true},"rule":"drain","basis":1.5}`},
		{&MeshClockStepped{}, `{"from":"2026-01-02T03:04:05Z","to":"2026-01-02T03:04:05.000Z"}`},
		{&MeshClockStepped{}, `{"from":"2026-13-02T03:04:05.000Z","to":"2026-01-02T03:04:05.000Z"}`},
		{&AssignmentCreated{}, `{"name":"a","module":"` + id + `","node":"` + id + `","slots":{"DB":"` + id + `"}}`},
		{&ModuleDeclared{}, `{"name":"a","requires":{"db":{}}}`},
		{&ModuleDeclared{}, `{"name":"a","embeds":{"db":{"provision":"` + id + `","because":"taste"}}}`},
	} {
		typ := tt.p.EventType()
		if validates(t, compiled(t, typ), []byte(tt.json)) == nil {
			t.Errorf("the schema of %s takes %s", typ.Short(), tt.json)
		}
		if _, _, err := Known.decode(typ.String(), []byte(tt.json)); err == nil {
			p, _, _ := Known.decode(typ.String(), []byte(tt.json))
			if p.Check() == nil {
				t.Errorf("Decode takes %s: %s", typ.Short(), tt.json)
			}
		}
	}
}

// withField adds a member to a JSON object.
func withField(object []byte, member string) []byte {
	if string(object) == "{}" {
		return []byte("{" + member + "}")
	}
	return append(bytes.TrimSuffix(bytes.Clone(object), []byte("}")), ","+member+"}"...)
}

func goldenFile(t Type) string { return filepath.Join("testdata", "golden", t.file()+".txt") }

// text writes a record as the golden files have it.
func text(r *Record) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "sequence: %d\nsubject: %s\n", r.Seq, r.Subject)
	for _, name := range sortedKeys(r.Header) {
		for _, v := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.Data)
	return b.Bytes()
}

// parseText is its inverse.
func parseText(t *testing.T, b []byte) Record {
	t.Helper()
	head, data, ok := strings.Cut(string(b), "\n\n")
	if !ok {
		t.Fatalf("no blank line in %q", b)
	}
	r := Record{Header: map[string][]string{}, Data: []byte(strings.TrimSuffix(data, "\n"))}
	for line := range strings.SplitSeq(head, "\n") {
		name, v, _ := strings.Cut(line, ": ")
		switch name {
		case "sequence":
			if _, err := fmt.Sscan(v, &r.Seq); err != nil {
				t.Fatal(err)
			}
		case "subject":
			r.Subject = v
		default:
			r.Header[name] = append(r.Header[name], v)
		}
	}
	return r
}

// What was written before a payload got further fields is read as it was.
func TestEventsOfBefore(t *testing.T) {
	for name, want := range map[string]Payload{
		"credential.issued.v1":  &CredentialIssued{Generation: 33, SecretRef: "sealed:pg-a/wiki-33"},
		"credential.failed.v1":  &CredentialFailed{Generation: 33, Attempts: 4},
		"credential.revoked.v1": &CredentialRevoked{Generation: 33, Forced: true},
	} {
		b, err := os.ReadFile("testdata/before/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		stored := parseText(t, b)
		got, err := Decode(&stored)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got.Data); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestGeneratedGolden(t *testing.T) {
	have := map[Type]bool{}
	for _, p := range samples() {
		have[p.EventType()] = true
		want, r := encoded(t, p)
		golden(t, goldenFile(p.EventType()), text(&r))

		b, err := os.ReadFile(goldenFile(p.EventType()))
		if err != nil {
			t.Fatal(err)
		}
		stored := parseText(t, b)
		got, err := Decode(&stored)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: decoded (-want +got):\n%s", p.EventType(), diff)
		}
		v := reflect.ValueOf(p).Elem()
		for i := range v.NumField() {
			if name := p.EventType().String() + " " + v.Type().Field(i).Name; v.Field(i).IsZero() && name != "bindery.credential.issued.v1 ByHand" { // not beside a maker
				t.Errorf("the sample of %s leaves %s empty", p.EventType(), v.Type().Field(i).Name)
			}
		}
	}
	for _, typ := range Known.Types() {
		if !have[typ] {
			t.Errorf("%s has no sample, and so no golden file", typ)
		}
	}
	// Whatever was once pinned must be readable for good, older versions too.
	files, _ := filepath.Glob("testdata/golden/*.txt")
	if len(files) < len(have) {
		t.Errorf("%d golden files, %d types", len(files), len(have))
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := parseText(t, b)
		if _, err := Decode(&r); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// What the two lists of names and the worked example say is part of the format.
func TestGeneratedReserved(t *testing.T) {
	golden(t, "testdata/reserved-names.v1.txt", []byte(strings.Join(ReservedNames(), "\n")+"\n"))
}

func TestDocExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	e, r := encoded(t, &MeshCreated{Name: testMesh})
	want := []string{r.Subject, string(r.Data), e.Chain.String()}
	for name, v := range r.Header {
		want = append(want, name+": "+v[0])
	}
	for _, s := range want {
		if !strings.Contains(string(doc), s) {
			t.Errorf("doc.go's example lacks %q", s)
		}
	}
}

const docsFile = "../docs/events.md"

func TestGeneratedDocs(t *testing.T) {
	const begin, end = "<!-- begin: go generate ./events -->\n", "<!-- end -->\n"
	old, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s: no %q … %q", docsFile, begin, end)
	}
	var b strings.Builder
	b.WriteString(head + begin)
	var entity Entity
	for _, p := range samples() { // in the order of reading
		typ := p.EventType()
		if typ.Entity != entity {
			entity = typ.Entity
			fmt.Fprintf(&b, "\n### %s\n", entity)
		}
		s := schemaOf(t, typ)
		_, what, _ := strings.Cut(s.Description, " ") // without the Go type's name
		fmt.Fprintf(&b, "\n**`%s`** (v%d) %s\n", typ.Short(), typ.Version, what)
		if s.Properties.Len() > 0 {
			b.WriteString("\n| field | type | | meaning |\n| --- | --- | --- | --- |\n")
			fieldRows(&b, "", s)
		}
	}
	b.WriteString("\n" + end + tail)
	golden(t, docsFile, []byte(b.String()))
}

func fieldRows(b *strings.Builder, prefix string, s *jsonschema.Schema) {
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		need := "optional"
		if slices.Contains(s.Required, p.Key) {
			need = "required"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", prefix, p.Key, typeInDocs(p.Value), need, p.Value.Description)
		if p.Value.Properties.Len() > 0 {
			fieldRows(b, prefix+p.Key+".", p.Value)
		}
		if a := p.Value.AdditionalProperties; a != nil && a.Properties.Len() > 0 {
			fieldRows(b, prefix+p.Key+".*.", a)
		}
	}
}

func typeInDocs(s *jsonschema.Schema) string {
	switch {
	case s.Pattern == patternID:
		return "id"
	case s.Pattern == patternName:
		return "name"
	case s.Pattern == patternTime:
		return "time"
	case len(s.Enum) > 0:
		all := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			all[i] = fmt.Sprintf("`%s`", v)
		}
		return strings.Join(all, ", ")
	case s.Items != nil:
		return "list of " + typeInDocs(s.Items)
	case s.AdditionalProperties != nil:
		return "slot → " + typeInDocs(s.AdditionalProperties)
	}
	return s.Type
}

package events

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func clone(r Record) Record {
	r.Header = maps.Clone(r.Header)
	r.Data = slices.Clone(r.Data)
	return r
}

func boundSample() *BindingBound {
	return &BindingBound{Assignment: assignmentID, Slot: "db", Target: Target{Provider: providerID}, Rule: RuleNodeDefault, Basis: 7}
}

func TestDecodeRefuses(t *testing.T) {
	_, good := encoded(t, &OverrideCleared{Binding: bindingID}) // with a reason and percent escapes
	if _, err := Decode(&good); err != nil {
		t.Fatal(err)
	}
	id, zero := testID(1).String(), strings.Repeat("0", 26)
	badIDs := []string{strings.ToLower(id), id[1:], id + "0", "8" + id[1:], "I" + id[1:], id[:25] + "U", id[:25] + "*", zero, "x"}
	badText := []string{"%", "%4", "%zz", "%c3%ab", "%C3%AB%", "%41", "%C3", "%C0%A0", "a b", `a"b`, "Zoë", "a\tb",
		"%0A", "%00", "%7F", "%C2%85", "%EF%BF%BE", "%EF%B7%90", strings.Repeat("x", MaxReason+1)}
	for name, values := range map[string][]string{
		hSpecVersion: {"0.3", "1", "1.0.2", "v1.0"},
		hType: {"bindery.override.set.v1", "bindery.mesh.created.v1", "override.cleared.v1", "bindery.override.cleared", "bindery.override.cleared.1",
			"bindery.override.cleared.v0", "bindery.override.cleared.v01", "bindery.override.cleared.v+1", "bindery.override.cleared.v",
			"bindery.override.cleared.v-1", "bindery.override.cleared.v1.0", "Bindery.override.cleared.v1", "bindery.override.cleared.v1 "},
		hSource:      append([]string{id, "bindery/" + id, "/bindery/", "/bindery", "/bindery/" + id + "/", "/Bindery/" + id}, prefixed("/bindery/", badIDs)...),
		hID:          badIDs,
		hCommand:     badIDs,
		hCommandHash: {"c0ffee", "C0FFEE00000000000000000000000001", "c0ffee0000000000000000000000000g", "c0ffee000000000000000000000000011"},
		hTime: {"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.67Z", "2026-01-02T03:04:05.6789Z", "2026-01-02T03:04:05,678Z",
			"2026-01-02t03:04:05.678Z", "2026-01-02 03:04:05.678Z", "2026-01-02T03:04:05.678z", "2026-01-02T03:04:05.678",
			"2026-01-02T03:04:05.678+00:00", "2026-01-02T04:04:05.678+01:00", "2026-02-30T03:04:05.678Z", "2026-13-02T03:04:05.678Z",
			"2026-01-02T24:00:00.000Z", "2026-01-02T03:04:60.000Z", "2026-01-02T3:04:05.6780Z", "12026-01-02T03:04:05.678Z", "1767323045678", "now"},
		hActor:  append(badText, strings.Repeat("x", MaxActor+1)),
		hReason: badText,
		hOrigin: {"Command", "command ", "api", "manifest,command"},
		hBatch: {"0/1", "2/1", "01/2", "1/02", "1", "1/", "/1", "1/1/1", "+1/1", "1/+1", "-1/1", "1 / 2", "1/0", "0/0", "a/b",
			"1/99999999999999999999", "1,1"},
		hChain: {"00", strings.Repeat("A", 64), strings.Repeat("g", 64), strings.Repeat("0", 63), strings.Repeat("0", 65)},
	} {
		set := func(v ...string) {
			t.Helper()
			r := clone(good)
			if r.Header[name] = v; v == nil {
				delete(r.Header, name)
			}
			if e, err := Decode(&r); err == nil {
				t.Errorf("%s: %q is taken: %+v", name, v, e)
			} else if !strings.HasPrefix(err.Error(), "event 2: ") {
				t.Errorf("%s: %q: the error does not say which event: %v", name, v, err)
			}
		}
		if name != hReason {
			set()
		}
		set([]string{}...)
		set("")
		set(good.Header[name][0], good.Header[name][0])
		set(good.Header[name][0] + " ")
		set(" " + good.Header[name][0])
		for _, v := range values {
			set(v)
		}
	}
	entity := overrideID.String()
	for _, subject := range []string{
		"", "bindery", "bindery.demo.override." + entity, "bindery.demo.override." + entity + ".cleared.x", ".demo.override." + entity + ".cleared",
		"bindery..override." + entity + ".cleared", "bindery.demo.override." + entity + ".", "Bindery.demo.override." + entity + ".cleared",
		"bindery-req.demo.override." + entity + ".cleared", "bindery.Demo.override." + entity + ".cleared", "bindery.all.override." + entity + ".cleared",
		"bindery.demo.override." + strings.ToLower(entity) + ".cleared", "bindery.demo.override." + zero + ".cleared",
		"bindery.demo.binding." + entity + ".cleared", "bindery.demo.override." + entity + ".set", "bindery.demo.override." + entity + ".Cleared",
		"bindery.demo.override.cleared." + entity,
	} {
		r := clone(good)
		r.Subject = subject
		if _, err := Decode(&r); err == nil {
			t.Errorf("subject %q is taken", subject)
		}
	}
	for _, data := range []string{"", "null", "[]", "{", `{"binding":""}`, `{"binding":7}`, `{}`, `{"binding":null}`, `{"binding":"` + zero + `"}`,
		string(good.Data) + "{}", string(good.Data) + "x", `{"binding":"` + strings.ToLower(id) + `"}`,
		string(withField(good.Data, `"note":"`+"\xff"+`"`))} {
		r := clone(good)
		r.Data = []byte(data)
		if _, err := Decode(&r); err == nil {
			t.Errorf("payload %q is taken", data)
		}
	}
}

func prefixed(p string, list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = p + s
	}
	return out
}

// What every event says about the mesh has to agree with itself.
func TestDecodeRefusesForeignMesh(t *testing.T) {
	_, created := encoded(t, &MeshCreated{Name: testMesh})
	for what, change := range map[string]func(*Record){
		"another sequence":  func(r *Record) { r.Seq = 2 },
		"another name":      func(r *Record) { r.Data = []byte(`{"name":"other"}`) },
		"another mesh name": func(r *Record) { r.Subject = strings.Replace(r.Subject, testMesh, "other", 1) },
		"another entity":    func(r *Record) { r.Subject = strings.Replace(r.Subject, meshID.String(), nodeID.String(), 1) },
		"another source":    func(r *Record) { r.Header[hSource] = []string{sourcePrefix + nodeID.String()} },
	} {
		r := clone(created)
		change(&r)
		if _, err := Decode(&r); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

func TestDecodeUnknownType(t *testing.T) {
	_, r := encoded(t, boundSample())
	for _, typ := range []string{"bindery.binding.bound.v2", "bindery.binding.frozen.v1", "bindery.vault.opened.v1"} {
		r := clone(r)
		r.Header[hType] = []string{typ}
		_, err := Decode(&r)
		var unknown *UnknownTypeError
		if !errors.As(err, &unknown) || unknown.Type != typ {
			t.Errorf("%s: %v, want an UnknownTypeError", typ, err)
		}
	}
}

// A newer program's additions are let pass and stay what they are.
func TestDecodeLetsPassUnknown(t *testing.T) {
	want, r := encoded(t, boundSample())
	r.Data = withField(r.Data, `"added_later":{"x":[1,2,"drei"]}`)
	r.Header["ce-traceparent"] = []string{"00-4bf92f35-01"}
	r.Header["Nats-Msg-Id"] = []string{"x"}
	bytes := string(r.Data)
	got, err := Decode(&r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if string(r.Data) != bytes {
		t.Error("the stored bytes have changed")
	}
}

func TestEncodeRefuses(t *testing.T) {
	for what, change := range map[string]func(*Event){
		"no payload":         func(e *Event) { e.Data = nil },
		"another type":       func(e *Event) { e.Type.Name = "rebound" },
		"another version":    func(e *Event) { e.Type.Version = 2 },
		"no sequence":        func(e *Event) { e.Seq = 0 },
		"no id":              func(e *Event) { e.ID = ID{} },
		"no mesh":            func(e *Event) { e.Mesh = ID{} },
		"no entity":          func(e *Event) { e.Entity = ID{} },
		"no command":         func(e *Event) { e.Command = ID{} },
		"no actor":           func(e *Event) { e.Actor = "" },
		"actor in Latin-1":   func(e *Event) { e.Actor = "Zo\xeb" },
		"actor too long":     func(e *Event) { e.Actor = strings.Repeat("a", MaxActor+1) },
		"actor of two lines": func(e *Event) { e.Actor = "a\nb" },
		"no origin":          func(e *Event) { e.Origin = "" },
		"batch 0/1":          func(e *Event) { e.K = 0 },
		"batch 4/3":          func(e *Event) { e.K = 4 },
		"reason too long":    func(e *Event) { e.Reason = strings.Repeat("a", MaxReason+1) },
		"reason in Latin-1":  func(e *Event) { e.Reason = "\xfcber" },
		"reason of controls": func(e *Event) { e.Reason = "\x1b[2J" },
		"mesh name":          func(e *Event) { e.MeshName = "Demo" },
		"no time":            func(e *Event) { e.Time = time.Time{} },
		"microseconds":       func(e *Event) { e.Time = e.Time.Add(time.Microsecond) },
		"the year 10000":     func(e *Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"payload":            func(e *Event) { e.Data = &BindingBound{} },
	} {
		e := sample(boundSample())
		change(&e)
		if _, err := e.Encode(Chain{}); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	e := sample(boundSample())
	e.Reason = "set PGPASSWORD=hunter2hunter2 first"
	if _, err := e.Encode(Chain{}); !errors.Is(err, ErrSecret) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret in the reason: %v", err)
	}
	big := &ModuleDeclared{Name: "big", Requires: map[string]Requirement{}}
	for i := range MaxSlots {
		f := make([]string, MaxFeatures)
		for j := range f {
			f[j] = strings.Repeat("f", 60) + string(rune('a'+j/26)) + string(rune('a'+j%26))
		}
		big.Requires["s"+strings.Repeat("x", i%50)+string(rune('a'+i/50))] = Requirement{Provision: provisionID, Features: f}
	}
	e = sample(big)
	if _, err := e.Encode(Chain{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a payload beyond MaxPayload: %v", err)
	}
}

func TestEncodeNormalisesTheZone(t *testing.T) {
	e := sample(boundSample())
	e.Time = e.Time.In(time.FixedZone("", 3600))
	r, err := e.Encode(Chain{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(&r)
	if err != nil || got.Time != e.Time {
		t.Errorf("decoded %v (%v), encoded %v", got.Time, err, e.Time)
	}
}

// Two payloads that are refused by their Check, and one that must not be.
func TestProviderUpdated(t *testing.T) {
	var none []string
	if (&ProviderUpdated{}).Check() == nil || (&ProviderUpdated{Features: &none}).Check() == nil {
		t.Error("an update of nothing is taken")
	}
	if err := (&ProviderUpdated{Version: ptr(""), Features: ptr(SortFeatures(nil))}).Check(); err != nil {
		t.Errorf("emptying version and features: %v", err)
	}
	e := sample(&ProviderUpdated{Features: ptr(SortFeatures(nil))})
	r, err := e.Encode(Chain{})
	if err != nil || string(r.Data) != `{"features":[]}` {
		t.Errorf("%s, %v", r.Data, err)
	}
}

// The same bad payload gives the same answer each time, whatever the order of a map.
func TestCheckIsDeterministic(t *testing.T) {
	p := &AssignmentCreated{Name: "a", Module: moduleID, Node: nodeID, Slots: map[string]ID{"A": {}, "B": {}, "c": {}, "d": {}}}
	m := &ModuleDeclared{Name: "m", Requires: map[string]Requirement{"a": {}, "B": {}, "c": {}}}
	first, second := p.Check().Error(), m.Check().Error()
	for range 50 {
		if p.Check().Error() != first || m.Check().Error() != second {
			t.Fatal("another answer")
		}
	}
}

// drawn fills v with what its fields are for, now and then with something else.
func drawn(t *rapid.T, v reflect.Value, field string, optional bool) {
	id := rapid.Custom(func(t *rapid.T) ID { return testID(rapid.Uint64Range(0, 1<<40).Draw(t, "id")) })
	text := func(good ...string) string {
		if rapid.IntRange(0, 29).Draw(t, "odd") == 0 {
			return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"all", "a-", "\xff", "\u2028<>&", "é"})).Draw(t, field)
		}
		return rapid.SampledFrom(good).Draw(t, field)
	}
	if optional && rapid.Bool().Draw(t, field+" absent") {
		return
	}
	switch v.Interface().(type) {
	case ID:
		v.Set(reflect.ValueOf(id.Draw(t, field)))
		return
	case time.Time, Moment:
		ms := rapid.Int64Range(-62167219200000, 253402300799999).Draw(t, field)
		v.Set(reflect.ValueOf(time.UnixMilli(ms).UTC()).Convert(v.Type()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			drawn(t, v.Field(i), name, rest != "")
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		drawn(t, v.Elem(), field, false)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 4).Draw(t, field) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			k.SetString(text("db", "files", "queue", "search"))
			drawn(t, e, field, false)
			v.SetMapIndex(k, e)
		}
	case reflect.Slice:
		v.Set(reflect.ValueOf(rapid.SampledFrom([][]string{nil, {}, {"pgvector"}, {"a.b", "c_d"}, {"b", "a"}}).Draw(t, field)))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, field))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, field))
	case reflect.String:
		switch v.Interface().(type) {
		case Rule:
			v.SetString(text("override", "drain", "embedded"))
		case Scope:
			v.SetString(text("node", "mesh"))
		case Credentials:
			v.SetString(text("managed", "none"))
		case Because:
			v.SetString(text("fork", "version"))
		case Role:
			v.SetString(text("operator", "agent", "auditor"))
		case SecretRef:
			v.SetString(text("file:/a", "sealed:pg-a/wiki-7"))
		case ReleaseCause:
			v.SetString(text("ended", "pruned"))
		default:
			switch field {
			case "endpoint", "from_endpoint":
				v.SetString(text("pg:5432", "https://x.example/y", "[::1]:1"))
			case "version":
				v.SetString(text("16", "16.4.1"))
			case "nkey":
				v.SetString(text("U" + strings.Repeat("B", 55)))
			case "anchor_chain":
				v.SetString(text(strings.Repeat("0f", 32)))
			default:
				v.SetString(text("pg-a", "wiki", "n1"))
			}
		}
	default:
		t.Fatalf("no generator for %s", v.Type())
	}
}

func drawEvent(t *rapid.T) Event {
	p := Known.New(rapid.SampledFrom(Known.Types()).Draw(t, "type"))
	drawn(t, reflect.ValueOf(p).Elem(), "", false)
	e := sample(p)
	e.Time = time.UnixMilli(rapid.Int64Range(-62135596799999, 253402300799999).Draw(t, "time"))
	e.Actor = rapid.OneOf(rapid.Just("alice"), rapid.String()).Draw(t, "actor")
	e.Reason = rapid.OneOf(rapid.Just(""), rapid.StringN(0, 50, -1), rapid.SampledFrom([]string{"100 %", "ü\u2028", "\"<>\""})).Draw(t, "reason")
	e.N = rapid.IntRange(1, 1000).Draw(t, "n")
	e.K = rapid.IntRange(0, e.N).Draw(t, "k")
	if _, first := p.(*MeshCreated); !first {
		e.Seq = rapid.Uint64Min(2).Draw(t, "seq")
	}
	return e
}

// What Encode takes, Decode gives back; Encode takes nothing else.
func TestRoundTrip(t *testing.T) {
	taken, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		all++
		prev := Chain(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "prev"))
		r, err := e.Encode(prev)
		if err != nil {
			return
		}
		taken++
		got, err := Decode(&r)
		if err != nil {
			t.Fatalf("%v\n%s", err, text(&r))
		}
		// An empty list or map and none are one and the same, except behind a pointer.
		if diff := cmp.Diff(e, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-encoded +decoded):\n%s", diff)
		}
		if c, err := Verify(prev, e.Mesh, &r); err != nil || c != e.Chain || got.Chain != c {
			t.Fatalf("verified as %v (%v), encoded as %v, decoded as %v", c, err, e.Chain, got.Chain)
		}
		again := got
		r2, err := again.Encode(prev)
		if err != nil || string(text(&r)) != string(text(&r2)) {
			t.Fatalf("encoded again (%v):\n%s\nat first:\n%s", err, text(&r2), text(&r))
		}
		if !json.Valid(r.Data) {
			t.Fatalf("payload %q", r.Data)
		}
	})
	if !t.Failed() && taken < all/5 {
		t.Errorf("only %d of %d generated events are valid: the test shows little", taken, all)
	}
}

package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"bindery/events"
)

// full has every key once.
const full = `mesh: home
provisions:
  postgres-database: {scope: node}
  mesh-ca: {scope: mesh, credentials: none}
nodes: [alpha, beta]
providers:
  pg-alpha: {provision: postgres-database, node: alpha, endpoint: "alpha.mesh:5432", version: "16.4", features: [pgvector, hstore]}
  pg-beta: {provision: postgres-database, node: beta, endpoint: "beta.mesh:5432", cordoned: true, features: []}
defaults:
  - {provision: oidc, provider: keycloak-alpha}
  - {provision: oidc, provider: keycloak-beta, node: beta}
modules:
  nextcloud:
    requires:
      db: {provision: postgres-database, version: ">=14"}
      sso: {provision: oidc, provider: keycloak-alpha}
      mail: {provision: smtp, optional: true, features: [starttls]}
      cache: redis
      files: "s3-bucket:>=2 <3"
    embeds:
      vectors: {provision: postgres-database, version: "14", because: extension, needs: {features: [vchord], version: ">=14"}, replaceable: false,
                composition: {file: compose.yaml, service: db}}
  wiki: {}
assignments:
  nextcloud: {node: alpha, bind: {}}
  wiki-beta: {module: wiki, node: beta, bind: {db: pg-beta}}
overrides:
  - {slot: wiki-beta/db, provider: pg-alpha, reason: "beta's disk is being replaced"}
`

var fullManifest = &Manifest{
	Mesh:       "home",
	Provisions: map[string]Provision{"postgres-database": {Scope: "node"}, "mesh-ca": {Scope: "mesh", Credentials: "none"}},
	Nodes:      []string{"alpha", "beta"},
	Providers: map[string]Provider{
		"pg-alpha": {Provision: "postgres-database", Node: "alpha", Endpoint: "alpha.mesh:5432", Version: "16.4", Features: []string{"hstore", "pgvector"}},
		"pg-beta":  {Provision: "postgres-database", Node: "beta", Endpoint: "beta.mesh:5432", Cordoned: true, Features: []string{}},
	},
	Defaults: []Default{{Provision: "oidc", Provider: "keycloak-alpha"}, {Provision: "oidc", Provider: "keycloak-beta", Node: "beta"}},
	Modules: map[string]Module{
		"nextcloud": {
			Requires: map[string]Requirement{
				"db":    {Provision: "postgres-database", Version: ">=14"},
				"sso":   {Provision: "oidc", Provider: "keycloak-alpha"},
				"mail":  {Provision: "smtp", Optional: true, Features: []string{"starttls"}},
				"cache": {Provision: "redis"},
				"files": {Provision: "s3-bucket", Version: ">=2 <3"},
			},
			Embeds: map[string]Embed{
				"vectors": {
					Provision: "postgres-database", Version: "14", Because: "extension",
					Needs:       &Needs{Version: ">=14", Features: []string{"vchord"}},
					Composition: &Composition{File: "compose.yaml", Service: "db"},
				},
			},
		},
		"wiki": {},
	},
	Assignments: map[string]Assignment{
		"nextcloud": {Node: "alpha", Bind: map[string]string{}},
		"wiki-beta": {Module: "wiki", Node: "beta", Bind: map[string]string{"db": "pg-beta"}},
	},
	Overrides: []Override{{Slot: "wiki-beta/db", Provider: "pg-alpha", Reason: "beta's disk is being replaced"}},
}

func TestDecode(t *testing.T) {
	m, err := Decode("fleet.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullManifest, m, sameManifest); diff != "" {
		t.Error(diff)
	}
	for _, c := range [][3]string{
		{"mesh", "", "fleet.yaml:1:7"},
		{"nodes", "beta", "fleet.yaml:5:16"},
		{"provisions", "mesh-ca", "fleet.yaml:4:3"},
		{"provisions", "mesh-ca.credentials", "fleet.yaml:4:26"},
		{"providers", "pg-alpha", "fleet.yaml:7:3"},
		{"providers", "pg-alpha.node", "fleet.yaml:7:44"},
		{"providers", "pg-beta.version", "fleet.yaml:8:3"}, // not said: the object
		{"defaults", "oidc", "fleet.yaml:10:5"},
		{"defaults", "oidc@beta", "fleet.yaml:11:5"},
		{"modules", "nextcloud", "fleet.yaml:13:3"},
		{"modules", "nextcloud/db", "fleet.yaml:15:7"},
		{"modules", "nextcloud/db.version", "fleet.yaml:15:42"},
		{"modules", "nextcloud/vectors.replaceable", "fleet.yaml:21:128"},
		{"assignments", "wiki-beta", "fleet.yaml:26:3"},
		{"assignments", "wiki-beta/db", "fleet.yaml:26:48"},
		{"overrides", "wiki-beta/db", "fleet.yaml:28:5"},
		{"overrides", "wiki-beta/db.provider", "fleet.yaml:28:26"},
		{"providers", "pg-gamma", ""},
	} {
		if got := m.Position(c[0], c[1]); got != c[2] {
			t.Errorf("Position(%q, %q) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
	if got := (&Manifest{}).Position("mesh", ""); got != "" {
		t.Errorf("Position without a text = %q", got)
	}
}

// TestPresence holds what is not said apart from what is said to be empty, in
// JSON and in YAML.
func TestPresence(t *testing.T) {
	for _, in := range []string{
		`{}`,
		`{"provisions":{},"nodes":[],"providers":{},"defaults":[],"modules":{},"assignments":{},"overrides":[]}`,
		`{"modules":{"m":{}}}`,
		`{"modules":{"m":{"requires":{},"embeds":{}}}}`,
		`{"modules":{"m":{"requires":{"s":{"provision":"p"}}}}}`,
		`{"modules":{"m":{"requires":{"s":{"provision":"p","features":[]}}}}}`,
		`{"modules":{"m":{"embeds":{"s":{"provision":"p","because":"fork","needs":{}}}}}}`,
		`{"modules":{"m":{"embeds":{"s":{"provision":"p","features":[],"because":"fork","needs":{"features":[]}}}}}}`,
		`{"assignments":{"a":{"node":"n"}}}`,
		`{"assignments":{"a":{"node":"n","bind":{}}}}`,
	} {
		m, err := Decode("f", []byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if out, _ := json.Marshal(m); string(out) != in {
			t.Errorf("JSON of %s is %s", in, out)
		}
		out, _ := Encode(m)
		again, err := Decode("f", out)
		if diff := cmp.Diff(m, again, sameManifest); err != nil || diff != "" {
			t.Errorf("%s as YAML: %v %s\n%s", in, err, diff, out)
		}
	}
}

// TestEqual reads texts that say the same.
func TestEqual(t *testing.T) {
	for _, c := range [][2]string{
		{"modules: {m: {requires: {db: 'pg:>=14'}}}", "modules: {m: {requires: {db: pg:>=14}}}"},
		{"modules: {m: {requires: {db: 'pg:>=14'}}}", "modules: {m: {requires: {db: {provision: pg, version: '>=14'}}}}"},
		{"modules: {m: {requires: {db: {provision: pg, optional: false}}}}", "modules: {m: {requires: {db: pg}}}"},
		{"modules: {m: {embeds: {db: {provision: pg, because: fork, replaceable: false}}}}", "modules: {m: {embeds: {db: {provision: pg, because: fork}}}}"},
		{"nodes: [a, b]", "nodes:\n- a\n- 'b'\n"},
		{"nodes: [a, b]", "\ufeff---\r\nnodes:\r\n  - a\r\n  - \"b\" # b\r\n...\r\n"},
		{"nodes: [a, b]", "{\n\t\"nodes\": [\n\t\t\"a\",\n\t\t\"\\u0062\"\n\t]\n}\n"},
		{"mesh: home", "? mesh\n: home\n"},
		{"mesh: home", "mesh: !!str home\n"},
		{"mesh: home", "<<: {mesh: home}\n"},
		{"providers: {a: {provision: p, node: n, endpoint: 'h:1', version: '1', features: [x, y]}, b: {provision: p, node: m, endpoint: 'h:1', version: '1', features: [x, y]}}",
			"providers:\n  a: &a {provision: p, node: n, endpoint: 'h:1', version: !!str 1, features: [y, x]}\n  b:\n    <<: *a\n    node: m\n"},
		{"providers: {a: {provision: p, node: n, endpoint: 'h:1'}, b: {provision: p, node: n, endpoint: 'i:2'}, c: {provision: p, node: n, endpoint: 'i:2'}}",
			"providers:\n  a: &a {provision: p, node: n, endpoint: 'h:1'}\n  b: &b {<<: *a, endpoint: 'i:2'}\n  c: {<<: [*b, *a]}\n"},
		{"overrides: [{slot: a/b, provider: p, reason: 'one two'}]", "overrides:\n- slot: a/b\n  provider: p\n  reason: >-\n    one\n    two\n"},
		{"overrides: [{slot: a/b, provider: p, reason: \"one\\ntwo\\n\"}]", "overrides:\n- slot: a/b\n  provider: p\n  reason: |\n    one\n    two\n"},
	} {
		a, err1 := Decode("a", []byte(c[0]))
		b, err2 := Decode("b", []byte(c[1]))
		if diff := cmp.Diff(a, b, sameManifest); err1 != nil || err2 != nil || diff != "" {
			t.Errorf("%q\n%q\n%v %v %s", c[0], c[1], err1, err2, diff)
		}
	}
}

func TestErrors(t *testing.T) {
	_, err := Decode("f", []byte("nodez: 1\nmesh: A\n"))
	var e *Error
	if !errors.As(err, &e) || e.Line != 1 || e.Suggest[0] != "nodes" {
		t.Errorf("errors.As gives %#v", e)
	}
	if want := "f:1:1: unknown key \"nodez\" in the manifest; the nearest is \"nodes\"\nf:2:7: mesh: " + events.CheckName("A").Error(); err.Error() != want {
		t.Errorf("Error() = %q, want %q", err, want)
	}
}

func TestSlots(t *testing.T) {
	text := func(n int) []byte {
		var b strings.Builder
		b.WriteString("modules:\n  m:\n    requires:\n")
		for i := range n {
			b.WriteString("      s" + strings.Repeat("x", i/10) + string(rune('a'+i%10)) + ": p\n")
		}
		return []byte(b.String())
	}
	if _, err := Decode("f", text(events.MaxSlots)); err != nil {
		t.Error(err)
	}
	_, err := Decode("f", text(events.MaxSlots+1))
	if want := "f:104:7: module m has more than 100 slots"; err == nil || err.Error() != want || err.(Errors)[0].Code != CodeTooLarge {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestReasonLength(t *testing.T) {
	text := func(n int) []byte {
		return []byte("overrides: [{slot: a/b, provider: p, reason: " + strings.Repeat("x", n) + "}]")
	}
	if _, err := Decode("f", text(events.MaxReason)); err != nil {
		t.Error(err)
	}
	_, err := Decode("f", text(events.MaxReason+1))
	if want := "f:1:46: reason of an override is 1025 bytes long; at most 1024 are allowed"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestDecodeModule(t *testing.T) {
	name, m, err := DecodeModule("f", []byte("mesh: home\nmodules:\n  wiki:\n    requires: {db: pg}\n"))
	if want := (Module{Requires: map[string]Requirement{"db": {Provision: "pg"}}}); err != nil || name != "wiki" || !cmp.Equal(m, want) {
		t.Errorf("%q %v %v", name, m, err)
	}
	var b bytes.Buffer
	for _, in := range []string{
		"", "mesh: home\n", "modules: {}\n", "modules: {a: {}, b: {}}\n", "mesh: home\nnodes: [a]\nmodules: {a: {}}\n",
		"modulse: {a: {}}\n", "requires: {db: pg}\n", "modules: {A: {}}\n", "modules: {a: {requires: {db: {}}}}\n",
	} {
		name, m, err := DecodeModule("f", []byte(in))
		if err == nil || name != "" || m.Requires != nil {
			t.Errorf("%q: %q %v %v", in, name, m, err)
			continue
		}
		writeErrors(&b, in, err)
	}
	golden(t, "testdata/declarations.txt", b.Bytes())
}

func TestParseRequires(t *testing.T) {
	for in, want := range map[string]Requirement{
		"db=pg":            {Provision: "pg"},
		"db=pg:>=14":       {Provision: "pg", Version: ">=14"},
		"db=pg:>=14 <17":   {Provision: "pg", Version: ">=14 <17"},
		"db=pg:=14":        {Provision: "pg", Version: "=14"},
		"db=pg:^8 || ^9.0": {Provision: "pg", Version: "^8 || ^9.0"},
	} {
		slot, r, err := ParseRequires(in)
		if err != nil || slot != "db" || !cmp.Equal(r, want) {
			t.Errorf("%s: %q %v %v", in, slot, r, err)
		}
	}
	var b bytes.Buffer
	for _, in := range []string{
		"", "db", "db=", "=pg", "DB=pg", "db=PG", "db=pg:", "db=pg:new", "db=all", "db=postgres://u:hunter22@h/x", "db=:14", "D=P:x",
		strings.Repeat("x", 1<<17), "x=" + strings.Repeat("x", 1<<17),
	} {
		slot, _, err := ParseRequires(in)
		if err == nil || slot != "" || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %q %v", in, slot, err)
			continue
		}
		writeErrors(&b, plain(in), err)
	}
	golden(t, "testdata/requires.txt", b.Bytes())
}

func TestLoad(t *testing.T) {
	file, err := filepath.Abs("testdata/load.txt")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	write("fleet/20-apps.yml", "mesh: home\nmodules: {wiki: {requires: {db: pg}}}\nassignments: {wiki: {node: alpha}}\nnodes: [beta]\n")
	write("fleet/10-servers.yaml", "mesh: home\nnodes: [alpha]\nprovisions: {pg: {scope: node}}\n")
	write("fleet/30.json", `{"providers": {"pg-a": {"provision": "pg", "node": "alpha", "endpoint": "h:1"}}}`)
	write("fleet/README.md", "nodez")
	write("fleet/.#10-servers.yaml", "nodez")
	write("fleet/below.yaml/x.yaml", "nodez: 1")
	if err := os.Symlink("20-apps.yml", "fleet/25.txt"); err != nil {
		t.Fatal(err)
	}
	want := &Manifest{
		Mesh: "home", Nodes: []string{"alpha", "beta"}, Provisions: map[string]Provision{"pg": {Scope: "node"}},
		Modules:     map[string]Module{"wiki": {Requires: map[string]Requirement{"db": {Provision: "pg"}}}},
		Assignments: map[string]Assignment{"wiki": {Node: "alpha"}},
		Providers:   map[string]Provider{"pg-a": {Provision: "pg", Node: "alpha", Endpoint: "h:1"}},
	}
	m, err := Load("fleet", nil)
	if diff := cmp.Diff(want, m, sameManifest); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if got := m.Position("assignments", "wiki"); got != "fleet/20-apps.yml:3:15" {
		t.Error(got)
	}
	if m, err := Load("-", strings.NewReader("mesh: home\n")); err != nil || m.Mesh != "home" {
		t.Error(m, err)
	}
	if m, err := Load("fleet/10-servers.yaml", nil); err != nil || m.Mesh != "home" {
		t.Error(m, err)
	}

	write("twice/a.yaml", "mesh: home\nnodes: [n, m]\nprovisions: {pg: {scope: node}}\nproviders: {p: {provision: pg, node: n, endpoint: 'h:1'}}\ndefaults: [{provision: pg, provider: p}]\noverrides: [{slot: a/b, provider: p, reason: x}]\nmodules: {m: {}}\nassignments: {m: {node: n}}\n")
	write("twice/b.yaml", "mesh: away\nnodes: [x, n]\nprovisions: {pg: {scope: node}}\nproviders: {p: {provision: pg, node: n, endpoint: 'h:1'}}\ndefaults: [{provision: pg, provider: q}]\noverrides: [{slot: a/b, provider: p, reason: x}]\nmodules: {m: {}}\nassignments: {m: {node: n}}\n")
	write("none/x.txt", "")
	write("bad/a.yaml", "nodes: [a\n")
	write("bad/b.yaml", "")
	write("bad/c.yaml", "nodez: 1\n")
	write("large.yaml", strings.Repeat("#", MaxFile+1))
	write("nodes/a.yaml", "nodes: ["+strings.Repeat("a, ", 60_000)+"]")
	write("nodes/b.yaml", "nodes: ["+strings.Repeat("a, ", 60_000)+"]")
	if err := os.Symlink("nowhere", "bad/d.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop.yaml", "loop.yaml"); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, path := range []string{"twice", "none", "bad", "missing.yaml", "large.yaml", "loop.yaml", "fleet/10-servers.yaml/x", "-"} {
		m, err := Load(path, strings.NewReader(""))
		if err == nil || m != nil {
			t.Errorf("%s: %v %v", path, m, err)
			continue
		}
		writeErrors(&b, path, err)
	}
	_, _, err = Read("fleet", nil)
	writeErrors(&b, "Read of a directory", err)
	_, err = Load("-", io.MultiReader(strings.NewReader("mesh: home\n"), brokenReader{}))
	writeErrors(&b, "a reader that fails", err)
	_, err = Load("-", nil)
	writeErrors(&b, "no standard input", err)

	if _, err := Load("nodes", nil); err == nil || err.(Errors)[len(err.(Errors))-1].Code != CodeDuplicateNode {
		t.Error(err)
	}
	golden(t, file, b.Bytes())
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the pipe broke") }

func TestEncode(t *testing.T) {
	m, _ := fleet(t)
	out, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/fleet.yaml", out)
	again, err := Decode("f", out)
	if diff := cmp.Diff(m, again, sameManifest); err != nil || diff != "" {
		t.Error(err, diff)
	}
	third, err := Encode(again)
	if err != nil || !bytes.Equal(out, third) {
		t.Errorf("%v: encoding what was decoded gives another text", err)
	}
}

// TestRoundTrip: any manifest that Decode can return is written and read back
// the same, as YAML and as JSON.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyManifest(t)
		for name, encode := range map[string]func() ([]byte, error){
			"YAML": func() ([]byte, error) { return Encode(m) },
			"JSON": func() ([]byte, error) { return json.Marshal(m) },
		} {
			out, err := encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Decode("f", out)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			if diff := cmp.Diff(m, again, sameManifest); diff != "" {
				t.Fatalf("%s: %s\n%s", name, diff, out)
			}
			var parsed Manifest
			if name == "JSON" {
				if err := json.Unmarshal(out, &parsed); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(m, &parsed, sameManifest); diff != "" {
					t.Fatalf("json.Unmarshal: %s\n%s", diff, out)
				}
			}
		}
	})
}

func anyManifest(t *rapid.T) *Manifest {
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"true", "null", "yes", "no", "on", "off", "y", "n", "e1", "inf", "nan", "nil", "false"}),
		rapid.StringMatching(`[a-z]([a-z0-9-]{0,8}[a-z0-9])?`),
	).Filter(func(s string) bool { return events.CheckName(s) == nil })
	maybe := func(g *rapid.Generator[string]) string {
		return rapid.OneOf(rapid.Just(""), g).Draw(t, "maybe")
	}
	version := rapid.SampledFrom([]string{"16", "16.4", "16.10", "1.2.3-rc.1", "0", "014"}).
		Filter(func(s string) bool { return events.CheckVersion(s) == nil })
	constraint := rapid.SampledFrom([]string{">=14", "14", "14.x", ">=14 <17", "^8.0 || ^9.0", "*", "!=3", "~1.2", "=1", "<2", "1 - 2", "x"}).
		Filter(func(s string) bool { return events.CheckConstraint(s) == nil })
	endpoint := rapid.SampledFrom([]string{"h:1", "[::1]:5432", "https://s3.h/x", "http://h", "1.2.3.4:80"}).
		Filter(func(s string) bool { return events.CheckEndpoint(s) == nil })
	features := func() []string {
		switch rapid.IntRange(0, 3).Draw(t, "features") {
		case 0:
			return nil
		case 1:
			return []string{}
		}
		return events.SortFeatures(rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]string{"true", "null", "1", "1.5", "0x1f", "1e3", "y", "1_0"}), rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,5}`)), 1, 4).Draw(t, "f"))
	}
	text := rapid.OneOf(
		rapid.SampledFrom([]string{"x", " x", "x ", "x: y", "x #y", "#x", "- x", "? x", "'x", "\"x", "x\ny", "x\n", "\nx", "x\n\n", " x\n y\n", "|", ">-", "&a", "*a", "!a", "%a", "@a", "`a",
			"{}", "[]", "{x", "a, b", "true", "null", "~", "12", "1.50", "0x1f", "2001-01-01", "---", "...", "x\ty", "\tx", "a\\b", "ä ö", "😀", "<<", "=", "a\u2028b", "\u00a0x", "x\n  y\nz", "\ufeffx", "x\n\ty", "-", ":", "x:", ": x", "1:30", ".inf", "1e3"}),
		rapid.String(),
	).Filter(func(s string) bool {
		return strings.TrimSpace(s) != "" && len(s) <= 1024 && events.CheckNoSecret(s) == nil &&
			!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0xfffd })
	})
	line := text.Filter(func(s string) bool { return !strings.ContainsAny(s, "\n\t") })
	someMap := func(n string) bool { return rapid.Bool().Draw(t, n) }

	m := &Manifest{Mesh: maybe(name)}
	names := rapid.SliceOfNDistinct(name, 0, 3, rapid.ID)
	if someMap("provisions") {
		m.Provisions = map[string]Provision{}
		for _, n := range names.Draw(t, "n") {
			m.Provisions[n] = Provision{Scope: rapid.SampledFrom([]string{"node", "mesh"}).Draw(t, "scope"), Credentials: maybe(rapid.SampledFrom([]string{"managed", "none"}))}
		}
	}
	if someMap("nodes") {
		m.Nodes = append([]string{}, names.Draw(t, "n")...)
	}
	if someMap("providers") {
		m.Providers = map[string]Provider{}
		for _, n := range names.Draw(t, "n") {
			m.Providers[n] = Provider{name.Draw(t, "p"), name.Draw(t, "n"), endpoint.Draw(t, "e"), maybe(version), features(), rapid.Bool().Draw(t, "c")}
		}
	}
	if someMap("defaults") {
		m.Defaults = []Default{}
		for _, n := range names.Draw(t, "n") {
			m.Defaults = append(m.Defaults, Default{n, name.Draw(t, "p"), maybe(name)})
		}
	}
	if someMap("modules") {
		m.Modules = map[string]Module{}
		for _, n := range names.Draw(t, "n") {
			var mod Module
			slots := names.Draw(t, "slots")
			if someMap("requires") {
				mod.Requires = map[string]Requirement{}
				for _, s := range slots[:len(slots)/2] {
					mod.Requires[s] = Requirement{name.Draw(t, "p"), maybe(constraint), maybe(name), features(), rapid.Bool().Draw(t, "o")}
				}
			}
			if someMap("embeds") {
				mod.Embeds = map[string]Embed{}
				for _, s := range slots[len(slots)/2:] {
					e := Embed{name.Draw(t, "p"), maybe(version), features(), rapid.SampledFrom([]string{"fork", "version", "extension"}).Draw(t, "b"), nil, rapid.Bool().Draw(t, "r"), nil}
					if someMap("needs") {
						e.Needs = &Needs{maybe(constraint), features()}
					}
					if someMap("composition") {
						e.Composition = &Composition{line.Draw(t, "file"), line.Draw(t, "service")}
					}
					mod.Embeds[s] = e
				}
			}
			m.Modules[n] = mod
		}
	}
	if someMap("assignments") {
		m.Assignments = map[string]Assignment{}
		for _, n := range names.Draw(t, "n") {
			a := Assignment{Module: maybe(name), Node: name.Draw(t, "node")}
			if someMap("bind") {
				a.Bind = map[string]string{}
				for _, s := range names.Draw(t, "slots") {
					a.Bind[s] = name.Draw(t, "p")
				}
			}
			m.Assignments[n] = a
		}
	}
	if someMap("overrides") {
		m.Overrides = []Override{}
		for _, n := range names.Draw(t, "n") {
			m.Overrides = append(m.Overrides, Override{n + "/" + name.Draw(t, "slot"), name.Draw(t, "p"), text.Draw(t, "reason")})
		}
	}
	return m
}

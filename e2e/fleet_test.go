package e2e

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"bindery/commands/manifest"
)

const fleet = "testdata/fleet.yaml"

// The session that the first slice is done with, on the example fleet.
func TestFleet(t *testing.T) {
	t.Parallel()
	m, err := manifest.Load(fleet, nil)
	if err != nil {
		t.Fatal(err)
	}
	objects := len(m.Provisions) + len(m.Nodes) + len(m.Providers) + len(m.Defaults) + len(m.Modules) + len(m.Assignments) + len(m.Overrides)
	c := newCLI(t)

	first := c.must(t, "apply", "--init", "-f", fleet)
	lines := strings.Split(strings.TrimSpace(first), "\n")
	created := 0
	for _, l := range lines {
		if strings.HasPrefix(l, "created  ") {
			created++
		}
	}
	seq := c.seq(t)
	if want := fmt.Sprintf("%d created; 1 batch, seq %d", objects, seq); created != objects || lines[len(lines)-1] != want {
		t.Fatalf("%d lines of %d objects; the last is %q, want %q", created, objects, lines[len(lines)-1], want)
	}

	// Again, in every way to say it: nothing is written.
	want := fmt.Sprintf("%d unchanged; nothing written, seq %d", objects, seq)
	for _, args := range [][]string{{}, {"--init"}, {"--rebind"}, {"--atomic"}, {"--take-over"}} {
		out := c.must(t, append([]string{"apply", "-f", fleet}, args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != objects+1 || lines[objects] != want {
			t.Errorf("apply again %q: %d lines, the last is %q, want %q", args, len(lines), lines[len(lines)-1], want)
		}
	}
	if now := c.seq(t); now != seq {
		t.Fatalf("the log went from %d to %d", seq, now)
	}
	t.Run("explain", func(t *testing.T) { explained(t, c) })
	t.Run("relocate", func(t *testing.T) { relocated(t, c, seq) })
	t.Run("formats", func(t *testing.T) { formats(t, c) })
	t.Run("contract", func(t *testing.T) { contract(t, c) })
}

func explained(t *testing.T, c *cli) {
	type explanation struct {
		Slot     string `json:"slot"`
		Seq      uint64 `json:"seq"`
		Rule     string `json:"rule"`
		Provider string `json:"provider"`
		Now      struct {
			Rule, Provider, Why string
		} `json:"now"`
		Rungs []struct {
			Rule, Provider, Why string
			Applies             bool
		} `json:"rungs"`
		Candidates []struct {
			Provider, ID, Node, Why string
			Eligible                bool
		} `json:"candidates"`
	}
	e := read[explanation](t, c, "explain", "wiki-beta/db")
	if e.Slot != "wiki-beta/db" || e.Rule != "assignment" || e.Provider != "pg-beta" || e.Seq == 0 || e.Now.Provider != "pg-beta" || e.Now.Why == "" {
		t.Errorf("explained: %+v", e)
	}
	var rungs []string
	for _, r := range e.Rungs {
		rungs = append(rungs, r.Rule)
		if r.Why == "" {
			t.Errorf("rung %s says no reason", r.Rule)
		}
	}
	if want := []string{"override", "assignment", "module", "mesh-scope", "node-default", "co-located", "mesh-default"}; !slices.Equal(rungs, want) {
		t.Errorf("rungs: %v", rungs)
	}
	var all []string
	for _, v := range e.Candidates {
		all = append(all, v.Provider)
		if v.Why == "" || v.ID == "" || v.Node == "" {
			t.Errorf("verdict: %+v", v)
		}
	}
	if want := []string{"pg-alpha", "pg-beta"}; !slices.Equal(all, want) {
		t.Errorf("explain lists %v, the mesh has %v", all, want)
	}
	// The sequence is that of the event that bound it.
	items := read[listJSON[struct {
		Seq  uint64 `json:"seq"`
		Type string `json:"type"`
	}]](t, c, "log", "--from", fmt.Sprintf("seq:%d", e.Seq), "--limit", "1").Items
	if len(items) != 1 || items[0].Seq != e.Seq || items[0].Type != "bindery.binding.bound.v1" {
		t.Errorf("sequence %d is %+v", e.Seq, items)
	}
}

// relocated proves that a provider that moved is the same, and its bindings are.
func relocated(t *testing.T, c *cli, seq uint64) {
	type kept struct{ ID, Slot, Provider, ProviderID, Rule string }
	look := func() (out []kept, endpoints map[string]bool) {
		endpoints = map[string]bool{}
		for _, b := range read[listJSON[bindingJSON]](t, c, "binding", "list").Items {
			out = append(out, kept{b.ID, b.Assignment + "/" + b.Slot, b.Provider, b.ProviderID, b.Rule})
			if b.Provider == "pg-alpha" {
				endpoints[b.Endpoint] = true
			}
		}
		return out, endpoints
	}
	before, _ := look()
	c.must(t, "provider", "relocate", "pg-alpha", "--to", "beta", "--endpoint", "beta.home.arpa:5433")
	after, endpoints := look()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("relocating changed bindings:\n%s", diff)
	}
	if want := map[string]bool{"beta.home.arpa:5433": true}; !reflect.DeepEqual(endpoints, want) {
		t.Errorf("consumers of pg-alpha read %v", endpoints)
	}
	if now := c.seq(t); now != seq+1 {
		t.Errorf("relocating wrote %d events", now-seq)
	}
}

// lists and shows are the reads; -o name prints what the second column says of
// each item.
var (
	lists = map[string]func(map[string]any) string{
		"node list": byName, "provision list": byName, "provider list": byName, "module list": byName, "assignment list": byName,
		"binding list":  func(v map[string]any) string { return v["assignment"].(string) + "/" + v["slot"].(string) },
		"override list": func(v map[string]any) string { return v["slot"].(string) },
		"log":           func(v map[string]any) string { return v["id"].(string) },
		"binding list --provider pg-beta --node beta": func(v map[string]any) string { return v["assignment"].(string) + "/" + v["slot"].(string) },
	}
	shows = map[string]string{
		"node show alpha": "alpha", "provision show redis": "redis", "provider show pg-alpha": "pg-alpha", "module show penpot": "penpot",
		"assignment show wiki": "wiki", "binding show penpot/db": "penpot/db", "explain wiki/db": "wiki/db",
	}
)

func byName(v map[string]any) string { return v["name"].(string) }

// Kind: a format that says something else than the others, or cannot be parsed.
func formats(t *testing.T, c *cli) {
	for line, name := range lists {
		args := strings.Fields(line)
		raw := c.must(t, append(args, "-o", "json")...)
		var l listJSON[map[string]any]
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatal(line, err)
		}
		if l.Mesh != "home" || l.Seq == 0 || l.Time.IsZero() || len(l.Items) == 0 {
			t.Errorf("%s: %s at %d, %s, %d items", line, l.Mesh, l.Seq, l.Time, len(l.Items))
		}
		var names strings.Builder
		for _, v := range l.Items {
			names.WriteString(name(v) + "\n")
		}
		if got := c.must(t, append(args, "-o", "name")...); got != names.String() {
			t.Errorf("%s -o name:\n%s", line, cmp.Diff(names.String(), got))
		}
		same(t, c, line, raw, l.Items)
		for _, format := range []string{"table", "wide"} {
			out := strings.TrimSuffix(c.must(t, append(args, "-o", format)...), "\n")
			if n := strings.Count(out, "\n"); n != len(l.Items) {
				t.Errorf("%s -o %s: %d lines below the head, %d items", line, format, n, len(l.Items))
			}
		}
	}
	for line, name := range shows {
		args := strings.Fields(line)
		raw := c.must(t, append(args, "-o", "json")...)
		var v map[string]any
		if err := json.Unmarshal([]byte(raw), &v); err != nil {
			t.Fatal(line, err)
		}
		if got := c.must(t, append(args, "-o", "name")...); got != name+"\n" {
			t.Errorf("%s -o name: %q", line, got)
		}
		same(t, c, line, raw, []map[string]any{v})
	}
}

// same checks that jsonl and yaml say what JSON says.
func same(t *testing.T, c *cli, line, raw string, items []map[string]any) {
	t.Helper()
	args := strings.Fields(line)
	var got []map[string]any
	for l := range strings.Lines(c.must(t, append(args, "-o", "jsonl")...)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatalf("%s -o jsonl: %v in %s", line, err, l)
		}
		got = append(got, v)
	}
	if diff := cmp.Diff(items, got); diff != "" {
		t.Errorf("%s -o jsonl:\n%s", line, diff)
	}
	var fromYAML any
	if err := yaml.Unmarshal([]byte(c.must(t, append(args, "-o", "yaml")...)), &fromYAML); err != nil {
		t.Fatalf("%s -o yaml: %v", line, err)
	}
	text, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	var fromJSON, again any
	if err := json.Unmarshal([]byte(raw), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromJSON, again); diff != "" {
		t.Errorf("%s -o yaml:\n%s", line, diff)
	}
}

// contract checks the fields that are promised, except those that come with
// credentials and acknowledgements.
func contract(t *testing.T, c *cli) {
	const (
		binding     = "id assignment assignment_id slot node provision rule seq changed_seq flags"
		bound       = binding + " provider provider_id provider_node endpoint"
		provider    = "id name provision scope node endpoint version features state bindings"
		writeFields = "seq changed dry_run command_id events bindings"
	)
	list := func(line string) []map[string]any {
		v := read[map[string]any](t, c, strings.Fields(line)...)
		has(t, line, v, "mesh seq time items")
		return maps(v["items"])
	}
	for _, v := range list("binding list") {
		what := fmt.Sprint("binding ", v["assignment"], "/", v["slot"])
		switch {
		case v["embedded"] != nil:
			has(t, what, v, binding+" embedded")
			if v["provider"] != nil {
				t.Errorf("%s is embedded and has provider %v", what, v["provider"])
			}
		case slices.Contains(v["flags"].([]any), any("pending")):
			has(t, what, v, binding)
		default:
			has(t, what, v, bound)
		}
	}
	has(t, "binding show", read[map[string]any](t, c, "binding", "show", "wiki/db"), bound)
	for _, v := range list("provider list") {
		has(t, "provider list", v, provider)
	}
	has(t, "provider show", read[map[string]any](t, c, "provider", "show", "pg-alpha"), provider+" seq")

	status := read[map[string]any](t, c, "status")
	has(t, "status", status, "mesh seq time counts attention")
	for _, a := range maps(status["attention"]) {
		has(t, "status attention", a, "code what why fix")
	}
	e := read[map[string]any](t, c, "explain", "wiki/db")
	has(t, "explain", e, "slot seq rule provider now rungs candidates")
	has(t, "explain now", e["now"].(map[string]any), "rule provider why")
	for _, r := range maps(e["rungs"]) {
		has(t, "explain rungs", r, "rule applies provider why")
	}
	for _, r := range maps(e["candidates"]) {
		has(t, "explain candidates", r, "provider id node eligible why")
	}

	for _, args := range [][]string{
		{"override", "set", "wiki/db", "--provider", "pg-beta", "--reason", "a trial", "--dry-run"},
		{"override", "set", "wiki/db", "--provider", "pg-beta", "--reason", "a trial"},
		{"override", "set", "wiki/db", "--provider", "pg-beta", "--reason", "a trial"},
		{"override", "clear", "wiki/db"},
		{"apply", "-f", fleet, "--dry-run", "--take-over"},
	} {
		what := strings.Join(args, " ")
		w := read[map[string]any](t, c, args...)
		has(t, what, w, writeFields)
		for _, v := range maps(w["events"]) {
			has(t, what, v, "seq subject type data")
		}
		for _, v := range maps(w["bindings"]) {
			has(t, what, v, "binding from to rule")
		}
	}
	r := c.run(t, "override", "set", "wiki/db", "--provider", "nobody", "--reason", "a trial", "-o", "json")
	var refused map[string]any
	if err := json.Unmarshal([]byte(r.stderr), &refused); err != nil || r.stdout != "" {
		t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	has(t, "an error", refused, "code message why fix candidates")
}

// has checks that v has the fields, none of them null except an id.
func has(t *testing.T, what string, v map[string]any, fields string) {
	t.Helper()
	for _, f := range strings.Fields(fields) {
		if x, ok := v[f]; !ok || x == nil && f != "id" {
			t.Errorf("%s has no %s: %v", what, f, v)
		}
	}
}

func maps(list any) []map[string]any {
	var out []map[string]any
	for _, v := range list.([]any) {
		out = append(out, v.(map[string]any))
	}
	return out
}

// Kind: one that missed a heartbeat is gone for good. Health is no fact of this
// ledger: no command reports it, and none of what the log can hold speaks of it.
func TestNoHealth(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	help := c.must(t, "--help") + c.must(t, "provider", "--help") + c.must(t, "node", "--help") + eventTypes()
	for _, word := range []string{"heartbeat", "health", "lease", "expire", "unregister", "deregister", "ttl"} {
		for _, have := range strings.FieldsFunc(strings.ToLower(help), func(r rune) bool { return r < 'a' || r > 'z' }) {
			if have == word {
				t.Errorf("there is something about %q", word)
			}
		}
	}
}

// Kind: the same question, another answer. One hundred runs, on stores of their
// own with the same content and ids of their own.
func TestSameRefusal(t *testing.T) {
	t.Parallel()
	times := 100
	if testing.Short() {
		times = 10
	}
	c := newCLI(t)
	c.stdin = []byte(`{mesh: home, provisions: {pg: {scope: node}}, nodes: [alpha, beta, gamma, delta], modules: {wiki: {requires: {db: pg}}}, providers: {
		pg-d: {provision: pg, node: delta, endpoint: "a:4"}, pg-b: {provision: pg, node: beta, endpoint: "a:2"}, pg-c: {provision: pg, node: gamma, endpoint: "a:3"}}}`)
	c.must(t, "apply", "--init", "-f", "-")
	seq, want := c.seq(t), ""
	for range times {
		r := c.run(t, "assignment", "create", "wiki", "--node", "alpha")
		if want == "" {
			want = r.stderr
			for _, p := range []string{"pg-b", "pg-c", "pg-d"} {
				if !strings.Contains(want, "--bind db="+p) {
					t.Errorf("%s is not offered:\n%s", p, want)
				}
			}
		}
		if r.code != 4 || r.stderr != want || r.stdout != "" {
			t.Fatalf("exit %d\n%s", r.code, cmp.Diff(want, r.stderr))
		}
	}
	if now := c.seq(t); now != seq {
		t.Errorf("the log went from %d to %d", seq, now)
	}
}

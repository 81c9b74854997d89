package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

func TestUnescapeHTML(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"a":"b"}`, `{"a":"b"}`},
		{`">=14 \u003c2 \u003e \u0026"`, `">=14 <2 > &"`},
		{`"a \\u003e is no escape"`, `"a \\u003e is no escape"`},
		{`"\\\u003e"`, `"\\>"`},
		{`"\u001b\""`, `"\u001b\""`},
	} {
		got := string(unescapeHTML([]byte(tc.in)))
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.in, got, tc.want)
		}
		var a, b string
		if json.Unmarshal([]byte(tc.in), &a) == nil && (json.Unmarshal([]byte(got), &b) != nil || a != b) {
			t.Errorf("%s: another value: %q, %q", tc.in, a, b)
		}
	}
}

func TestAgo(t *testing.T) {
	for _, tc := range []struct {
		d    time.Duration
		want string
	}{
		{0, "now"}, {999 * time.Millisecond, "now"}, {time.Second, "1s ago"}, {179 * time.Second, "2m ago"},
		{23 * time.Hour, "23h ago"}, {49 * time.Hour, "2d ago"}, {800 * 24 * time.Hour, "2y ago"}, {-2 * time.Minute, "in 2m"},
	} {
		if got := ago(tc.d); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.d, got, tc.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"": "''", "alpha": "alpha", "db=postgres-database:>=14": "'db=postgres-database:>=14'", "its disk": "'its disk'",
		"it's": `'it'\''s'`, "https://sso.mesh/a": "https://sso.mesh/a", "$HOME": "'$HOME'",
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// What helps becomes a line that can be pasted, where it was asked for.
func TestFixLine(t *testing.T) {
	c := &cli{program: NewProgram(), args: []string{"node", "retire", "alpha", "--command-id", "01X", "--reason=a b", "--force"}}
	for _, tc := range []struct {
		fix  commands.Fix
		want string
	}{
		{again().With("--reason", "TEXT"), "bindery node retire alpha --command-id 01X --force --reason TEXT"},
		{again().With("--command-id", "01Y"), "bindery node retire alpha '--reason=a b' --force --command-id 01Y"},
		{again().But("--command-id"), "bindery node retire alpha '--reason=a b' --force"},
		{again().But("--force"), "bindery node retire alpha --command-id 01X '--reason=a b'"},
		{again().With("--force"), "bindery node retire alpha --command-id 01X '--reason=a b' --force"},
		{do("status"), "bindery status"},
		{do("provision default", "a b").With("--clear").With("--node", "n"), "bindery provision default 'a b' --clear --node n"},
		{program("chmod", "600", "a b"), "chmod 600 'a b'"},
		{advise("wait for it to end, or stop it"), "wait for it to end, or stop it"},
		{commands.Fix{}, ""},
	} {
		if got := c.line(tc.fix); got != tc.want {
			t.Errorf("%v: got %s, want %s", tc.fix, got, tc.want)
		}
	}
	c.args = []string{"watch", "--", "--exec", "cat"}
	if got, want := c.line(again().With("--resync")), "bindery watch --resync -- --exec cat"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A fix leads to the ledger that this run was about, and not to another.
func TestFixReaches(t *testing.T) {
	for _, tc := range []struct {
		globals globals
		fix     commands.Fix
		want    string
	}{
		{globals{store: "/a b"}, do("status"), "bindery status --store '/a b'"},
		{globals{server: "nats://ann:hunter2@h:4222", creds: "k", mesh: "home"}, do("status"), "bindery status --server nats://h:4222 --creds k --mesh home"},
		{globals{context: "prod"}, do("node show", "a"), "bindery node show a --context prod"},
		{globals{store: "s"}, do("restore", "FILE").With("--store", "DIR"), "bindery restore FILE --store DIR"},
		{globals{server: "h"}, do("status").With("--store", "DIR"), "bindery status --store DIR"},
		{globals{mesh: "home"}, do("init").With("--mesh", "NAME"), "bindery init --mesh NAME"},
		{globals{creds: "old"}, do("serve").With("--creds", "FILE"), "bindery serve --creds FILE"},
		{globals{store: "s", mesh: "home"}, do("node list").With("--help"), "bindery node list --help"},
	} {
		c := &cli{program: NewProgram(), globals: tc.globals}
		if got := c.line(tc.fix); got != tc.want {
			t.Errorf("%+v: got %s, want %s", tc.globals, got, tc.want)
		}
	}
}

// A series counts each object once, with what its first batch did.
func TestSeriesMerges(t *testing.T) {
	var s series
	s.add(commands.Result{Seq: 10, Changed: true, Events: make([]commands.EventView, 2), Effect: commands.Effect{More: true,
		Objects: []commands.Object{{Object: "a", Result: commands.Created}, {Object: "b", Result: commands.Unchanged}}}})
	s.add(commands.Result{Seq: 12, Changed: false, Events: make([]commands.EventView, 1), Effect: commands.Effect{
		Objects: []commands.Object{{Object: "a", Result: commands.Unchanged}, {Object: "b", Result: commands.Changed}, {Object: "c", Result: commands.Kept}}}})
	r := s.result
	if r.Seq != 12 || !r.Changed || r.More || len(r.Events) != 3 || s.batches != 2 {
		t.Errorf("got %+v", r)
	}
	for i, want := range []string{commands.Created, commands.Changed, commands.Kept} {
		if r.Objects[i].Result != want {
			t.Errorf("%s: got %s, want %s", r.Objects[i].Object, r.Objects[i].Result, want)
		}
	}
}

// A series that stops says how it goes on, under its first id.
func TestStoppedSeries(t *testing.T) {
	var s series
	s.add(commands.Result{Seq: 1000})
	id := events.ID{15: 1}
	err := stopped(refusal(commands.OutcomeUnknown, "x", "context canceled", again().With("--command-id", "DERIVED")), s, id)
	r, ok := err.(*commands.Refusal)
	if !ok || r.Fix.String() != "the same command --command-id "+id.String() || !strings.Contains(r.Why, "1 batch was written before, up to sequence 1000") {
		t.Errorf("got %v", err)
	}
}

// Without a terminal there is no bar, and within ten seconds no line.
func TestBarIsSilent(t *testing.T) {
	var errs bytes.Buffer
	b := &bar{ui: &ui{err: &errs}, what: "draining x", done: func(series) int { return 1 }}
	b.start()
	b.set(series{})
	b.stop()
	if errs.Len() > 0 {
		t.Errorf("got %q", errs.String())
	}
	b.said = b.said.Add(-every)
	b.total = 3
	b.set(series{batches: 2, result: commands.Result{Seq: 9}})
	if got, want := errs.String(), "draining x: 1 of 3, 2 batches, sequence 9\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The bar of a rotation takes what room the line leaves, and is full only where
// all is done.
func TestRotationProgress(t *testing.T) {
	r := rotationView{State: "open", Total: 12, Done: 7, Failing: 1, Steps: map[projections.Step]int{"issue": 2, "adopt": 2, "revoke": 1, "done": 7}}
	line := "7 of 12 done · issue 2 · adopt 2 · revoke 1 · failing 1"
	for width, want := range map[int]string{
		0:  "[" + strings.Repeat("#", 17) + strings.Repeat("-", 13) + "] " + line,
		68: "[#####-----] " + line,
		60: line,
	} {
		if got := (&paper{ui: &ui{}, width: width}).progress(r); got != want {
			t.Errorf("width %d: got %q, want %q", width, got, want)
		}
	}
	if got := drawn(999, 1000, 10); got != "[#########-]" {
		t.Errorf("got %s", got)
	}
	if got, want := (&paper{ui: &ui{}}).progress(rotationView{State: "completed"}), "there was nothing to replace"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is only to be known makes no check false.
func TestNotesDoNotCount(t *testing.T) {
	for _, tc := range []struct {
		a             projections.Attention
		check, strict bool
	}{
		{projections.Attention{}, true, true},
		{projections.Attention{Optional: true}, false, true},
		{projections.Attention{Note: true}, false, false},
	} {
		if got := (&status{check: true}).counts(tc.a); got != tc.check {
			t.Errorf("%+v: --check: %t", tc.a, got)
		}
		if got := (&status{strict: true}).counts(tc.a); got != tc.strict {
			t.Errorf("%+v: --strict: %t", tc.a, got)
		}
	}
}

// A secret in place of its reference is repeated in no fix, and one within
// quotes in no message.
func TestSecretsAreNotRepeated(t *testing.T) {
	c := &cli{program: NewProgram(), args: []string{"credential", "issued", "wiki/db", "--secret-ref", "hunter2"}}
	if got, want := c.line(again().With("--timeout", "5m")), "bindery credential issued wiki/db --secret-ref SCHEME:PATH --timeout 5m"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c.args[3] = "--secret-ref=hunter2"
	if got := c.line(again().But("--timeout")); strings.Contains(got, "=hunter2") {
		t.Errorf("got %s", got)
	}
	c.args = []string{"node", "retire", "alpha", "--reason", "it's the password = hunter2"}
	if got := c.mask(c.line(again().With("--force"))); strings.Contains(got, "hunter2") {
		t.Errorf("got %s", got)
	}
}

package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bindery/events"
)

// password is in input, and must be in no output.
const password = "hunter22"

// quick bounds what one piece of bad input may cost: processor time, since the
// machine may be busy with something else, and more than the second that is meant,
// since that makes processor time longer, too.
const quick = 4 * time.Second

func eventTypes() string {
	var b strings.Builder
	for _, t := range events.Known.Types() {
		fmt.Fprintln(&b, t)
	}
	return b.String()
}

// coded is the first line of an error for people.
var coded = regexp.MustCompile(`(?m)^error: (?s:.*?) \[[a-z_]+\]$`)

// sick is a store that takes bad input.
type sick struct {
	*cli
	files string
	seq   uint64
	n     int
}

// newSick makes a store of its own, with one of each thing.
func newSick(t *testing.T) *sick {
	t.Helper()
	s := &sick{cli: newCLI(t), files: t.TempDir()}
	s.stdin = []byte(ground)
	s.must(t, "apply", "--init", "-f", "-")
	s.stdin = nil
	s.seq = s.cli.seq(t)
	t.Cleanup(func() {
		if now := s.cli.seq(t); now != s.seq {
			t.Errorf("bad input was written: the log went from %d to %d", s.seq, now)
		}
	})
	return s
}

const ground = `{mesh: home, provisions: {pg: {scope: node}}, nodes: [alpha, beta], providers: {pg-a: {provision: pg, node: alpha, endpoint: "a:1"}},
	modules: {wiki: {requires: {db: pg}}}, assignments: {wiki: {node: alpha}}}`

// bad runs what must be refused with a code, quickly, without repeating a
// secret; what the errors look like alternates.
func (s *sick) bad(t *testing.T, args ...string) ran {
	t.Helper()
	s.n++
	r := s.run(t, s.spoken(args...)...)
	s.check(t, r)
	return r
}

// spoken asks for errors in JSON every other time.
func (s *sick) spoken(args ...string) []string {
	if s.n%2 == 0 {
		return append([]string{"-o", "json"}, args...)
	}
	return args
}

func (s *sick) check(t *testing.T, r ran) {
	t.Helper()
	ok := coded.MatchString(r.stderr)
	if s.n%2 == 0 {
		_, ok = r.refusal()
	}
	if !ok || r.code < 2 || r.code > 6 || r.stdout != "" {
		t.Errorf("%s: exit %d, want 2 to 6 with a code\n%.2000s%.2000s", r, r.code, r.stdout, r.stderr)
	}
	if r.cpu > quick {
		t.Errorf("%s: took %s of the processor", r, r.cpu)
	}
	if strings.Contains(r.stdout+r.stderr, password) {
		t.Errorf("%s: the secret is repeated:\n%.2000s", r, r.stderr)
	}
	if n := len(r.stderr); n > 20_000 {
		t.Errorf("%s: says %d bytes", r, n)
	}
}

// file runs apply on a file that has this text.
func (s *sick) file(t *testing.T, text string) ran {
	t.Helper()
	failed := t.Failed()
	r := s.bad(t, "apply", "-f", write(t, filepath.Join(s.files, fmt.Sprintf("m%d.yaml", s.n)), text))
	if t.Failed() && !failed {
		t.Logf("the first file that failed: %.200q", text)
	}
	return r
}

// badNames are of every kind.
var badNames = []string{"PG-A", "a.b", "a*", ">", "a b", "a\rb", "a\nb", "a\tb", "a\x01b", "a\x7fb", "ä", "а", "a-", "-a", "1a", "a/b", "a_b",
	"", "..", "a\u200bb", "a\xffb", "$(id)", strings.Repeat("a", 64), strings.Repeat("a", 100_000)}

// Kind: what is a name here is none elsewhere: in subjects, paths, host names.
func TestBadNames(t *testing.T) {
	t.Parallel()
	s := newSick(t)
	verbs := [][]string{
		{"node", "register", "NAME"},
		{"provider", "rename", "pg-a", "NAME"},
		{"assignment", "create", "wiki", "--node", "beta", "--bind", "db=pg-a", "--name", "NAME"},
		{"module", "declare", "NAME", "--requires", "db=pg"},
		{"provision", "define", "NAME", "--scope", "node"},
		{"provider", "register", "NAME", "--provision", "pg", "--node", "alpha", "--endpoint", "a:2"},
		{"module", "declare", "shop", "--requires", "NAME=pg"},
	}
	for i, name := range badNames {
		for j, verb := range verbs {
			if j > 0 && (i+j)%6 != 0 {
				continue // each name with some verbs
			}
			args := slices.Clone(verb)
			for k := range args {
				args[k] = strings.Replace(args[k], "NAME", name, 1)
			}
			if strings.HasPrefix(name, "-") {
				args = append(args[:2:2], append([]string{"--"}, args[2:]...)...)
			}
			s.bad(t, args...)
		}
		s.file(t, fmt.Sprintf("mesh: home\nnodes: [%q]\n", name))
	}
	// A megabyte, by file and by standard input.
	s.file(t, "mesh: home\nnodes: ["+strings.Repeat("a", 1<<20)+"]\n")
	s.file(t, "mesh: home\nproviders:\n  ? "+strings.Repeat("a", 1<<20)+"\n  : {provision: pg, node: alpha, endpoint: 'a:2'}\n")
	s.stdin = []byte("mesh: " + strings.Repeat("a", 1<<20))
	s.bad(t, "apply", "-f", "-")
}

// Kind: values that are none.
func TestBadValues(t *testing.T) {
	t.Parallel()
	s := newSick(t)
	register := func(more ...string) []string {
		return append([]string{"provider", "register", "pg-b", "--provision", "pg", "--node", "alpha"}, more...)
	}
	for _, v := range []string{"x", "16.", ">=16", "16.4.1.2", "v", "16 4", "16\n", strings.Repeat("9", 50), "latest", "١٦"} {
		s.bad(t, register("--endpoint", "a:2", "--version", v)...)
	}
	for _, e := range []string{"", "a", ":5432", "a:", "a:0", "a:65536", "a:port", "a b:1", "http://", "a:1/x", "//a:1", "a:1\n", "[::1:1", "http://a b/", "a:1?x=y",
		"http://a/#f", "http://a/%zz", strings.Repeat("a", 300) + ":1"} {
		s.bad(t, register("--endpoint", e)...)
	}
	for _, f := range []string{"", "A B", "a,b", "a\nb", strings.Repeat("f", 200)} {
		s.bad(t, register("--endpoint", "a:2", "--feature", f)...)
	}
	for _, c := range []string{"garbage", ">=", ">=1.2.3.4.5", "14 ||", "^^1", ">=14 <", "*.*.*.*", strings.Repeat(">=1 ", 20_000), ":", "1\n2"} {
		s.bad(t, "module", "declare", "shop", "--requires", "db=pg:"+c)
		s.file(t, fmt.Sprintf("mesh: home\nmodules: {shop: {requires: {db: {provision: pg, version: %q}}}}\n", c))
	}
	for _, r := range []string{"", "db", "=pg", "db=", "db=pg=1", "db=pg,x=pg"} {
		s.bad(t, "module", "declare", "shop", "--requires", r)
	}
	s.bad(t, "override", "set", "wiki/db", "--provider", "pg-a", "--reason", "a\x00b"[:1]+"\x1b[31m")
	s.bad(t, "override", "set", "wiki/db", "--provider", "pg-a", "--reason", strings.Repeat("r", 100_000))
	s.bad(t, "node", "register", "gamma", "--actor", "a\nb")
	s.bad(t, "node", "register", "gamma", "--actor", strings.Repeat("a", 10_000))
	s.bad(t, "override", "set", "wiki", "--provider", "pg-a", "--reason", "x")
	s.bad(t, "override", "set", "wiki/", "--provider", "pg-a", "--reason", "x")
	s.bad(t, "override", "set", "/db", "--provider", "pg-a", "--reason", "x")
	s.bad(t, "override", "set", "wiki/db/x", "--provider", "pg-a", "--reason", "x")
	s.bad(t, "provision", "define", "s3", "--scope", "galaxy")
	s.bad(t, "provision", "define", "s3", "--scope", "node", "--credentials", "maybe")
}

// Kind: what carries a secret is refused, and repeated nowhere: in no message,
// no suggestion, no command to paste.
func TestSecretsRepeatedNowhere(t *testing.T) {
	t.Parallel()
	s := newSick(t)
	const url = "postgres://ann:" + password + "@a.mesh:5432/db"
	register := func(more ...string) []string {
		return append([]string{"provider", "register", "pg-b", "--provision", "pg", "--node", "alpha"}, more...)
	}
	for _, e := range []string{url, "ann:" + password + "@a:5432", "https://:" + password + "@a", "https://a/?password=" + password, "a:5432?password=" + password,
		"postgres://ann:" + password + "@a:99999/db", "host=a password=" + password, "https://a/#token=" + password} {
		s.bad(t, register("--endpoint", e)...)
		s.bad(t, "provider", "update", "pg-a", "--endpoint", e)
		s.bad(t, "provider", "relocate", "pg-a", "--to", "beta", "--endpoint", e)
		s.file(t, fmt.Sprintf("mesh: home\nproviders: {pg-b: {provision: pg, node: alpha, endpoint: %q}}\n", e))
	}
	for _, args := range [][]string{
		// Another rule is broken, too, and its fix repeats the command line.
		register("--endpoint", url, "--expect-seq", "1"),
		{"override", "set", "wiki/db", "--provider", url},
		{"provider", "retire", "pg-a", "--force", "--actor", url},
		// A password where something else was asked for.
		register("--endpoint", "a:2", "--version", url), register("--endpoint", "a:2", "--feature", url),
		{"node", "register", url}, {"provider", "rename", "pg-a", url}, {"provider", "show", url}, {"explain", url},
		{"provision", "define", "s3", "--scope", url}, {"module", "declare", "shop", "--requires", "db=pg:" + url},
		{"module", "declare", "shop", "--requires", url}, {"assignment", "create", "wiki", "--node", "beta", "--bind", url},
		{"assignment", "create", "wiki", "--node", "beta", "--name", "x", "--bind", "db=" + url},
		{"node", "register", "gamma", "--reason", url}, {"node", "register", "gamma", "--actor", url}, {"node", "register", "gamma", "--command-id", url},
		{"node", "register", "gamma", "--expect-seq", url}, {"log", "--from", url}, {"status", "--mesh", url}, {"status", "--timeout", url},
		{"status", "-o", url}, {"status", "--color", url}, {url}, {"node", url}, {"--" + url}, {"status", url}, {"apply", "-f", url}, {"binding", "list", "--node", url},
	} {
		s.bad(t, args...)
	}
	for _, text := range []string{
		"mesh: home\nproviders: {pg-b: {provision: pg, node: alpha, endpont: \"URL\"}}",
		"mesh: home\nproviders: {pg-b: {provision: pg, node: alpha, endpoint: 'a:2', version: \"URL\"}}",
		"mesh: home\nproviders: {pg-b: {provision: pg, node: \"URL\", endpoint: 'a:2'}}",
		"mesh: home\nproviders: {\"URL\": {provision: pg, node: alpha, endpoint: 'a:2'}}",
		"mesh: home\nproviders: {pg-b: {provision: pg, node: alpha, endpoint: [\"URL\"]}}",
		"mesh: home\nproviders: {pg-b: {provision: pg, node: alpha, endpoint: 'a:2', cordoned: \"URL\"}}",
		"mesh: \"URL\"",
		"mesh: home\n\"URL\": 1",
		"mesh: home\nnodes: URL",
		"mesh: home\nprovisions: {s3: {scope: \"URL\"}}",
		"mesh: home\noverrides: [{slot: \"URL\", provider: pg-a, reason: x}]",
		"mesh: home\noverrides: [{slot: wiki/db, provider: pg-a, reason: \"URL\"}]",
		"mesh: home\nassignments: {wiki: {node: alpha, bind: {db: \"URL\"}}}",
		"mesh: home\nnodes: [*URL]",
		"mesh: home\n  nodes: URL\n :",
		"URL",
		"{URL",
	} {
		s.file(t, strings.ReplaceAll(text, "URL", url))
	}
	left, err := os.ReadFile(filepath.Join(s.store, "lock"))
	if err != nil || len(left) > 0 {
		t.Errorf("the lock file has %q, %v", left, err)
	}
}

// Kind: a text that makes the reader run, eat or fall.
func TestBadManifests(t *testing.T) {
	t.Parallel()
	s := newSick(t)
	laughs := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		laughs += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	for _, text := range []string{
		"a: &a [*a]", "mesh: home\nnodes: &n [*n]", "mesh: home\nmodules: &m {wiki: *m}", "&a *a", laughs, "mesh: home\nnodes: [" + laughs + "]",
		strings.Repeat("[", 4<<20), strings.Repeat("[", 4<<20-1), strings.Repeat("{a: ", 100_000), strings.Repeat("- ", 1<<20), strings.Repeat("!", 1<<20),
		strings.Repeat("a: &x\n", 100_000), strings.Repeat("mesh: home\n", 100_000), strings.Repeat(" ", 4<<20+1), strings.Repeat("#\n", 1<<20), strings.Repeat("\t", 1000),
		"", " ", "\n", "---", "--- \n---\n", "mesh: home\n---\nmesh: home\n", "null", "1", "home", "[]", "- mesh: home", "true", "\"\"", "!!binary aGk=", "!!python/object:x {}",
		"mesh: [home]", "mesh: 1", "mesh: {a: b}", "mesh: null", "nodes: alpha", "nodes: {alpha: {}}", "nodes: [1]", "nodes: [[alpha]]", "nodes: [alpha, alpha]", "nodes: [null]",
		"providers: []", "providers: {pg-b: x}", "providers: {pg-b: {provision: pg, node: alpha, endpoint: 5432}}", "providers: {pg-b: {provision: pg, node: alpha, endpoint: 'a:1', version: 16.4}}",
		"providers: {pg-b: {provision: pg, node: alpha, endpoint: 'a:1', features: pgvector}}", "providers: {pg-b: {}}", "providers: {1: {}}", "providers: {? [a] : {}}",
		"defaults: {pg: pg-a}", "defaults: [pg-a]", "modules: {wiki: {requires: [db]}}", "modules: {wiki: {requires: {db: 1}}}", "modules: {wiki: {embeds: {db: {provision: pg, because: whim}}}}",
		"modules: {wiki: {requires: {db: pg}, embeds: {db: {provision: pg, because: fork}}}}", "assignments: {wiki: alpha}", "assignments: {wiki: {node: alpha, bind: [pg-a]}}",
		"overrides: {}", "overrides: [{slot: wiki, provider: pg-a, reason: x}]", "overrides: [{slot: wiki/db, provider: pg-a}]", "mesh: home\n<<: *x",
		"mesh: other", "\xff\xfe\x00", "mesh: ho\x00me", "mesh: \x1b[31m", "mesh: ho\u2028me", string(noise), "%YAML 9.9\n---\nmesh: home", "mesh: 'home", "mesh: \"home", "mesh: |",
		"\xef\xbb\xbfmesh: [", "mesh: home\nmesh: home", `{"mesh": "home",}x`, "provisions: {pg: {scope: mesh, scope: node}}",
	} {
		s.file(t, text)
	}
	empty := filepath.Join(s.files, "empty")
	write(t, filepath.Join(empty, "README.md"), "no manifest")
	write(t, filepath.Join(empty, ".hidden.yaml"), "mesh: home")
	write(t, filepath.Join(empty, "below", "fleet.yaml"), "mesh: home")
	for _, path := range []string{empty, program, "/dev/null", "/dev/zero", filepath.Join(s.files, "missing.yaml"), filepath.Join(s.files, "m0.yaml", "x"), "", strings.Repeat("x", 5000), "a\nb"} {
		s.bad(t, "apply", "-f", path)
	}
	for _, path := range []string{empty, "/dev/null", program, filepath.Join(s.files, "missing.yaml")} {
		s.bad(t, "module", "declare", "-f", path)
	}
	s.stdin = bytes.Repeat([]byte("- "), 1<<20)
	s.bad(t, "apply", "-f", "-")
}

// Kind: a manifest that was cut off is taken for a whole one. In flow style no
// part is whole; in block style a part that is must be a legal manifest.
func TestTruncatedManifests(t *testing.T) {
	t.Parallel()
	s := newSick(t)
	flow := "{mesh: home, nodes: [g], defaults: [{provision: pg, provider: pg-a}]}"
	for i := range len(flow) {
		s.file(t, flow[:i])
	}
	block := "mesh: home\nnodes:\n- g\nproviders:\n  pg-b:\n    provision: pg\n    node: g\n    endpoint: \"a:9\"\n"
	for i := range len(block) {
		path := write(t, filepath.Join(s.files, "block.yaml"), block[:i])
		s.n++
		args := s.spoken("apply", "--dry-run", "-f", path)
		if r := s.run(t, args...); r.code != 0 {
			s.check(t, r)
		}
	}
}

// Kind: a mistyped command line does something else.
func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	s := newSick(t)
	for _, args := range [][]string{
		{"nod"}, {"node", "regster", "x"}, {"node", "register"}, {"node", "register", "x", "y"}, {"Node", "list"}, {"stats"}, {"help", "nod"}, {"explain"}, {"explain", "wiki/db", "x"},
		{"status", "--chek"}, {"status", "-z"}, {"status", "--check=maybe"}, {"status", "-o", "xml"}, {"status", "-o"}, {"status", "-o", ""}, {"status", "--color", "pink"},
		{"status", "--timeout", "-1s"}, {"status", "--timeout", "0s"}, {"node", "register", "gamma", "--timeout", "-1s"}, {"status", "--timeout", "abc"}, {"status", "--timeout", "10"},
		{"node", "register", "gamma", "--expect-seq", "abc"}, {"node", "register", "gamma", "--expect-seq", "-1"}, {"node", "register", "gamma", "--expect-seq", "1.5"},
		{"node", "register", "gamma", "--expect-seq", "99999999999999999999"}, {"node", "register", "gamma", "--expect-seq", "3"}, {"node", "register", "gamma", "--expect-seq", "0"},
		{"node", "register", "gamma", "--command-id", "01k0z3j4m5n6p7q8r9s0t1v2w3"}, {"node", "register", "gamma", "--command-id", "garbage"}, {"node", "register", "gamma", "--command-id", "00000000000000000000000000"},
		{"node", "register", "gamma", "--command-id", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"}, {"node", "register", "gamma", "--command-id", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ"}, {"node", "register", "gamma", "--command-id", ""},
		{"provision", "default", "pg"}, {"provision", "default", "pg", "--provider", "pg-a", "--clear"}, {"binding", "rebind", "wiki/db"}, {"binding", "rebind", "wiki/db", "--re-resolve", "--forget-choice"},
		{"override", "clear", "wiki/db", "--keep", "--re-resolve"}, {"explain", "--module", "wiki"}, {"apply"}, {"apply", "fleet.yaml"}, {"apply", "-f"},
		{"log", "--limit", "-1"}, {"log", "--limit", "x"}, {"log", "--from", "yesterday"}, {"log", "--from", "seq:x"}, {"log", "--from", "-2h"}, {"log", "--from", "2026-13-01"}, {"log", "--from", "99999999999999d"},
		{"init", "--mesh", "other"}, {"init"}, {"status", "--mesh", "other"}, {"node", "register", "gamma", "--mesh", "other"}, {"completion", "tcsh"},
		{"provider", "show", "pg-b"}, {"binding", "list", "--provider", "nobody"}, {"node", "retire", "nowhere"}, {"assignment", "end", "01K0Z3J4M5N6P7Q8R9S0T1V2W3"},
	} {
		s.bad(t, args...)
	}
	s.env = []string{"BINDERY_OUTPUT=xml"}
	s.n++ // an even number would say -o json
	s.n += s.n % 2
	s.bad(t, "status")
	s.env = []string{"BINDERY_ACTOR=a\nb"}
	s.bad(t, "node", "register", "gamma")
	s.env = []string{"BINDERY_STORE=" + filepath.Join(s.files, "nowhere")}
	s.bad(t, "status")
	s.env = []string{"BINDERY_STORE=", "HOME=", "XDG_DATA_HOME=relative"}
	s.bad(t, "status")
	s.env = nil
	if _, err := os.Stat(filepath.Join(s.files, "nowhere")); err == nil {
		t.Error("a mistyped store was made")
	}
}

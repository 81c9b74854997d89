package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the scripts in testdata/script. Beside testscript's own
// commands they have:
//
//	phase NAME          begin a phase on a store of its own; one row of scenarios
//	bindery ARGS        run the program and append to the transcript: the command
//	                    line, what it printed ("2>" before what went to standard
//	                    error) and its exit code where that is not 0
//	quietly ARGS        the same, but it must succeed and leaves no transcript
//	transcript          print the transcript on standard output and begin a new one
//
// An id is written <N>, its tail …<N>: the same number is the same id.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		UpdateScripts:      *update,
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Vars = append(environ(env.WorkDir, ""), "WORK="+env.WorkDir, "ID="+ulid.Make().String())
			env.Values[scriptKey{}] = &script{work: env.WorkDir, ids: map[string]int{}}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"phase":      func(ts *testscript.TestScript, _ bool, args []string) { scriptOf(ts).phase(ts, args) },
			"bindery":    func(ts *testscript.TestScript, _ bool, args []string) { scriptOf(ts).run(ts, args, true) },
			"quietly":    func(ts *testscript.TestScript, _ bool, args []string) { scriptOf(ts).run(ts, args, false) },
			"transcript": func(ts *testscript.TestScript, _ bool, _ []string) { scriptOf(ts).print(ts) },
		},
	})
}

type scriptKey struct{}

// script is what one running script has.
type script struct {
	work   string
	phases int
	ids    map[string]int // an id's tail to its number
	text   bytes.Buffer
}

func scriptOf(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

func (s *script) phase(ts *testscript.TestScript, args []string) {
	if len(args) == 0 {
		ts.Fatalf("a phase has a name")
	}
	if s.text.Len() > 0 {
		ts.Fatalf("the phase before has a transcript that nobody compared")
	}
	s.phases++
	s.ids = map[string]int{}
	ts.Setenv("BINDERY_STORE", filepath.Join(s.work, fmt.Sprintf("store-%d", s.phases)))
}

func (s *script) run(ts *testscript.TestScript, args []string, shown bool) {
	noticeSources()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(environ(s.work, ts.Getenv("BINDERY_STORE")), "PWD="+cmd.Dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		ts.Fatalf("%v", errors.Join(err, ctx.Err()))
	}
	code := cmd.ProcessState.ExitCode()
	if !shown {
		if code != 0 {
			ts.Fatalf("exit %d\n%s%s", code, out.String(), errs.String())
		}
		return
	}
	fmt.Fprint(&s.text, "$ bindery ", s.plain(ts, shellWords(args)), "\n")
	s.text.WriteString(s.plain(ts, out.String()))
	for line := range strings.Lines(errs.String()) {
		s.text.WriteString("2> " + s.plain(ts, line))
	}
	if code != 0 {
		fmt.Fprintf(&s.text, "exit %d\n", code)
	}
	s.text.WriteByte('\n')
}

func (s *script) print(ts *testscript.TestScript) {
	_, _ = ts.Stdout().Write(s.text.Bytes())
	s.text.Reset()
}

// anID is a ULID, or its tail as the program shortens it.
var anID = regexp.MustCompile(`\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b|…[0-9A-HJKMNP-TV-Z]{8}\b`)

// chain is a chain value; instants are times in RFC 3339; ago are those that status and explain give
// relative to now.
var (
	instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	chain    = regexp.MustCompile(`"chain":"[0-9a-f]{64}"`)
	ago      = regexp.MustCompile(`(?m)(^|  |\(|, )(now|\d+[smh] ago)($|  |\)|,)`)
	gaps     = regexp.MustCompile(`(\S)  +`)
)

// plain takes out what differs from run to run.
func (s *script) plain(ts *testscript.TestScript, text string) string {
	text = strings.ReplaceAll(text, ts.Getenv("BINDERY_STORE"), "$STORE")
	text = anID.ReplaceAllStringFunc(text, func(id string) string {
		tail := id[len(id)-8:]
		if s.ids[tail] == 0 {
			s.ids[tail] = len(s.ids) + 1
		}
		short := ""
		if strings.HasPrefix(id, "…") {
			short = "…"
		}
		return fmt.Sprintf("%s<%d>", short, s.ids[tail])
	})
	text = chain.ReplaceAllString(text, `"chain":"<chain>"`)
	text = instants.ReplaceAllString(text, "<time>")
	for range 2 { // two that stand side by side share what is between them
		text = ago.ReplaceAllString(text, "$1<ago>$3")
	}
	return gaps.ReplaceAllString(text, "$1  ") // how wide a column is depends on how long ago
}

var plainWord = regexp.MustCompile(`^[a-zA-Z0-9_./:=@,+%-]+$`)

func shellWords(args []string) string {
	out := slices.Clone(args)
	for i, a := range out {
		if !plainWord.MatchString(a) {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

// covered says by what a row of scenarios is proved. One that waits for a part
// not built yet says so, and what of it is proved already.
type covered struct {
	row    string // in short
	script string // testdata/script/NAME.txtar, with the phase that bears the row's name below
	phase  string
	test   string // or a test in this package
	later  string // or: why not, or not all of it, yet
}

// scenarios are the reports of what went wrong in systems of this kind.
var scenarios = map[string][]covered{
	"silent or wrong binding": {
		{row: "an edited request, applied again, moved the claim", script: "binding", phase: "apply-again"},
		{row: "a restore bound at random", test: "TestTrialRestore", later: "export is not built yet"},
		{row: "a recorded provider that is absent", script: "binding", phase: "absent-provider"},
		{row: "a reservation was stolen; two claims on one volume", test: "TestParallelCreates"},
		{row: "a selector for something absent picked something", script: "binding", phase: "unknown-provider"},
		{row: "a random choice among matches", script: "binding", phase: "ambiguous", test: "TestSameRefusal"},
		{row: "one's own component ignored for another", script: "binding", phase: "second-provider"},
		{row: "a preference in the wrong place dropped", script: "binding", phase: "misplaced-key"},
		{row: "another project's server reached by its name", later: "compositions are not checked yet"},
		{row: "dead registrations shown as hosts", script: "binding", phase: "one-provider-a-slot"},
	},
	"defaults": {
		{row: "two defaults", script: "defaults", phase: "second-default-replaces"},
		{row: "an upgrade re-marks the shipped default", script: "defaults", phase: "apply-leaves-operators"},
		{row: "a distribution with two defaults", script: "defaults", phase: "two-in-a-manifest"},
		{row: "default: false came out true", script: "defaults", phase: "false-empty-absent"},
	},
	"moves and names": {
		{row: "provider moved, consumer calls the old place", script: "moves", phase: "relocate"},
		{row: "moving the consumer lost its provider", script: "moves", phase: "move-keeps"},
		{row: "one of two left after a move", script: "moves", phase: "many-relocations"},
		{row: "ids minted anew on import", script: "moves", phase: "same-ids", test: "TestBackupAndRestoreKilled"},
		{row: "node gone, record stale", script: "moves", phase: "retired-node"},
		{row: "one missed heartbeat deleted registrations", test: "TestNoHealth"},
		{row: "a taken name replaced the first; success and nothing created", script: "moves", phase: "name-taken"},
		{row: "case twins", script: "moves", phase: "case-twins"},
		{row: "reserved words", script: "moves", phase: "reserved-names"},
		{row: "key alphabets", script: "moves", phase: "key-alphabet", test: "TestBadNames"},
	},
	"overrides and drift": {
		{row: "the user's value overwritten, and not brought back", script: "overrides", phase: "clear-restores"},
		{row: "changing the request has no effect and nobody says so", script: "overrides", phase: "needs-rebind",
			later: "plan is not built yet"},
		{row: "an empty list deleted everything", script: "overrides", phase: "absent-removes-nothing", later: "--prune is not built yet"},
		{row: "switching the recipe is unspecified", script: "overrides", phase: "switching"},
	},
	"removal": {
		{row: "consumer gone, still counted", script: "removal", phase: "counts"},
		{row: "removed under live leases", script: "removal", phase: "provider-in-use"},
		{row: "deleted that was not", script: "removal", phase: "what-happened"},
		{row: "one command says linked, another not", script: "removal", phase: "show-says-what-retire-would"},
		{row: "tearing down deadlocks", script: "removal", phase: "printed-order"},
		{row: "deleting a referenced thing", script: "removal", phase: "references"},
		{row: "access could not be deleted, its secret was gone", script: "removal", phase: "gone-already"},
	},
	"embedded and private": {
		{row: "published on all interfaces with a default password", later: "compositions are not checked yet"},
		{row: "a port already taken by the second stack", script: "embedded", phase: "ten-of-them"},
		{row: "bound to another's private instance", script: "embedded", phase: "not-a-provider"},
		{row: "an upgrade reset to the bundled one", script: "embedded", phase: "consolidated-stays"},
	},
	"rotation": {
		{row: "a pair meant to alternate rotated within seconds", script: "rotation", phase: "one-at-a-time"},
		{row: "new password applied, never stored", script: "rotation", phase: "intent-first", test: "TestPostgresAgentsKilled"},
		{row: "rotation stops silently after an error", script: "rotation", phase: "overdue"},
		{row: "revoking given up after six tries", script: "rotation", phase: "never-given-up"},
		{row: "cannot list or revoke by who holds", script: "rotation", phase: "by-who-holds", test: "TestRotateHolders"},
		{row: "no overlap, no notice; ready after its secret went", script: "rotation", phase: "overlap"},
		{row: "replicas on old and new password", script: "rotation", phase: "adoption-is-said"},
		{row: "one key for everybody", script: "rotation", phase: "one-binding"},
		{row: "rotate commands that cannot be previewed", script: "rotation", phase: "preview"},
		{row: "obsolete versions pile up, notices repeat", script: "rotation", phase: "revoked-once"},
	},
	"audit and watching": {
		{row: "a chooser nobody can see into", script: "audit", phase: "explain"},
		{row: "deduplication other than expected", script: "audit", phase: "command-id"},
		{row: "audit scattered over two logs", script: "audit", phase: "history"},
		{row: "a hash chain blind at its end", test: "TestDamage"},
		{row: "a watcher dead after a restart", test: "TestWatchOverRestarts"},
	},
}

// Kind: a row that everybody believes is covered. Each has a phase or a test
// that is there, or says why not; each phase has a row.
func TestScenariosCovered(t *testing.T) {
	phases := map[string]bool{} // script/phase → has a row
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txtar")
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut("\n"+string(text), "\n-- ")
		if n := strings.Count(head, "\n# Kind: "); n != strings.Count(head, "\nphase ") {
			t.Errorf("%s: a phase names its kind in a comment: %d do", f, n)
		}
		for line := range strings.Lines(head) {
			if p, ok := strings.CutPrefix(line, "phase "); ok {
				phases[name+"/"+strings.TrimSpace(p)] = false
			}
		}
	}
	tests := testNames(t)
	for section, rows := range scenarios {
		for _, r := range rows {
			if r.script == "" && r.test == "" && r.later == "" {
				t.Errorf("%s: nothing proves %q", section, r.row)
			}
			if key := r.script + "/" + r.phase; r.script != "" {
				if used, ok := phases[key]; !ok || used {
					t.Errorf("%s: %q names phase %s, which is not there or another row's", section, r.row, key)
				}
				phases[key] = true
			}
			if r.test != "" && !slices.Contains(tests, r.test) {
				t.Errorf("%s: %q names %s, which is not there", section, r.row, r.test)
			}
			if r.later != "" {
				t.Logf("%s: %s: later: %s", section, r.row, r.later)
			}
		}
	}
	for p, used := range phases {
		if !used {
			t.Errorf("phase %s has no row", p)
		}
	}
}

// testNames are the tests of this package.
func testNames(t *testing.T) []string {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			out = append(out, m[1])
		}
	}
	return out
}

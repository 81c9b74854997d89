// Package e2e proves bindery from outside: through the program as it is built,
// with processes that are killed, a disk that is full and input nobody means.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite what the scripts expect")

// program is the built program.
var program string

// childEnv makes the test binary a process that a test needs instead of running
// tests.
const childEnv = "BINDERY_E2E_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(build(m))
	case "commands":
		childCommands(os.Args[1], os.Args[2])
	case "hold":
		childHold(os.Args[1])
	}
}

// build builds the program, once, without the race detector: the tests of the
// packages run with it, and here processes are many.
func build(m *testing.M) int {
	flag.Parse()
	// The tests wait for processes more than they compute.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("6")
	}
	dir, err := os.MkdirTemp("", "bindery-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "bindery")
	cmd := exec.Command("go", "build", "-o", program, "bindery/cmd/bindery")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the program: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// noticeSources looks at the sources of the program, so that go test does not
// answer from its cache when only they have changed: the program is no
// dependency of the tests.
var noticeSources = sync.OnceFunc(func() {
	for _, dir := range []string{"../cmd", "../commands", "../ledger", "../projections", "../events"} {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, _ = os.Stat(path)
			}
			return nil
		})
	}
})

// child is the test binary as another process.
func child(ctx context.Context, what string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	return cmd
}

// patience bounds everything that is waited for. It is no measure: a machine
// that does other things, too, may be slow.
const patience = 3 * time.Minute

// cli runs the program on one store.
type cli struct {
	store string
	dir   string // working directory; "": that of the tests
	stdin []byte
	env   []string
}

// ran is what one run came to.
type ran struct {
	args           []string
	stdout, stderr string
	code           int
	took           time.Duration
	cpu            time.Duration // user and system
}

func newCLI(t testing.TB) *cli {
	t.Helper()
	return &cli{store: filepath.Join(t.TempDir(), "store")}
}

// environ is what every run of the program sees, and nothing more.
func environ(home, store string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + os.TempDir(), "TERM=dumb",
		"BINDERY_STORE=" + store, "BINDERY_ACTOR=ann"}
}

// run runs the program to its end.
func (c *cli) run(t testing.TB, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := c.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	r := ran{args: args, stdout: out.String(), stderr: errs.String(), took: time.Since(began)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		t.Fatalf("%s did not end within %s\n%s", r, patience, r.stderr)
	case err != nil && !errors.As(err, &exit):
		t.Fatalf("%s: %v", r, err)
	}
	r.code = cmd.ProcessState.ExitCode()
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if strings.Contains(r.stderr, "goroutine ") || strings.Contains(r.stderr, "panic:") {
		t.Errorf("%s crashed:\n%s", r, r.stderr)
	}
	return r
}

func (c *cli) command(ctx context.Context, args ...string) *exec.Cmd {
	noticeSources()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(environ(filepath.Dir(c.store), c.store), c.env...)
	cmd.Stdin = bytes.NewReader(c.stdin)
	return cmd
}

// String is the command line, shortened.
func (r ran) String() string {
	short := slices.Clone(r.args)
	for i, a := range short {
		if len(a) > 80 {
			short[i] = fmt.Sprintf("%s… (%d bytes)", a[:40], len(a))
		}
	}
	return fmt.Sprintf("bindery %q", short)
}

// must runs what has to succeed and returns its standard output.
func (c *cli) must(t testing.TB, args ...string) string {
	t.Helper()
	r := c.run(t, args...)
	if r.code != 0 {
		t.Fatalf("%s: exit %d\n%s%s", r, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// refused runs what has to be refused with a code, and returns the refusal.
func (c *cli) refused(t testing.TB, code string, exit int, args ...string) refusal {
	t.Helper()
	r := c.run(t, append(args, "-o", "json")...)
	e, ok := r.refusal()
	if !ok || e.Code != code || r.code != exit {
		t.Fatalf("%s: exit %d, want %d with %s\n%s%s", r, r.code, exit, code, r.stdout, r.stderr)
	}
	return e
}

// refusal is the JSON of an error.
type refusal struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Why        string `json:"why"`
	Fix        string `json:"fix"`
	Candidates []struct {
		Name, Node, Why, Flag string
	} `json:"candidates"`
}

// refusal reads the one JSON object that -o json writes on standard error.
func (r ran) refusal() (refusal, bool) {
	var e refusal
	d := json.NewDecoder(strings.NewReader(r.stderr))
	if err := d.Decode(&e); err != nil || d.More() {
		return e, false
	}
	return e, e.Code != "" && e.Message != "" && e.Candidates != nil
}

// read runs a read and decodes its JSON.
func read[T any](t testing.TB, c *cli, args ...string) T {
	t.Helper()
	var v T
	out := c.must(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("bindery %q: %v\n%s", args, err, out)
	}
	return v
}

// bindingJSON is what the tests read of a binding.
type bindingJSON struct {
	ID         string   `json:"id"`
	Assignment string   `json:"assignment"`
	Slot       string   `json:"slot"`
	Provider   string   `json:"provider"`
	ProviderID string   `json:"provider_id"`
	Endpoint   string   `json:"endpoint"`
	Rule       string   `json:"rule"`
	Flags      []string `json:"flags"`
}

type listJSON[T any] struct {
	Mesh  string    `json:"mesh"`
	Seq   uint64    `json:"seq"`
	Time  time.Time `json:"time"`
	Items []T       `json:"items"`
}

// seq is the ledger's last sequence.
func (c *cli) seq(t testing.TB) uint64 {
	t.Helper()
	return read[struct {
		Seq uint64 `json:"seq"`
	}](t, c, "status").Seq
}

func write(t testing.TB, path string, data string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

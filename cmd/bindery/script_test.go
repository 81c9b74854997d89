package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"bindery/events"
	"bindery/ledger"
)

// The scripts are the specification of the command line. They run it within the
// test ("bindery ARGS", "exits CODE bindery ARGS") on a clock that is a minute
// further with each run, and with ids that count, so that what it prints is the
// same each time; "exec bindery-process" is a process of its own.
//
// Each has home.yaml beside it: testdata/home.yaml, a mesh to begin with.
func TestScripts(t *testing.T) {
	home, err := os.ReadFile("testdata/home.yaml")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			e.Values[runnerKey{}] = &runner{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
			e.Setenv("BINDERY_STORE", "store")
			e.Setenv("BINDERY_ACTOR", "ann@desk")
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			return os.WriteFile(filepath.Join(e.WorkDir, "home.yaml"), home, 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"bindery": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg {
					ts.Fatalf("say which exit code: exits CODE bindery ...")
				}
				run(ts, 0, args)
			},
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 || args[1] != "bindery" {
					ts.Fatalf("usage: exits CODE bindery ARGS")
				}
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				run(ts, code, args[2:])
			},
			"store": storeCommand,
			"large": largeCommand,
		},
	})
}

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"bindery-process": main,
		"hold-store":      holdStore,
	})
}

// holdStore locks a store until it is killed.
func holdStore() {
	if _, err := ledger.AcquireLock(context.Background(), os.Args[1], ledger.LockConfig{Command: "bindery hold"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("held")
	if err := os.WriteFile("held", nil, 0o600); err != nil {
		os.Exit(1)
	}
	select {}
}

// storeCommand makes what a killed init leaves: "store unfinished DIR MESH".
func storeCommand(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 || args[0] != "unfinished" {
		ts.Fatalf("usage: store unfinished DIR MESH")
	}
	dir := ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(dir, 0o700))
	ctx := context.Background()
	srv, err := ledger.StartEmbedded(ctx, ledger.EmbeddedConfig{Dir: dir})
	ts.Check(err)
	defer srv.Close()
	nc, err := srv.Connect()
	ts.Check(err)
	defer nc.Close()
	_, err = ledger.Create(ctx, nc, args[2], ledger.CreateOptions{})
	ts.Check(err)
}

// largeCommand writes a manifest with N assignments: "large N FILE".
func largeCommand(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	var b strings.Builder
	b.WriteString(`mesh: home
provisions: {p: {scope: node}}
nodes: [alpha]
providers:
  pg-alpha: {provision: p, node: alpha, endpoint: "alpha:1"}
  pg-beta: {provision: p, node: alpha, endpoint: "alpha:2", cordoned: true}
modules: {m: {requires: {db: p}}}
assignments:
`)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "  a-%04d: {module: m, node: alpha}\n", i)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o600))
}

type runnerKey struct{}

// runner drives the program for one script.
type runner struct {
	mu  sync.Mutex
	now time.Time
	ids uint64
}

func (r *runner) newID() events.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids++
	var id events.ID
	ms := uint64(r.now.UnixMilli())
	binary.BigEndian.PutUint16(id[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(id[2:6], uint32(ms))
	binary.BigEndian.PutUint64(id[8:], r.ids)
	return id
}

// run runs the program and holds its exit code against want. "<FILE" at the end
// is its standard input.
func run(ts *testscript.TestScript, want int, args []string) {
	r := ts.Value(runnerKey{}).(*runner)
	r.now = r.now.Add(time.Minute)
	var in io.Reader = strings.NewReader("")
	if n := len(args) - 1; n >= 0 && strings.HasPrefix(args[n], "<") {
		in = strings.NewReader(ts.ReadFile(args[n][1:]))
		args = args[:n]
	}
	work := ts.MkAbs(".")
	p := &Program{NewID: r.newID, Clock: func() time.Time { return r.now }, Getenv: func(key string) string {
		v := ts.Getenv(key)
		if key == "BINDERY_STORE" && v != "" {
			v = ts.MkAbs(v)
		}
		return v
	}}
	var out, errs bytes.Buffer
	code := p.Run(context.Background(), absolute(ts, args), Streams{In: in, Out: &out, Err: &errs})
	relative := func(s string) string { return strings.ReplaceAll(s, work+"/", "") }
	_, _ = io.WriteString(ts.Stdout(), relative(out.String()))
	_, _ = io.WriteString(ts.Stderr(), relative(errs.String()))
	if code != want {
		ts.Fatalf("exit code %d, not %d", code, want)
	}
	for _, line := range strings.Split(errs.String(), "\n") {
		if fix, found := strings.CutPrefix(line, "fix: "+programName+" "); found {
			if err := pastes(fix); err != nil {
				ts.Fatalf("%s: %v", line, err)
			}
		}
	}
}

// pastes gives the rest of a command line to a shell, and what that makes of it to the
// command line's parser.
func pastes(rest string) error {
	words, err := exec.Command("sh", "-c", `printf '%s\0' `+rest).Output()
	if err != nil {
		return err
	}
	args := strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")
	cmd, left, err := docsRoot().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(left); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// absolute makes the paths among arguments absolute: the scripts run in one
// process, which has one working directory.
func absolute(ts *testscript.TestScript, args []string) []string {
	out := append([]string(nil), args...)
	for i := 1; i < len(out); i++ {
		if f := out[i-1]; (f == "-f" || f == "--file" || f == "--store" || f == "--cursor") && out[i] != "-" {
			out[i] = ts.MkAbs(out[i])
		}
	}
	return out
}

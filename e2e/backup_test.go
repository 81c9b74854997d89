package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wideStore is a store of some thousand events.
func wideStore(t *testing.T) *cli {
	t.Helper()
	c := newCLI(t)
	var b strings.Builder
	b.WriteString(strings.Replace(small, "assignments: {wiki: {node: alpha}}\n", "assignments:\n", 1))
	for i := range 2000 {
		fmt.Fprintf(&b, "  a-%04d: {module: wiki, node: alpha}\n", i)
	}
	path := write(t, filepath.Join(filepath.Dir(c.store), "wide.yaml"), b.String())
	c.must(t, "apply", "--init", "-f", path)
	for range 100 { // it is one batch after the other
		if r := c.run(t, "apply", "-f", path, "-o", "json"); r.code == 0 && strings.Contains(r.stdout, `"changed": false`) {
			return c
		}
	}
	t.Fatal("the manifest is never applied wholly")
	return nil
}

// killedUntil runs a command again and again and kills it after a while that gets
// longer, until it comes to its end by itself, or look says that it was killed when all
// was done. It returns how often it was killed.
func (c *cli) killedUntil(t *testing.T, look func() (done bool), args ...string) int {
	t.Helper()
	for kills := 0; ; kills++ {
		cmd := c.command(t.Context(), args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(1+rand.IntN(50*(kills+1))) * time.Millisecond
		timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			return kills
		}
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
			t.Fatalf("after %d kills: %v: %s", kills, err, &errs)
		}
		if look() {
			return kills + 1
		}
	}
}

// A backup and a restore that are killed at any point go on by the same command, to
// the same bytes; and never is a part of one taken for the whole.
func TestBackupAndRestoreKilled(t *testing.T) {
	t.Parallel()
	c := wideStore(t)
	dir := filepath.Dir(c.store)
	whole, file := filepath.Join(dir, "whole.jsonl"), filepath.Join(dir, "killed.jsonl")
	c.must(t, "backup", whole)
	want := contents(t, whole)
	exists := func(path string) bool { _, err := os.Stat(path); return !errors.Is(err, os.ErrNotExist) }
	kills := c.killedUntil(t, func() bool {
		if exists(file) && !bytes.Equal(contents(t, file), want) {
			t.Fatal("a part of a backup has its name")
		}
		return exists(file)
	}, "backup", file)
	if !bytes.Equal(contents(t, file), want) {
		t.Fatalf("after %d kills it is another backup", kills)
	}
	to := *c
	to.store = filepath.Join(dir, "restored")
	again := to.killedUntil(t, func() bool {
		if exists(to.store) {
			to.must(t, "audit", "verify")
			return true
		}
		if r := to.run(t, "status"); r.code != 5 {
			t.Fatalf("a part of a restore is a store: exit code %d: %s", r.code, r.stderr)
		}
		if exists(to.store + ".restoring") {
			for _, args := range [][]string{{"status"}, {"init", "--mesh", "home"}} {
				if e := to.refused(t, "ledger_missing", 5, args...); !strings.HasPrefix(e.Fix, "bindery restore FILE") {
					t.Fatalf("%v: %+v", args, e)
				}
			}
		}
		part := to
		part.store += ".restoring"
		part.refused(t, "ledger_missing", 5, "node", "register", "intruder")
		return false
	}, "restore", whole)
	t.Logf("%d bytes; killed %d times, and %d times", len(want), kills, again)
	second := filepath.Join(dir, "second.jsonl")
	to.must(t, "backup", second)
	if !bytes.Equal(contents(t, second), want) {
		t.Error("the backup of what was restored is another one")
	}
	if exists(to.store + ".restoring") {
		t.Error("something is left behind")
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A trial restore beside a store that is served disturbs nothing, and a backup that
// is older than what is known to have been there is restored only on request.
func TestTrialRestore(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	dir := filepath.Dir(c.store)
	s := c.serve(t)
	first := filepath.Join(dir, "first.jsonl")
	c.must(t, "backup", first)
	trial := *c
	trial.store = filepath.Join(dir, "trial")
	trial.must(t, "restore", first)
	trial.must(t, "node", "register", "of-the-trial")
	c.must(t, "node", "register", "of-production")
	if seq, of := c.seq(t), trial.seq(t); seq != 9 || of != 9 {
		t.Errorf("at %d, and the trial at %d", seq, of)
	}
	c.must(t, "audit", "verify")
	s.stop(t, syscall.SIGTERM)
	c.must(t, "status") // its anchor is its own
	third := *c
	third.store = filepath.Join(dir, "third")
	third.refused(t, "ledger_restored", 9, "restore", first)
	third.refused(t, "ledger_missing", 5, "status")
	third.must(t, "restore", first, "--accept-loss")
	if err := os.RemoveAll(c.store); err != nil {
		t.Fatal(err)
	}
	c.must(t, "restore", first, "--accept-loss")
	c.must(t, "node", "register", "afterwards")
	c.must(t, "audit", "verify")
}

// An output that takes no more is told of as that, and not as a fault of the program.
func TestOutputCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	c := smallStore(t)
	for _, args := range [][]string{{"backup"}, {"status"}, {"node", "list", "-o", "json"}} {
		cmd := c.command(t.Context(), args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &errs
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(errs.String(), "store_unusable") {
			t.Errorf("%v: exit code %d: %s", args, code, &errs)
		}
	}
}

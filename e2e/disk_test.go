package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// tinyDisk mounts a file system of so many bytes.
func tinyDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a file system")
	}
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOSYS):
		t.Skip("mounting is not permitted here: ", err)
	case err != nil:
		t.Fatal("mounting: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all the space that is left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Kind: the disk is full: something is half written, or said to be done, or the
// store cannot be opened any more.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := tinyDisk(t, 8<<20)
	c := &cli{store: filepath.Join(dir, "store")}
	ballast := filepath.Join(dir, "ballast")
	c.must(t, "apply", "--init", "-f", fleet)
	before := c.must(t, "binding", "list", "-o", "json")
	seq := c.seq(t)

	fill(t, ballast)
	for _, args := range [][]string{
		{"node", "register", "gamma"},
		{"assignment", "create", "outline", "--node", "beta", "--name", "notes", "--bind", "db=pg-beta", "--bind", "files=garage-beta"},
		{"override", "set", "wiki/db", "--provider", "pg-beta", "--reason", "a trial"},
		{"status"},
	} {
		r := c.run(t, append(args, "-o", "json")...)
		e, ok := r.refusal()
		switch {
		case r.code == 0: // there was room for it still
			t.Logf("%s went through", r)
		case !ok:
			t.Errorf("%s: exit %d without a code\n%s", r, r.code, r.stderr)
		default:
			t.Logf("%s: exit %d, %s: %s: %s", r, r.code, e.Code, e.Message, e.Why)
			// A server that drops what it cannot store leaves the outcome unknown.
			if !slices.Contains([]string{"store_unusable", "outcome_unknown"}, e.Code) {
				t.Errorf("%s: %s is no code of a full disk", r, e.Code)
			}
		}
	}
	// An init on a full disk makes nothing that hinders the next one.
	second := &cli{store: filepath.Join(dir, "second")}
	if r := second.run(t, "init", "--mesh", "home", "-o", "json"); r.code == 0 {
		t.Logf("init went through")
	} else if e, ok := r.refusal(); !ok || e.Code != "store_unusable" {
		t.Errorf("%s: exit %d, want 7 with store_unusable\n%s", r, r.code, r.stderr)
	} else {
		t.Logf("%s: exit %d, %s: %s: %s", r, r.code, e.Code, e.Message, e.Why)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	now := c.seq(t)
	items := read[listJSON[struct{ Batch string }]](t, c, "log", "--from", fmt.Sprintf("seq:%d", seq)).Items
	if n := len(items); n == 0 || uint64(n-1) != now-seq {
		t.Fatalf("the log went from %d to %d with %d events", seq, now, n-1)
	}
	if i, of := 0, 0; true {
		if _, err := fmt.Sscanf(items[len(items)-1].Batch, "%d/%d", &i, &of); err != nil || i != of {
			t.Errorf("the last command is there by halves: %q", items[len(items)-1].Batch)
		}
	}
	if now == seq {
		if after := c.must(t, "binding", "list", "-o", "json"); after != before {
			t.Errorf("bindings changed:\n%s\n%s", before, after)
		}
	}
	for _, args := range [][]string{
		{"assignment", "create", "outline", "--node", "beta", "--name", "notes", "--bind", "db=pg-beta", "--bind", "files=garage-beta"},
		{"node", "register", "gamma"},
	} {
		if r := c.run(t, args...); r.code != 0 && !strings.Contains(r.stderr, "[name_taken]") {
			t.Errorf("with space again, %s: exit %d\n%s", r, r.code, r.stderr)
		}
	}
	second.must(t, "init", "--mesh", "home")
	if s := second.seq(t); s != 1 {
		t.Errorf("the second ledger is at %d", s)
	}
}

// Kind: a store that cannot be written is written elsewhere, or panics.
func TestReadOnlyStore(t *testing.T) {
	t.Parallel()
	dir := tinyDisk(t, 8<<20)
	c := &cli{store: filepath.Join(dir, "store")}
	c.must(t, "init", "--mesh", "home")
	remount := func(flags uintptr) {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Skip("remounting is not permitted here: ", err)
		}
	}
	remount(syscall.MS_RDONLY)
	for _, args := range [][]string{{"node", "register", "gamma"}, {"status"}, {"init", "--mesh", "home"}, {"apply", "--init", "-f", fleet}} {
		e := c.refused(t, "store_unusable", 7, args...)
		if !strings.Contains(e.Why, "read-only") {
			t.Errorf("%q: does not say what is wrong: %s", args, e.Why)
		}
	}
	other := &cli{store: filepath.Join(dir, "other")}
	other.refused(t, "store_unusable", 7, "init", "--mesh", "home")
	remount(0)
	c.must(t, "node", "register", "gamma")
	if seq := c.seq(t); seq != 2 {
		t.Errorf("the log is at %d, want 2", seq)
	}
}

// Kind: a path that is no directory, or somebody else's directory.
func TestStrangeStores(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"), "mine")
	full := filepath.Join(dir, "full")
	mine := write(t, filepath.Join(full, "letter.txt"), "mine")
	for _, store := range []string{file, filepath.Join(file, "below"), full} {
		c := &cli{store: store}
		c.refused(t, "ledger_missing", 5, "status")
		c.refused(t, "ledger_missing", 5, "node", "register", "alpha")
		c.refused(t, "store_unusable", 7, "init", "--mesh", "home")
		c.refused(t, "store_unusable", 7, "apply", "--init", "-f", fleet)
	}
	for _, f := range []string{file, mine} {
		if data, err := os.ReadFile(f); err != nil || string(data) != "mine" {
			t.Errorf("%s has %q, %v", f, data, err)
		}
	}
	if entries, err := os.ReadDir(full); err != nil || len(entries) != 1 {
		t.Errorf("somebody's directory has %v, %v", entries, err)
	}
	// What is not there is not made by a read or a write.
	c := &cli{store: filepath.Join(dir, "none")}
	c.refused(t, "ledger_missing", 5, "status")
	c.refused(t, "ledger_missing", 5, "node", "register", "alpha")
	c.refused(t, "ledger_missing", 5, "apply", "-f", fleet)
	// Nor by a manifest that is refused.
	bad := write(t, filepath.Join(dir, "bad.yaml"), "mesh: home\nnodes: [alpha]\nassignments: {wiki: {node: alpha}}\n")
	c.refused(t, "module_not_found", 5, "apply", "--init", "-f", bad)
	if _, err := os.Stat(c.store); err == nil {
		t.Error("a store was made")
	}
}

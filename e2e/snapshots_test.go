package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// manyConsumers is a manifest of n consumers with four slots each: five events a
// consumer.
func manyConsumers(n int) string {
	var b strings.Builder
	b.WriteString("mesh: home\nnodes: [alpha]\nprovisions:\n")
	slots := []string{"db", "cache", "files", "sso"}
	for _, slot := range slots {
		fmt.Fprintf(&b, "  %s: {scope: node, credentials: none}\n", slot)
	}
	b.WriteString("providers:\n")
	for i, slot := range slots {
		fmt.Fprintf(&b, "  %s-alpha: {provision: %s, node: alpha, endpoint: \"alpha:%d\"}\n", slot, slot, i+1)
	}
	b.WriteString("modules:\n  app:\n    requires:\n")
	for _, slot := range slots {
		fmt.Fprintf(&b, "      %s: %s\n", slot, slot)
	}
	b.WriteString("assignments:\n")
	for i := range n {
		fmt.Fprintf(&b, "  app-%d: {module: app, node: alpha}\n", i)
	}
	return b.String()
}

// snapshots lists the sequences of the snapshots of a store.
func (c *cli) snapshots(t testing.TB) (seqs []uint64, paths []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(c.store, "snapshots", "*.snap"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		seq, _, _ := strings.Cut(filepath.Base(path), "-")
		n, err := strconv.ParseUint(seq, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, n)
	}
	return seqs, paths
}

// everything is what a store answers, for comparison.
func (c *cli) everything(t testing.TB) string {
	t.Helper()
	var out []string
	for _, list := range []string{"node", "provision", "provider", "module", "assignment", "binding"} {
		out = append(out, c.must(t, list, "list", "-o", "jsonl"))
	}
	return strings.Join(append(out, c.must(t, "explain", "app-7/db", "-o", "json")), "\n")
}

// TestSnapshots: a store answers the same with its snapshots, with a damaged one, and
// with none; a process that serves leaves one behind, a command that had much to read
// does, and who wants to read the whole ledger does.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	manifest := write(t, filepath.Join(t.TempDir(), "many.yaml"), manyConsumers(300))
	c.must(t, "apply", "--init", "-f", manifest)
	want := c.everything(t)
	if seqs, _ := c.snapshots(t); len(seqs) != 0 {
		t.Fatalf("a small ledger has snapshots: %v", seqs)
	}
	last := c.seq(t)

	c.serve(t).stop(t, syscall.SIGTERM)
	seqs, paths := c.snapshots(t)
	if len(seqs) != 1 || seqs[0] != last {
		t.Fatalf("after an orderly stop at %d there are snapshots at %v", last, seqs)
	}
	if got := c.everything(t); got != want {
		t.Error("with a snapshot it answers otherwise")
	}
	c.must(t, "node", "register", "beta")
	if got := c.seq(t); got != last+1 {
		t.Errorf("after a write it is at %d, not at %d", got, last+1)
	}
	if r := c.run(t, "doctor"); strings.Contains(r.stdout, "snapshots") {
		t.Errorf("doctor: %s", r.stdout)
	}

	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(paths[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	r := c.run(t, "node", "list")
	if r.code != 0 || !strings.Contains(r.stderr, "warning: removing a snapshot") || !strings.Contains(r.stdout, "beta") {
		t.Errorf("with a damaged snapshot: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if seqs, _ := c.snapshots(t); len(seqs) != 0 {
		t.Errorf("the damaged one is still there: %v", seqs)
	}
	c.must(t, "node", "retire", "beta")

	// Much to read: a command leaves one, and a server that is killed has left one.
	more := write(t, filepath.Join(t.TempDir(), "more.yaml"), manyConsumers(2400))
	c.must(t, "apply", "-f", more)
	want = c.everything(t)
	if seqs, _ = c.snapshots(t); len(seqs) != 1 || seqs[0] != c.seq(t) {
		t.Errorf("at %d there are snapshots at %v", c.seq(t), seqs)
	}
	if err := os.RemoveAll(filepath.Join(c.store, "snapshots")); err != nil {
		t.Fatal(err)
	}
	c.serve(t).stop(t, syscall.SIGKILL)
	if seqs, _ = c.snapshots(t); len(seqs) != 1 || seqs[0] != c.seq(t) {
		t.Errorf("at %d, after a kill, there are snapshots at %v", c.seq(t), seqs)
	}
	if got := c.everything(t); got != want {
		t.Error("after a kill it answers otherwise")
	}
}

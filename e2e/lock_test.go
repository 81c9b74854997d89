package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hold makes another process hold a store.
func hold(t *testing.T, store string) *exec.Cmd {
	t.Helper()
	cmd := child(context.Background(), "hold", store)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	return cmd
}

// Kind: two processes on one store damage it, or the second one waits for ever,
// or is not told for whom.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.must(t, "init", "--mesh", "home")
	holder := hold(t, c.store)

	for _, args := range [][]string{{"status"}, {"node", "register", "alpha"}, {"init", "--mesh", "home"},
		{"apply", "--init", "-f", "testdata/fleet.yaml"}} {
		r := c.run(t, append(args, "-o", "json")...)
		e, ok := r.refusal()
		if !ok || r.code != 7 || e.Code != "store_locked" || !strings.Contains(e.Why, fmt.Sprintf("process %d ", holder.Process.Pid)) {
			t.Errorf("%s: exit %d\n%s", r, r.code, r.stderr)
		}
		if r.stdout != "" {
			t.Errorf("%s: printed %q", r, r.stdout)
		}
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	if seq := c.seq(t); seq != 1 {
		t.Errorf("the log is at %d, want 1", seq)
	}
	c.must(t, "node", "register", "alpha")
	if seq := c.seq(t); seq != 2 {
		t.Errorf("the log is at %d, want 2", seq)
	}
}

// Kind: what the command line carries is kept or told on. Who holds the store is
// told to everybody who waits for it, and stays on disk if the holder is killed.
func TestLockTellsNoSecret(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.must(t, "init", "--mesh", "home")
	// A pipe in the lock's place shows what is written there.
	path := filepath.Join(c.store, "lock")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip("no named pipes here: ", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := c.command(ctx, "provider", "register", "pg", "--provision", "pg", "--node", "alpha", "--endpoint", "postgres://ann:"+password+"@alpha:5432")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Skip("this pipe has no deadline: ", err)
	}
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var holder struct {
		PID     int
		Command string
	}
	if err := json.Unmarshal([]byte(line), &holder); err != nil || holder.PID != cmd.Process.Pid {
		t.Fatalf("%q: %v", line, err)
	}
	if strings.Contains(line, password) {
		t.Errorf("the lock carries the secret of a command line: %s", line)
	}
	if !strings.Contains(holder.Command, "provider register") {
		t.Errorf("the lock does not say what holds it: %s", line)
	}
}

// Kind: two claims on one thing, both granted. 50 processes create an assignment
// of one name, each with another provider: one does, 49 are refused.
func TestParallelCreates(t *testing.T) {
	t.Parallel()
	const processes = 50
	c := newCLI(t)
	var m bytes.Buffer
	fmt.Fprint(&m, "mesh: home\nprovisions: {pg: {scope: node}}\nnodes: [alpha]\nmodules: {wiki: {requires: {db: pg}}}\nproviders:\n")
	for i := range processes {
		fmt.Fprintf(&m, "  pg-%d: {provision: pg, node: alpha, endpoint: \"alpha.mesh:%d\"}\n", i, 1000+i)
	}
	c.stdin = m.Bytes()
	c.must(t, "apply", "--init", "-f", "-")
	before := c.seq(t)

	codes := make([]int, processes)
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			for {
				r := c.run(t, "assignment", "create", "wiki", "--node", "alpha", "--bind", fmt.Sprintf("db=pg-%d", i), "-o", "json")
				codes[i] = r.code
				e, _ := r.refusal()
				switch {
				case r.code == 0:
				case r.code == 4 && e.Code == "name_taken":
				case r.code == 7 && e.Code == "store_locked":
					time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
					continue
				default:
					t.Errorf("%s: exit %d\n%s", r, r.code, r.stderr)
				}
				return
			}
		})
	}
	wg.Wait()
	winner := -1
	for i, code := range codes {
		switch {
		case code == 0 && winner >= 0:
			t.Errorf("%d and %d both created it", winner, i)
		case code == 0:
			winner = i
		}
	}
	l := read[listJSON[bindingJSON]](t, c, "binding", "list")
	if winner < 0 || len(l.Items) != 1 || l.Items[0].Provider != fmt.Sprintf("pg-%d", winner) || l.Seq != before+2 {
		t.Errorf("process %d created it; the ledger has %+v at sequence %d, it was at %d", winner, l.Items, l.Seq, before)
	}
}

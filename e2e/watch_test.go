package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// changeJSON is what the tests read of a line of watch.
type changeJSON struct {
	Kind       string `json:"kind"`
	Seq        uint64 `json:"seq"`
	Binding    string `json:"binding"`
	Assignment string `json:"assignment"`
}

func (c changeJSON) String() string { return fmt.Sprintf("%d %s %s", c.Seq, c.Binding, c.Kind) }

// changesOf are all changes of the ledger from a sequence on.
func (c *cli) changesOf(t testing.TB, from uint64) (out []changeJSON) {
	t.Helper()
	for line := range strings.Lines(c.must(t, "watch", "--once", "--from", fmt.Sprintf("seq:%d", from), "-o", "jsonl")) {
		var ch changeJSON
		if err := json.Unmarshal([]byte(line), &ch); err != nil {
			t.Fatal(err)
		}
		if ch.Kind != "caught-up" {
			out = append(out, ch)
		}
	}
	return out
}

// What a watch tells while the process that serves is stopped, killed and started
// anew is each change once, in order.
func TestWatchOverRestarts(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	c.refused(t, "needs_serve", 7, "watch")
	s := c.serve(t)
	from := c.seq(t) + 1
	w := c.following(t, "watch", "-o", "jsonl")
	var mark struct{ Kind string }
	if line := w.next(t); json.Unmarshal([]byte(line), &mark) != nil || mark.Kind != "caught-up" {
		t.Fatalf("it begins with %q", line)
	}
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, 0} {
		for k := range 3 {
			c.must(t, "assignment", "create", "wiki", "--node", "alpha", "--name", fmt.Sprintf("w-%d-%d", i, k))
		}
		c.must(t, "provider", "relocate", "pg-alpha", "--to", []string{"beta", "alpha"}[i%2], "--endpoint", fmt.Sprintf("there:%d", i+1))
		c.must(t, "provider", "relocate", "pg-alpha", "--to", []string{"alpha", "beta"}[i%2], "--endpoint", fmt.Sprintf("here:%d", i+1))
		if i == 1 {
			c.must(t, "provider", "relocate", "pg-alpha", "--to", "alpha", "--endpoint", "home:1")
		}
		if sig != 0 {
			s.stop(t, sig)
			s = c.serve(t)
		}
	}
	want := c.changesOf(t, from)
	if len(want) < 30 {
		t.Fatalf("%d changes", len(want))
	}
	for i := range want {
		var got changeJSON
		line := w.next(t)
		if err := json.Unmarshal([]byte(line), &got); err != nil || got != want[i] {
			t.Fatalf("change %d is %v (%v), want %v", i, got, err, want[i])
		}
	}
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if line := w.next(t); line != "" {
		t.Errorf("more: %q", line)
	}
	_ = w.cmd.Wait()
	if code := w.cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(w.errs.String(), "watch") {
		t.Errorf("exit %d, %s", code, w.errs)
	}
}

// A watch that is killed again and again and goes on with its cursor has its
// command run for every change, at least once, and in order.
func TestWatchKilled(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	c.serve(t)
	from := c.seq(t) + 1
	dir := filepath.Dir(c.store)
	told, cursor := filepath.Join(dir, "told"), filepath.Join(dir, "cursor")
	write(t, told, "")
	args := []string{"watch", "--from", fmt.Sprintf("seq:%d", from), "--cursor", cursor,
		"--exec", "sh", "-c", `echo "$BINDERY_SEQ $BINDERY_BINDING $BINDERY_KIND" >> "$0"; sleep 0.02`, told}
	for i := range 12 {
		c.must(t, "assignment", "create", "wiki", "--node", "alpha", "--name", fmt.Sprintf("w-%d", i))
	}
	c.must(t, "provider", "relocate", "pg-alpha", "--to", "beta", "--endpoint", "there:1")
	want := c.changesOf(t, from)
	lines := func() []string {
		data, err := os.ReadFile(told)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	}
	last := want[len(want)-1].String()
	runs := 0
	for ; !bytes.Contains([]byte(strings.Join(lines(), "\n")), []byte(last)); runs++ {
		if runs > 100 {
			t.Fatalf("it does not come to an end: %d lines", len(lines()))
		}
		cmd := c.following(t, args...)
		// Longer each time: a command of the ledger is handled whole, or comes again.
		time.Sleep(time.Duration(200+60*runs) * time.Millisecond)
		_ = cmd.cmd.Process.Kill()
		_ = cmd.cmd.Wait()
	}
	if runs < 2 {
		t.Errorf("it was never killed on the way")
	}
	place, done := map[string]int{}, 0
	for i, ch := range want {
		place[ch.String()] = i
	}
	for i, line := range lines() {
		at, known := place[line]
		if !known || at > done {
			t.Fatalf("line %d is %q (change %d), and change %d was not told before", i, line, at, done)
		}
		done = max(done, at+1)
	}
	if done != len(want) {
		t.Errorf("%d of %d changes were told", done, len(want))
	}
	info, err := os.Stat(cursor)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// The agent of a node is told of its node by the documents, through the rights of
// its grant; it may not ask for another one, or for the past.
func TestWatchOfAnAgent(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	dir := filepath.Dir(c.store)
	key := filepath.Join(dir, "agent.nk")
	public := strings.TrimSpace(c.must(t, "access", "keygen", key))
	c.serve(t)
	join := filepath.Join(dir, "join.json")
	c.must(t, "access", "grant", "on-alpha", "--role", "agent", "--node", "alpha", "--nkey", public)
	var e struct{ URL, Pin string }
	data, err := os.ReadFile(filepath.Join(c.store, "serve.json"))
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, join, fmt.Sprintf(`{"url":%q,"nkey":%q,"mesh":"home"}`, e.URL, key))
	agent := &cli{store: c.store, env: []string{"BINDERY_STORE="}}
	as := func(args ...string) []string { return append([]string{"--context", join}, args...) }
	eventually(t, "it is let in", func() bool { return agent.run(t, as("node", "show", "alpha")...).code == 0 })
	agent.refused(t, "not_permitted", 4, as("watch", "--node", "beta")...)
	agent.refused(t, "usage", 2, as("watch", "--from", "seq:1")...)
	w := agent.following(t, as("watch", "--initial", "-o", "jsonl")...)
	next := func() (ch changeJSON) {
		if err := json.Unmarshal([]byte(w.next(t)), &ch); err != nil {
			t.Fatal(err)
		}
		return ch
	}
	if ch := next(); ch.Kind != "present" || ch.Assignment != "wiki" {
		t.Errorf("first %+v", ch)
	}
	if ch := next(); ch.Kind != "caught-up" {
		t.Errorf("then %+v", ch)
	}
	r := c.must(t, "provider", "relocate", "pg-alpha", "--to", "beta", "--endpoint", "there:1", "-o", "json")
	if ch := next(); ch.Kind != "relocated" || !strings.Contains(r, fmt.Sprintf(`"seq": %d`, ch.Seq)) {
		t.Errorf("%+v\n%s", ch, r)
	}
	c.must(t, "assignment", "create", "wiki", "--node", "beta", "--name", "other")
	c.must(t, "assignment", "move", "wiki", "--to", "beta")
	if ch := next(); ch.Kind != "gone" {
		t.Errorf("%+v", ch)
	}
}

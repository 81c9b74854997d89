package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// acting is an agent that runs.
type acting struct {
	serving
	root string
}

// agent runs the agent of a node with the hooks of the toy service, whose logins are
// in the directory toy-logins beside the store.
func (c *cli) agent(t testing.TB, node string, args ...string) *acting {
	t.Helper()
	home := filepath.Dir(c.store)
	hooks := filepath.Join(home, "hooks")
	toy, err := os.ReadFile("../docs/agent/hooks/provider/toy")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"provider/default": string(toy), "consumer/default": "#!/bin/sh\ncat >> $HOME/consumed\n"} {
		if err := os.Chmod(write(t, filepath.Join(hooks, path), text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(home, "toy-logins"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := &acting{root: filepath.Join(home, "root-"+node)}
	a.cmd = c.command(context.Background(), append([]string{"agent", "--node", node, "--root", a.root, "--hooks", hooks}, args...)...)
	a.errs, a.done = &lockedBuffer{}, make(chan error, 1)
	a.cmd.Stderr = a.errs
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { a.done <- a.cmd.Wait() }()
	t.Cleanup(func() { _ = a.cmd.Process.Kill() })
	return a
}

// toyExact reports whether the toy service lets in exactly who holds a credential of
// pg-alpha, and every consumer on alpha reads one of those.
func (c *cli) toyExact(t testing.TB, a *acting) bool {
	t.Helper()
	holders := read[listJSON[struct {
		Assignment string `json:"assignment"`
		Generation uint64 `json:"generation"`
		State      string `json:"state"`
	}]](t, c, "credential", "list")
	var got, want []string
	logins, err := os.ReadDir(filepath.Join(filepath.Dir(c.store), "toy-logins"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logins {
		got = append(got, strings.Split(l.Name(), "_")[1])
	}
	for _, h := range holders.Items {
		if h.State != "adopted" {
			return false
		}
		want = append(want, fmt.Sprint(h.Generation))
		dir := filepath.Join(a.root, "bindings", "by-name", h.Assignment, "db")
		user, err := os.ReadFile(filepath.Join(dir, "username"))
		if err != nil || strings.Split(string(user), "_")[1] != fmt.Sprint(h.Generation) {
			return false
		}
		password, err := os.ReadFile(filepath.Join(dir, "password"))
		if err != nil {
			return false
		}
		login, err := os.ReadFile(filepath.Join(filepath.Dir(c.store), "toy-logins", string(user)))
		if err != nil || strings.TrimSpace(string(login)) != string(password) {
			return false
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	return len(want) > 0 && slices.Equal(got, want)
}

// An agent on a served store acts through restarts of the process that serves, and
// its own kills, and leaves nothing readable by others.
func TestAgentOverRestarts(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	c.refused(t, "needs_serve", 7, "agent", "--node", "alpha", "--root", filepath.Join(t.TempDir(), "root"))
	s := c.serve(t)
	a := c.agent(t, "alpha")
	eventually(t, "it acts", func() bool { return c.toyExact(t, a) })
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		s.stop(t, sig)
		s = c.serve(t)
		c.must(t, "assignment", "create", "wiki", "--node", "alpha", "--name", fmt.Sprintf("w-%d", i))
		eventually(t, "it acts again", func() bool { return c.toyExact(t, a) })
	}
	for i := range 3 {
		c.must(t, "rotation", "start", "--provider", "pg-alpha", "--supersede")
		a.stop(t, syscall.SIGKILL)
		a = c.agent(t, "alpha")
		eventually(t, fmt.Sprintf("it has rotated, %d", i), func() bool { return c.toyExact(t, a) })
	}
	a.stop(t, syscall.SIGTERM)
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d\n%s", code, a.errs)
	}
	err := filepath.WalkDir(a.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

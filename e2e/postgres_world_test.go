package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// world is a mesh of two nodes, alpha and beta, with a Postgres server, an agent and
// consumers on each, and the operator's command line.
type world struct {
	*cli
	url     string // where the ledger is served
	limit   string // how long a hook may run
	pg      map[string]*postgres
	nodes   map[string]*worldNode
	serving *serving
}

// worldNode is a node as one machine plays it: a user with a home, and an agent.
type worldNode struct {
	world *world
	name  string
	uid   int // -1: the test's own user
	home  string
	log   *lockedBuffer // of all its agents, one after the other

	deaths atomic.Int64 // how often an agent of its was killed

	mu    sync.Mutex
	agent *exec.Cmd
	ended chan struct{} // closed when that one has
}

const pgFleet = `mesh: home
provisions: {postgres-database: {scope: node}}
nodes: [alpha, beta]
providers:
  pg-alpha: {provision: postgres-database, node: alpha, endpoint: "%s"}
  pg-beta: {provision: postgres-database, node: beta, endpoint: "%s"}
modules:
  wiki: {requires: {db: postgres-database}}
  grafana: {requires: {db: postgres-database}}
  forgejo: {requires: {db: postgres-database}}
assignments:
  wiki: {node: alpha}
  grafana: {node: beta, bind: {db: pg-alpha}}
  forgejo: {node: beta}
`

// pgConsumers are the consumers, with their nodes.
var pgConsumers = map[string]string{"wiki": "alpha", "grafana": "beta", "forgejo": "beta"}

// newWorld brings everything up, but for the agents.
func newWorld(t *testing.T) *world {
	t.Helper()
	needsPostgres(t)
	// Hooks take a second; a machine that does other things, too, several.
	w := &world{limit: "20s", cli: &cli{store: filepath.Join(openDir(t), "store")}, pg: map[string]*postgres{}, nodes: map[string]*worldNode{}}
	for _, name := range []string{"pg-alpha", "pg-beta"} {
		w.pg[name] = newPostgres(t, name)
	}
	w.must(t, "apply", "--init", "-f", write(t, filepath.Join(filepath.Dir(w.store), "fleet.yaml"),
		fmt.Sprintf(pgFleet, w.pg["pg-alpha"].endpoint(), w.pg["pg-beta"].endpoint())))
	w.serving = w.serve(t)
	data, err := os.ReadFile(filepath.Join(w.store, "serve.json"))
	var e struct{ URL string }
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.url = e.URL
	for i, name := range []string{"alpha", "beta"} {
		w.newNode(t, name, i)
	}
	w.administer(t, "alpha", "pg-alpha")
	w.administer(t, "beta", "pg-beta")
	return w
}

// newNode gives a node its user, its home, its hooks, its key and its grant.
func (w *world) newNode(t *testing.T, name string, number int) {
	t.Helper()
	dir := openDir(t)
	n := &worldNode{world: w, name: name, uid: -1, home: filepath.Join(dir, "home"), log: &lockedBuffer{}}
	if os.Geteuid() == 0 {
		n.uid = 64001 + number
	}
	for file, from := range map[string]string{"provider/postgres-database": "testdata/postgres/hook", "consumer/default": "testdata/postgres/hook",
		"real/provider": providerHook, "real/consumer": "../docs/postgres/consumer/default"} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(write(t, filepath.Join(dir, "hooks", file), string(data)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{n.home, filepath.Join(n.home, "do")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		n.own(t, d)
	}
	key, err := n.command("access", "keygen", filepath.Join(n.home, "agent.nk")).Output()
	if err != nil {
		t.Fatal(err)
	}
	w.must(t, "access", "grant", "on-"+name, "--role", "agent", "--node", name, "--nkey", strings.TrimSpace(string(key)))
	w.nodes[name] = n
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agents of %s said:\n%s", name, n.log)
		}
	})
}

// own gives a file to the node's user.
func (n *worldNode) own(t testing.TB, path string) {
	t.Helper()
	if n.uid < 0 {
		return
	}
	if err := os.Chown(path, n.uid, n.uid); err != nil {
		t.Fatal(err)
	}
}

// administer lets the hooks on a node log in to the provider's server.
func (w *world) administer(t testing.TB, node, provider string) {
	t.Helper()
	n := w.nodes[node]
	there := map[string]*postgres{provider: w.pg[provider]}
	for name, p := range w.pg {
		if name == "pg-"+node {
			there[name] = p
		}
	}
	hookHome(t, n.home, there)
	n.own(t, filepath.Join(n.home, ".pg_service.conf"))
	n.own(t, filepath.Join(n.home, ".pgpass"))
}

// command is the program as the node's user runs it.
func (n *worldNode) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = []string{postgresPath(), "HOME=" + n.home, "LANG=C.UTF-8"}
	cmd.Dir = n.home
	if n.uid >= 0 {
		cmd.SysProcAttr = asUser(n.uid, n.uid)
	}
	return cmd
}

func (n *worldNode) root() string { return filepath.Join(n.home, "agent") }

// start starts the node's agent.
func (n *worldNode) start(t testing.TB) {
	t.Helper()
	cmd := n.command("agent", "--server", n.world.url, "--creds", filepath.Join(n.home, "agent.nk"), "--node", n.name,
		"--root", n.root(), "--hooks", filepath.Join(filepath.Dir(n.home), "hooks"), "--hook-timeout", n.world.limit, "--log-level", "debug")
	cmd.Stderr = n.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	n.mu.Lock()
	n.agent, n.ended = cmd, ended
	n.mu.Unlock()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
}

// running is the node's agent, and what tells its end.
func (n *worldNode) running() (*exec.Cmd, chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.agent, n.ended
}

// kill kills the agent; what its hooks are at goes on.
func (n *worldNode) kill() {
	cmd, _ := n.running()
	_ = cmd.Process.Kill()
}

// keep starts the node's agent, and again each time it ends, until ctx does; then it is
// ended orderly.
func (n *worldNode) keep(ctx context.Context, t testing.TB) (done func()) {
	t.Helper()
	n.start(t)
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			cmd, ended := n.running()
			select {
			case <-ctx.Done():
				return
			case <-ended:
			}
			if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
				t.Errorf("the agent of %s ended with %v\n%s", n.name, cmd.ProcessState, n.log)
				return
			}
			n.deaths.Add(1)
			n.start(t)
		}
	})
	return wait.Wait
}

// actings is how often an agent of the node has begun to act.
func (n *worldNode) actings() int { return strings.Count(n.log.String(), "msg=acting") }

// stop tells the agent to end, and it does so orderly.
func (n *worldNode) stop(t testing.TB) {
	t.Helper()
	cmd, ended := n.running()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the agent of %s ended with %d\n%s", n.name, code, n.log)
	}
}

// order says what the hooks of a node do at a moment, "issue-before" …: "" for what they
// are for.
func (n *worldNode) order(t testing.TB, moment, what string) {
	t.Helper()
	path := filepath.Join(n.home, "do", moment)
	if what == "" {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	n.own(t, write(t, path, what))
}

// obeyed waits until all that the hooks were to do once is done.
func (n *worldNode) obeyed(t testing.TB) {
	t.Helper()
	eventually(t, "the hooks of "+n.name+" do what they are told", func() bool {
		left, err := os.ReadDir(filepath.Join(n.home, "do"))
		return err == nil && len(left) == 0
	})
}

// wait waits for consumers to run with what the ledger says.
func (w *world) wait(t testing.TB, slots ...string) {
	t.Helper()
	for _, s := range slots {
		w.waits(t, "binding", "wait", s)
	}
}

// lookAgain is between two looks that cost a process.
const lookAgain = 250 * time.Millisecond

// rotated waits until the rotations of providers are complete.
func (w *world) rotated(t testing.TB, providers ...string) {
	t.Helper()
	for _, p := range providers {
		w.waits(t, "rotation", "wait", p)
	}
}

// waits runs a command that waits, for longer than one run may take: where all tests
// run at once, much is done in between.
func (w *world) waits(t testing.TB, args ...string) {
	t.Helper()
	args = append(args, "--timeout", "50s")
	r := w.run(t, args...)
	for again := 0; r.code == 8 && again < 3; again++ {
		r = w.run(t, args...)
	}
	if r.code != 0 {
		t.Fatalf("%s: exit %d\n%s%s", r, r.code, r.stdout, r.stderr)
	}
}

// all are the slots of all consumers.
func (w *world) all() []string { return []string{"wiki/db", "grafana/db", "forgejo/db"} }

// roleOfHolder is what a holder logs in as: called by binding, generation and tag, as
// its secret is, which says who made it, too.
func roleOfHolder(t testing.TB, c credentialJSON) string {
	t.Helper()
	_, path, _ := strings.Cut(c.SecretRef, ":")
	binding, name, ok := strings.Cut(path, "/")
	generation, rest, ok2 := strings.Cut(name, "-")
	tag, maker, ok3 := strings.Cut(rest, "-")
	if !ok || !ok2 || !ok3 || len(maker) != 8 || len(binding) != 26 || generation != number(c.Generation) {
		t.Fatalf("the reference %q does not tell the role of generation %d", c.SecretRef, c.Generation)
	}
	return "b" + strings.ToLower(binding[16:]) + "_" + generation + "_" + tag
}

// exact waits for the end state, and checks it: who can log in to each server is who the
// ledger says, each of them in use and adopted.
func (w *world) exact(t testing.TB, holders map[string][]string) {
	t.Helper()
	for provider, want := range holders {
		var diff string
		// What follows the last acknowledgement (an old role is dropped) may still run.
		for end := time.Now().Add(patience); ; time.Sleep(lookAgain) {
			if diff = w.differs(t, provider, want); diff == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the end state of %s (-want, +got):\n%s", provider, diff)
			}
		}
	}
}

// differs tells in what the holders of a provider are not those, or not its roles.
func (w *world) differs(t testing.TB, provider string, want []string) string {
	t.Helper()
	roles, who := []string{}, []string{}
	for _, h := range read[listJSON[credentialJSON]](t, w.cli, "provider", "holders", provider).Items {
		name := h.Assignment
		if h.State != "adopted" || !h.InUse {
			name += " " + h.State
		}
		roles, who = append(roles, roleOfHolder(t, h)), append(who, name)
	}
	slices.Sort(roles)
	slices.Sort(who)
	return cmp.Diff(want, who) + cmp.Diff(roles, w.pg[provider].logins(t), cmpopts.EquateEmpty())
}

// private checks that nobody else can read what is below an agent's root, and that none
// of its names leads out of it.
func (n *worldNode) private(t testing.TB) {
	t.Helper()
	err := filepath.WalkDir(n.root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			to, err := filepath.EvalSymlinks(path)
			if err != nil || !strings.HasPrefix(to, n.root()+"/") {
				t.Errorf("%s leads to %s (%v)", path, to, err)
			}
			return nil
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if n.uid < 0 {
		return
	}
	for _, other := range n.world.nodes {
		if other == n {
			continue
		}
		cmd := exec.CommandContext(context.Background(), "ls", n.root())
		cmd.SysProcAttr = asUser(other.uid, other.uid)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("the user of %s lists the root of %s: %s", other.name, n.name, out)
		}
	}
}

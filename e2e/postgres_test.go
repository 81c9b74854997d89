package e2e

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Kind: a consumer is left behind, cut off or led to the wrong server while logins are
// rotated and servers move; or a secret is where others read it.
func TestPostgres(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watch := watchProcesses(t)
	for _, n := range w.nodes {
		n.start(t)
	}
	w.wait(t, w.all()...)
	consumers := []*consumer{w.consumer("wiki"), w.consumer("grafana"), w.consumer("forgejo")}
	on := func(want ...string) {
		t.Helper()
		var got []string
		for _, c := range consumers {
			server, err := c.server()
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			got = append(got, server)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("connected to (-want +got):\n%s", diff)
		}
	}
	on("pg-alpha", "pg-alpha", "pg-beta")
	l := newLoad(t, consumers...)

	// The test moves the data. The old server runs on: nobody is to go there any more.
	old := w.pg["pg-alpha"]
	moved := old.moved(t, "pg-alpha-moved")
	w.pg["pg-alpha"] = moved
	w.administer(t, "beta", "pg-alpha")
	w.must(t, "provider", "relocate", "pg-alpha", "--to", "beta", "--endpoint", moved.endpoint())
	w.waits(t, "provider", "wait", "pg-alpha")
	followed := old.letIn(t)
	on("pg-alpha-moved", "pg-alpha-moved", "pg-beta")

	// Everybody gets a new login under the load.
	before := map[string]set{}
	for _, c := range consumers {
		s, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		before[c.name] = s
	}
	for _, provider := range []string{"pg-alpha", "pg-beta"} {
		w.must(t, "rotation", "start", "--provider", provider)
	}
	w.rotated(t, "pg-alpha", "pg-beta")
	l.clean(t)
	for name, p := range map[string]*postgres{"the old server": old, "pg-alpha": moved, "pg-beta": w.pg["pg-beta"]} {
		if got := p.refusedLogins(t); len(got) > 0 {
			t.Errorf("%s turned away:\n%s", name, strings.Join(got, "\n"))
		}
	}
	for name, s := range before {
		if s.letsIn(t) {
			t.Errorf("%s is let in with the password of before", name)
		}
	}
	w.exact(t, map[string][]string{"pg-alpha": {"grafana", "wiki"}, "pg-beta": {"forgejo"}})

	w.must(t, "override", "set", "wiki/db", "--provider", "pg-beta", "--reason", "a trial")
	w.wait(t, "wiki/db")
	on("pg-beta", "pg-alpha-moved", "pg-beta")
	w.exact(t, map[string][]string{"pg-alpha": {"grafana"}, "pg-beta": {"forgejo", "wiki"}})
	w.must(t, "status", "--check", "--strict")
	if now := old.letIn(t); now != followed {
		t.Errorf("the old server let somebody in %d times after all had followed", now-followed)
	}

	for _, n := range w.nodes {
		n.private(t)
		n.stop(t)
	}
	w.keptSecret(t, watch.stop(), consumers...)
}

// letIn is how often the log says that a consumer's role logged in.
func (p *postgres) letIn(t testing.TB) int {
	t.Helper()
	return len(regexp.MustCompile(`connection authorized: user=b\w{10}_`).FindAllString(p.log(t), -1))
}

// keptSecret checks that no password that a consumer has read is in a log, an event or the
// list of processes.
func (w *world) keptSecret(t testing.TB, processes string, consumers ...*consumer) {
	t.Helper()
	texts := map[string]string{"the ledger": w.must(t, "log", "-o", "jsonl"), "the log of the server of the ledger": w.serving.errs.String(),
		"the list of processes": processes}
	for name, n := range w.nodes {
		texts["the log of the agent of "+name] = n.log.String()
	}
	for name, p := range w.pg {
		texts["the log of "+name] = p.log(t)
	}
	for what, text := range texts {
		if text == "" {
			t.Errorf("%s is empty", what)
		}
		for _, c := range consumers {
			for s := range c.seen {
				if len(s.password) < 20 || strings.Contains(text, s.password) {
					t.Errorf("a password of %s is in %s", c.name, what)
				}
			}
		}
	}
}

// processWatch collects the arguments and the environment of all processes.
type processWatch struct {
	stop func() string
}

// watchProcesses looks again and again at all processes that have begun since.
func watchProcesses(t testing.TB) processWatch {
	ctx, cancel := context.WithCancel(context.Background())
	seen := map[string]bool{}
	known := map[string]int{} // how often a process was looked at: what it runs changes at first
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			dirs, _ := filepath.Glob("/proc/[0-9]*")
			for _, dir := range dirs {
				if known[dir]++; known[dir] > 5 {
					continue
				}
				for _, file := range []string{"cmdline", "environ"} {
					if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil { // it may be gone, or another's
						seen[string(data)] = true
					}
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	stop := sync.OnceValue(func() string {
		cancel()
		wait.Wait()
		var b strings.Builder
		for text := range seen {
			b.WriteString(text + "\n")
		}
		return b.String()
	})
	t.Cleanup(func() { stop() })
	return processWatch{stop}
}

// Kind: an agent that dies in the middle forgets what it had begun, does it twice, or
// leaves a role, a file or a consumer behind.
func TestPostgresAgentsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Before and after each hook; what the hook is at hangs, or comes to its end.
	everywhere := func(actions ...string) {
		t.Helper()
		for _, n := range w.nodes {
			for i, a := range actions {
				n.order(t, a+"-before", []string{"kill", "orphan"}[i%2])
				n.order(t, a+"-after", []string{"orphan", "kill"}[i%2])
			}
		}
	}
	obeyed := func() {
		t.Helper()
		for _, n := range w.nodes {
			n.obeyed(t)
		}
	}
	everywhere("issue", "apply")
	for _, n := range w.nodes {
		t.Cleanup(n.keep(ctx, t))
	}
	t.Cleanup(cancel)
	w.wait(t, w.all()...)
	obeyed()
	consumers := []*consumer{w.consumer("wiki"), w.consumer("grafana"), w.consumer("forgejo")}
	l := newLoad(t, consumers...)

	everywhere("apply", "issue", "revoke")
	for _, provider := range []string{"pg-alpha", "pg-beta"} {
		w.must(t, "rotation", "start", "--provider", provider)
	}
	w.rotated(t, "pg-alpha", "pg-beta")
	obeyed()
	w.exact(t, map[string][]string{"pg-alpha": {"grafana", "wiki"}, "pg-beta": {"forgejo"}})

	// At any other moment: six times each, while everybody gets a new login again.
	w.must(t, "rotation", "start", "--provider", "pg-alpha")
	w.must(t, "rotation", "start", "--provider", "pg-beta")
	var killers sync.WaitGroup
	for i, n := range []*worldNode{w.nodes["alpha"], w.nodes["beta"]} {
		killers.Go(func() {
			rnd := rand.New(rand.NewPCG(7, uint64(i)))
			for range 6 {
				time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond)
				before := n.actings()
				n.kill()
				eventually(t, "the agent acts again", func() bool { return n.actings() > before })
			}
		})
	}
	killers.Wait()
	w.rotated(t, "pg-alpha", "pg-beta")
	l.clean(t)
	w.exact(t, map[string][]string{"pg-alpha": {"grafana", "wiki"}, "pg-beta": {"forgejo"}})

	// What is begun and not wanted any more is cleaned up; who ends leaves nothing.
	alpha := w.nodes["alpha"]
	alpha.order(t, "issue-after", "fail") // the role is made
	w.must(t, "credential", "request", "wiki/db", "--reason", "a trial")
	w.failing(t, "wiki", "told to fail")
	w.wants(t, "pg-alpha", 3)
	alpha.order(t, "clean-before", "kill")
	alpha.order(t, "clean-after", "kill")
	w.must(t, "override", "set", "wiki/db", "--provider", "pg-beta", "--reason", "a trial")
	w.wait(t, "wiki/db")
	w.exact(t, map[string][]string{"pg-alpha": {"grafana"}, "pg-beta": {"forgejo", "wiki"}})
	alpha.order(t, "issue-after", "")
	obeyed()
	beta := w.nodes["beta"]
	beta.order(t, "remove-before", "kill")
	beta.order(t, "remove-after", "kill")
	w.must(t, "assignment", "end", "forgejo")
	obeyed()
	w.exact(t, map[string][]string{"pg-alpha": {"grafana"}, "pg-beta": {"wiki"}})
	eventually(t, "the files of forgejo are gone", func() bool {
		_, err := os.Lstat(consumers[2].root)
		return os.IsNotExist(err)
	})

	for name, p := range w.pg {
		if got := p.refusedLogins(t); len(got) > 0 {
			t.Errorf("%s turned away:\n%s", name, strings.Join(got, "\n"))
		}
	}
	for name, n := range w.nodes {
		if n.deaths.Load() < 10 {
			t.Errorf("the agent of %s was killed %d times only", name, n.deaths.Load())
		}
		n.private(t)
	}
	w.keptSecret(t, "-", consumers...)
}

// wants waits until so many roles can log in to a server.
func (w *world) wants(t testing.TB, provider string, n int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(lookAgain) {
		got := w.pg[provider].logins(t)
		if len(got) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("at %s log in %q, want %d", provider, got, n)
		}
	}
}

// failing waits until the ledger says why a consumer's credential is not made, or why it
// does not go.
func (w *world) failing(t testing.TB, assignment, why string) {
	t.Helper()
	says(t, "the credentials of "+assignment, why, func() (said []string) {
		for _, c := range read[listJSON[struct{ Error string }]](t, w.cli, "credential", "list", "--assignment", assignment).Items {
			said = append(said, c.Error)
		}
		return said
	})
}

// says waits until one of what is said is why.
func says(t testing.TB, what, why string, read func() []string) {
	t.Helper()
	var said []string
	for end := time.Now().Add(patience); !slices.Contains(said, why); time.Sleep(lookAgain) {
		if time.Now().After(end) {
			t.Fatalf("%s: it says %q, want %q", what, said, why)
		}
		said = read()
	}
}

// Kind: a hook that fails, hangs or crashes stops what has nothing to do with it, is taken
// for success, or is not tried again.
func TestPostgresHooksFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.limit = "8s"
	alpha, beta := w.nodes["alpha"], w.nodes["beta"]
	alpha.order(t, "issue-before", "hang")
	beta.order(t, "issue-after", "fail")
	for _, n := range w.nodes {
		n.start(t)
	}
	hanging := "it took longer than 8s and was ended"
	w.failing(t, "wiki", hanging)
	w.failing(t, "grafana", hanging)
	w.failing(t, "forgejo", "told to fail")
	w.wants(t, "pg-alpha", 0)
	w.wants(t, "pg-beta", 1) // made, and not acknowledged
	alpha.order(t, "issue-before", "crash")
	w.failing(t, "wiki", "ended by segmentation fault")

	// The consumers' hooks next: of what is issued, nothing is in use.
	alpha.order(t, "apply-after", "crash")
	beta.order(t, "apply-before", "hang")
	alpha.order(t, "issue-before", "")
	beta.order(t, "issue-after", "")
	for slot, why := range map[string]string{"wiki/db": "ended by segmentation fault", "grafana/db": hanging, "forgejo/db": hanging} {
		says(t, "the consumer of "+slot, why, func() []string {
			return []string{read[struct{ Error string }](t, w.cli, "binding", "show", slot).Error}
		})
	}
	alpha.order(t, "apply-after", "")
	beta.order(t, "apply-before", "")
	w.wait(t, w.all()...)
	w.exact(t, map[string][]string{"pg-alpha": {"grafana", "wiki"}, "pg-beta": {"forgejo"}})

	// An old role that does not go keeps a rotation open, and nobody from working.
	l := newLoad(t, w.consumer("wiki"), w.consumer("grafana"), w.consumer("forgejo"))
	alpha.order(t, "revoke-before", "crash")
	beta.order(t, "revoke-after", "fail") // it is gone, and nobody knows yet
	w.must(t, "rotation", "start", "--provider", "pg-alpha")
	w.must(t, "rotation", "start", "--provider", "pg-beta")
	w.failing(t, "wiki", "ended by segmentation fault")
	w.failing(t, "grafana", "ended by segmentation fault")
	w.failing(t, "forgejo", "told to fail")
	w.wants(t, "pg-alpha", 4)
	w.wants(t, "pg-beta", 1)
	for _, provider := range []string{"pg-alpha", "pg-beta"} {
		if r := read[rotationJSON](t, w.cli, "rotation", "show", provider); r.State != "open" || r.Done != 0 {
			t.Errorf("the rotation of %s is %s, %d done", provider, r.State, r.Done)
		}
	}
	alpha.order(t, "revoke-before", "")
	beta.order(t, "revoke-after", "")
	w.rotated(t, "pg-alpha", "pg-beta")
	l.clean(t)
	w.exact(t, map[string][]string{"pg-alpha": {"grafana", "wiki"}, "pg-beta": {"forgejo"}})
	w.must(t, "status", "--check", "--strict")
	for name, n := range w.nodes {
		if got := w.pg["pg-"+name].refusedLogins(t); len(got) > 0 {
			t.Errorf("pg-%s turned away:\n%s", name, strings.Join(got, "\n"))
		}
		n.private(t)
		n.stop(t)
	}
}

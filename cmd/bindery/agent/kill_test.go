package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bindery/commands"
	"bindery/projections"
)

// steps are all at which an agent may be killed: each is the moment after one
// write, or before one.
var steps = []string{"set", "turned", "files", "begun", "ran", "hook", "said",
	"secret", "kept", "begun issue", "ran issue", "made", "stored", "issued",
	"begun revoke", "ran revoke", "unmade", "revoked", "begun clean", "ran clean", "cleaned"}

// A killed agent's successor ends where one that was never killed does: the service
// lets in exactly whom the ledger says, with the password that the consumer reads.
func TestKilledAtEveryStep(t *testing.T) {
	for _, step := range steps {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.spec("alpha")
			s.CrashAt = step
			p := w.spawn(s)
			killed := false
			w.story(func(what string, done func() error) {
				w.eventually(what, func() error {
					select {
					case <-p.ended:
						if !killed {
							killed = true
							s.CrashAt = ""
							p = w.spawn(s)
						}
					default:
					}
					return done()
				})
			})
			if !killed {
				for _, in := range w.runs() {
					t.Log(in.Action, in.Assignment, in.Generation, in.Attempt, in.Repeated)
				}
				t.Errorf("the agent never came to step %q", step)
			}
			w.sameSecretAgain()
			w.nothingLogged()
		})
	}
}

// Killed at any moment, many times, while credentials are replaced.
func TestKilledAtAnyMoment(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: fmt.Sprintf("wiki-%d", i)})
	}
	s := w.spec("alpha")
	p := w.spawn(s)
	for i := range 12 {
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		p.kill()
		if i%3 == 0 {
			w.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "toy"}, Supersede: true})
		}
		p = w.spawn(s)
	}
	w.eventually("everything is done", func() error { return w.exact("alpha") })
	w.sameSecretAgain()
	w.nothingLogged()
}

// story is what happens to two consumers: they come, one's credential is replaced,
// an ask is begun and withdrawn, the other one is over.
func (w *world) story(wait func(what string, done func() error)) {
	w.t.Helper()
	broken := filepath.Join(w.home, "broken")
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"}, commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "shop"})
	wait("both run", func() error { return w.exact("alpha") })
	w.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Binding: "wiki/db"}})
	wait("one's credential is replaced", func() error { return w.exact("alpha") })
	w.must(os.WriteFile(broken, nil, 0o600))
	w.do(commands.RequestCredential{Slot: "wiki/db"})
	wait("an ask fails", func() error { return w.failing("the toy is broken") })
	w.do(commands.RequestCredential{Slot: "wiki/db"})
	wait("it is withdrawn", func() error { return w.ran(actionClean) })
	w.must(os.Remove(broken))
	wait("the next one is answered, the first one removed", func() error { return w.exact("alpha") })
	w.do(commands.EndAssignment{Assignment: "shop"})
	wait("the other one is over", func() error { return w.exact("alpha") })
}

// failing reports whether no credential fails with a reason.
func (w *world) failing(reason string) (err error) {
	w.h.View(func(s *projections.State) {
		err = fmt.Errorf("nothing fails")
		for _, c := range s.ListCredentials(projections.CredentialFilter{}).Items {
			if c.Error == reason {
				err = nil
			} else if c.Error != "" {
				err = fmt.Errorf("it fails with %q", c.Error)
			}
		}
	})
	return err
}

// ran reports whether the provider's hook was not run for an action.
func (w *world) ran(action string) error {
	for _, in := range w.runs() {
		if in.Action == action {
			return nil
		}
	}
	return fmt.Errorf("no hook ran for %s", action)
}

// runs are what the provider's hook was told, in order.
func (w *world) runs() []hookInput {
	w.t.Helper()
	f, err := os.Open(filepath.Join(w.home, "journal"))
	w.must(err)
	defer f.Close()
	var out []hookInput
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if lines.Text() == "" {
			continue // its agent was killed before it could read
		}
		var in hookInput
		w.must(json.Unmarshal(lines.Bytes(), &in))
		out = append(out, in)
	}
	return out
}

// sameSecretAgain checks that each hook that ran again for a generation was told so,
// and was given the same secret.
func (w *world) sameSecretAgain() {
	w.t.Helper()
	first := map[string]hookInput{}
	for _, in := range w.runs() {
		key := fmt.Sprint(in.Action, in.Binding, in.Generation, in.Tag)
		before, again := first[key]
		if !again {
			first[key] = in
			continue
		}
		if in.Username != before.Username || in.Password != before.Password {
			w.t.Errorf("%s of generation %d ran again with another secret", in.Action, in.Generation)
		}
		if !in.Repeated {
			w.t.Errorf("%s of generation %d ran again and was not told so", in.Action, in.Generation)
		}
	}
}

// nothingLogged checks that no secret got into the log of an agent or into the
// ledger.
func (w *world) nothingLogged() {
	w.t.Helper()
	logs, err := filepath.Glob(filepath.Join(w.home, "log-*"))
	w.must(err)
	for _, l := range logs {
		data, err := os.ReadFile(l)
		w.must(err)
		for _, in := range w.runs() {
			if in.Password != "" && strings.Contains(string(data), in.Password) {
				w.t.Errorf("%s has the password of generation %d", filepath.Base(l), in.Generation)
			}
		}
	}
}

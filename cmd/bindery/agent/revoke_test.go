package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

// What a hook says that it did.
func TestDidOf(t *testing.T) {
	for out, want := range map[string]events.Did{`{"did":"dropped"}`: events.DidDrop, " {\"did\":\"absent\"}\n": events.DidAbsent} {
		if got, err := didOf([]byte(out)); err != nil || got != want {
			t.Errorf("%q: %q, %v", out, got, err)
		}
	}
	for _, out := range []string{"", "dropped", `{}`, `{"did":""}`, `{"did":"revoked"}`, `{"did":null}`, `{"did":true}`, `["dropped"]`, `{"did":"dropped"} and more`, "null"} {
		var theirs *operatorError
		if got, err := didOf([]byte(out)); got != "" || !errors.As(err, &theirs) {
			t.Errorf("%q: %q, %v", out, got, err)
		}
	}
}

// toyThat is the toy's hook, but that what it prints to revoke is said here.
func toyThat(t *testing.T, revokes string) string {
	t.Helper()
	toy, err := filepath.Abs("../../../docs/agent/hooks/provider/toy")
	if err != nil {
		t.Fatal(err)
	}
	return "#!/bin/sh\nask=$(cat)\nprintf '%s\\n' \"$ask\" >> $HOME/journal\nif [ $BINDERY_ACTION = revoke ]; then\n" + revokes + "\nelse\nprintf '%s' \"$ask\" | " + toy + "\nfi\n"
}

// tells reports whether no credential is told to fail with a reason in which there is text,
// as an operator's or an agent's turn.
func (w *world) tells(text string, operator bool) (err error) {
	w.h.View(func(s *projections.State) {
		err = errors.New("nothing fails")
		for _, v := range s.ListCredentials(projections.CredentialFilter{}).Items {
			if v.Operator == operator && strings.Contains(v.Error, text) {
				err = nil
				return
			}
			if v.Error != "" {
				err = fmt.Errorf("%q, an operator's: %t", v.Error, v.Operator)
			}
		}
	})
	return err
}

func (w *world) revoked() (n int) {
	w.h.View(func(s *projections.State) {
		n = len(s.ListCredentials(projections.CredentialFilter{State: "revoked"}).Items)
	})
	return n
}

// Kind: done on the word of a hook that found nothing, or that says nothing. Nobody is said
// to be out; an operator is asked to look.
func TestHookThatDroppedNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ revokes, says string }{
		"found none":   {`echo '{"did":"absent"}'`, "has dropped none"},
		"says nothing": {"true", "does not say what it did"},
		"says words":   {"echo gone", "does not say what it did"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.hook("provider", toyThat(t, c.revokes))
			w.start(w.agent(w.spec("alpha")))
			w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
			w.eventually("it runs", w.settled)
			w.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "toy"}})
			w.eventually("an operator is asked", func() error { return w.tells(c.says, true) })
			if n := w.revoked(); n != 0 || len(w.logins()) != 2 {
				t.Errorf("%d are said to be revoked; the service lets in %v", n, w.logins())
			}
			// Who has looked goes on.
			w.hook("provider", journalled("../../../docs/agent/hooks/provider/toy"))
			w.eventually("it is dropped", func() error { return w.exact("alpha") })
		})
	}
}

// Kind: who made a login is not who is asked to drop it. A provider that is renamed keeps
// the hook that made its logins; where that is gone, no other takes its place.
func TestRenamedProviderKeepsItsHook(t *testing.T) {
	w := newWorld(t)
	toy, err := filepath.Abs("../../../docs/agent/hooks/provider/toy")
	w.must(err)
	own := filepath.Join(w.hooks, "provider", "toy")
	w.must(os.WriteFile(own, []byte("#!/bin/sh\necho own >> $HOME/which\nexec "+toy+"\n"), 0o755))
	w.hook("provider", toyThat(t, `echo default >> $HOME/which; echo '{"did":"dropped"}'`)) // it lies
	w.start(w.agent(w.spec("alpha")))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	w.eventually("it runs", w.settled)
	w.do(commands.RenameProvider{Provider: "toy", To: "game"}, commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "game"}})
	w.eventually("it is replaced", func() error { return w.exact("alpha") })
	if data, err := os.ReadFile(filepath.Join(w.home, "which")); err != nil || strings.Contains(string(data), "default") || strings.Count(string(data), "own") < 2 {
		t.Errorf("the hooks were %q, %v", data, err)
	}

	// The login of now was made by the other one. Without that, nobody else is asked.
	w.must(os.Rename(filepath.Join(w.hooks, "provider", "default"), own+".aside"))
	w.hook("provider", toyThat(t, `echo '{"did":"dropped"}'`))
	w.must(os.Rename(filepath.Join(w.hooks, "provider", "default"), filepath.Join(w.hooks, "provider", "game")))
	before := w.revoked()
	w.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "game"}})
	w.eventually("an operator is asked", func() error { return w.tells("the hook provider/default has made the login", true) })
	w.eventually("both are named", func() error { return w.tells("the hook provider/game now", true) })
	if n := w.revoked(); n != before {
		t.Errorf("%d are revoked, before %d", n, before)
	}
}

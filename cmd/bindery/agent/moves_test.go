package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bindery/commands"
	"bindery/projections"
)

// A provider that moves while an ask is begun is the new node's agent's. The one it
// leaves removes nothing: both would speak to one server, about one login name.
func TestProviderMovesWhileItIssues(t *testing.T) {
	w := newWorld(t)
	w.grant("alpha")
	w.grant("beta")
	a, b := w.spec("alpha"), w.spec("beta")
	w.must(os.WriteFile(filepath.Join(w.home, "broken"), nil, 0o600))
	w.start(w.agent(a))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	w.eventually("an ask is begun", func() error { return w.failing("the toy is broken") })
	w.do(commands.RelocateProvider{Provider: "toy", To: "beta", Endpoint: "beta.home.arpa:1"})
	w.must(os.Remove(filepath.Join(w.home, "broken")))
	w.start(w.agent(b))
	w.eventually("nothing of it is left where it was", func() error { return sameNames(filepath.Join(a.Root, dirIssued), nil) })
	w.eventually("it runs", func() error { return w.exact("alpha", "beta") })
	if w.ran(actionClean) == nil {
		t.Errorf("the agent that it left removed it: %+v", w.runs())
	}
}

// A hook that ends after its provider has moved has made a login where it is not any
// more: that is not taken, and what the new node's agent has made stands beside it.
// So it is where the hook ends first and the ledger is told late.
func TestProviderMovesUnderAHook(t *testing.T) {
	for name, first := range map[string]bool{"beta answers first": true, "alpha answers first": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.grant("alpha")
			w.grant("beta")
			hold := func(node string) (begun, release string) {
				return filepath.Join(w.home, "begun-"+node), filepath.Join(w.home, "release-"+node)
			}
			toy, err := filepath.Abs("../../../docs/agent/hooks/provider/toy")
			w.must(err)
			w.hook("provider", `#!/bin/sh
ask=$(cat)
touch $HOME/begun-$BINDERY_NODE
while [ ! -e $HOME/release-$BINDERY_NODE ]; do sleep 0.02; done
[ $BINDERY_NODE = alpha ] && exit 0 # its server is not the provider's any more
printf '%s' "$ask" | `+toy+"\n")
			a, b := w.spec("alpha"), w.spec("beta")
			begun := func(node string) {
				at, _ := hold(node)
				w.eventually("a hook runs on "+node, func() error { _, err := os.Stat(at); return err })
			}
			release := func(node string) {
				_, at := hold(node)
				w.must(os.WriteFile(at, nil, 0o600))
			}
			w.start(w.agent(a))
			w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
			begun("alpha")
			w.do(commands.RelocateProvider{Provider: "toy", To: "beta", Endpoint: "beta.home.arpa:1"})
			w.start(w.agent(b))
			begun("beta")
			if first {
				release("beta")
				w.eventually("it runs", func() error { return w.settled() })
				release("alpha")
			} else {
				release("alpha")
				w.eventually("nothing of it is left where it was", func() error { return sameNames(filepath.Join(a.Root, dirIssued), nil) })
				release("beta")
			}
			w.eventually("nothing of it is left where it was", func() error { return sameNames(filepath.Join(a.Root, dirIssued), nil) })
			w.eventually("it runs with what beta has made", func() error { return w.exact("alpha", "beta") })
			if got := w.sealed(); len(got) != 1 {
				t.Errorf("there is sealed: %v", got)
			}
		})
	}
}

// A login name that a hook has chosen is the one that is turned away, wherever the
// provider is by then; where it is not known, nobody says that it was.
func TestHookChoosesTheLoginName(t *testing.T) {
	w := newWorld(t)
	w.grant("alpha")
	w.grant("beta")
	toy, err := filepath.Abs("../../../docs/agent/hooks/provider/toy")
	w.must(err)
	w.hook("provider", `#!/bin/sh
ask=$(cat)
printf '%s\n' "$ask" >> $HOME/journal
if [ $BINDERY_ACTION = issue ]; then
	ask=$(printf '%s' "$ask" | sed 's/"username":"/&own-/')
	printf '%s' "$ask" | `+toy+` > /dev/null
	printf '%s' "$ask" | sed -n 's/.*"username":"\([^"]*\)".*/{"username":"\1"}/p'
else
	printf '%s' "$ask" | `+toy+`
fi
`)
	chosen := func(n int) error {
		logins := slices.Sorted(maps.Keys(w.logins()))
		if len(logins) != n || n > 0 && !strings.HasPrefix(logins[0], "own-own-") && !strings.HasPrefix(logins[0], "own-b") {
			return fmt.Errorf("there are %v", logins)
		}
		return w.settled()
	}
	w.start(w.agent(w.spec("alpha")))
	w.start(w.agent(w.spec("beta")))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	w.eventually("it runs", func() error { return chosen(1) })
	w.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "toy"}})
	w.eventually("the old one is gone", func() error { return errors.Join(w.settled(), chosen(1)) })
	w.do(commands.RelocateProvider{Provider: "toy", To: "beta", Endpoint: "beta.home.arpa:1"})
	w.do(commands.RequestCredential{Slot: "wiki/db"})
	w.eventually("that is told", func() error { return w.settled() })
	if err := chosen(2); err == nil {
		t.Error("it is said to be gone")
	}
}

// A secret that is in use stays where its consumer has it from, also where the agent has
// heard that its document is gone, and its provider is on another node by then: the
// ledger says that it is in use.
func TestSecretStaysWhileDocumentsAreMissing(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alpha")
	a := w.agent(s)
	w.start(a)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	w.eventually("it runs", func() error { return w.exact("alpha") })
	w.do(commands.RelocateProvider{Provider: "toy", To: "beta", Endpoint: "beta.home.arpa:1"})
	w.eventually("it follows", func() error { return w.settled() })
	var key string
	w.h.View(func(s *projections.State) {
		d := s.BindingDocument(1)
		key = d.Key()
	})
	secrets, err := filepath.Glob(filepath.Join(s.Root, dirSecrets, "*", "*"))
	if err != nil || len(secrets) != 1 {
		t.Fatalf("%v, %v", secrets, err)
	}
	a.sawBinding(key, nil) // as if somebody said that it is gone
	time.Sleep(time.Second)
	if _, err := os.Stat(secrets[0]); err != nil {
		t.Errorf("the secret in use: %v", err)
	}
	w.do(commands.RelocateProvider{Provider: "toy", To: "beta", Endpoint: "beta.home.arpa:2"})
	w.eventually("it follows again", func() error { return w.settled() })
}

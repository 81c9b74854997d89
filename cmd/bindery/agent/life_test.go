package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/commands/readmodel"
	"bindery/ledger"
	"bindery/projections"
)

// again serves the ledger that is in the store.
func (w *world) again() {
	w.t.Helper()
	w.up(func(ctx context.Context, nc *nats.Conn) (*ledger.Log, error) { return ledger.Open(ctx, nc, testMesh) })
}

// copyOf copies a directory.
func (w *world) copyOf(dir string) string {
	w.t.Helper()
	to := filepath.Join(w.t.TempDir(), "copy")
	w.must(os.CopyFS(to, os.DirFS(dir)))
	return to
}

// An agent that has read what a restored ledger has lost stops, and does nothing
// more; told to, it goes on with the ledger as it is, and removes what that does not
// know of.
func TestLedgerRestored(t *testing.T) {
	w := newWorld(t)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	stop := w.start(w.agent(w.spec("alpha")))
	w.eventually("it runs", func() error { return w.exact("alpha") })
	w.must(stop())
	w.down()
	backup := w.copyOf(w.dir)
	w.again()
	stop = w.start(w.agent(w.spec("alpha")))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "lost"}, commands.StartRotation{RotationTarget: commands.RotationTarget{Binding: "wiki/db"}})
	w.eventually("more runs", func() error { return w.exact("alpha") })
	w.must(stop())
	w.down()

	w.dir = backup
	w.again()
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "other"}) // at the same sequences
	before := len(w.runs())
	a := w.agent(w.spec("alpha"))
	err := a.Run(t.Context())
	a.hangUp()
	var r *commands.Refusal
	if !errors.As(err, &r) || r.Code != commands.LedgerRestored || !strings.Contains(r.Fix.String(), "--resync") {
		t.Fatalf("%v", err)
	}
	if n := len(w.runs()); n != before {
		t.Errorf("%d hooks were run", n-before)
	}
	s := w.spec("alpha")
	s.Resync = true
	w.start(w.agent(s))
	// The one that the ledger takes for in use is revoked: nobody gets that back.
	w.eventually("that is told", func() (err error) {
		w.h.View(func(s *projections.State) {
			if v := s.ListBindings(projections.BindingFilter{}).Items[1]; v.Error != "there is no file of the secret on this node" {
				err = fmt.Errorf("%+v", v)
			}
		})
		return err
	})
	w.do(commands.RequestCredential{Slot: "wiki/db"})
	w.eventually("it is as the ledger says", func() error { return w.exact("alpha") })
}

// While an agent runs, its server is restarted with an older ledger: it stops.
func TestLedgerRestoredUnderIt(t *testing.T) {
	w := newWorld(t)
	w.down()
	backup := w.copyOf(w.dir)
	w.again()
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	a := w.agent(w.spec("alpha"))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context()) }()
	w.eventually("it runs", func() error { return w.exact("alpha") })
	w.down()
	w.dir = backup
	w.again()
	a.hangUp() // the server has another port now
	if err := <-ended; !IsGone(err) {
		t.Fatalf("%v", err)
	}
	next := w.agent(w.spec("alpha"))
	defer next.hangUp()
	var r *commands.Refusal
	if err := next.Run(t.Context()); !errors.As(err, &r) || r.Code != commands.LedgerRestored {
		t.Fatalf("%v", err)
	}
}

// What goes wrong with a consumer's hook is told with its reason, and when it has
// succeeded everything is as it must be.
func TestConsumerHookFails(t *testing.T) {
	for name, c := range map[string]struct{ hook, want string }{
		"fails":  {"echo 'the unit does not start' >&2; exit 1", "the unit does not start"},
		"hangs":  {"sleep 1000", "it took longer than 1s and was ended"},
		"crash":  {"kill -SEGV $$", "ended by segmentation fault"},
		"quotes": {"cat $SERVICE_BINDING_ROOT/db/password >&2; exit 1", "***"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.hook("consumer", "#!/bin/sh\n"+c.hook+"\n")
			a := w.agent(w.spec("alpha"))
			a.cfg.HookTimeout = time.Second
			w.start(a)
			w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
			w.eventually("it is told", func() (err error) {
				w.h.View(func(s *projections.State) {
					v := s.ListBindings(projections.BindingFilter{}).Items[0]
					if v.Error != c.want || v.AppliedSeq >= v.ChangedSeq || v.Attempts < 2 {
						err = fmt.Errorf("%q after %d attempts, applied %d of %d", v.Error, v.Attempts, v.AppliedSeq, v.ChangedSeq)
					}
				})
				return err
			})
			w.hook("consumer", "#!/bin/sh\nexit 0\n")
			w.eventually("it runs", func() error { return w.exact("alpha") })
			w.nothingLogged()
		})
	}
}

// A hook that has begun to take up something else, and has not succeeded, is run again
// when its consumer is to run with what it ran with before: what it has done of the
// other is still there.
func TestConsumerHookIsUndone(t *testing.T) {
	w := newWorld(t)
	w.hook("consumer", `#!/bin/sh
cat > $HOME/told
cat "$SERVICE_BINDING_ROOT/db/host" > $HOME/runs-with 2>/dev/null || rm -f $HOME/runs-with
[ ! -e $HOME/sick ]
`)
	runsWith := func(want string) func() error {
		return func() error {
			got, err := os.ReadFile(filepath.Join(w.home, "runs-with"))
			if strings.TrimSpace(string(got)) != want {
				return fmt.Errorf("it runs with %q, not %q: %v", got, want, err)
			}
			return nil
		}
	}
	sick := filepath.Join(w.home, "sick")
	w.start(w.agent(w.spec("alpha")))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	w.eventually("it runs", func() error { return w.exact("alpha") })
	w.must(runsWith("alpha.home.arpa")())

	w.must(os.WriteFile(sick, nil, 0o600))
	w.do(commands.RelocateProvider{Provider: "toy", To: "alpha", Endpoint: "wrong:9"})
	w.eventually("it has failed", runsWith("wrong"))
	w.must(os.Remove(sick))
	w.do(commands.RelocateProvider{Provider: "toy", To: "alpha", Endpoint: "alpha.home.arpa:1234"})
	w.eventually("all is as before", func() error { return errors.Join(w.exact("alpha"), runsWith("alpha.home.arpa")()) })

	w.must(os.WriteFile(sick, nil, 0o600))
	w.do(commands.MoveAssignment{Assignment: "wiki", To: "beta"})
	w.eventually("it is stopped, and that has failed", runsWith(""))
	w.must(os.Remove(sick))
	w.do(commands.MoveAssignment{Assignment: "wiki", To: "alpha"})
	w.eventually("it is back", func() error { return errors.Join(w.exact("alpha"), runsWith("alpha.home.arpa")()) })

	w.must(os.WriteFile(sick, nil, 0o600))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "shop"})
	w.eventually("another one has begun", func() error {
		told, err := os.ReadFile(filepath.Join(w.home, "told"))
		if !strings.Contains(string(told), `"shop"`) {
			return fmt.Errorf("%s %v", told, err)
		}
		return nil
	})
	w.must(os.Remove(sick))
	w.do(commands.EndAssignment{Assignment: "shop"})
	w.eventually("and is taken back", func() error {
		told, err := os.ReadFile(filepath.Join(w.home, "told"))
		if !strings.Contains(string(told), `"action":"remove"`) {
			return fmt.Errorf("%s %v", told, err)
		}
		return nil
	})
}

// What a ledger tells of itself over a connection that was made anew is not taken for
// what was read before that is held against it.
func TestCursorOfAnotherLedger(t *testing.T) {
	w := newWorld(t)
	a := w.agent(w.spec("alpha"))
	defer a.hangUp()
	a.checked, _ = a.cfg.Ledger.Connection()
	w.must(a.saw(w.mesh, 5, "aa"))
	a.checked-- // as after a reconnect
	w.must(a.saw(w.mesh, 9, "bb"))
	if got := a.place.Cursor; got.Seq != 5 || got.Chain != "aa" {
		t.Errorf("it has read %+v", got)
	}
}

// What goes wrong with a provider's hook is told with its reason.
func TestProviderHookFails(t *testing.T) {
	for name, c := range map[string]struct{ hook, want string }{
		"fails":        {"echo 'no space left' >&2; exit 1", "no space left"},
		"hangs":        {"sleep 1000", "it took longer than 1s and was ended"},
		"crash":        {"kill -SEGV $$", "ended by segmentation fault"},
		"quotes":       {`sed 's/.*"password":"//' >&2; exit 1`, `***"}`},
		"quotes all":   {"cat >&2; exit 1", `{"action":"issue","attempt":`},
		"no JSON":      {`echo '{"a":'`, "what the hook printed: it is no JSON object of strings"},
		"not strings":  {`echo '{"port":5432}'`, "what the hook printed: it is no JSON object of strings"},
		"a path":       {`echo '{"../../x":"y"}'`, "what the hook printed: an entry of the secret has a name that is not of A-Z a-z 0-9 . _ -, begins with another than a letter or digit, or is too long"},
		"another type": {`echo '{"type":"mysql"}'`, `what the hook printed: the secret has an entry "type", which the ledger says`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.hook("provider", "#!/bin/sh\n"+c.hook+"\n")
			a := w.agent(w.spec("alpha"))
			a.cfg.HookTimeout = time.Second
			w.start(a)
			w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
			w.eventually("it is told", func() (err error) {
				w.h.View(func(s *projections.State) {
					v := s.ListCredentials(projections.CredentialFilter{}).Items[0]
					if !strings.HasPrefix(v.Error, strings.TrimSuffix(c.want, `"}`)) || v.Error == "" || v.Attempts < 2 {
						err = fmt.Errorf("%q after %d attempts, want %q", v.Error, v.Attempts, c.want)
					}
				})
				return err
			})
			w.hook("provider", journalled("../../../docs/agent/hooks/provider/toy"))
			w.eventually("it runs", func() error { return w.exact("alpha") })
			w.nothingLogged()
			w.nothingInTheStream()
		})
	}
}

// Without a hook for a provider that is said; without a directory of hooks nothing
// is said, and operators issue.
func TestWithoutHooks(t *testing.T) {
	w := newWorld(t)
	w.must(os.RemoveAll(filepath.Join(w.hooks, "provider")))
	stop := w.start(w.agent(w.spec("alpha")))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	w.eventually("it is told", func() error { return w.failing("no hook for provider toy (logins)") })
	w.must(stop())

	w = newWorld(t)
	s := w.spec("alpha")
	s.Hooks = ""
	w.start(w.agent(s))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	secrets := filepath.Join(s.Root, dirSecrets)
	w.eventually("the agent is there", func() error { _, err := os.Stat(secrets); return err })
	w.must(os.WriteFile(filepath.Join(secrets, "by-hand"), []byte(`{"username":"u","password":"p"}`), 0o600))
	var generation uint64
	w.h.View(func(s *projections.State) {
		generation = s.ListCredentials(projections.CredentialFilter{}).Items[0].Generation
	})
	w.do(commands.IssueCredential{Slot: "wiki/db", Generation: generation, SecretRef: "file:by-hand"})
	w.eventually("it runs", w.settled)
	data, err := os.ReadFile(filepath.Join(s.Root, "bindings", "by-name", "wiki", "db", "password"))
	if err != nil || string(data) != "p" {
		t.Errorf("%q %v", data, err)
	}
}

// A consumer's directory follows its name, its slots and its node.
func TestConsumerComesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.do(commands.DefineProvision{Name: "ca", Scope: "mesh", Credentials: "none"},
		commands.RegisterProvider{Name: "root-ca", Provision: "ca", Node: "beta", Endpoint: "https://ca.home.arpa:8443/acme"},
		commands.DeclareModule{Name: "wiki", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "logins"}, "ca": {Provision: "ca"}}}},
		commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	s := w.spec("alpha")
	w.start(w.agent(s))
	names := filepath.Join(s.Root, "bindings", "by-name")
	w.eventually("it runs", w.settled)
	for file, want := range map[string]string{"ca/type": "ca", "ca/provider": "root-ca", "ca/host": "ca.home.arpa", "ca/port": "8443", "ca/uri": "https://ca.home.arpa:8443/acme"} {
		if data, err := os.ReadFile(filepath.Join(names, "wiki", file)); err != nil || string(data) != want {
			t.Errorf("%s: %q %v", file, data, err)
		}
	}
	w.do(commands.RenameAssignment{Assignment: "wiki", To: "pages"})
	w.eventually("it has another name", func() error { return sameNames(names, []string{"pages"}) })
	w.do(commands.DeclareModule{Name: "wiki", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "logins"}}}},
		commands.ResolveAssignment{Assignment: "pages", Prune: true})
	w.eventually("a slot is gone", func() error {
		if _, err := os.Lstat(filepath.Join(names, "pages", "ca")); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it is there: %v", err)
		}
		return w.exact("alpha")
	})
	w.do(commands.MoveAssignment{Assignment: "pages", To: "beta"})
	w.eventually("it has moved", func() error { return sameNames(names, nil) })
	w.eventually("nothing is left", func() error { return sameNames(filepath.Join(s.Root, "bindings"), []string{"by-name"}) })
	w.eventually("nothing is remembered", func() error { return sameNames(filepath.Join(s.Root, dirAssigned), nil) })
	data, err := os.ReadFile(filepath.Join(w.home, "consumed"))
	if err != nil || !strings.Contains(string(data), `"action":"remove"`) || strings.Count(string(data), `"action":"remove"`) != 1 {
		t.Errorf("%s %v", data, err)
	}
}

// References of other schemes are resolved by a command.
func TestResolver(t *testing.T) {
	w := newWorld(t)
	s := w.spec("alpha")
	s.Hooks = ""
	a := w.agent(s)
	bin := filepath.Join(t.TempDir(), "from-vault")
	w.must(os.WriteFile(bin, []byte("#!/bin/sh\nread -r ask\ncase $ask in *'\"path\":\"kv/wiki\"'*) echo '{\"username\":\"u\",\"password\":\"'$1'\"}' ;; *) echo sealed >&2; exit 2 ;; esac\n"), 0o755))
	a.cfg.Resolvers = map[string]string{"vault": bin + " arg"}
	w.start(a)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	issue := func(ref string) {
		w.h.View(func(s *projections.State) {
			go w.do(commands.IssueCredential{Slot: "wiki/db", Generation: s.ListCredentials(projections.CredentialFilter{State: "asked"}).Items[0].Generation, SecretRef: ref})
		})
	}
	issue("vault:kv/none")
	failing := func(reason string) func() error {
		return func() (err error) {
			w.h.View(func(s *projections.State) {
				if v := s.ListBindings(projections.BindingFilter{}).Items[0]; v.Error != reason {
					err = fmt.Errorf("%q", v.Error)
				}
			})
			return err
		}
	}
	w.eventually("it is told", failing("the resolver of vault: sealed"))
	w.do(commands.RequestCredential{Slot: "wiki/db"})
	issue("bao:kv/wiki")
	w.eventually("it is told", failing("no resolver for references of bao: is given to the agent"))
	w.do(commands.RequestCredential{Slot: "wiki/db"})
	issue("vault:kv/wiki")
	w.eventually("it runs", func() error {
		data, err := os.ReadFile(filepath.Join(s.Root, "bindings", "by-name", "wiki", "db", "password"))
		if err == nil && string(data) != "arg" {
			err = fmt.Errorf("%q", data)
		}
		return err
	})
}

// A hook that a killed agent has left running is ended before another one runs for
// the same thing.
func TestLeftHookIsEnded(t *testing.T) {
	w := newWorld(t)
	started := filepath.Join(w.home, "started")
	w.hook("provider", "#!/bin/sh\ncat > /dev/null\necho $$ >> $HOME/started\n[ $(wc -l < $HOME/started) -gt 1 ] || setsid sleep 1000\nexit 0\n")
	s := w.spec("alpha")
	p := w.spawn(s)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	w.eventually("a hook hangs", func() error { _, err := os.Stat(started); return err })
	p.kill()
	w.spawn(s)
	w.eventually("it runs again", w.settled)
	data, err := os.ReadFile(started)
	w.must(err)
	pid := strings.Fields(string(data))[0]
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err == nil && !strings.Contains(string(stat), ") Z ") { // nobody may have waited for it
		t.Errorf("the first hook still runs: %s", stat)
	}
}

// What somebody puts into the buckets of documents moves nothing, and what he takes out
// of them neither: the agent acts on the answers of the ledger's writer alone.
func TestForgedDocuments(t *testing.T) {
	w := newWorld(t)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"}, commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "shop"})
	stop := w.start(w.agent(w.spec("alpha")))
	w.eventually("both run", func() error { return w.exact("alpha") })
	forge := func() {
		var bindings []projections.BindingDocument
		var holders []projections.HolderDocument
		w.h.View(func(s *projections.State) {
			bindings = []projections.BindingDocument{s.BindingDocument(1), s.BindingDocument(2)}
			holders = append(s.HolderDocuments(1), s.HolderDocuments(2)...)
		})
		for i, d := range bindings {
			d.Use.Endpoint, d.ChangedSeq, d.At = "thief.home.arpa:1", d.At+1000, d.At+1000
			data, err := json.Marshal(d)
			w.must(err)
			if i == 0 {
				data = nil // as if it was over
			}
			w.putIn(readmodel.Bindings(testMesh), d.Key(), data)
		}
		for _, d := range holders {
			d.Do, d.State, d.At = projections.DutyRevoke, "to_revoke", d.At+1000
			data, err := json.Marshal(d)
			w.must(err)
			w.putIn(readmodel.Holders(testMesh), d.Key(), data)
		}
	}
	runs := len(w.runs())
	forge()
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "third"})
	w.eventually("another one runs", func() error { return w.exact("alpha") })
	w.must(stop())
	forge()
	w.start(w.agent(w.spec("alpha")))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "fourth"})
	w.eventually("and one after a start", func() error { return w.exact("alpha") })
	for _, in := range w.runs()[runs:] {
		if in.Action != actionIssue {
			t.Errorf("%s ran for %s", in.Action, in.Assignment)
		}
	}
	data, err := os.ReadFile(filepath.Join(w.home, "consumed"))
	if err != nil || strings.Contains(string(data), "thief") || strings.Contains(string(data), actionRemove) {
		t.Errorf("%s %v", data, err)
	}
}

// Buckets of documents that are gone after a restart of their server take nothing from
// anybody.
func TestDocumentsAreMissing(t *testing.T) {
	w := newWorld(t)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"}, commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "over"})
	s := w.spec("alpha")
	stop := w.start(w.agent(s))
	w.eventually("both run", func() error { return w.exact("alpha") })
	w.must(stop())
	w.do(commands.EndAssignment{Assignment: "over"})

	js := w.jetstream()
	for _, b := range []string{readmodel.Bindings(testMesh), readmodel.Holders(testMesh)} {
		w.must(js.DeleteStream(t.Context(), "KV_"+b))
	}
	js.Conn().Close()
	w.down()
	w.late = 3 * time.Second
	w.again()
	runs := len(w.runs())
	w.start(w.agent(w.spec("alpha"))) // its server has another port
	w.eventually("all is as it must be", func() error { return w.exact("alpha") })
	if got := w.runs()[runs:]; len(got) != 1 || got[0].Action != actionRevoke || got[0].Assignment != "over" {
		t.Errorf("hooks of the provider ran: %+v", got)
	}
	data, err := os.ReadFile(filepath.Join(w.home, "consumed"))
	if err != nil || strings.Count(string(data), `"action":"remove"`) != 1 {
		t.Errorf("%s %v", data, err)
	}
}

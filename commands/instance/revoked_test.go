package instance

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// embedded is a server of this process and its ledger, which has one event.
func embedded(t *testing.T) (dial func() *nats.Conn, log *ledger.Log) {
	t.Helper()
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	dial = func() *nats.Conn {
		nc, err := srv.Connect(nats.MaxReconnects(-1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	return dial, found(t, dial(), 1)
}

func newKey(t *testing.T) ledger.Key {
	t.Helper()
	key, err := ledger.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func asWriter(name string, key ledger.Key) commands.GrantAccess {
	return commands.GrantAccess{Name: name, Role: events.RoleWriter, NKey: key.Public}
}

// readAnew folds the ledger as who has never seen it.
func readAnew(t *testing.T, nc *nats.Conn) *projections.State {
	t.Helper()
	log, err := ledger.Open(t.Context(), nc, testMesh)
	if err != nil {
		t.Fatal(err)
	}
	h, err := handler.Open(t.Context(), handler.Config{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return h.Take()
}

// Kind: what was answered as done is gone. A writer whose key is revoked would go on
// with proofs that nobody takes: of commands that are decided together, those behind the
// revocation are not carried out, and nothing is acknowledged that no reader takes.
func TestKeyRevokedWithinAGroup(t *testing.T) {
	for what, change := range map[string]func(one, two ledger.Key) []commands.Command{
		"its key is revoked": func(one, two ledger.Key) []commands.Command {
			return []commands.Command{asWriter("one", one), asWriter("two", two), commands.RevokeAccess{Name: "one"}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			dial, log := embedded(t)
			one, two := newKey(t), newKey(t)
			log.ProveWith(one)
			h, err := handler.Open(t.Context(), handler.Config{Log: log, MayWrite: func(s *projections.State) error { return MayWrite(s, one.Public) }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(h.Close)
			cmds := append(change(one, two), commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"})
			type answer struct {
				cmd commands.Command
				err error
			}
			answers := make(chan answer, len(cmds))
			for _, c := range cmds {
				h.Submit(t.Context(), request(c), func(_ commands.Result, err error) { answers <- answer{c, err} })
			}
			refused := 0
			for range cmds {
				a := <-answers
				var none *NotWriterKeyError
				_, register := a.cmd.(commands.RegisterNode)
				switch {
				case !register && a.err != nil:
					t.Errorf("%s: %v", a.cmd.Verb(), a.err)
				case register && errors.As(a.err, &none):
					refused++
				case register:
					t.Errorf("%+v was answered with %v", a.cmd, a.err)
				}
			}
			if refused != 2 {
				t.Errorf("%d commands are refused, want 2", refused)
			}
			s, at := readAnew(t, dial()), h.Position()
			if s.Seq != at.Seq || s.Chain != at.Chain {
				t.Errorf("who reads the log is at %d, its writer at %d", s.Seq, at.Seq)
			}
		})
	}
}

// Kind: a ledger that nobody can write any more, for a mistyped key. The first grant of a
// writer is that of the key that writes.
func TestFirstWriterIsAnother(t *testing.T) {
	dial, log := embedded(t)
	one, two := newKey(t), newKey(t)
	log.ProveWith(one)
	h, err := handler.Open(t.Context(), handler.Config{Log: log, MayWrite: func(s *projections.State) error { return MayWrite(s, one.Public) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	var refused *commands.Refusal
	if _, err := h.Do(t.Context(), request(asWriter("two", two))); !errors.As(err, &refused) || refused.Code != commands.LastWriter {
		t.Errorf("the first grant of another key: %v", err)
	}
	for _, c := range []commands.Command{commands.RegisterNode{Name: "alpha"}, asWriter("one", one), asWriter("two", two), commands.RegisterNode{Name: "beta"}} {
		if _, err := h.Do(t.Context(), request(c)); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if s, at := readAnew(t, dial()), h.Position(); s.Seq != at.Seq || s.NodeNamed("beta") == 0 {
		t.Errorf("who reads the log is at %d, its writer at %d", s.Seq, at.Seq)
	}
}

// Kind: a mesh that nobody writes. The instance whose key is revoked ends, another one
// goes on, and all that was acknowledged on the way is there.
func TestKeyOfTheWriterRevoked(t *testing.T) {
	dial, _ := embedded(t)
	start := func(name string, key ledger.Key) *member {
		ctx, cancel := context.WithCancel(context.Background())
		m := &member{stop: cancel, done: make(chan error, 1)}
		cfg := testConfig(func() *nats.Conn { return m.own.add(dial()) }, name)
		cfg.Prover, cfg.Key = key, key.Public
		m.Instance = New(cfg)
		go func() { m.done <- m.Run(ctx) }()
		t.Cleanup(func() { cancel(); m.wait(t) })
		return m
	}
	one, two := newKey(t), newKey(t)
	first := start("first", one)
	writerOf(t, first)
	c := newClient(t, dial())
	for _, cmd := range []commands.Command{asWriter("one", one), asWriter("two", two)} {
		if _, err := c.Do(patiently(t), request(cmd)); err != nil {
			t.Fatal(err)
		}
	}
	second := start("second", two)
	eventually(t, "the second one follows", func() bool { return second.Status().Role == Follower })
	for _, cmd := range []commands.Command{commands.RevokeAccess{Name: "one"}, commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"}} {
		if _, err := c.Do(patiently(t), request(cmd)); err != nil {
			t.Fatalf("%+v: %v", cmd, err)
		}
	}
	var none *NotWriterKeyError
	if err := first.wait(t); !errors.As(err, &none) || none.Key != one.Public {
		t.Errorf("the first one ends with %v", err)
	}
	s := readAnew(t, dial())
	if s.NodeNamed("alpha") == 0 || s.NodeNamed("beta") == 0 {
		t.Error("what was acknowledged is not in the ledger")
	}
}

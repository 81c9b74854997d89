package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// guarded is a mesh with documents on a server that asks who connects.
type guarded struct {
	t     *testing.T
	srv   *ledger.Embedded
	h     *handler.Handler
	users []ledger.User
	nodes map[string]events.ID
}

func newGuarded(t *testing.T) *guarded {
	ctx := t.Context()
	g := &guarded{t: t, nodes: map[string]events.ID{}}
	var err error
	g.srv, err = ledger.StartEmbedded(ctx, ledger.EmbeddedConfig{Dir: t.TempDir(), Listen: true, Host: "127.0.0.1", Port: -1, Users: []ledger.User{}})
	g.must(err)
	t.Cleanup(g.srv.Close)
	nc, err := g.srv.Connect()
	g.must(err)
	t.Cleanup(nc.Close)
	log, err := ledger.Create(ctx, nc, "home", ledger.CreateOptions{})
	g.must(err)
	k := readmodel.New(readmodel.Config{Log: log, Memory: true})
	g.h, err = handler.Open(ctx, handler.Config{Log: log, Observe: k.Note})
	g.must(err)
	t.Cleanup(g.h.Close)
	cs := []commands.Command{commands.CreateMesh{Name: "home"}, commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"},
		commands.RegisterProvider{Name: "pg-alpha", Provision: "pg", Node: "alpha", Endpoint: "alpha.mesh:5432"},
		commands.DeclareModule{Name: "app", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "pg", Provider: "pg-alpha"}}}},
		commands.CreateAssignment{Module: "app", Node: "alpha", Name: "app-alpha"},
		commands.CreateAssignment{Module: "app", Node: "beta", Name: "app-beta"}}
	for _, c := range cs {
		_, err := g.h.Do(ctx, newRequest(c))
		g.must(err)
	}
	keeping, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(keeping, nc, g.h) }()
	t.Cleanup(func() { stop(); <-done })
	g.h.View(func(s *projections.State) {
		for _, n := range s.ListNodes().Items {
			g.nodes[n.Name] = n.ID
		}
		err = k.Synced(ctx, 1)
	})
	g.must(err)
	return g
}

func (g *guarded) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// connect lets somebody in and connects as him. What he may not do is counted.
func (g *guarded) connect(user func(key string) ledger.User) (*nats.Conn, chan error) {
	g.t.Helper()
	key, err := ledger.NewKey()
	g.must(err)
	g.users = append(g.users, user(key.Public))
	g.must(g.srv.SetUsers(g.users))
	denied := make(chan error, 100)
	nc, err := nats.Connect(g.srv.URL(), key.Option(), nats.CustomInboxPrefix(InboxOf(key.Public)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case denied <- err:
			default:
			}
		}))
	g.must(err)
	g.t.Cleanup(nc.Close)
	return nc, denied
}

// watch lists the keys that somebody sees in a bucket.
func watch(t *testing.T, nc *nats.Conn, bucket, keys string, within time.Duration) ([]string, error) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return nil, err
	}
	w, err := kv.Watch(ctx, keys)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }()
	var out []string
	for {
		select {
		case e := <-w.Updates():
			if e == nil {
				return out, nil
			}
			out = append(out, e.Key())
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
}

// An agent watches the documents of its node, and nothing else; an operator and an
// auditor see them all, and the ledger. None of them writes a document.
func TestWhoWatchesWhat(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	alpha, beta := g.nodes["alpha"], g.nodes["beta"]
	agent, denied := g.connect(func(key string) ledger.User {
		return Caller{Mesh: "home", Key: key, Role: events.RoleAgent, Node: beta}.User()
	})
	sees := func(nc *nats.Conn, bucket, keys string, want int) {
		t.Helper()
		if got, err := watch(t, nc, bucket, keys, patience); err != nil || len(got) != want {
			t.Errorf("%s %s: %v, %v, want %d", bucket, keys, got, err, want)
		}
	}
	blind := func(nc *nats.Conn, bucket, keys string) {
		t.Helper()
		if got, err := watch(t, nc, bucket, keys, 500*time.Millisecond); err == nil || len(got) > 0 {
			t.Errorf("%s %s: %v, %v", bucket, keys, got, err)
		}
	}
	bindings, holders, agents, sealed := readmodel.Bindings("home"), readmodel.Holders("home"), readmodel.Agents("home"), readmodel.Sealed("home")
	sees(agent, bindings, beta.String()+".>", 1)
	sees(agent, bindings, readmodel.WholeKey, 1)
	sees(agent, holders, beta.String()+".>", 0) // pg-alpha is on alpha
	sees(agent, agents, beta.String(), 0)
	sees(agent, sealed, "*.key", 0)
	blind(agent, bindings, alpha.String()+".>")
	blind(agent, bindings, ">")
	blind(agent, holders, ">")
	blind(agent, sealed, alpha.String()+".>")
	blind(agent, sealed, ">")

	js, err := jetstream.New(agent)
	g.must(err)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for what, try := range map[string]func() error{
		"the ledger": func() error { _, err := js.Stream(short(), ledger.StreamName("home")); return err },
		"a document of its own, directly": func() error {
			_, err := agent.RequestWithContext(short(), "$JS.API.DIRECT.GET.KV_"+bindings, []byte(`{"seq":1}`))
			return err
		},
		"a stored message": func() error {
			_, err := agent.RequestWithContext(short(), "$JS.API.STREAM.MSG.GET.KV_"+bindings, []byte(`{"seq":1}`))
			return err
		},
		"writing a document": func() error { _, err := js.Publish(short(), "$KV."+bindings+"."+beta.String()+".x", nil); return err },
		"another's lease":    func() error { _, err := js.Publish(short(), "$KV."+agents+"."+alpha.String(), nil); return err },
		"another's key":      func() error { _, err := js.Publish(short(), "$KV."+sealed+"."+alpha.String()+".key", nil); return err },
		"deleting a stream":  func() error { return js.DeleteStream(short(), "KV_"+bindings) },
		"an event":           func() error { _, err := js.Publish(short(), "bindery.home.node.x.retired", nil); return err },
		// The filter in the request is not that in its subject.
		"a consumer that hides what it filters": func() error {
			body := fmt.Sprintf(`{"stream_name":"KV_%s","config":{"name":"sly","deliver_subject":"%s","deliver_policy":"all","ack_policy":"none","filter_subject":"$KV.%s.>"}}`,
				bindings, agent.NewInbox(), bindings)
			m, err := agent.RequestWithContext(short(), fmt.Sprintf("$JS.API.CONSUMER.CREATE.KV_%s.sly.$KV.%s.%s.>", bindings, bindings, beta), []byte(body))
			if err == nil && containsError(m.Data) {
				err = errors.New(string(m.Data))
			}
			return err
		},
	} {
		if err := try(); err == nil {
			t.Errorf("an agent of beta may do this: %s", what)
		}
	}
	if len(denied) == 0 {
		t.Error("the server denied nothing")
	}
	// What it may put.
	for _, subject := range []string{"$KV." + agents + "." + beta.String(), "$KV." + sealed + "." + beta.String() + ".key",
		"$KV." + sealed + "." + alpha.String() + ".01M8P8J0B92PWA7XKD7A9EMJ3J.7-0a1b2c3d"} {
		if _, err := js.Publish(short(), subject, []byte("{}")); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
	}

	for _, role := range []events.Role{events.RoleOperator, events.RoleAuditor} {
		nc, _ := g.connect(func(key string) ledger.User { return Caller{Mesh: "home", Key: key, Role: role}.User() })
		sees(nc, bindings, ">", 3) // two, and that they are all
		sees(nc, holders, ">", 3)
		blind(nc, sealed, ">")
		log, err := ledger.Open(t.Context(), nc, "home")
		g.must(err)
		last, err := log.Last(t.Context())
		g.must(err)
		n := 0
		for group, err := range log.Read(t.Context(), ledger.Position{}, last) {
			g.must(err)
			n += len(group)
		}
		if n != int(last) {
			t.Errorf("an %s reads %d of %d events", role, n, last)
		}
		js, err := jetstream.New(nc)
		g.must(err)
		if _, err := js.Publish(short(), "$KV."+bindings+"."+beta.String()+".x", nil); err == nil {
			t.Errorf("an %s writes a document", role)
		}
		if _, err := js.Publish(short(), "bindery.home.node.x.retired", nil); err == nil {
			t.Errorf("an %s writes an event", role)
		}
	}
	local, _ := g.connect(func(key string) ledger.User { return LocalUser("home", key) })
	sees(local, bindings, ">", 3)
	sees(local, sealed, ">", 2)
}

func containsError(data []byte) bool {
	var r struct {
		Error *jetstream.APIError `json:"error"`
	}
	return json.Unmarshal(data, &r) == nil && r.Error != nil
}

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// guarded is a mesh with documents that is served on a server that asks who
// connects.
type guarded struct {
	t     *testing.T
	srv   *ledger.Embedded
	nc    *nats.Conn // of the process itself
	h     *handler.Handler
	svc   *Service
	keys  []string
	nodes map[string]events.ID
}

func newGuarded(t *testing.T) *guarded {
	ctx := t.Context()
	g := &guarded{t: t, nodes: map[string]events.ID{}}
	responder, err := ledger.NewKey()
	g.must(err)
	g.srv, err = ledger.StartEmbedded(ctx, ledger.EmbeddedConfig{Dir: t.TempDir(), Listen: true, Host: "127.0.0.1", Port: -1,
		Users: []ledger.User{ResponderUser(responder.Public)}})
	g.must(err)
	t.Cleanup(g.srv.Close)
	own := func(opts ...nats.Option) *nats.Conn {
		nc, err := g.srv.Connect(opts...)
		g.must(err)
		t.Cleanup(nc.Close)
		return nc
	}
	nc := own()
	g.nc = nc
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
	g.svc, err = Serve(Config{Conn: own(responder.Option()), Direct: own(), Mesh: "home", Handler: g.h, Log: log, Version: "0.0.0", Ledger: log.Created(), Door: Door{Signed: true, Listeners: g.srv.Listeners}})
	g.must(err)
	t.Cleanup(func() { g.must(g.svc.Stop()) })
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

// grant grants access to a new key and connects with it. What it may not do is
// counted.
func (g *guarded) grant(name string, role events.Role, node string) (*nats.Conn, ledger.Key, chan error) {
	g.t.Helper()
	key, err := ledger.NewKey()
	g.must(err)
	_, err = g.h.Do(g.t.Context(), newRequest(commands.GrantAccess{Name: name, Role: role, Node: node, NKey: key.Public}))
	g.must(err)
	g.keys = append(g.keys, key.Public)
	g.admit()
	denied := make(chan error, 1000)
	nc, err := nats.Connect(g.srv.URL(), key.Option(), nats.CustomInboxPrefix(InboxOf(key.Public)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case denied <- err:
			default:
			}
		}))
	g.must(err)
	g.t.Cleanup(nc.Close)
	return nc, key, denied
}

func (g *guarded) admit() {
	g.t.Helper()
	guests := make([]ledger.Guest, len(g.keys))
	for i, key := range g.keys {
		guests[i] = GuestOf("home", key)
	}
	g.must(g.srv.SetGuests(guests))
	g.must(g.svc.Admit(g.keys))
}

// ordinary is what an ordinary client of NATS reads documents with.
func ordinary(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.NewWithAPIPrefix(nc, WatchPrefix("home"))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// watch lists the keys that somebody sees in a bucket.
func watch(t *testing.T, nc *nats.Conn, bucket, keys string, within time.Duration) ([]string, error) {
	t.Helper()
	js := ordinary(t, nc)
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
// auditor see them all. They use an ordinary client, and get and keys work, too.
func TestWhoWatchesWhat(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	alpha, beta := g.nodes["alpha"], g.nodes["beta"]
	agent, key, _ := g.grant("on-beta", events.RoleAgent, "beta")
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
	blind(agent, bindings, alpha.String()+".>")
	blind(agent, bindings, ">")
	blind(agent, bindings, "*."+beta.String())
	blind(agent, holders, ">")
	blind(agent, sealed, ">")
	blind(agent, agents, ">")

	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		return ctx
	}
	api := func(call, body string) error {
		m, err := agent.RequestWithContext(short(), WatchPrefix("home")+"."+call, []byte(body))
		if err == nil && containsError(m.Data) {
			err = errors.New(string(m.Data))
		}
		return err
	}
	// A consumer as it may be; what is below is one with a flaw.
	consumer := func(config string) string {
		return `{"stream_name":"KV_` + bindings + `","config":{"name":"sly","deliver_policy":"all","ack_policy":"none",` + config + `}}`
	}
	own, mine := fmt.Sprintf(`"deliver_subject":"%s"`, agent.NewInbox()), fmt.Sprintf(`"filter_subject":"$KV.%s.%s.>"`, bindings, beta)
	if err := api("CONSUMER.CREATE.KV_"+bindings, consumer(own+","+mine)); err != nil {
		t.Errorf("a consumer as it may be: %v", err)
	}
	auditor, _, _ := g.grant("eve", events.RoleAuditor, "")
	if _, err := auditor.RequestWithContext(short(), WatchPrefix("home")+".CONSUMER.CREATE.KV_"+bindings+".theirs",
		[]byte(fmt.Sprintf(`{"stream_name":"KV_%s","config":{"name":"theirs","deliver_subject":"%s"}}`, bindings, auditor.NewInbox()))); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string][2]string{
		"a stream of secrets":                    {"STREAM.INFO.KV_" + sealed, ""},
		"the ledger":                             {"STREAM.INFO." + ledger.StreamName("home"), ""},
		"a message by number":                    {"DIRECT.GET.KV_" + bindings, `{"seq":1}`},
		"a stored message by number":             {"STREAM.MSG.GET.KV_" + bindings, `{"seq":1}`},
		"another's document":                     {"DIRECT.GET.KV_" + bindings + ".$KV." + bindings + "." + alpha.String() + ".>", ""},
		"another's document in the body":         {"DIRECT.GET.KV_" + bindings, `{"last_by_subj":"$KV.` + bindings + "." + alpha.String() + `.>"}`},
		"many documents":                         {"DIRECT.GET.KV_" + bindings, `{"multi_last":["$KV.` + bindings + `.>"]}`},
		"a batch":                                {"DIRECT.GET.KV_" + bindings, `{"batch":100,"next_by_subj":"$KV.` + bindings + "." + beta.String() + `.>"}`},
		"deleting a stream":                      {"STREAM.DELETE.KV_" + bindings, ""},
		"purging":                                {"STREAM.PURGE.KV_" + bindings, ""},
		"a durable consumer":                     {"CONSUMER.CREATE.KV_" + bindings, consumer(own + "," + mine + `,"durable_name":"sly2"`)},
		"a durable consumer the old way":         {"CONSUMER.DURABLE.CREATE.KV_" + bindings + ".sly2", consumer(own + "," + mine + `,"durable_name":"sly2"`)},
		"a pull consumer":                        {"CONSUMER.CREATE.KV_" + bindings, consumer(mine)},
		"a consumer that delivers to an event":   {"CONSUMER.CREATE.KV_" + bindings, consumer(`"deliver_subject":"bindery.home.node.x.retired",` + mine)},
		"a consumer that delivers to a document": {"CONSUMER.CREATE.KV_" + bindings, consumer(`"deliver_subject":"$KV.` + holders + `.x",` + mine)},
		"a consumer that delivers to another":    {"CONSUMER.CREATE.KV_" + bindings, consumer(`"deliver_subject":"_INBOX.UX.x",` + mine)},
		"a consumer without a filter":            {"CONSUMER.CREATE.KV_" + bindings, consumer(own)},
		"a consumer with one filter too many":    {"CONSUMER.CREATE.KV_" + bindings, consumer(own + `,"filter_subjects":["$KV.` + bindings + "." + beta.String() + `.>","$KV.` + bindings + `.>"]`)},
		"a consumer that hides what it filters":  {"CONSUMER.CREATE.KV_" + bindings + ".sly.$KV." + bindings + "." + beta.String() + ".>", consumer(own + `,"filter_subject":"$KV.` + bindings + `.>"`)},
		"another's consumer":                     {"CONSUMER.INFO.KV_" + bindings + ".theirs", ""},
		"deleting another's consumer":            {"CONSUMER.DELETE.KV_" + bindings + ".theirs", ""},
		"taking another's consumer over":         {"CONSUMER.CREATE.KV_" + bindings + ".theirs", strings.Replace(consumer(own+","+mine), `"sly"`, `"theirs"`, 1)},
		"no JSON":                                {"CONSUMER.CREATE.KV_" + bindings, "{"},
	} {
		if err := api(c[0], c[1]); err == nil {
			t.Errorf("an agent of beta may do this: %s", what)
		}
	}
	m, err := agent.RequestWithContext(short(), WatchPrefix("home")+".STREAM.INFO.KV_"+bindings, []byte(`{"subjects_filter":">"}`))
	if err != nil || strings.Contains(string(m.Data), alpha.String()) {
		t.Errorf("it is told others' keys: %v, %v", m, err)
	}

	operator, _, _ := g.grant("ann", events.RoleOperator, "")
	for _, nc := range []*nats.Conn{operator, auditor} {
		sees(nc, bindings, ">", 3) // two, and that they are all
		sees(nc, holders, ">", 3)
		blind(nc, sealed, ">")
		kv, err := ordinary(t, nc).KeyValue(short(), bindings)
		g.must(err)
		keys, err := kv.Keys(short())
		if err != nil || len(keys) != 3 {
			t.Errorf("keys: %v, %v", keys, err)
		}
		for _, k := range keys {
			e, err := kv.Get(short(), k)
			g.must(err)
			if again, err := kv.GetRevision(short(), k, e.Revision()); err != nil || string(again.Value()) != string(e.Value()) {
				t.Errorf("%s at its revision: %v", k, err)
			}
		}
		if _, err := kv.Put(short(), "x", []byte("1")); err == nil {
			t.Error("it writes a document")
		}
	}

	// What is revoked sees nothing any more, nor does a consumer go on for it.
	_, err = g.h.Do(t.Context(), newRequest(commands.RevokeAccess{Name: "on-beta"}))
	g.must(err)
	g.keys = g.keys[1:]
	g.admit()
	if !agent.IsClosed() && agent.FlushTimeout(patience) == nil {
		t.Error("its connection is open")
	}
	js, err := jetstream.New(g.nc)
	g.must(err)
	stream, err := js.Stream(short(), "KV_"+bindings)
	g.must(err)
	left := func() (n int) {
		for c := range stream.ListConsumers(short()).Info() {
			if strings.HasPrefix(c.Config.DeliverSubject, InboxOf(key.Public)) {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(patience); left() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its consumer is still there")
		}
	}
}

// Kind: one key that uses up what there is for all. More watches than one key may
// have are refused, and what nobody listens to is not counted for ever.
func TestWatchesOfOneKey(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	eve, _, _ := g.grant("eve", events.RoleAuditor, "")
	ann, _, _ := g.grant("ann", events.RoleOperator, "")
	bindings := readmodel.Bindings("home")
	refused := 0
	for i := range maxWatches + 10 {
		m, err := eve.Request(fmt.Sprintf("%s.CONSUMER.CREATE.KV_%s.c%d", WatchPrefix("home"), bindings, i),
			[]byte(fmt.Sprintf(`{"stream_name":"KV_%s","config":{"name":"c%d","deliver_subject":"%s"}}`, bindings, i, eve.NewInbox())), patience)
		g.must(err)
		if containsError(m.Data) {
			refused++
		}
	}
	if refused != 10 {
		t.Errorf("%d of %d were refused", refused, maxWatches+10)
	}
	if got, err := watch(t, ann, bindings, ">", patience); err != nil || len(got) != 3 {
		t.Errorf("another watches: %v, %v", got, err)
	}
}

func containsError(data []byte) bool {
	var r struct {
		Error *jetstream.APIError `json:"error"`
	}
	return json.Unmarshal(data, &r) == nil && r.Error != nil
}

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"bindery/ledger"
)

// Each grant may what its role may, by the command line of another machine.
func TestAccess(t *testing.T) {
	t.Parallel()
	g := serveGuarded(t)
	g.as(t, "ann").must(t, "node", "register", "gamma")
	g.as(t, "ann").must(t, "provider", "relocate", "pg-alpha", "--to", "alpha", "--endpoint", "alpha:5433")
	g.as(t, "on-beta").refused(t, "not_permitted", 4, "credential", "issued", "wiki/db", "--generation", "8", "--secret-ref", "file:/s")
	g.as(t, "on-alpha").must(t, "credential", "issued", "wiki/db", "--generation", "8", "--secret-ref", "file:/s")
	g.as(t, "on-beta").refused(t, "not_permitted", 4, "binding", "applied", "wiki/db", "--at", "9")
	g.as(t, "on-alpha").must(t, "binding", "applied", "wiki/db", "--at", number(g.as(t, "ann").seq(t)))
	g.as(t, "on-alpha").refused(t, "not_permitted", 4, "node", "register", "delta")
	g.as(t, "on-alpha").refused(t, "not_permitted", 4, "status")
	g.as(t, "on-alpha").must(t, "provider", "holders", "pg-alpha")
	g.as(t, "eve").must(t, "status")
	g.as(t, "eve").must(t, "log")
	g.as(t, "eve").refused(t, "not_permitted", 4, "node", "register", "delta")
	items := read[listJSON[struct{ Actor, Type string }]](t, g.as(t, "eve"), "log", "--from", "seq:"+number(g.as(t, "ann").seq(t))).Items
	if len(items) != 1 || items[0].Actor != "on-alpha" {
		t.Errorf("who acknowledged is told as %+v", items)
	}

	// What is revoked is out at once; what it waits for ends.
	log := g.as(t, "eve").following(t, "log", "--follow", "--from", "seq:"+number(g.as(t, "ann").seq(t)+1), "-o", "jsonl")
	g.as(t, "ann").must(t, "node", "register", "delta")
	if line := log.next(t); !strings.Contains(line, "node.registered") {
		t.Errorf("line %q", line)
	}
	g.as(t, "ann").must(t, "access", "revoke", "eve")
	g.as(t, "eve").refused(t, "not_permitted", 4, "status")
	for line := log.next(t); line != ""; line = log.next(t) {
		if !strings.Contains(line, "access.revoked") {
			t.Errorf("line %q", line)
		}
	}
	g.as(t, "ann").must(t, "access", "revoke", "bob")
	g.as(t, "ann").refused(t, "last_operator", 4, "access", "revoke", "ann")
}

// The attacks that reach the server. None changes the ledger, none stops it, and
// what came to the service is answered with a refusal, or not at all.
func TestAttacks(t *testing.T) {
	t.Parallel()
	g := serveGuarded(t)
	before := g.as(t, "ann").seq(t)
	stranger, err := ledger.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]nats.Option{nil, {stranger.Option()}} {
		if nc, err := nats.Connect(g.url, opts...); err == nil {
			nc.Close()
			t.Error("a stranger is let in")
		}
	}

	const command, query = "bindery-req.home.command", "bindery-req.home.query"
	eve, ann := g.key("eve"), g.key("ann")
	nc := g.connect(t, eve)
	// ask sends what eve has made, and tells the answer's code; "" for none, where
	// none is wanted after a moment.
	ask := func(m *nats.Msg, want string) string {
		t.Helper()
		sub, err := nc.SubscribeSync(m.Reply)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := nc.PublishMsg(m); err != nil {
			return err.Error()
		}
		wait := patience
		if want == "" {
			wait = 300 * time.Millisecond
		}
		in, err := sub.NextMsg(wait)
		if err != nil {
			return ""
		}
		var a struct {
			Error *struct{ Code string } `json:"error"`
		}
		if err := json.Unmarshal(in.Data, &a); err != nil || a.Error == nil {
			return "done: " + string(in.Data)
		}
		return a.Error.Code
	}
	inboxes := 0
	inbox := func(key ledger.Key) string {
		inboxes++
		return fmt.Sprintf("_INBOX.%s.x%d", key.Public, inboxes)
	}
	now := time.Now()
	alter := func(m *nats.Msg, f func(*nats.Msg)) *nats.Msg { f(m); return m }
	valid := func() *nats.Msg { return g.signed(t, eve, command, inbox(eve), time.Now(), registers("evil")) }
	for name, c := range map[string]struct {
		m    *nats.Msg
		want string
	}{
		"an auditor that writes":       {valid(), "not_permitted"},
		"no signature":                 {&nats.Msg{Subject: command, Reply: inbox(eve), Data: []byte(registers("evil"))}, ""},
		"another's key, own signature": {alter(valid(), func(m *nats.Msg) { m.Header.Set("Bindery-Key", ann.Public) }), ""},
		"a stranger's key":             {g.signed(t, stranger, command, inbox(eve), now, registers("evil")), ""},
		"a body altered":               {alter(valid(), func(m *nats.Msg) { m.Data = []byte(registers("worse")) }), ""},
		"a time altered":               {alter(valid(), func(m *nats.Msg) { m.Header.Set("Bindery-Time", "1") }), ""},
		"an answer to another":         {alter(valid(), func(m *nats.Msg) { m.Reply = inbox(ann) }), ""},
		"signed long ago":              {g.signed(t, eve, command, inbox(eve), now.Add(-time.Hour), registers("evil")), "not_permitted"},
		"signed ahead":                 {g.signed(t, eve, command, inbox(eve), now.Add(time.Hour), registers("evil")), "not_permitted"},
		"a query as a command":         {g.signed(t, eve, query, inbox(eve), now, registers("evil")), "usage"},
		"an actor that is not she":     {g.signed(t, eve, command, inbox(eve), now, strings.Replace(registers("evil"), `"ann"`, `"bindery"`, 1)), "not_permitted"},
		"no JSON":                      {g.signed(t, eve, command, inbox(eve), now, "\x00\xff{{{"), "usage"},
		"a field nobody knows":         {g.signed(t, eve, command, inbox(eve), now, `{"verb":"node.register","key":"`+ann.Public+`"}`), "usage"},
		"too long":                     {g.signed(t, eve, command, inbox(eve), now, `{"verb":"`+strings.Repeat("x", 7<<20)+`"}`), "usage"},
		"deep":                         {g.signed(t, eve, query, inbox(eve), now, `{"query":"status","args":`+strings.Repeat("[", 1<<20)+`}`), "usage"},
	} {
		if got := ask(c.m, c.want); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	// A request that was heard is not heard again, by nobody.
	m := g.signed(t, eve, query, inbox(eve), time.Now(), `{"query":"node.list"}`)
	if got := ask(m, "done"); !strings.HasPrefix(got, "done: ") {
		t.Errorf("an honest query: %q", got)
	}
	if got := ask(m, "not_permitted"); got != "not_permitted" {
		t.Errorf("the same query again: %q", got)
	}
	mine := g.connect(t, ann)
	if err := mine.PublishMsg(g.signed(t, ann, command, inbox(ann), time.Now(), registers("honest"))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an honest command", func() bool { return g.as(t, "ann").seq(t) == before+1 })

	// What the server itself keeps from them.
	denied := make(chan string, 1000)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err.Error() })
	for _, subject := range []string{"bindery.home.node." + ulid.Make().String() + ".registered", "$JS.API.STREAM.DELETE.bindery-home",
		"$JS.API.STREAM.UPDATE.bindery-home", "$JS.API.STREAM.PURGE.bindery-home", "$JS.API.STREAM.MSG.DELETE.bindery-home",
		"$JS.API.DIRECT.GET.bindery-home", "$JS.API.STREAM.CREATE.bindery-other", "$JS.API.STREAM.SNAPSHOT.bindery-home",
		"$KV.bindery-home-bindings.x.y", "$KV.bindery-home-holders.x.y", "$JS.API.DIRECT.GET.KV_bindery-home-sealed",
		"_INBOX." + ann.Public + ".x", "$SYS.REQ.SERVER.PING.IDZ", "$JS.ACK.x"} {
		_ = nc.PublishRequest(subject, command, []byte("{}"))
		_ = nc.Flush()
		select {
		case err := <-denied:
			if !strings.Contains(err, "Permissions Violation") && !strings.Contains(err, "permissions violation") {
				t.Errorf("%s: %s", subject, err)
			}
		case <-time.After(patience):
			t.Errorf("%s is let through", subject)
		}
	}
	for _, subject := range []string{"_INBOX." + ann.Public + ".>", "_INBOX.>", ">", "bindery.>", "bindery-req.>", "$JS.>"} {
		sub, err := nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-denied:
		case <-time.After(patience):
			t.Errorf("listening on %s is let through", subject)
		}
		_ = sub.Unsubscribe()
	}

	// A flood of everything, and of what is never read: others are served.
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	for i := range 20 {
		reply := inbox(eve)
		flood.Go(func() {
			nc := g.connect(t, eve)
			if i == 0 {
				_, _ = nc.SubscribeSync("_INBOX." + eve.Public + ".>") // and reads nothing
			}
			for ctx.Err() == nil {
				_ = nc.PublishMsg(g.signed(t, eve, query, reply, time.Now(), `{"query":"log","args":{"first":1}}`))
				_ = nc.PublishMsg(&nats.Msg{Subject: command, Data: make([]byte, 1000)})
				_ = nc.FlushTimeout(time.Second)
			}
		})
	}
	for range 5 {
		g.as(t, "ann").must(t, "provider", "update", "pg-alpha", "--version", "16."+strconv.Itoa(int(time.Now().UnixNano()%1000)))
	}
	stop()
	flood.Wait()
	if r := g.as(t, "ann").run(t, "status"); r.code != 0 {
		t.Errorf("after the flood: %s", r.stderr)
	}
	names := g.as(t, "ann").must(t, "node", "list", "-o", "name")
	if strings.Contains(names, "evil") || strings.Contains(names, "worse") {
		t.Errorf("the ledger has what an attacker wrote: %s", names)
	}
}

// A second machine joins: one file and its own key, no openssl. Its agent
// acknowledges on its node and is refused on another.
func TestJoin(t *testing.T) {
	t.Parallel()
	c := smallStore(t)
	c.refused(t, "usage", 2, "serve", "--listen", "0.0.0.0:0")
	c.refused(t, "usage", 2, "serve", "--listen", "0.0.0.0:0", "--tls-own") // nobody is granted access
	dir := t.TempDir()
	key := func(name string) string {
		return strings.TrimSpace(c.must(t, "access", "keygen", filepath.Join(dir, name)))
	}
	c.must(t, "access", "grant", "ann", "--role", "operator", "--nkey", key("ann"))
	join := filepath.Join(dir, "home.json")
	c.refused(t, "needs_serve", 7, "access", "grant", "on-beta", "--role", "agent", "--node", "beta", "--nkey", key("early"), "--join", join)
	s := c.serve(t, "--listen", "0.0.0.0:0", "--tls-own", "--name", "localhost")
	c.must(t, "access", "grant", "on-beta", "--role", "agent", "--node", "beta", "--nkey", key("on-beta"), "--join", join)
	c.must(t, "access", "grant", "on-alpha", "--role", "agent", "--node", "alpha", "--nkey", key("on-alpha"))
	text, err := os.ReadFile(join)
	if err != nil || strings.Contains(string(text), "PRIVATE") || strings.Contains(string(text), "SU") && strings.Contains(string(text), `"seed"`) {
		t.Fatalf("%v: %s", err, text)
	}
	as := func(name string) *cli {
		o := newCLI(t)
		o.env = []string{"BINDERY_STORE=", "NATS_CONTEXT=" + join, "NATS_CREDS=" + filepath.Join(dir, name)}
		return o
	}
	as("ann").must(t, "provider", "relocate", "pg-alpha", "--to", "beta", "--endpoint", "beta:5432")
	as("on-alpha").refused(t, "not_permitted", 4, "credential", "issued", "wiki/db", "--generation", "8", "--secret-ref", "file:/s")
	as("on-beta").must(t, "credential", "issued", "wiki/db", "--generation", "8", "--secret-ref", "file:/s")
	as("on-beta").refused(t, "not_permitted", 4, "binding", "applied", "wiki/db", "--at", "10")
	as("on-alpha").must(t, "binding", "applied", "wiki/db", "--at", number(c.seq(t)))

	// Who does not know the authority does not talk to it, and an unencrypted
	// client gets nowhere.
	var e struct{ URL string }
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	plain := newCLI(t)
	plain.env = []string{"BINDERY_STORE=", "NATS_URL=" + e.URL, "NATS_CREDS=" + filepath.Join(dir, "ann")}
	plain.refused(t, "unreachable", 7, "status")

	// The same authority vouches for the next run: a join file stays good.
	port := e.URL[strings.LastIndexByte(e.URL, ':')+1:]
	s.stop(t, os.Interrupt)
	c.serve(t, "--listen", "0.0.0.0:"+port, "--tls-own", "--name", "localhost")
	as("ann").must(t, "status")
}

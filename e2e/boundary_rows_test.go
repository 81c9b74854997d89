package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/ledger"
)

// asker sends requests of one key, and hears the answers.
type asker struct {
	g   *guarded
	key ledger.Key
	nc  *nats.Conn
	n   int
}

func (g *guarded) asker(t *testing.T, name string) *asker {
	t.Helper()
	key := g.key(name)
	return &asker{g: g, key: key, nc: g.connect(t, key)}
}

// raw sends a request and returns its answer.
func (a *asker) raw(t *testing.T, m *nats.Msg) *nats.Msg {
	t.Helper()
	in := a.hear(t, m, patience)
	if in == nil {
		t.Fatalf("%s is not answered", m.Subject)
	}
	return in
}

// hear sends a request and returns its answer; nil where none comes within a time after
// the answer to a second one.
func (a *asker) hear(t *testing.T, m *nats.Msg, within time.Duration) *nats.Msg {
	t.Helper()
	sub, err := a.nc.SubscribeSync("_INBOX." + a.key.Public + ".>")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	heardOn(t, a.nc)
	if err := a.nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	for in := range answersUntil(t, a.nc, sub, a.inbox()) {
		if in.Subject == m.Reply {
			return in
		}
	}
	for {
		in, err := sub.NextMsg(within)
		if err != nil {
			return nil
		}
		if in.Subject == m.Reply {
			return in
		}
	}
}

// inbox is a subject that no answer has come to yet.
func (a *asker) inbox() string {
	a.n++
	return fmt.Sprintf("_INBOX.%s.a%d", a.key.Public, a.n)
}

// send sends a request and tells its answer (answerOf).
func (a *asker) send(t *testing.T, m *nats.Msg) string {
	t.Helper()
	return answerOf(t, a.raw(t, m).Data)
}

// whisper sends a request that need not be answered; "" where it is not.
func (a *asker) whisper(t *testing.T, m *nats.Msg) string {
	t.Helper()
	if in := a.hear(t, m, 200*time.Millisecond); in != nil {
		return answerOf(t, in.Data)
	}
	return ""
}

// call puts a call to what answers in place of JetStream's API.
func (a *asker) call(t *testing.T, call, body string) string {
	t.Helper()
	return string(a.raw(t, &nats.Msg{Subject: "bindery-req.home.js." + call, Reply: a.inbox(), Data: []byte(body)}).Data)
}

// The attacks by which a granted key could write the ledger and its documents, erase
// or stop them, one by one, in every world.
func TestAttackRows(t *testing.T) {
	t.Parallel()
	for name, world := range map[string]func(*testing.T) *guarded{
		"own server": serveGuarded,
		"one server": func(t *testing.T) *guarded { return serveGuardedOn(t, 1, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := world(t)
			before := g.kept(t)
			for _, row := range []struct {
				name string
				try  func(t *testing.T, g *guarded, role string)
			}{
				{"H1 bytes that the server has are copied onto the ledger", rowCopy},
				{"H2 a document is delivered as an event", rowDeliver},
				{"H4 a rollup erases the documents", rowRollup},
				{"H5 a thousand durable consumers", rowDurable},
				{"H6 twenty thousand requests that are answered on an event's subject", rowAnswers},
				{"the keys of others, by the subjects of a stream", rowSubjects},
				{"the spellings of a signature, and a request heard before", rowSpellings},
				{"a request for another ledger", rowOther},
				{"documents of another node", rowOthersDocuments},
				{"an agent of another node", rowOthersAgent},
			} {
				roles := []string{"on-beta", "eve"}
				if strings.HasPrefix(row.name, "H6") {
					roles = roles[1:] // it takes as long as the limit of one key makes it
				}
				for _, role := range roles {
					t.Run(row.name+", by "+role, func(t *testing.T) {
						row.try(t, g, role)
						if after := g.kept(t); after != before {
							t.Errorf("what is kept has changed\n%s\nfrom\n%s", after, before)
						}
					})
				}
			}
			g.as(t, "bob").must(t, "node", "register", "honest")
		})
	}
}

const eventSubject = "bindery.home.node.01M8QY3P0HQZVB2XT4Y8HC48DC.registered"

// No place takes bytes that the server could copy.
func rowCopy(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	refused := newRefusals(a.nc)
	for _, subject := range []string{"$KV.bindery-home-agents.x", "$KV.bindery-home-sealed.x", "$KV.bindery-home-bindings.x", "$KV.bindery-home-holders.x", "$JS.API.STREAM.CREATE.mine"} {
		refused.want(subject, subject)
		if err := a.nc.PublishRequest(subject, a.inbox(), []byte(`{"forged":true}`)); err != nil {
			t.Fatal(err)
		}
	}
	refused.settle(t, a.nc)
	for _, name := range refused.missing() {
		t.Errorf("bytes are put under %s", name)
	}
	for _, call := range []string{"STREAM.CREATE.mine", "STREAM.UPDATE.KV_bindery-home-bindings", "STREAM.RESTORE.mine", "STREAM.MSG.GET.bindery-home", "DIRECT.GET.bindery-home",
		"STREAM.MSG.GET.KV_bindery-home-agents", "STREAM.SNAPSHOT.KV_bindery-home-bindings"} {
		if got := a.call(t, call, `{"seq":1,"name":"mine"}`); !strings.Contains(got, `"error"`) {
			t.Errorf("%s: %q", call, got)
		}
		// And what is answered goes nowhere else.
		if err := a.nc.PublishRequest("bindery-req.home.js."+call, eventSubject, []byte(`{"seq":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	heardOn(t, a.nc)
}

// A consumer delivers nowhere but to the key's own inbox.
func rowDeliver(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	own := "_INBOX." + a.key.Public
	for _, to := range []string{eventSubject, "$KV.bindery-home-sealed.x", "$JS.API.STREAM.DELETE.bindery-home", "bindery-req.home.command", "_INBOX." + g.public["bob"] + ".x",
		own, own + ".>", own + ".*", own + ".x y", own + "x.y", own + ".x\ty", own + ".x\r\nPUB bindery.home.x 0\r\n", "_INBOX.>", ">", own + ".$JS.API.x " + eventSubject, strings.ToLower(own) + ".x", own + "\u200b.x"} {
		body, err := json.Marshal(map[string]any{"stream_name": "KV_bindery-home-bindings", "config": map[string]any{"deliver_subject": to, "filter_subject": "$KV.bindery-home-bindings.whole"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{"CONSUMER.CREATE.KV_bindery-home-bindings", "CONSUMER.CREATE.KV_bindery-home-bindings.x", "CONSUMER.CREATE.KV_bindery-home-bindings.x.$KV.bindery-home-bindings.whole"} {
			if got := a.call(t, call, string(body)); !strings.Contains(got, `"error"`) {
				t.Errorf("a consumer delivers to %q: %s", to, got)
			}
		}
	}
}

func rowRollup(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	for _, value := range []string{"all", "sub"} {
		for _, subject := range []string{"$KV.bindery-home-bindings.x", "$KV.bindery-home-holders.whole", "bindery-req.home.query", "bindery-req.home.js.DIRECT.GET.KV_bindery-home-bindings.$KV.bindery-home-bindings.whole"} {
			if err := a.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: a.inbox(), Header: nats.Header{"Nats-Rollup": {value}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	heardOn(t, a.nc)
}

// No durable consumer is made, and of others no more than a key may have.
func rowDurable(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	answers, err := a.nc.SubscribeSync("_INBOX." + a.key.Public + ".made.*")
	if err != nil {
		t.Fatal(err)
	}
	const tries = 1000
	for i := range tries {
		name := fmt.Sprintf("c-%s-%d", role, i)
		config := map[string]any{"deliver_subject": a.inbox(), "filter_subject": "$KV.bindery-home-bindings.whole", "name": name}
		call := "CONSUMER.CREATE.KV_bindery-home-bindings"
		if i%2 == 0 {
			config["durable_name"] = name
			call = "CONSUMER.DURABLE.CREATE.KV_bindery-home-bindings." + name
			if i%4 == 0 {
				call = "CONSUMER.CREATE.KV_bindery-home-bindings." + name
			}
		}
		body, err := json.Marshal(map[string]any{"stream_name": "KV_bindery-home-bindings", "config": config})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.nc.PublishRequest("bindery-req.home.js."+call, "_INBOX."+a.key.Public+".made."+name, body); err != nil {
			t.Fatal(err)
		}
		if i%200 == 0 {
			heardOn(t, a.nc)
		}
	}
	var names []string
	for range tries {
		m, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(m.Data), `"error"`) {
			if strings.Contains(string(m.Data), "durable_name") {
				t.Errorf("a durable consumer is made: %s", m.Data)
			}
			names = append(names, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
		}
	}
	if len(names) == 0 || len(names) > 64 {
		t.Errorf("%d consumers are made", len(names))
	}
	for _, name := range names { // what is kept is compared
		if got := a.call(t, "CONSUMER.DELETE.KV_bindery-home-bindings."+name, ""); !strings.Contains(got, `"success":true`) {
			t.Errorf("its own consumer is not ended: %s", got)
		}
	}
}

func rowAnswers(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	for i := range 20_000 {
		subject := "bindery-req.mesh"
		if i%2 == 0 {
			subject = "bindery-req.home.command"
		}
		if err := a.nc.PublishRequest(subject, eventSubject, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		if i%500 == 0 {
			heardOn(t, a.nc)
		}
	}
	heardOn(t, a.nc)
	g.as(t, "bob").must(t, "status")
}

func rowSubjects(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	for _, body := range []string{`{"subjects_filter":">"}`, `{"subjects_filter":"$KV.bindery-home-agents.>"}`, `{"subjects_filter":">","offset":0,"deleted_details":true}`} {
		for _, stream := range protectedStreams {
			got := a.call(t, "STREAM.INFO."+stream, body)
			if strings.Contains(got, `"subjects":{`) || strings.Contains(got, `"deleted":[`) {
				t.Errorf("%s is told of %s: %s", role, stream, got)
			}
			if readable := strings.HasSuffix(stream, "-bindings") || strings.HasSuffix(stream, "-holders"); !readable && !strings.Contains(got, `"error"`) {
				t.Errorf("%s is told of %s: %s", role, stream, got)
			}
		}
	}
	got := a.call(t, "STREAM.NAMES", "")
	for _, stream := range protectedStreams {
		if readable := strings.HasSuffix(stream, "-bindings") || strings.HasSuffix(stream, "-holders"); !readable && strings.Contains(got, `"`+stream+`"`) {
			t.Errorf("%s is told that there is %s", role, stream)
		}
	}
}

// What was heard is heard no more, however its signature is spelt: base64 has sixteen
// spellings of 64 bytes, since the last character has four bits too many, and more with
// padding, lines and the other alphabet.
func rowSpellings(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	body := `{"query":"access.whoami"}`
	m := g.signed(t, a.key, "bindery-req.home.query", a.inbox(), time.Now(), body)
	if got := a.send(t, m); !strings.HasPrefix(got, "done: ") {
		t.Fatalf("an honest query: %q", got)
	}
	if got := a.send(t, m); got != "not_permitted" {
		t.Errorf("the same again: %q", got)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	sig := m.Header.Get("Bindery-Sig")
	raw, err := base64.RawURLEncoding.DecodeString(sig)
	if err != nil {
		t.Fatal(err)
	}
	spellings := map[string]bool{sig + "==": true, sig + "\n": true, sig[:40] + "\r\n" + sig[40:]: true, base64.StdEncoding.EncodeToString(raw): true, " " + sig: true, sig + "AAAA": true}
	for i := range alphabet {
		other := sig[:len(sig)-1] + alphabet[i:i+1]
		if back, err := base64.RawURLEncoding.DecodeString(other); other != sig && err == nil && string(back) == string(raw) {
			spellings[other] = true
		}
	}
	// Where a signature has none of the two characters in which the alphabets differ (one
	// of fifteen has not), the other alphabet's spelling is the padded one.
	if n := len(spellings); n != 21 && (n != 20 || strings.ContainsAny(sig, "-_")) {
		t.Fatalf("%d spellings", n)
	}
	for spelling := range spellings {
		m.Header.Set("Bindery-Sig", spelling)
		if got := a.whisper(t, m); got != "" && got != "not_permitted" {
			t.Errorf("the same request with its signature spelt %q: %q", spelling, got)
		}
	}
}

// A request that was signed for a restored copy, or for another store, is not heard.
func rowOther(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	id, created, _ := strings.Cut(g.audience, "/")
	for name, audience := range map[string]string{"a restored copy": id + "/" + created + "x", "another store": newULID() + "/" + created, "none": "", "the mesh's id alone": id} {
		m := signedFor(t, audience, a.key, "bindery-req.home.query", a.inbox(), time.Now(), `{"query":"access.whoami"}`)
		if got := a.send(t, m); got != "ledger_restored" {
			t.Errorf("a request for %s: %q", name, got)
		}
		m = signedFor(t, audience, a.key, "bindery-req.home.query", a.inbox(), time.Now(), `{"query":"access.whoami"}`)
		m.Header.Set("Bindery-Ledger", g.audience)
		if got := a.whisper(t, m); got != "" {
			t.Errorf("a request for %s, said to be for this: %q", name, got)
		}
	}
}

// An agent sees no other node's documents; an auditor sees all, and writes none.
func rowOthersDocuments(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	js, err := jetstream.NewWithAPIPrefix(a.nc, "bindery-req.home.js")
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "bindery-home-bindings")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	if role == "eve" {
		if err != nil || len(keys) == 0 {
			t.Errorf("an auditor reads %q: %v", keys, err)
		}
	} else if err == nil && len(keys) > 0 {
		t.Errorf("an agent reads %q", keys)
	}
	if _, err := kv.PutString(t.Context(), "whole", "forged"); err == nil {
		t.Error("a document is written")
	}
	if role == "eve" {
		// A filter becomes a part of a subject that the writer publishes to.
		for _, filter := range []string{"$KV.bindery-home-bindings.x\r\nPUB bindery.home.node.01M8QY3P0HQZVB2XT4Y8HC48DC.registered 2\r\n{}\r\n", "$KV.bindery-home-bindings.x y", "$KV.bindery-home-bindings.x\ty"} {
			body, err := json.Marshal(map[string]any{"stream_name": "KV_bindery-home-bindings", "config": map[string]any{"deliver_subject": a.inbox(), "filter_subject": filter}})
			if err != nil {
				t.Fatal(err)
			}
			if got := a.call(t, "CONSUMER.CREATE.KV_bindery-home-bindings", string(body)); !strings.Contains(got, "may not read") {
				t.Errorf("a filter %q: %s", filter, got)
			}
		}
		return
	}
	for _, filter := range []string{"$KV.bindery-home-bindings.>", "$KV.bindery-home-bindings.*", "$KV.bindery-home-bindings.*.*", ">", "$KV.*.>", ""} {
		body, err := json.Marshal(map[string]any{"stream_name": "KV_bindery-home-bindings", "config": map[string]any{"deliver_subject": a.inbox(), "filter_subject": filter}})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.call(t, "CONSUMER.CREATE.KV_bindery-home-bindings", string(body)); !strings.Contains(got, `"error"`) {
			t.Errorf("an agent watches %q: %s", filter, got)
		}
	}
	for _, body := range []string{`{"seq":1}`, `{"next_by_subj":"$KV.bindery-home-bindings.>"}`, `{"last_by_subj":"$KV.bindery-home-bindings.*.*"}`, `{"multi_last":["$KV.bindery-home-bindings.>"]}`,
		`{"batch":1000,"next_by_subj":">"}`, `{"last_by_subj":"$KV.bindery-home-bindings.whole","multi_last":[">"]}`, `{"start_time":"2000-01-01T00:00:00Z"}`} {
		for _, call := range []string{"DIRECT.GET.KV_bindery-home-bindings", "STREAM.MSG.GET.KV_bindery-home-bindings"} {
			if in := a.raw(t, &nats.Msg{Subject: "bindery-req.home.js." + call, Reply: a.inbox(), Data: []byte(body)}); !strings.Contains(string(in.Data), `"error"`) {
				t.Errorf("an agent reads %s by %s", body, call)
			}
		}
	}
}

// An agent acts for its own node alone; an auditor acts for none.
func rowOthersAgent(t *testing.T, g *guarded, role string) {
	a := g.asker(t, role)
	nodes := map[string]string{}
	for _, n := range read[listJSON[struct{ ID, Name string }]](t, g.as(t, "bob"), "node", "list").Items {
		nodes[n.Name] = n.ID
	}
	binding := read[bindingJSON](t, g.as(t, "bob"), "binding", "show", "wiki/db").ID
	alpha := nodes["alpha"]
	for _, do := range []string{
		fmt.Sprintf(`{"do":"lease","args":{"node":%q,"holder":"h","tree":"t","host":"h","pid":1,"since":"2026-01-01T00:00:00Z"}}`, alpha),
		fmt.Sprintf(`{"do":"release","args":{"node":%q,"holder":"h"}}`, alpha),
		fmt.Sprintf(`{"do":"key","args":{"node":%q,"curve":"XAAA","nkey":%q,"sig":"x"}}`, alpha, a.key.Public),
		fmt.Sprintf(`{"do":"sealed","args":{"node":%q}}`, alpha),
		fmt.Sprintf(`{"do":"wait","args":{"node":%q,"wait":1}}`, alpha),
		fmt.Sprintf(`{"do":"seal","args":{"binding":%q,"generation":8,"tag":"x","value":{"sender":{"curve":"XAAA","nkey":%q,"sig":"x"},"box":"eA=="}}}`, binding, a.key.Public),
		fmt.Sprintf(`{"do":"unseal","args":{"binding":%q,"generation":8,"tag":"x","node":%q}}`, binding, alpha),
		`{"do":"lease","args":{"node":"","holder":"h","tree":"t","host":"h"}}`,
		`{"do":"lease","args":{"node":"*","holder":"h","tree":"t","host":"h"}}`,
		`{"do":"key","args":{"node":"$KV.x.>"}}`,
		`{"do":"nothing"}`, `{}`, `[]`, `{"do":"lease","args":` + strings.Repeat("[", 100_000),
	} {
		m := g.signed(t, a.key, "bindery-req.home.agent", a.inbox(), time.Now(), do)
		if got := a.send(t, m); got == "" || strings.HasPrefix(got, "done: ") {
			t.Errorf("%s: %q", do[:min(len(do), 200)], got)
		}
	}
}

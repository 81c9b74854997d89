package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"bindery/ledger"
)

// granted are those with a key of every role, and a second operator whom nobody
// may disturb.
var granted = map[string]string{"ann": "operator", "bob": "operator", "on-alpha": "agent --node alpha", "on-beta": "agent --node beta", "eve": "auditor"}

// guarded is a mesh that is served, where somebody of every role is granted access.
type guarded struct {
	*keyring
	url      string
	audience string // what signatures name the ledger by
	store    string // where it is kept; "" on servers that are not bindery's own
	serving  []*serving
	servers  []*natsServer
}

// serveGuarded is a store that is served.
func serveGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{keyring: newKeyring(t, "ann", "bob", "on-alpha", "on-beta", "eve")}
	c := smallStore(t)
	g.store = c.store
	g.grant(t, c, "ann")
	g.serving = append(g.serving, c.serve(t))
	data, err := os.ReadFile(filepath.Join(c.store, "serve.json"))
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ URL string }
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	g.url = e.URL
	g.audience = g.askAudience(t)
	return g
}

// serveGuardedOn is a ledger on n servers that are not bindery's own, with the
// accounts that access permissions prints, or signed by an operator.
func serveGuardedOn(t *testing.T, n int, signed bool) *guarded {
	t.Helper()
	g := &guarded{keyring: newKeyring(t, "writer", "answers", "ann", "bob", "on-alpha", "on-beta", "eve")}
	names := []string{"ann", "bob", "on-alpha", "on-beta", "eve"}
	if signed {
		g.servers = natsServers(t, n, underOperator(t, g.keyring, names...))
	} else {
		g.servers = natsServers(t, n, g.permissions(names...))
	}
	g.prime(t, g.servers)
	g.url = strings.Join(urls(g.servers), ",")
	writer := g.on(g.url, "writer")
	eventually(t, "a ledger", func() bool {
		return writer.run(t, "init", "--mesh", "home", "--replicas", strconv.Itoa(n), "--operator", "ann", "--nkey", g.public["ann"]).code == 0
	})
	for range n {
		g.serving = append(g.serving, writer.serve(t, "--answer-creds", g.login("answers")))
	}
	ann := g.as(t, "ann")
	ann.must(t, "apply", "-f", write(t, filepath.Join(t.TempDir(), "small.yaml"), small))
	g.grant(t, ann, "")
	g.audience = g.askAudience(t)
	return g
}

// grant grants everybody access whose role is not had by the first operator alone.
func (g *guarded) grant(t *testing.T, c *cli, first string) {
	t.Helper()
	for _, name := range []string{"ann", "bob", "on-alpha", "on-beta", "eve"} {
		if name == "ann" && first == "" {
			continue
		}
		c.must(t, append([]string{"access", "grant", name, "--nkey", g.public[name], "--role"}, strings.Fields(granted[name])...)...)
	}
}

// as is the command line of somebody elsewhere, with a key of its own.
func (g *guarded) as(t *testing.T, name string) *cli {
	t.Helper()
	return g.on(g.url, name)
}

// connect is a connection as any NATS client makes one.
func (g *guarded) connect(t *testing.T, key ledger.Key, more ...nats.Option) *nats.Conn {
	t.Helper()
	as := key.Option()
	for name, file := range g.creds {
		if g.public[name] == key.Public {
			as = nats.UserCredentials(file)
		}
	}
	nc, err := nats.Connect(g.url, append([]nats.Option{as, nats.CustomInboxPrefix("_INBOX." + key.Public),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// askAudience asks which ledger is served, as any client does.
func (g *guarded) askAudience(t *testing.T) string {
	t.Helper()
	m := heardOn(t, g.connect(t, g.key("ann")))
	var who struct {
		MeshID string `json:"mesh_id"`
		Ledger string
	}
	if err := json.Unmarshal(m.Data, &who); err != nil || who.MeshID == "" {
		t.Fatalf("%v: %s", err, m.Data)
	}
	return who.MeshID + "/" + who.Ledger
}

// heardOn waits until somebody answers on a connection which ledger is served, and with
// that until all that was sent on it before was heard, by whoever answers. A key that
// floods is not heard for a while: what it asks then is dropped, so it asks again.
func heardOn(t *testing.T, nc *nats.Conn) (m *nats.Msg) {
	t.Helper()
	eventually(t, "an answer which ledger is served", func() (ok bool) {
		var err error
		if m, err = nc.Request("bindery-req.mesh", nil, time.Second); errors.Is(err, nats.ErrConnectionClosed) {
			t.Fatal(err)
		}
		return err == nil
	})
	return m
}

// answersUntil asks which ledger is served, each second again until the answer comes to
// the subject last. It gives what comes before that.
func answersUntil(t *testing.T, nc *nats.Conn, sub *nats.Subscription, last string) iter.Seq[*nats.Msg] {
	t.Helper()
	return func(yield func(*nats.Msg) bool) {
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if err := nc.PublishRequest("bindery-req.mesh", last, nil); err != nil {
				t.Fatal(err)
			}
			for {
				m, err := sub.NextMsg(time.Second)
				if errors.Is(err, nats.ErrTimeout) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if m.Subject == last {
					return
				}
				if !yield(m) {
					return
				}
			}
		}
		t.Fatal("nobody answers which ledger is served")
	}
}

// signed makes a request as docs/security.md says one is made.
func (g *guarded) signed(t *testing.T, key ledger.Key, subject, reply string, at time.Time, body string) *nats.Msg {
	t.Helper()
	return signedFor(t, g.audience, key, subject, reply, at, body)
}

func signedFor(t testing.TB, audience string, key ledger.Key, subject, reply string, at time.Time, body string) *nats.Msg {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	text := strconv.FormatInt(at.UnixNano(), 10)
	sig, err := key.Sign([]byte(strings.Join([]string{"bindery request 2", audience, subject, reply, text, hex.EncodeToString(sum[:])}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return &nats.Msg{Subject: subject, Reply: reply, Data: []byte(body), Header: nats.Header{"Bindery-Key": {key.Public}, "Bindery-Ledger": {audience},
		"Bindery-Time": {text}, "Bindery-Sig": {base64.RawURLEncoding.EncodeToString(sig)}}}
}

// answerOf tells what an answer says: a refusal's code, or what was done.
func answerOf(t testing.TB, data []byte) string {
	t.Helper()
	var a struct {
		Error *struct{ Code string } `json:"error"`
	}
	if err := json.Unmarshal(data, &a); err != nil || a.Error == nil {
		return "done: " + string(data)
	}
	return a.Error.Code
}

func registers(node string) string {
	return fmt.Sprintf(`{"verb":"node.register","args":{"name":%q},"id":%q,"actor":"ann"}`, node, newULID())
}

// another grants one more auditor access.
func (g *guarded) another(t *testing.T, name string) ledger.Key {
	t.Helper()
	g.public[name] = strings.TrimSpace(newCLI(t).must(t, "access", "keygen", g.file(name)))
	g.as(t, "ann").must(t, "access", "grant", name, "--role", "auditor", "--nkey", g.public[name])
	return g.key(name)
}

func newULID() string { return ulid.Make().String() }

func jetstreamOf(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/ledger"
)

// Whatever a granted key sends, and however it wants the answer: nothing is put under
// a subject of the ledger, nothing that is kept changes, nobody else hears anything,
// and others are served.
func TestBoundary(t *testing.T) {
	t.Parallel()
	for name, world := range map[string]func(*testing.T) *guarded{
		"own server":    serveGuarded,
		"one server":    func(t *testing.T) *guarded { return serveGuardedOn(t, 1, false) },
		"an operator":   func(t *testing.T) *guarded { return serveGuardedOn(t, 1, true) },
		"three servers": func(t *testing.T) *guarded { return serveGuardedOn(t, 3, false) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "three servers" && testing.Short() {
				t.Skip("it takes long")
			}
			t.Parallel()
			g := world(t)
			before := g.kept(t)
			for _, role := range []string{"ann", "on-alpha", "on-beta", "eve"} {
				g.attack(t, role)
				if after := g.kept(t); after != before {
					t.Fatalf("after what %s tried, what is kept has changed\n%s\nfrom\n%s", role, after, before)
				}
			}
			g.as(t, "bob").must(t, "node", "register", "honest")
			if g.store == "" {
				return
			}
			for _, s := range g.serving {
				s.stop(t, syscall.SIGTERM)
			}
			if names := storedNames(t, g.store); !slices.Equal(names, []string{"KV_bindery-home-sealed", "bindery-home"}) {
				t.Errorf("the store has the streams %q", names)
			}
		})
	}
}

// attack sends everything that somebody can, while the others listen.
func (g *guarded) attack(t *testing.T, role string) {
	t.Helper()
	self, other := g.key(role), g.public["bob"]
	var heard []*ears
	for name := range granted {
		if name != role {
			heard = append(heard, g.listen(t, name))
		}
	}
	nc := g.connect(t, self, nats.NoReconnect())
	refused := newRefusals(nc)
	may := func(subject string) bool {
		return subject == "bindery-req.mesh" || strings.HasPrefix(subject, "bindery-req.home.")
	}
	for i, a := range attempts(self.Public, other) {
		if err := nc.PublishMsg(&nats.Msg{Subject: a.subject, Reply: a.reply, Data: []byte(a.body), Header: a.header}); err != nil {
			t.Fatalf("%s, as %s: %v", a.name, role, err)
		}
		if !may(a.subject) {
			refused.want(a.subject, a.name)
		}
		if i%200 == 0 { // no more at a time than is taken from one
			heardOn(t, nc)
		}
	}
	heardOn(t, nc)
	for _, subject := range listening(self.Public, other) {
		sub, err := nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		refused.want(subject, "listen on "+subject)
		_ = sub.Unsubscribe()
	}
	refused.settle(t, nc)
	for _, name := range refused.missing() {
		t.Errorf("as %s the server lets through: %s", role, name)
	}
	nc.Close()
	for _, e := range heard {
		e.nothing(t, role)
	}
}

// refusals are what a server does not let through, by subject.
type refusals struct {
	mu     sync.Mutex
	wanted map[string]string // to a name
	heard  []string
}

func newRefusals(nc *nats.Conn) *refusals {
	r := &refusals{wanted: map[string]string{}}
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heard = append(r.heard, strings.ToLower(err.Error()))
	})
	return r
}

func (r *refusals) want(subject, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted[strings.ToLower(subject)] = name
}

// settle waits until all refusals until now were heard: they are in order.
func (r *refusals) settle(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if err := nc.Publish("the-last", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last refusal", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.heard) > 0 && strings.Contains(r.heard[len(r.heard)-1], "the-last")
	})
}

// missing are the names of what was not refused.
func (r *refusals) missing() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := strings.Join(r.heard, "\n")
	for subject, name := range r.wanted {
		if !strings.Contains(all, " to \""+subject+"\"") {
			names = append(names, name)
		}
	}
	return names
}

// ears listen on the whole inbox of somebody who has asked nothing.
type ears struct {
	name string
	nc   *nats.Conn
	sub  *nats.Subscription
}

func (g *guarded) listen(t *testing.T, name string) *ears {
	t.Helper()
	key := g.key(name)
	e := &ears{name: name, nc: g.connect(t, key)}
	var err error
	if e.sub, err = e.nc.SubscribeSync("_INBOX." + key.Public + ".>"); err != nil {
		t.Fatal(err)
	}
	if err := e.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return e
}

// nothing closes the ears, which have heard nothing: not even what is under way, since
// what comes to the inbox comes in order.
func (e *ears) nothing(t *testing.T, role string) {
	t.Helper()
	defer e.nc.Close()
	reply := e.sub.Subject[:len(e.sub.Subject)-1] + "last"
	for m := range answersUntil(t, e.nc, e.sub, reply) {
		t.Errorf("while %s tried, %s heard on %s: %.200q", role, e.name, m.Subject, m.Data)
	}
}

// kept is what is kept, as text: the log as it is told, and every stream with its
// messages, where that can be seen from outside.
func (g *guarded) kept(t *testing.T) string {
	t.Helper()
	bob := g.as(t, "bob")
	out := bob.must(t, "log", "-o", "jsonl") + bob.must(t, "node", "list", "-o", "jsonl")
	if g.store == "" {
		nc := g.connect(t, g.key("writer"))
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return out + streamsOf(t, js, protectedStreams...)
	}
	nc := g.connect(t, g.key("bob"))
	defer nc.Close()
	js, err := jetstream.NewWithAPIPrefix(nc, "bindery-req.home.js")
	if err != nil {
		t.Fatal(err)
	}
	return out + streamsOf(t, js, protectedStreams[1:3]...)
}

// streamsOf tells all that streams have.
func streamsOf(t *testing.T, js jetstream.JetStream, names ...string) string {
	t.Helper()
	var out strings.Builder
	for _, name := range names {
		stream, err := js.Stream(t.Context(), name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			fmt.Fprintf(&out, "%s: none\n", name)
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		state, config := stream.CachedInfo().State, stream.CachedInfo().Config
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if name == "KV_bindery-lease" { // its holder renews it
			m, err := stream.GetLastMsgForSubject(t.Context(), "$KV.bindery-lease.>")
			if err != nil {
				t.Fatal(err)
			}
			var lease map[string]any
			if err := json.Unmarshal(m.Data, &lease); err != nil {
				t.Fatalf("the writer's lease is %q", m.Data)
			}
			fmt.Fprintf(&out, "%s: %s, of %v, %d messages\n", name, text, lease["holder"], state.Msgs)
			continue
		}
		fmt.Fprintf(&out, "%s: %s, %d messages, last %d, %d consumers, %s\n", name, text, state.Msgs, state.LastSeq, state.Consumers, messagesOf(t, stream, state))
	}
	return out.String()
}

// messagesOf is a digest of a stream's messages.
func messagesOf(t *testing.T, stream jetstream.Stream, state jetstream.StreamState) string {
	t.Helper()
	sum := sha256.New()
	for seq := max(1, state.FirstSeq); seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%d %s %q %q\n", seq, m.Subject, m.Header, m.Data)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// storedNames are the streams in a store that nobody serves.
func storedNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	server, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	nc, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	list := js.StreamNames(t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if list.Err() != nil {
		t.Fatal(list.Err())
	}
	slices.Sort(names)
	return names
}

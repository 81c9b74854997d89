package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A key that is revoked while it is connected: its connections are closed where the
// server is bindery's own, elsewhere nobody hears it, before the server is told. What
// it watched is delivered no more.
func TestRevokedWhileConnected(t *testing.T) {
	t.Parallel()
	for name, world := range map[string]func(*testing.T) *guarded{
		"own server": serveGuarded,
		"one server": func(t *testing.T) *guarded { return serveGuardedOn(t, 1, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := world(t)
			key := g.key("eve")
			closed := make(chan struct{})
			nc := g.connect(t, key, nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
			heard, err := nc.SubscribeSync("_INBOX." + key.Public + ".watch")
			if err != nil {
				t.Fatal(err)
			}
			body, err := json.Marshal(map[string]any{"stream_name": "KV_bindery-home-bindings", "config": map[string]any{"deliver_subject": heard.Subject}})
			if err != nil {
				t.Fatal(err)
			}
			if m, err := nc.Request("bindery-req.home.js.CONSUMER.CREATE.KV_bindery-home-bindings", body, patience); err != nil || strings.Contains(string(m.Data), `"error"`) {
				t.Fatalf("%v: %s", err, m.Data)
			}
			if _, err := heard.NextMsg(patience); err != nil {
				t.Fatal(err)
			}
			g.as(t, "bob").must(t, "access", "revoke", "eve")
			if g.store != "" {
				select {
				case <-closed:
				case <-time.After(patience):
					t.Error("its connection stays open")
				}
				if other, err := nats.Connect(g.url, key.Option()); err == nil {
					other.Close()
					t.Error("it is let in again")
				}
				g.as(t, "eve").refused(t, "not_permitted", 4, "status")
				return
			}
			// Admitted no more, it is not even answered.
			eventually(t, "nobody hears it", func() bool {
				_, err := nc.Request("bindery-req.mesh", nil, 100*time.Millisecond)
				return err != nil
			})
			writer := g.connect(t, g.key("writer"))
			js := jetstreamOf(t, writer)
			eventually(t, "what it watched ends", func() bool {
				stream, err := js.Stream(t.Context(), "KV_bindery-home-bindings")
				return err == nil && stream.CachedInfo().State.Consumers == 0
			})
			reload(t, g.servers, g.permissions("ann", "bob", "on-alpha", "on-beta"))
			select {
			case <-closed:
			case <-time.After(patience):
				t.Error("its connection stays open after the server was told")
			}
		})
	}
}

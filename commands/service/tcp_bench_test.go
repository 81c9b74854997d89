package service

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/events"
	"bindery/ledger"
)

// tcp is a bench whose callers come over TCP loopback, each on a connection of
// its own, with a granted key that signs what it asks; so does its raw twin.
type tcp struct {
	*bench
	clients []*Client
}

func newTCP(b *testing.B, callers int) *tcp {
	b.Helper()
	newKey := func() ledger.Key {
		key, err := ledger.NewKey()
		check(b, err)
		return key
	}
	keys, admitted, guests := make([]ledger.Key, callers), make([]string, callers), make([]ledger.Guest, callers)
	for i := range keys {
		keys[i] = newKey()
		admitted[i], guests[i] = keys[i].Public, GuestOf("home", keys[i].Public)
	}
	responder, all := newKey(), newKey()
	users := []ledger.User{ResponderUser(responder.Public), {Key: all.Public}}
	srv, err := ledger.StartEmbedded(b.Context(), ledger.EmbeddedConfig{Dir: b.TempDir(), Listen: true, Host: "127.0.0.1", Port: -1, Users: users})
	check(b, err)
	b.Cleanup(srv.Close)
	own := func(opts ...nats.Option) *nats.Conn {
		nc, err := srv.Connect(opts...)
		check(b, err)
		b.Cleanup(nc.Close)
		return nc
	}
	dial := func(key ledger.Key, opts ...nats.Option) *nats.Conn {
		nc, err := nats.Connect(srv.URL(), append(opts, key.Option())...)
		check(b, err)
		b.Cleanup(nc.Close)
		return nc
	}
	x := &bench{b: b, nc: own()}
	x.log, err = ledger.Create(b.Context(), x.nc, "home", ledger.CreateOptions{})
	check(b, err)
	x.h, err = handler.Open(b.Context(), handler.Config{Log: x.log})
	check(b, err)
	b.Cleanup(x.h.Close)
	s, err := Serve(Config{Conn: own(responder.Option()), Mesh: "home", Handler: x.h, Log: x.log, Version: "0.0.0", Ledger: x.log.Created(), Door: Door{Signed: true}})
	check(b, err)
	check(b, srv.SetGuests(guests))
	check(b, s.Admit(admitted))
	b.Cleanup(func() { check(b, s.Stop()) })
	x.js, err = jetstream.New(dial(all))
	check(b, err)
	_, err = x.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "raw", Subjects: []string{"rawdery.home.>"},
		AllowAtomicPublish: true, DenyDelete: true, DenyPurge: true, AllowDirect: true, Duplicates: 100 * time.Millisecond})
	check(b, err)
	t := &tcp{bench: x}
	x.providers(callers)
	for i, key := range keys {
		x.do(commands.GrantAccess{Name: fmt.Sprintf("caller-%d", i), Role: events.RoleOperator, NKey: key.Public})
		c, err := NewClient(dial(key, nats.CustomInboxPrefix(InboxOf(key.Public))), "home")
		check(b, err)
		t.clients = append(t.clients, c.SignWith(key, s.Identity()))
	}
	return t
}

// BenchmarkTCP gives, over TCP loopback with signed requests: the time of one
// client's command over a raw conditional publish; the throughput of 64 clients
// over raw atomic batches of 64; and the time of a query of one consumer over a
// bare request and its reply.
func BenchmarkTCP(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", callers), func(b *testing.B) {
			x := newTCP(b, callers)
			n := max(200, callers*50)
			raw := func() { x.rawBatches(n, callers) }
			if callers == 1 {
				raw = func() { x.rawSingles(n) }
			}
			ours := func() {
				var wg sync.WaitGroup
				for c := range callers {
					wg.Go(func() {
						for range n / callers {
							x.turn(c, x.clients[c].Do)
						}
					})
				}
				wg.Wait()
			}
			raw()
			ours()
			b.ResetTimer()
			for range b.N {
				x.compare(n, raw, ours, callers > 1)
			}
		})
	}
	b.Run("query", func(b *testing.B) {
		x := newTCP(b, 1)
		key, err := ledger.NewKey()
		check(b, err)
		x.do(commands.GrantAccess{Name: "echo", Role: events.RoleAuditor, NKey: key.Public})
		_, err = x.nc.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
		check(b, err)
		check(b, x.nc.Flush())
		caller := x.js.Conn()
		body := make([]byte, 200)
		raw := func() {
			for range 300 {
				_, err := caller.Request("echo", body, 5*time.Second)
				check(b, err)
			}
		}
		ours := func() {
			for range 300 {
				_, err := x.clients[0].Ask(context.Background(), commands.ShowProvider{Provider: providerName(0)})
				check(b, err)
			}
		}
		raw()
		ours()
		b.ResetTimer()
		for range b.N {
			x.compare(300, raw, ours, false)
		}
	})
}

package service

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands"
	"bindery/commands/readmodel"
	"bindery/events"
)

// A consumer that somebody else has is not had by asking for its name: not even where
// it is not known yet whose it is, as after a writer has begun.
func TestConsumerOfAnother(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	eve, eveKey, _ := g.grant("eve", events.RoleAuditor, "")
	bob, bobKey, _ := g.grant("bob", events.RoleAuditor, "")
	stream := "KV_" + readmodel.Bindings("home")
	create := func(nc *nats.Conn, inbox string) string {
		return g.call(nc, "CONSUMER.CREATE."+stream+".mine", fmt.Sprintf(`{"stream_name":%q,"config":{"name":"mine","deliver_subject":"%s.x"}}`, stream, inbox))
	}
	if got := create(bob, InboxOf(bobKey.Public)); containsError([]byte(got)) {
		t.Fatal(got)
	}
	g.svc.watchers.mu.Lock()
	g.svc.watchers.owner = map[watchName]madeFor{}
	g.svc.watchers.mu.Unlock()
	if got := create(eve, InboxOf(eveKey.Public)); !containsError([]byte(got)) {
		t.Errorf("another's consumer is changed: %s", got)
	}
	for _, call := range []string{"CONSUMER.INFO.", "CONSUMER.DELETE."} {
		if got := g.call(eve, call+stream+".mine", ""); !containsError([]byte(got)) {
			t.Errorf("%s of another's consumer: %s", call, got)
		}
	}
	js, err := jetstream.New(g.nc)
	g.must(err)
	s, err := js.Stream(t.Context(), stream)
	g.must(err)
	if _, err := s.PushConsumer(t.Context(), "mine"); err != nil {
		t.Errorf("bob's consumer: %v", err)
	}
	g.svc.watchers.refresh()
	if got := g.call(bob, "CONSUMER.DELETE."+stream+".mine", ""); containsError([]byte(got)) {
		t.Errorf("his own: %s", got)
	}
}

// call puts a call to what answers in place of JetStream's API.
func (g *guarded) call(nc *nats.Conn, call, body string) string {
	g.t.Helper()
	m, err := nc.Request(WatchPrefix("home")+"."+call, []byte(body), patience)
	g.must(err)
	return string(m.Data)
}

// What comes without a signature is answered a few times a second, and only to the
// key's own inbox; the next answer is not waited for long.
func TestIdentityIsNoAmplifier(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	nc, key, _ := g.grant("eve", events.RoleAuditor, "")
	sub, err := nc.SubscribeSync(InboxOf(key.Public) + ".>")
	g.must(err)
	g.must(sub.SetPendingLimits(-1, -1))
	const asked = 900 // no more than may wait
	for range asked {
		g.must(nc.PublishRequest(IdentitySubject, InboxOf(key.Public)+".x", nil))
	}
	g.must(nc.PublishRequest(WatchPrefix("home")+".INFO", InboxOf(key.Public)+".last", nil))
	for {
		m, err := sub.NextMsg(patience)
		g.must(err)
		if m.Subject == InboxOf(key.Public)+".last" {
			break
		}
	}
	n, err := sub.Delivered()
	g.must(err)
	if n < identityBurst || n > asked/2 {
		t.Errorf("%d of %d are answered", n, asked)
	}
}

// An answer is not copied for very many subscriptions.
func TestAnswerToManyListeners(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	nc, key, _ := g.grant("eve", events.RoleAuditor, "")
	many := InboxOf(key.Public) + ".many"
	var subs []*nats.Subscription
	for range maxListeners + 1 {
		sub, err := nc.SubscribeSync(many)
		g.must(err)
		subs = append(subs, sub)
	}
	for _, subject := range []string{IdentitySubject, WatchPrefix("home") + ".INFO", CommandSubject("home")} {
		g.must(nc.PublishRequest(subject, many, nil))
	}
	g.call(nc, "INFO", "") // what was asked before was heard
	g.must(subs[0].Unsubscribe())
	g.must(nc.PublishRequest(IdentitySubject, many, nil))
	_, err := subs[1].NextMsg(patience)
	g.must(err)
	if n, _, err := subs[1].Pending(); err != nil || n > 0 {
		t.Errorf("%d more answers, %v", n, err)
	}
}

// Kind: half of what a guest asks goes to a subscription that has no answer for it. A
// writer and one that answers reads, side by side as in a serving process, each get
// what is theirs, every time.
func TestReadsBesideTheWriter(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	reads, err := ServeReads(g.svc.cfg, g.h)
	g.must(err)
	t.Cleanup(func() { g.must(reads.Stop()) })
	nc, key, _ := g.grant("ann", events.RoleOperator, "")
	g.must(reads.Admit(g.keys))
	c, err := NewClient(nc, "home")
	g.must(err)
	c.SignWith(key, g.svc.Identity())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 30 {
		if _, err := c.AskFollower(ctx, commands.ListNodes{}, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ask(ctx, commands.ListNodes{}); err != nil {
			t.Fatal(err)
		}
	}
}

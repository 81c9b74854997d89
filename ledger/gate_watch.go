package ledger

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// The server bounds what one connection has, not what all of a guest's have in sum:
// each answer is sent to every subscription that a guest has for it, and waits in
// memory for each connection that does not read. So the sums are looked at.
const (
	guestWatch            = 500 * time.Millisecond // how often
	guestSubscriptionsSum = 512
	guestPendingSum       = 64 << 20 // bytes
	guestKeptOut          = 10 * time.Second
)

// watchGuests turns away guests that have more than they may, until the server is
// closed.
func (e *Embedded) watchGuests() {
	tick := time.NewTicker(guestWatch)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.closing:
			return
		}
		for _, key := range e.greedy() {
			e.log.say(slog.LevelWarn, "a key has more subscriptions, or reads less of what it has asked for, than is allowed, and is kept out for a while: "+key, "bindery")
			e.TurnAway(key, guestKeptOut)
		}
	}
}

// greedy are the guests that have more than they may.
func (e *Embedded) greedy() (keys []string) {
	open, err := e.srv.Connz(&server.ConnzOptions{Username: true, Limit: server.DEFAULT_MAX_CONNECTIONS})
	if err != nil {
		return nil // it is closing
	}
	subscriptions, pending := map[string]uint32{}, map[string]int{}
	for _, c := range open.Conns {
		subscriptions[c.Account] += c.NumSubs
		pending[c.Account] += c.Pending
	}
	e.gate.mu.Lock()
	defer e.gate.mu.Unlock()
	for key, user := range e.gate.users {
		if user.Account != nil && (subscriptions[key] > guestSubscriptionsSum || pending[key] > guestPendingSum) {
			keys = append(keys, key)
		}
	}
	return keys
}

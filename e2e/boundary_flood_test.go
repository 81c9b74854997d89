package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/ledger"
)

// flood is something that one key does as fast as it can, on many connections. Each
// turn is one message, or whatever the connection takes.
type flood struct {
	name        string
	connections int
	// begin makes a connection ready; turn does one turn and reports false when the
	// connection is of no use any more.
	begin func(nc *nats.Conn)
	turn  func(nc *nats.Conn) error
}

func floods(g *guarded, t *testing.T, key ledger.Key) []flood {
	const query = "bindery-req.home.query"
	inbox := "_INBOX." + key.Public + ".flood"
	big := make([]byte, 7<<20)
	deaf := func(n int) func(nc *nats.Conn) {
		return func(nc *nats.Conn) {
			for range n {
				_, _ = nc.Subscribe("_INBOX."+key.Public+".>", func(*nats.Msg) {})
			}
		}
	}
	none := func(*nats.Conn) {}
	heads := nats.Header{}
	for i := range 50_000 {
		heads["X-"+strconv.Itoa(i)] = []string{"x"}
	}
	return []flood{
		{"valid heavy queries", 20, none, func(nc *nats.Conn) error {
			return nc.PublishMsg(g.signed(t, key, query, inbox, time.Now(), `{"query":"log","args":{"first":1}}`))
		}},
		{"requests that are not signed", 20, none, func(nc *nats.Conn) error {
			return nc.PublishRequest(query, inbox, []byte(`{"query":"node.list"}`))
		}},
		{"bodies of 7 MB", 20, none, func(nc *nats.Conn) error { return nc.Publish(query, big) }},
		{"answers to 1,000 subscriptions", 20, deaf(1000), func(nc *nats.Conn) error {
			time.Sleep(time.Millisecond)
			return nc.PublishRequest("bindery-req.mesh", inbox, nil)
		}},
		{"headers without end", 5, none, func(nc *nats.Conn) error {
			return nc.PublishMsg(&nats.Msg{Subject: query, Header: heads})
		}},
		{"what it may not publish", 20, none, func(nc *nats.Conn) error { return nc.Publish("bindery.home.x", nil) }},
		{"connects and disconnects", 20, none, func(nc *nats.Conn) error { return context.Canceled }},
	}
}

// latencies measures what another operator's requests take, one after the other.
func (g *guarded) latencies(t *testing.T, nc *nats.Conn, n int) (out []time.Duration) {
	t.Helper()
	key := g.key("bob")
	for i := range n {
		body := fmt.Sprintf(`{"verb":"provider.update","args":{"provider":"pg-alpha","version":"16.%d"},"id":%q,"actor":"bob"}`, time.Now().UnixNano(), newULID())
		subject := "bindery-req.home.command"
		if i%2 == 0 {
			subject, body = "bindery-req.home.query", `{"query":"node.list"}`
		}
		reply := nc.NewInbox()
		sub, err := nc.SubscribeSync(reply)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := nc.PublishMsg(g.signed(t, key, subject, reply, began, body)); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatalf("another operator is not answered: %v", err)
		}
		out = append(out, time.Since(began))
		if a := answerOf(t, m.Data); !strings.HasPrefix(a, "done: ") {
			t.Fatalf("another operator is refused: %s", m.Data)
		}
		_ = sub.Unsubscribe()
	}
	slices.Sort(out)
	return out
}

// One key floods the server in every way it can. Others are served meanwhile, and the
// process does not end. With BINDERY_LONG beside what the others' requests take is told
// what they take while the same is sent to a server that has nothing to do with it:
// that is what this machine's processors make of it.
func TestFlood(t *testing.T) {
	g := serveGuarded(t)
	bob := g.connect(t, g.key("bob"))
	elsewhere := ""
	if os.Getenv("BINDERY_LONG") != "" {
		elsewhere = natsServers(t, 1, "max_payload: 8388608\n")[0].ClientURL()
	}
	const n = 40
	g.latencies(t, bob, n)
	quiet := g.latencies(t, bob, n)
	t.Logf("quiet: %s, resident %s", ofMany(quiet), g.resident())
	for i := range 7 {
		// Each flood is another key's: one that was kept out floods nobody for a while.
		key := g.another(t, fmt.Sprintf("eve-%d", i))
		f := floods(g, t, key)[i]
		raw := quiet
		if elsewhere != "" {
			stop := f.run(t, elsewhere)
			raw = g.latencies(t, bob, n)
			stop()
		}
		logged := len(g.serving[0].errs.String())
		stop := f.run(t, g.url, key.Option())
		took := g.latencies(t, bob, n)
		sent := stop()
		t.Logf("%s: %s; elsewhere %s; %d turns, %d bytes logged, resident %s", f.name, ofMany(took), ofMany(raw), sent, len(g.serving[0].errs.String())-logged, g.resident())
	}
	if len(g.serving[0].done) > 0 {
		t.Errorf("it has ended: %s", g.serving[0].errs)
	}
}

// run floods a server until stop is called, which tells how many turns were done.
func (f flood) run(t *testing.T, url string, more ...nats.Option) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var turns, begun atomic.Int64
	var wg sync.WaitGroup
	opts := append([]nats.Option{nats.NoReconnect(), nats.Timeout(patience), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, more...)
	for range f.connections {
		wg.Go(func() {
			for ctx.Err() == nil {
				nc, err := nats.Connect(url, opts...)
				if err != nil {
					time.Sleep(10 * time.Millisecond) // it is kept out
					continue
				}
				begun.Add(1)
				f.begin(nc)
				for ctx.Err() == nil && f.turn(nc) == nil && nc.IsConnected() {
					turns.Add(1)
				}
				nc.Close()
			}
		})
	}
	eventually(t, "the flood", func() bool { return begun.Load() > 0 })
	return func() int64 { cancel(); wg.Wait(); return turns.Load() }
}

// ofMany tells how long most of many took, and all but one of a hundred.
func ofMany(took []time.Duration) string {
	return fmt.Sprintf("p50 %s, p99 %s", took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond))
}

// resident is what memory the serving process has, as Linux says.
func (g *guarded) resident() string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.serving[0].cmd.Process.Pid))
	if err != nil {
		return "not known"
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "not known"
}

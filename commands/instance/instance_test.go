package instance

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
)

// fleet is a cluster with a ledger, three instances, and load on it.
type fleet struct {
	*cluster
	log     *ledger.Log
	members []*member
	load    *load
	samples *sampler
	joined  int
}

const clients = 8

// startFleet starts everything; instance i is connected by connect(i).
func startFleet(t *testing.T, processes bool, connect func(c *cluster, i int) *nats.Conn) *fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster needs a while")
	}
	t.Parallel() // most of the time is waiting
	f := &fleet{cluster: startCluster(t, processes), samples: &sampler{seen: map[uint64]map[string][]string{}}}
	f.log = found(t, f.connect(0), 3)
	for i := range f.specs {
		f.members = append(f.members, f.joinAt(i, connect))
	}
	for _, m := range f.members {
		eventually(t, m.cfg.Name+" is there", func() bool { r := m.Status().Role; return r == Follower || r == Writer })
	}
	writerOf(t, f.members...)
	prepare(t, newClient(t, f.connect(0)))
	f.load = startLoad(t, clients, func(i int) *nats.Conn { return f.connect(i % 3) })
	for i, m := range slices.Clone(f.members) {
		f.load.wg.Go(func() {
			for {
				select {
				case <-f.load.stop:
					return
				case <-time.After(time.Duration(90+10*i) * time.Millisecond):
					f.samples.sample(t, m)
				}
			}
		})
	}
	f.steady()
	return f
}

// steady lets the load go on for a moment.
func (f *fleet) steady() {
	f.t.Helper()
	for range 10 {
		f.load.next(time.Now())
		time.Sleep(50 * time.Millisecond)
	}
}

// prepare declares what the load refers to.
func prepare(t *testing.T, c *service.Client) {
	t.Helper()
	for _, cmd := range []commands.Command{
		commands.RegisterNode{Name: "base"},
		commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "pg-base", Provision: "pg", Node: "base", Endpoint: "base:1"},
		commands.SetDefault{Provision: "pg", Provider: "pg-base"},
		commands.DeclareModule{Name: "wiki", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "pg"}, "log": {Provision: "pg"}}}},
	} {
		if _, err := c.Do(patiently(t), request(cmd)); err != nil {
			t.Fatalf("%s: %v", cmd.Verb(), err)
		}
	}
}

// end stops the load, lets all instances come to the end of the log, and
// verifies what is there.
func (f *fleet) end(alive ...*member) {
	t := f.t
	t.Helper()
	f.steady()
	acked := f.load.end()
	t.Logf("%d acknowledged, %d refused, %d read; the slowest took %v; %d sequences sampled",
		len(acked), f.load.refused, f.load.reads, f.load.slowest.Round(time.Millisecond), len(f.samples.seen))
	last, err := f.log.Last(patiently(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range alive {
		eventually(t, fmt.Sprintf("%+v has read the log to %d", m.Status(), last), func() bool { return m.Status().Applied == last })
		f.samples.sample(t, m)
	}
	state := verify(t, f.log, acked, f.samples)
	documented(t, f.connect(0), state)
}

// others are the members that are not one of those.
func (f *fleet) others(not ...*member) (out []*member) {
next:
	for _, m := range f.members {
		for _, n := range not {
			if m == n {
				continue next
			}
		}
		out = append(out, m)
	}
	return out
}

// The writer dies without a word; then the next one stops in order.
func TestKillWriter(t *testing.T) {
	f := startFleet(t, false, own)
	first := writerOf(t, f.members...)
	start := time.Now()
	first.kill()
	second := writerOf(t, f.others(first)...)
	t.Logf("killed: the next writer after %v, the next acknowledgement after %v", since(start), round(f.load.next(time.Now())))
	first.stop()
	if err := first.wait(t); err == nil {
		t.Error("an instance whose connection is closed ends without an error")
	}

	// The first one's place is taken by a new one.
	i := slices.Index(f.members, first)
	f.members[i] = f.joinAt(i, own)
	eventually(t, "the new one follows", func() bool { return f.members[i].Status().Role == Follower })
	start = time.Now()
	second.stop()
	writerOf(t, f.others(first, second)...)
	t.Logf("stopped: the next writer after %v, the next acknowledgement after %v", since(start), round(f.load.next(time.Now())))
	if err := second.wait(t); err != nil {
		t.Errorf("an orderly stop: %v", err)
	}
	f.end(f.others(first, second)...)
}

func since(t time.Time) time.Duration     { return round(time.Since(t)) }
func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// A server stops, and comes back: the one that leads the ledger's stream, and one
// that does not.
func TestStopServer(t *testing.T) {
	long(t)
	f := startFleet(t, false, own)
	admin := f.connect(0)
	f.kill(admin, f.leader(admin, f.log.Stream()))
	f.kill(admin, (f.leader(admin, f.log.Stream())+1)%3)
	f.end(f.members...)
}

// A node dies, server and writer, and then the server that leads the ledger's
// stream. Each server is a process that is killed: nothing is said to the others,
// and they elect a leader when they miss it.
func TestKillProcess(t *testing.T) {
	f := startFleet(t, true, own)
	admin := f.connect(0)
	f.killNode(admin)
	f.kill(admin, f.leader(admin, f.log.Stream()))
	if os.Getenv(longEnv) != "" {
		for range 3 {
			f.kill(admin, (f.leader(admin, f.log.Stream())+1)%3)
			f.killNode(admin)
			f.kill(admin, f.leader(admin, f.log.Stream()))
		}
	}
	f.end(f.members...)
}

// killNode kills the writer together with its server, which does not lead the
// stream, and starts both again.
func (f *fleet) killNode(admin *nats.Conn) {
	t := f.t
	t.Helper()
	w := writerOf(t, f.members...)
	i := slices.Index(f.members, w)
	eventually(t, "another server leads, also the leases", func() bool {
		if at := f.leader(admin, f.log.Stream()); at == i || at < 0 {
			_, _ = admin.Request("$JS.API.STREAM.LEADER.STEPDOWN."+f.log.Stream(), nil, time.Second)
			return false
		}
		at := f.leader(admin, "KV_"+ledger.LeaseBucket)
		return at >= 0 && at == f.leader(admin, f.log.Stream())
	})
	start := time.Now()
	f.stop(i)
	w.kill()
	next := writerOf(t, f.others(w)...)
	t.Logf("%s died, server and writer: the next writer %s after %v, the next acknowledgement after %v", w.cfg.Name, next.cfg.Name, since(start), round(f.load.next(time.Now())))
	f.start(i)
	f.members[i] = f.joinAt(i, own)
	eventually(t, "it follows again", func() bool { return f.members[i].Status().Role == Follower })
}

// joinAt starts an instance at a server.
func (f *fleet) joinAt(i int, connect func(c *cluster, i int) *nats.Conn) *member {
	f.t.Helper()
	f.joined++
	return join(f.t, func() *nats.Conn { return connect(f.cluster, i) }, fmt.Sprintf("%s.%d", f.specs[i].Name, f.joined))
}

// longEnv asks for the long forms of tests.
const longEnv = "BINDERY_LONG"

func long(t *testing.T) {
	t.Helper()
	if os.Getenv(longEnv) == "" {
		t.Skip(longEnv + " is not set")
	}
}

// own connects each instance to a server of its own first.
func own(c *cluster, i int) *nats.Conn { return c.connect(i) }

// kill stops a server and starts it again once there is a writer.
func (f *fleet) kill(admin *nats.Conn, i int) {
	f.t.Helper()
	f.t.Logf("the writer is at %s, the stream's leader at s%d, the lease's at s%d: s%d dies", writerOf(f.t, f.members...).Status().Name,
		f.leader(admin, f.log.Stream()), f.leader(admin, "KV_"+ledger.LeaseBucket), i)
	start := time.Now()
	f.stop(i)
	died := time.Now()
	f.load.next(died.Add(50 * time.Millisecond))
	f.t.Logf("it took %v to stop; the next acknowledgement %v after that, the writer is at %s", round(died.Sub(start)), since(died),
		writerOf(f.t, f.members...).Status().Name)
	f.start(i)
	f.await()
	f.load.next(time.Now())
}

// The writer's connection is cut for longer than its lease, and mended.
func TestCutWriter(t *testing.T) {
	var proxies [3]*proxy
	f := startFleet(t, false, func(c *cluster, i int) *nats.Conn {
		if proxies[i] == nil {
			proxies[i] = startProxy(t, c.urls[i])
		}
		return dial(t, proxies[i].url(), nats.IgnoreDiscoveredServers())
	})
	first := writerOf(t, f.members...)
	start := time.Now()
	proxies[slices.Index(f.members, first)].cut()
	writerOf(t, f.others(first)...)
	t.Logf("cut: the next writer after %v, the next acknowledgement after %v", since(start), round(f.load.next(time.Now())))
	eventually(t, "the one that is cut off knows", func() bool { return !isWriter(first) })
	proxies[slices.Index(f.members, first)].mend()
	f.end(f.members...)
}

// All servers are restarted, one after the other.
func TestRestartInTurn(t *testing.T) {
	long(t)
	f := startFleet(t, false, own)
	admin := f.connect(0)
	for i := range f.specs {
		f.kill(admin, i)
	}
	f.end(f.members...)
}

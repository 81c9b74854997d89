package ledger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/logger"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// A site is a kind of place a ledger is kept at. What conformance asks for
// holds at each.
type site struct {
	name  string
	start func(t *testing.T) *running
}

// running is one running site.
type running struct {
	connect  func() *nats.Conn
	replicas int
	disturb  func(stream string) // makes the stream's leader change, or restart
}

func TestConformance(t *testing.T) {
	for _, s := range []site{{"embedded", embeddedSite}, {"cluster of three", clusterSite}} {
		t.Run(s.name, func(t *testing.T) { conformance(t, s.start(t)) })
	}
}

func embeddedSite(t *testing.T) *running {
	dir, sw := t.TempDir(), &swapped{}
	sw.restart(t, dir)
	t.Cleanup(func() { sw.srv.Close() })
	return &running{
		connect: func() *nats.Conn {
			nc, err := nats.Connect("", nats.InProcessServer(sw), nats.ReconnectWait(5*time.Millisecond), nats.MaxReconnects(-1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			return nc
		},
		replicas: 1,
		disturb:  func(string) { sw.restart(t, dir) },
	}
}

// clusterSite starts three servers that keep each stream three times. It needs
// a while, so it is left out with -short; BINDERY_CLUSTER names the servers of
// another cluster to use instead, separated by commas.
func clusterSite(t *testing.T) *running {
	if testing.Short() {
		t.Skip("a cluster needs a while")
	}
	urls := strings.FieldsFunc(os.Getenv("BINDERY_CLUSTER"), func(r rune) bool { return r == ',' })
	if len(urls) == 0 {
		urls = startCluster(t)
	}
	p := &running{replicas: 3}
	p.connect = func() *nats.Conn {
		nc, err := nats.Connect(strings.Join(urls, ","), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	admin := p.connect()
	p.disturb = func(stream string) {
		// Who is asked while another is elected may never answer.
		for end := time.Now().Add(patience); ; {
			_, err := admin.Request(jetstream.DefaultAPIPrefix+"STREAM.LEADER.STEPDOWN."+stream, nil, 5*time.Second)
			if err == nil {
				return
			}
			if time.Now().After(end) {
				t.Error(err)
				return
			}
		}
	}
	return p
}

func startCluster(t *testing.T) (urls []string) {
	const n = 3
	// Each must know all routes from the beginning, or it does not know how many
	// make a majority.
	var listeners []net.Listener
	var ports []int
	var routes []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, ln)
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
		routes = append(routes, "nats-route://"+ln.Addr().String())
	}
	var servers []*server.Server
	for i, port := range ports {
		opts := &server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 1 << 30,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		}
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		if p := os.Getenv("BINDERY_SERVER_LOG"); p != "" {
			s.SetLoggerV2(logger.NewFileLogger(fmt.Sprintf("%s.%d", p, i), true, true, false, true), true, false, false)
		}
		servers = append(servers, s)
	}
	for _, ln := range listeners {
		ln.Close()
	}
	for _, s := range servers {
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(patience) {
			t.Fatal("a server does not start")
		}
		urls = append(urls, s.ClientURL())
	}
	deadline := time.Now().Add(patience)
	for {
		current := 0
		for _, s := range servers {
			if s.JetStreamIsCurrent() {
				current++
			}
		}
		// Only the leader knows its peers.
		i := slices.IndexFunc(servers, (*server.Server).JetStreamIsLeader)
		if i >= 0 && current == n && len(servers[i].JetStreamClusterPeers()) == n {
			return urls
		}
		if time.Now().After(deadline) {
			t.Fatal("the cluster does not come up")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func conformance(t *testing.T, p *running) {
	mesh := 0
	fresh := func(t *testing.T) *Log {
		mesh++
		l, err := Create(ctxT(t), p.connect(), fmt.Sprintf("m%d", mesh), CreateOptions{Replicas: p.replicas})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	write := func(w *writer, l *Log) *writer { w.name = l.mesh; return w }

	t.Run("append and read", func(t *testing.T) {
		l := fresh(t)
		w := write(newWriter(), l)
		var want []events.Group
		for _, dear := range []bool{false, true} {
			l.costs = newCosts()
			if dear {
				l.costs.batch = newLine(time.Hour, time.Hour)
			}
			for _, sizes := range [][]int{{1}, {3}, {1, 1, 1, 1, 1}, {1, 4, 1}, {1000}, {999, 1, 1}} {
				after := w.seq
				cmds := w.commands(sizes...)
				if n, err := l.Append(ctxT(t), after, cmds); n != len(cmds) || err != nil {
					t.Fatalf("appending %v: %d, %v", sizes, n, err)
				}
				want = append(want, cmds...)
			}
		}
		opened, err := Open(ctxT(t), p.connect(), l.mesh)
		if err != nil {
			t.Fatal(err)
		}
		if got := readChains(readAll(t, opened)); !reflect.DeepEqual(got, chains(want)) {
			t.Errorf("read %d events, not those %d", len(got), w.seq)
		}
		got, err := opened.Get(ctxT(t), 4, 9)
		if err != nil || !reflect.DeepEqual(got, flat(want)[3:9]) {
			t.Errorf("got %v, %v", got, err)
		}
	})

	t.Run("two writers", func(t *testing.T) {
		// Each decides on what it has read and appends; a conflict makes it
		// read on. What each was told is stored is what is stored.
		l := fresh(t)
		w := write(newWriter(), l)
		if _, err := l.Append(ctxT(t), 0, w.commands(1)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		told := map[string]bool{}
		for i := range 2 {
			l, err := Open(ctxT(t), p.connect(), l.mesh)
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				l.costs.batch = newLine(time.Hour, time.Hour) // this one pipelines
			}
			wg.Go(func() {
				ctx := ctxT(t)
				w := write(newWriter(), l)
				var pos Position
				for stored := 0; stored < 60; {
					last, err := l.Last(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					for evs, err := range l.Read(ctx, pos, last) {
						if err != nil {
							t.Error(err)
							return
						}
						pos = After(&evs[len(evs)-1])
					}
					w.at(pos.Seq, pos)
					cmds := w.commands([][]int{{1, 1, 1}, {1}, {2, 1}}[stored%3]...)
					n, err := l.Append(ctx, pos.Seq, cmds)
					var conflict *ConflictError
					if err != nil && !errors.As(err, &conflict) {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, c := range chains(cmds[:n]) {
						told[c] = true
					}
					mu.Unlock()
					stored += n
				}
			})
		}
		wg.Wait()
		got := readChains(readAll(t, l))
		for _, c := range got[1:] {
			if !told[c] {
				t.Error("an event is stored that nobody was told of")
			}
		}
		if len(got) != len(told)+1 || l.Foreign().Count != 0 {
			t.Errorf("%d events and %+v foreign, %d were acknowledged", len(got), l.Foreign(), len(told)+1)
		}
	})

	t.Run("an intruder in a pipeline", func(t *testing.T) {
		l := fresh(t)
		l.costs.batch = newLine(time.Hour, time.Hour)
		w := write(newWriter(), l)
		if _, err := l.Append(ctxT(t), 0, w.commands(2)); err != nil {
			t.Fatal(err)
		}
		l.tr = &faulty{real: l.tr, t: t, nc: l.nc, mesh: l.mesh, fault: once(intruder(2, 1))}
		cmds := w.commands(1, 1, 1, 1, 1)
		n, err := l.Append(ctxT(t), 2, cmds)
		want, actual := 2, uint64(5)
		if p.replicas > 1 { // one batch
			want, actual = 0, 3
		}
		var conflict *ConflictError
		if n != want || !errors.As(err, &conflict) || conflict.Actual != actual {
			t.Errorf("%d stored, %v; want %d and a stream that ends at %d", n, err, want, actual)
		}
		checkStored(t, l, cmds, n, err)
	})

	t.Run("disturbed", func(t *testing.T) {
		l := fresh(t)
		l.tun.attempt, l.tun.watch = 200*time.Millisecond, 200*time.Millisecond
		w := write(newWriter(), l)
		ctx, cancel := context.WithCancel(ctxT(t))
		f := follow(ctx, l, Position{})
		defer func() { cancel(); <-f.done }()
		var want []string
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 3 {
				time.Sleep(50 * time.Millisecond)
				p.disturb(l.stream)
			}
			close(stop)
		})
		for i := 0; ; i++ {
			after := w.seq
			cmds := w.commands([][]int{{1}, {3, 1}, {1, 1, 1}}[i%3]...)
			n, err := l.Append(ctx, after, cmds)
			if err != nil || n != len(cmds) {
				t.Error(n, err)
				break
			}
			want = append(want, chains(cmds)...)
			select {
			case <-stop:
				if i > 20 {
					wg.Wait()
					f.wait(t, want)
					if got := readChains(readAll(t, l)); !reflect.DeepEqual(got, want) {
						t.Errorf("read %d events, want %d", len(got), len(want))
					}
					return
				}
			default:
			}
		}
		wg.Wait()
	})
}

package service

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Each benchmark has its raw twin in the same run: blocks of ours and of raw
// JetStream take turns on one embedded server with fsync, with the bytes and
// headers that ours wrote and the same group size; the median of the blocks'
// ratios is reported. One b.N is one block: use -benchtime 1x.

const blocks = 15

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// bench is a served ledger beside a raw stream on one server.
type bench struct {
	b      *testing.B
	nc     *nats.Conn
	js     jetstream.JetStream
	h      *handler.Handler
	log    *ledger.Log
	client *Client
	raw    *nats.Msg // what one command of ours looks like
	seq    uint64    // the raw stream's last
}

func newBench(b *testing.B) *bench {
	b.Helper()
	srv, err := ledger.StartEmbedded(b.Context(), ledger.EmbeddedConfig{Dir: b.TempDir()})
	check(b, err)
	b.Cleanup(srv.Close)
	connect := func() *nats.Conn {
		nc, err := srv.Connect()
		check(b, err)
		b.Cleanup(nc.Close)
		return nc
	}
	x := &bench{b: b, nc: connect()}
	x.log, err = ledger.Create(b.Context(), x.nc, "home", ledger.CreateOptions{})
	check(b, err)
	x.h, err = handler.Open(b.Context(), handler.Config{Log: x.log})
	check(b, err)
	b.Cleanup(x.h.Close)
	s, err := Serve(Config{Conn: connect(), Mesh: "home", Handler: x.h, Log: x.log, Version: "0.0.0"})
	check(b, err)
	b.Cleanup(func() { check(b, s.Stop()) })
	x.client, err = NewClient(connect(), "home")
	check(b, err)
	x.js, err = jetstream.New(connect())
	check(b, err)
	_, err = x.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "raw", Subjects: []string{"rawdery.home.>"},
		AllowAtomicPublish: true, DenyDelete: true, DenyPurge: true, AllowDirect: true, Duplicates: 100 * time.Millisecond})
	check(b, err)
	return x
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (x *bench) do(c commands.Command) commands.Result {
	x.b.Helper()
	r, err := x.h.Do(x.b.Context(), newRequest(c))
	check(x.b, err)
	return r
}

var ids = struct {
	sync.Mutex
	next func() events.ID
}{next: handler.NewIDs(time.Now)}

func newRequest(c commands.Command) commands.Request {
	ids.Lock()
	defer ids.Unlock()
	return commands.Request{Command: c, ID: ids.next(), Actor: "ann@example"}
}

// providers registers n of them, and remembers what one update looks like.
func (x *bench) providers(n int) {
	x.do(commands.CreateMesh{Name: "home"})
	x.do(commands.DefineProvision{Name: "pg", Scope: events.ScopeNode})
	x.do(commands.RegisterNode{Name: "alpha"})
	for i := range n {
		x.do(commands.RegisterProvider{Name: providerName(i), Provision: "pg", Node: "alpha", Endpoint: fmt.Sprintf("alpha.mesh:%d", i+1)})
	}
	r := x.do(update(0, 1))
	records, err := x.log.Get(x.b.Context(), r.Seq, r.Seq)
	check(x.b, err)
	x.raw = &nats.Msg{Subject: "raw" + strings.TrimPrefix(records[0].Subject, "bin"), Header: records[0].Header, Data: records[0].Data}
}

func providerName(i int) string { return fmt.Sprintf("pg-%d", i) }

// update is a command of one event, another one each time.
func update(provider, k int) commands.Command {
	v := "16." + strconv.Itoa(k)
	return commands.UpdateProvider{Provider: providerName(provider), Version: &v}
}

func (x *bench) message() *nats.Msg {
	return &nats.Msg{Subject: x.raw.Subject, Header: maps.Clone(x.raw.Header), Data: x.raw.Data}
}

// rawSingles publishes n messages, each conditional and waited for.
func (x *bench) rawSingles(n int) {
	for range n {
		a, err := x.js.PublishMsg(context.Background(), x.message(), jetstream.WithExpectLastSequence(x.seq))
		check(x.b, err)
		x.seq = a.Sequence
	}
}

// rawBatches publishes n messages in atomic batches of size.
func (x *bench) rawBatches(n, size int) {
	for range n / size {
		id := nuid.Next()
		for i := range size {
			m := x.message()
			m.Header.Set("Nats-Batch-Id", id)
			m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
			if i == 0 {
				m.Header.Set("Nats-Expected-Last-Sequence", strconv.FormatUint(x.seq, 10))
			}
			if i < size-1 {
				check(x.b, x.js.Conn().PublishMsg(m))
				continue
			}
			m.Header.Set("Nats-Batch-Commit", "1")
			answer, err := x.js.Conn().RequestMsg(m, 5*time.Second)
			check(x.b, err)
			var ack struct {
				Seq   uint64 `json:"seq"`
				Error any    `json:"error"`
			}
			check(x.b, json.Unmarshal(answer.Data, &ack))
			if ack.Error != nil {
				x.b.Fatal(ack.Error)
			}
			x.seq = ack.Seq
		}
	}
}

// callers runs n commands from a number of callers.
func (x *bench) callers(callers, n int, do func(context.Context, commands.Request) (commands.Result, error)) {
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for range n / callers {
				x.turn(c, do)
			}
		})
	}
	wg.Wait()
}

var turns [64]int

func (x *bench) turn(c int, do func(context.Context, commands.Request) (commands.Result, error)) {
	turns[c]++
	r, err := do(context.Background(), newRequest(update(c, turns[c]+10)))
	if err != nil || !r.Changed {
		x.b.Errorf("changed %t: %v", r.Changed, err)
	}
}

// BenchmarkCommand gives, for one caller, the time of ours over raw; for more,
// the throughput of ours over raw.
func BenchmarkCommand(b *testing.B) {
	for _, callers := range []int{1, 4, 64} {
		for _, path := range []string{"handler", "request"} {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, path), func(b *testing.B) {
				x := newBench(b)
				x.providers(callers)
				n := max(200, callers*50)
				do := x.h.Do
				if path == "request" {
					do = x.client.Do
				}
				raw := func() { x.rawBatches(n, callers) }
				if callers == 1 {
					raw = func() { x.rawSingles(n) }
				}
				ours := func() { x.callers(callers, n, do) }
				raw()
				ours()
				b.ResetTimer()
				for range b.N {
					x.compare(n, raw, ours, callers > 1)
				}
			})
		}
	}
}

// compare runs both by turns and reports the median ratio.
func (x *bench) compare(n int, raw, ours func(), throughput bool) {
	var ratios, r, o []float64
	for i := range blocks {
		var tr, to time.Duration
		if i%2 == 0 {
			tr, to = timed(raw), timed(ours)
		} else {
			to, tr = timed(ours), timed(raw)
		}
		ratio := float64(to) / float64(tr)
		if throughput {
			ratio = 1 / ratio
		}
		ratios, r, o = append(ratios, ratio), append(r, float64(tr)/float64(n)), append(o, float64(to)/float64(n))
	}
	x.b.ReportMetric(median(ratios), "x-raw")
	x.b.ReportMetric(median(r)/1e3, "raw-µs")
	x.b.ReportMetric(median(o)/1e3, "ours-µs")
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// BenchmarkScale gives the time of bind, explain and list of one consumer, over
// the request path, with many bindings over that with 1,000: 1,000,000, or
// BINDERY_BENCH_BINDINGS.
func BenchmarkScale(b *testing.B) {
	many := 1_000_000
	if v, err := strconv.Atoi(os.Getenv("BINDERY_BENCH_BINDINGS")); err == nil {
		many = v
	}
	small, large := newBench(b), newBench(b)
	small.fleet(1_000)
	large.fleet(many)
	for _, op := range []string{"bind", "explain", "list"} {
		b.Run(op, func(b *testing.B) {
			small.b, large.b = b, b
			for range b.N {
				large.compare(100, func() { small.consumer(op, 100) }, func() { large.consumer(op, 100) }, false)
			}
		})
	}
}

// fleet fills the ledger with n bindings, four a consumer, on a hundred nodes.
func (x *bench) fleet(n int) {
	x.do(commands.CreateMesh{Name: "home"})
	m := manifest.Module{Requires: map[string]manifest.Requirement{}}
	slots := []string{"db", "cache", "files", "sso"}
	for _, slot := range slots {
		x.do(commands.DefineProvision{Name: slot, Scope: events.ScopeNode})
		m.Requires[slot] = manifest.Requirement{Provision: slot}
	}
	for i := range 100 {
		node := fmt.Sprintf("node-%d", i)
		x.do(commands.RegisterNode{Name: node})
		for _, slot := range slots {
			x.do(commands.RegisterProvider{Name: slot + "-" + node, Provision: slot, Node: node, Endpoint: fmt.Sprintf("%s.%s:1", slot, node)})
		}
	}
	x.do(commands.DeclareModule{Name: "app", Module: m})
	var wg sync.WaitGroup
	for w := range 256 {
		wg.Go(func() {
			for i := w; i < n/len(slots); i += 256 {
				x.do(commands.CreateAssignment{Module: "app", Node: fmt.Sprintf("node-%d", i%100), Name: fmt.Sprintf("app-%d", i)})
			}
		})
	}
	wg.Wait()
}

// consumer does one thing n times: a consumer created and ended, explained, or
// listed.
func (x *bench) consumer(op string, n int) {
	ctx := context.Background()
	for i := range n {
		name := fmt.Sprintf("app-%d", i)
		switch op {
		case "bind":
			_, err := x.client.Do(ctx, newRequest(commands.CreateAssignment{Module: "app", Node: "node-7", Name: "extra"}))
			check(x.b, err)
			_, err = x.client.Do(ctx, newRequest(commands.EndAssignment{Assignment: "extra"}))
			check(x.b, err)
		case "explain":
			_, err := x.client.Ask(ctx, commands.Explain{Slot: name + "/db"})
			check(x.b, err)
		case "list":
			_, err := x.client.Ask(ctx, commands.ListBindings{Assignment: name})
			check(x.b, err)
		}
	}
}

// BenchmarkRebuild gives the throughput of folding a whole ledger over that of
// a bare ordered consumer on the same stream: 200,000 events, or
// BINDERY_BENCH_EVENTS. It also gives the bytes of state a binding.
func BenchmarkRebuild(b *testing.B) {
	size := 200_000
	if v, err := strconv.Atoi(os.Getenv("BINDERY_BENCH_EVENTS")); err == nil {
		size = v
	}
	x := newBench(b)
	x.fleet(size * 4 / 5) // a consumer of four slots is five events
	last, err := x.log.Last(b.Context())
	check(b, err)
	b.ResetTimer()
	for range b.N {
		x.compare(int(last), func() { x.bare(last) }, func() { x.fold(last) }, true)
	}
	b.ReportMetric(float64(last), "events")
	runtime.GC()
	before := heap()
	s := x.fold(last)
	after := heap()
	b.ReportMetric(float64(after-before)/float64(s.Status(time.Now()).Counts["bindings"]), "B/binding")
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (x *bench) fold(last uint64) *projections.State {
	s := projections.New()
	for group, err := range x.log.Read(context.Background(), ledger.Position{}, last) {
		check(x.b, err)
		check(x.b, s.ApplyCommand(group))
	}
	if s.Seq != last {
		x.b.Fatalf("folded to %d of %d", s.Seq, last)
	}
	return s
}

func (x *bench) bare(last uint64) {
	c, err := x.js.OrderedConsumer(context.Background(), x.log.Stream(), jetstream.OrderedConsumerConfig{})
	check(x.b, err)
	done := make(chan struct{})
	var n uint64
	cc, err := c.Consume(func(jetstream.Msg) {
		if n++; n == last {
			close(done)
		}
	}, jetstream.PullMaxMessages(10_000))
	check(x.b, err)
	<-done
	cc.Stop()
}

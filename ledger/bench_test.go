package ledger

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"bindery/events"
)

// Each benchmark runs ours and its raw twin in one run, in blocks that take
// turns, on the same embedded server with fsync, with the same bytes and
// headers, and reports the median of the blocks' ratios. Times are of the test
// binary's own temporary directory: set TMPDIR to the disk in question.

// blocks is how often ours and raw take turns.
const blocks = 12

// ratio runs both by turns, b.N times each in total at least, and reports.
// more says whether greater is better for the ratio: throughput, not time.
func ratio(b *testing.B, raw, ours func(n int)) {
	b.Helper()
	n := max(1, b.N/blocks)
	raw(n)
	ours(n)
	b.ResetTimer()
	var ratios, rawTimes, ourTimes []float64
	for i := range blocks {
		var r, o time.Duration
		measure := func(f func(int), d *time.Duration) {
			start := time.Now()
			f(n)
			*d = time.Since(start)
		}
		if i%2 == 0 {
			measure(raw, &r)
			measure(ours, &o)
		} else {
			measure(ours, &o)
			measure(raw, &r)
		}
		ratios = append(ratios, float64(o)/float64(r))
		rawTimes = append(rawTimes, float64(r)/float64(n))
		ourTimes = append(ourTimes, float64(o)/float64(n))
	}
	b.ReportMetric(median(ratios), "x-raw")
	b.ReportMetric(1/median(ratios), "raw/ours")
	b.ReportMetric(median(rawTimes), "raw-ns")
	b.ReportMetric(median(ourTimes), "ours-ns")
	b.ReportMetric(0, "ns/op")
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// rawMessages are the messages a raw publisher would send for g.
func rawMessages(g []events.Group) (out []*nats.Msg) {
	for _, cmd := range g {
		for i := range cmd {
			h := nats.Header(maps.Clone(cmd[i].Header))
			out = append(out, &nats.Msg{Subject: cmd[i].Subject, Header: h, Data: cmd[i].Data})
		}
	}
	return out
}

// BenchmarkAppendOne: a command of one event against a raw conditional publish.
func BenchmarkAppendOne(b *testing.B) {
	s := startStore(b, b.TempDir())
	l := mustCreate(b, s)
	ctx := context.Background()
	w := newWriter()
	prepared := func(n int) [][]events.Group {
		out := make([][]events.Group, n)
		for i := range out {
			out[i] = w.commands(1)
		}
		return out
	}
	// Preparing is not measured: ratio calls with a known n.
	n := max(1, b.N/blocks)
	pool := prepared(n * (blocks + 1) * 2)
	next := func() []events.Group { g := pool[0]; pool = pool[1:]; return g }
	raw := func(n int) {
		for range n {
			m := rawMessages(next())[0]
			seq := w.seqOf(m)
			if _, err := l.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequence(seq-1)); err != nil {
				b.Fatal(err)
			}
		}
	}
	ours := func(n int) {
		for range n {
			g := next()
			if _, err := l.Append(ctx, g[0][0].Seq-1, g); err != nil {
				b.Fatal(err)
			}
		}
	}
	w.index(pool)
	ratio(b, raw, ours)
}

// BenchmarkAppend64: 64 commands of one event each against a raw batch of 64.
func BenchmarkAppend64(b *testing.B) { benchGroup(b, 64) }

// BenchmarkAppend4: 4 commands of one event each against a raw batch of 4.
func BenchmarkAppend4(b *testing.B) { benchGroup(b, 4) }

func benchGroup(b *testing.B, size int) {
	s := startStore(b, b.TempDir())
	l := mustCreate(b, s)
	ctx := context.Background()
	w := newWriter()
	n := max(1, b.N/blocks)
	pool := make([][]events.Group, n*(blocks+1)*2)
	for i := range pool {
		pool[i] = w.commands(slices.Repeat([]int{1}, size)...)
	}
	next := func() []events.Group { g := pool[0]; pool = pool[1:]; return g }
	raw := func(n int) {
		for range n {
			g := next()
			msgs := rawMessages(g)
			id := nuid.Next()
			for i, m := range msgs {
				if i == 0 {
					m.Header.Set(hExpectSeq, strconv.FormatUint(g[0][0].Seq-1, 10))
				}
				m.Header.Set(hBatchID, id)
				m.Header.Set(hBatchSeq, strconv.Itoa(i+1))
				if i < len(msgs)-1 {
					if err := s.nc.PublishMsg(m); err != nil {
						b.Fatal(err)
					}
					continue
				}
				m.Header.Set(hBatchEnd, "1")
				if a := readAnswer(s.nc.RequestMsgWithContext(ctx, m)); a.err != nil {
					b.Fatal(a.err)
				}
			}
		}
	}
	ours := func(n int) {
		for range n {
			g := next()
			if _, err := l.Append(ctx, g[0][0].Seq-1, g); err != nil {
				b.Fatal(err)
			}
		}
	}
	ratio(b, raw, ours)
}

// seqs remembers which record has which sequence, by its id.
var seqs = map[string]uint64{}

func (w *writer) index(pool [][]events.Group) {
	clear(seqs)
	for _, g := range pool {
		for _, c := range g {
			for i := range c {
				seqs[c[i].Get(events.HeaderID)] = c[i].Seq
			}
		}
	}
}

func (w *writer) seqOf(m *nats.Msg) uint64 { return seqs[m.Header[events.HeaderID][0]] }

// BenchmarkRead: reading the whole ledger, decoded, verified and folded into a
// map, against a bare ordered consumer that looks at nothing. 200,000 events,
// or BINDERY_BENCH_EVENTS. One b.N is one block of both: -benchtime 1x will do.
func BenchmarkRead(b *testing.B) {
	size := 200_000
	if v, err := strconv.Atoi(os.Getenv("BINDERY_BENCH_EVENTS")); err == nil {
		size = v
	}
	s := startStore(b, b.TempDir())
	l := mustCreate(b, s)
	ctx := context.Background()
	w := newWriter()
	for int(w.seq) < size {
		after := w.seq
		g := w.commands(slices.Repeat([]int{2, 1, 3, 1, 1}, 100)...)
		if _, err := l.Append(ctx, after, g); err != nil {
			b.Fatal(err)
		}
	}
	last := w.seq
	raw := func(n int) {
		for range n {
			cons, err := l.js.OrderedConsumer(ctx, l.stream, jetstream.OrderedConsumerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			done, count := make(chan struct{}), uint64(0)
			cc, err := cons.Consume(func(m jetstream.Msg) {
				if count++; count == last {
					close(done)
				}
			}, jetstream.PullMaxMessages(10_000))
			if err != nil {
				b.Fatal(err)
			}
			<-done
			cc.Stop()
		}
	}
	ours := func(n int) {
		for range n {
			names := make(map[events.ID]string)
			for evs, err := range l.Read(ctx, Position{}, last) {
				if err != nil {
					b.Fatal(err)
				}
				for i := range evs {
					if p, ok := evs[i].Data.(*events.NodeRegistered); ok {
						names[evs[i].Entity] = p.Name
					}
				}
			}
			if len(names) != int(last)-1 {
				b.Fatalf("%d events, want %d", len(names), last-1)
			}
		}
	}
	ratio(b, raw, ours)
	b.ReportMetric(float64(last), "events")
}

package subscriber

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands"
	"bindery/ledger"
	"bindery/projections"
)

const (
	benchBlocks = 12
	benchEvents = 400 // a block: the 99th percentile has four above it
)

// sight is somebody who sees events: when each sequence was seen.
type sight struct {
	seen chan uint64
	stop func()
}

// await waits until a sequence is seen, and says when.
func (s *sight) await(b *testing.B, seq uint64) time.Time {
	for {
		select {
		case n := <-s.seen:
			if n >= seq {
				return time.Now()
			}
		case <-time.After(patience):
			b.Fatalf("sequence %d is not seen", seq)
		}
	}
}

// bare is a consumer of the ledger's stream that does nothing with what comes.
func (w *world) bare(b *testing.B) *sight {
	nc := w.dial()
	js, err := jetstream.New(nc)
	w.must(err)
	s := &sight{seen: make(chan uint64, 100)}
	cons, err := js.OrderedConsumer(b.Context(), ledger.StreamName("home"), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: w.seq() + 1})
	w.must(err)
	run, err := cons.Consume(func(m jetstream.Msg) {
		if meta, err := m.Metadata(); err == nil {
			s.seen <- meta.Sequence.Stream
		}
	})
	w.must(err)
	s.stop = func() { run.Stop(); nc.Close() }
	return s
}

// subscribed is a subscriber that has caught up.
func (w *world) subscribed(b *testing.B, documents bool) *sight {
	nc := w.dial()
	ctx, cancel := context.WithCancel(b.Context())
	s := &sight{seen: make(chan uint64, 100)}
	client := w.clientOf(nc, "home")
	items := Stream(ctx, client, Options{})
	if documents {
		items = Documents(ctx, client, Options{Filter: projections.DocumentFilter{Node: w.node("alpha")}})
	}
	caught := make(chan bool, 1)
	done := make(chan bool)
	go func() {
		defer close(done)
		for item, err := range items {
			switch {
			case err != nil:
				return
			case item.CaughtUp:
				caught <- true
			case item.Change != nil && item.Cursor.Seq != 0:
				s.seen <- item.Seq
			}
		}
	}()
	<-caught
	s.stop = func() { cancel(); <-done; nc.Close() }
	return s
}

// block gives one command after the other and returns how long each took to be
// seen, from when it was given and from when it was acknowledged, sorted.
func (w *world) block(b *testing.B, s *sight) (given, acked []time.Duration) {
	defer s.stop()
	for i := range benchEvents {
		start := time.Now()
		r := w.do(commands.RelocateProvider{Provider: "pg-one", To: []string{"beta", "alpha"}[i%2], Endpoint: fmt.Sprintf("there:%d", i%50+1)})
		ack := time.Now()
		at := s.await(b, r.Seq)
		given, acked = append(given, at.Sub(start)), append(acked, max(0, at.Sub(ack)))
	}
	slices.Sort(given)
	slices.Sort(acked)
	return given, acked
}

func p99(of []time.Duration) float64 { return float64(of[len(of)*99/100]) }

func benchMedian(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// BenchmarkSeen gives the time from when a command is given until a subscriber
// over TCP has the change, at the 99th percentile, over that until a bare consumer
// of the stream has the message: blocks by turns on one server with fsync, a mesh
// of 1,000 bindings.
func BenchmarkSeen(b *testing.B) {
	w := newWorld(b)
	w.stop()
	w.keeper, w.synced = &keeping{memory: true}, true
	w.start()
	w.furnish()
	w.do(commands.RegisterProvider{Name: "pg-one", Provision: "pg", Node: "alpha", Endpoint: "one:1"},
		commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "one", Bind: map[string]string{"db": "pg-one"}})
	w.assign("a", "alpha", 999)
	w.follow()
	for range b.N {
		of := map[string][3][]float64{}
		note := func(name string, ratio, given, acked float64) {
			x := of[name]
			of[name] = [3][]float64{append(x[0], ratio), append(x[1], given), append(x[2], acked)}
		}
		for i := range benchBlocks {
			order := []string{"bare", "stream", "documents"}
			if i%2 == 1 {
				slices.Reverse(order)
			}
			given, acked := map[string]float64{}, map[string]float64{}
			for _, name := range order {
				s := w.bare
				if name != "bare" {
					s = func(b *testing.B) *sight { return w.subscribed(b, name == "documents") }
				}
				g, a := w.block(b, s(b))
				given[name], acked[name] = p99(g), p99(a)
			}
			for _, name := range order {
				note(name, given[name]/given["bare"], given[name], acked[name])
			}
		}
		for _, name := range []string{"bare", "stream", "documents"} {
			if name != "bare" {
				b.ReportMetric(benchMedian(of[name][0]), name+"-x-bare")
			}
			b.ReportMetric(benchMedian(of[name][1])/1e3, name+"-p99-µs")
			b.ReportMetric(benchMedian(of[name][2])/1e3, name+"-acked-p99-µs")
		}
	}
}

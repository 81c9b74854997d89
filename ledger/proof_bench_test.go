package ledger

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// BenchmarkProof gives what the chain and the anchor add to a command of one event
// that somebody waits for: the time of one link over that of a raw conditional
// publish of the same event, and the part of a second that writing an anchor takes,
// as a serving process does once in AnchorEvery.
func BenchmarkProof(b *testing.B) {
	s := startStore(b, b.TempDir())
	l := mustCreate(b, s)
	w := newWriter()
	k := NewAnchorKeeper(Anchors{Dir: b.TempDir()}, Anchor{ID: "X"}, time.Now)
	const publishes, links, anchors = 100, 2000, 5
	var chain, anchor []float64
	for range blocks {
		g := w.commands(slices.Repeat([]int{1}, publishes)...)
		msgs := rawMessages(g)
		start := time.Now()
		for i, m := range msgs {
			if _, err := l.js.PublishMsg(context.Background(), m, jetstream.WithExpectLastSequence(g[i][0].Seq-1)); err != nil {
				b.Fatal(err)
			}
		}
		publish := time.Since(start) / publishes
		var c events.Chain
		start = time.Now()
		for i := range links {
			c = c.Link(w.mesh, &g[i%publishes][0])
		}
		link := time.Since(start) / links
		start = time.Now()
		for range anchors {
			if err := k.Reach(Position{Seq: w.seq, Chain: c}); err != nil {
				b.Fatal(err)
			}
			w.seq++
		}
		w.seq -= anchors
		write := time.Since(start) / anchors
		chain = append(chain, float64(link)/float64(publish))
		anchor = append(anchor, float64(write)/float64(AnchorEvery))
	}
	b.ReportMetric(100*median(chain), "%-chain")
	b.ReportMetric(100*median(anchor), "%-anchor")
	b.ReportMetric(0, "ns/op")
}

package service

import (
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// BenchmarkVerify: what audit verify does, every chain value computed anew and
// every event decoded and folded, against a bare ordered consumer that looks at
// nothing. 200,000 events, or BINDERY_BENCH_EVENTS. One b.N is a run of both by
// turns: -benchtime 1x will do.
func BenchmarkVerify(b *testing.B) {
	size := 200_000
	if v, err := strconv.Atoi(os.Getenv("BINDERY_BENCH_EVENTS")); err == nil {
		size = v
	}
	x := newBench(b)
	x.fleet(size * 4 / 5)
	last, err := x.log.Last(b.Context())
	check(b, err)
	b.ResetTimer()
	for range b.N {
		x.compare(int(last), func() { x.bare(last) }, func() {
			defer debug.SetGCPercent(debug.SetGCPercent(300)) // as the command does
			s := projections.New()
			done, err := x.log.Verify(b.Context(), ledger.Verifying{To: last, Each: func(evs []events.Event) error { return s.ApplyCommand(evs) }})
			check(b, err)
			if done.Last.Seq != last || s.Seq != last {
				b.Fatalf("verified up to %d, folded up to %d of %d", done.Last.Seq, s.Seq, last)
			}
		}, true)
	}
	b.ReportMetric(float64(last), "events")
}

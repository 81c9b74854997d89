package service

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"bindery/commands"
	"bindery/ledger"
)

// BenchmarkCommands gives the throughput of reading the whole ledger through the
// service over that of reading it through the ledger's own consumer, by turns.
func BenchmarkCommands(b *testing.B) {
	f := newFleet(b, false)
	const n = 20_000
	var wg sync.WaitGroup
	for c := range 200 {
		wg.Go(func() {
			for i := c; i < n; i += 200 {
				f.do(commands.RegisterNode{Name: fmt.Sprintf("node-%d", i)})
			}
		})
	}
	wg.Wait()
	last := f.h.Position().Seq
	ours := func() {
		for group, err := range f.client.Commands(b.Context(), ledger.Position{}) {
			f.must(err)
			if group[len(group)-1].Seq == last {
				return
			}
		}
	}
	raw := func() {
		for _, err := range f.log.Read(b.Context(), ledger.Position{}, last) {
			f.must(err)
		}
	}
	took := func(run func()) float64 {
		start := time.Now()
		run()
		return time.Since(start).Seconds()
	}
	var ratios, rate []float64
	for range b.N {
		for range 10 {
			o, r := took(ours), took(raw)
			ratios, rate = append(ratios, r/o), append(rate, float64(last)/o)
		}
	}
	slices.Sort(ratios)
	slices.Sort(rate)
	b.ReportMetric(ratios[len(ratios)/2], "of-raw")
	b.ReportMetric(rate[len(rate)/2], "events/s")
}

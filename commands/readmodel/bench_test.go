package readmodel

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"bindery/commands"
	"bindery/ledger"
	"bindery/projections"
)

// twin is a bucket with the same entries, written as they are.
type twin struct {
	b       *ledger.Bucket
	entries []ledger.Entry
	at      map[string]uint64
}

func (w *world) twinOf(name string, memory bool) *twin {
	w.t.Helper()
	b, err := ledger.OpenBucket(w.t.Context(), w.nc, ledger.BucketConfig{Name: name + "-twin", Memory: memory})
	w.must(err)
	t := &twin{b: b, at: map[string]uint64{}}
	_, err = b.All(w.t.Context(), func(e ledger.Entry) { t.at[e.Key] = e.Revision })
	w.must(err)
	return t
}

// like takes over what a bucket got after a revision.
func (w *world) like(t *twin, name string, after uint64) {
	w.t.Helper()
	b, err := ledger.OpenBucket(w.t.Context(), w.nc, ledger.BucketConfig{Name: name, Memory: w.k.cfg.Memory})
	w.must(err)
	t.entries = nil
	_, err = b.All(w.t.Context(), func(e ledger.Entry) {
		if e.Revision > after {
			t.entries = append(t.entries, e)
		}
	})
	w.must(err)
	slices.SortFunc(t.entries, func(a, b ledger.Entry) int { return int(a.Revision) - int(b.Revision) })
}

func (t *twin) replay(b *testing.B) {
	for part := range slices.Chunk(t.entries, ledger.MaxEvents) {
		for i := range part {
			part[i].Revision = t.at[part[i].Key]
		}
		first, err := t.b.Write(context.Background(), part)
		if err != nil {
			b.Fatal(err)
		}
		for i := range part {
			t.at[part[i].Key] = first + uint64(i)
		}
	}
}

// BenchmarkRelocate gives the throughput of bringing all documents up to date when
// a provider with 10,000 bindings moves to another node (10,000 documents, and
// 20,000 changes to those of the provider side, which change their keys), over raw
// atomic batches of 1,000 of the very same messages.
func BenchmarkRelocate(b *testing.B) {
	const n = 10_000
	for _, memory := range []bool{true, false} {
		b.Run(fmt.Sprintf("memory=%t", memory), func(b *testing.B) {
			w := newWorldWith(b, memory, memory)
			w.fleet(0)
			var wg sync.WaitGroup
			for c := range 256 {
				wg.Go(func() {
					for i := c; i < n; i += 256 {
						name := fmt.Sprintf("app-%d", i)
						w.do(commands.CreateAssignment{Module: "app", Node: "alpha", Name: name, Bind: map[string]string{"db": "pg-alpha"}})
						w.issue(name + "/db")
					}
				})
			}
			wg.Wait()
			w.sync()
			twins := [kinds]*twin{w.twinOf(Bindings("home"), memory), w.twinOf(Holders("home"), memory)}
			var ratios []float64
			var ours, raws, messages float64
			to := []string{"beta", "alpha"}
			for round := range 12 {
				before := w.revisions()
				start := time.Now()
				w.do(commands.RelocateProvider{Provider: "pg-alpha", To: to[round%2], Endpoint: fmt.Sprintf("h.mesh:%d", 6000+round)})
				w.sync()
				our := time.Since(start)
				w.like(twins[ofBindings], Bindings("home"), before[ofBindings])
				w.like(twins[ofHolders], Holders("home"), before[ofHolders])
				start = time.Now()
				twins[ofBindings].replay(b)
				twins[ofHolders].replay(b)
				raw := time.Since(start)
				if round < 2 {
					continue // the keys are new to the twin
				}
				ratios = append(ratios, raw.Seconds()/our.Seconds())
				ours, raws = ours+our.Seconds(), raws+raw.Seconds()
				messages = float64(len(twins[ofBindings].entries) + len(twins[ofHolders].entries))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-raw")
			b.ReportMetric(messages, "messages")
			b.ReportMetric(1000*ours/float64(len(ratios)), "ms/relocation")
			b.ReportMetric(1000*raws/float64(len(ratios)), "ms/raw")
		})
	}
}

// sync waits until the documents are what the ledger says.
func (w *world) sync() {
	w.t.Helper()
	var seq uint64
	w.h.View(func(s *projections.State) { seq = s.Seq })
	if err := w.k.Synced(context.Background(), seq); err != nil {
		w.t.Fatal(err)
	}
}

package ledger

import (
	"context"
	"slices"
	"testing"
	"time"

	"bindery/events"
)

// BenchmarkProven gives what proofs add, each over the same without one, in blocks that
// take turns on one server: appending a command of one event, and reading 50,000 of them;
// by the secret of a store, and by the key of a writer.
func BenchmarkProven(b *testing.B) {
	key, err := NewKey()
	if err != nil {
		b.Fatal(err)
	}
	secret := NewSecret(1)
	by := map[string]func(l *Log) *Writers{
		"secret": func(l *Log) *Writers { l.ProveWith(secret); l.Trust(Secrets{secret}); return nil },
		"key": func(l *Log) *Writers {
			l.ProveWith(key)
			return NewWriters(map[events.ID]string{newID(): key.Public})
		},
	}
	for name, prove := range by {
		b.Run(name+"/append", func(b *testing.B) {
			s := startStore(b, b.TempDir())
			l, w := mustCreate(b, s), newWriter()
			one := func(n int) {
				for range n {
					after := w.seq
					if _, err := l.Append(context.Background(), after, w.commands(1)); err != nil {
						b.Fatal(err)
					}
				}
			}
			ratio(b, func(n int) { l.ProveWith(nil); one(n) }, func(n int) { prove(l); one(n) })
		})
		b.Run(name+"/read", func(b *testing.B) {
			const commands, each = 50_000, 1000
			var logs [2]*Log
			var writers *Writers
			for i := range logs {
				s := quickStore(b)
				logs[i] = mustCreate(b, s)
				if i == 1 {
					writers = prove(logs[i])
				}
				for w := newWriter(); w.seq < commands; {
					after := w.seq
					if _, err := logs[i].Append(b.Context(), after, w.commands(slices.Repeat([]int{1}, each)...)); err != nil {
						b.Fatal(err)
					}
				}
			}
			read := func(l *Log, writers *Writers) time.Duration {
				start, n := time.Now(), 0
				for evs, err := range l.Read(b.Context(), Position{Writers: writers}, commands) {
					if err != nil {
						b.Fatal(err)
					}
					n += len(evs)
				}
				if n != commands {
					b.Fatalf("%d events", n)
				}
				return time.Since(start)
			}
			var ratios []float64
			for range blocks {
				raw := read(logs[0], nil)
				ratios = append(ratios, float64(read(logs[1], writers))/float64(raw))
			}
			b.ReportMetric(median(ratios), "x-raw")
			b.ReportMetric(0, "ns/op")
		})
	}
}

package service

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

// manyHolders is what a rotation is about: 100,000, or BINDERY_BENCH_HOLDERS.
func manyHolders() int {
	if v, err := strconv.Atoi(os.Getenv("BINDERY_BENCH_HOLDERS")); err == nil {
		return v
	}
	return 100_000
}

// held fills the ledger with n consumers of one provider, on a hundred nodes,
// each with a credential that it has adopted.
func (x *bench) held(n int) {
	x.do(commands.CreateMesh{Name: "home"})
	x.do(commands.DefineProvision{Name: "pg", Scope: events.ScopeNode})
	for i := range 100 {
		x.do(commands.RegisterNode{Name: fmt.Sprintf("node-%d", i)})
	}
	x.do(commands.RegisterProvider{Name: "pg-0", Provision: "pg", Node: "node-0", Endpoint: "node-0:5432"})
	x.do(commands.DeclareModule{Name: "app", Module: manifest.Module{Requires: map[string]manifest.Requirement{
		"db": {Provision: "pg", Provider: "pg-0"}}}})
	x.each(n, func(i int) {
		r := x.do(commands.CreateAssignment{Module: "app", Node: fmt.Sprintf("node-%d", i%100), Name: fmt.Sprintf("app-%d", i)})
		x.renew(i, r.Seq)
	})
}

// renew issues a generation of a consumer's credential, and adopts it.
func (x *bench) renew(i int, generation uint64) {
	slot := slotName(i)
	r := x.do(commands.IssueCredential{Slot: slot, Generation: generation, SecretRef: fmt.Sprintf("bao:pg-0/%s-%d", slot, generation)})
	x.do(commands.AcknowledgeBinding{Slot: slot, At: r.Seq})
}

func slotName(i int) string { return fmt.Sprintf("app-%d/db", i) }

// each does f for 0 to n-1, many at a time.
func (x *bench) each(n int, f func(int)) {
	var wg sync.WaitGroup
	for w := range 256 {
		wg.Go(func() {
			for i := w; i < n; i += 256 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// BenchmarkRotationStart gives the time of starting a rotation (and of aborting
// it, so that it can be started again) with many holders over that with 10.
func BenchmarkRotationStart(b *testing.B) {
	small, large := newBench(b), newBench(b)
	small.held(10)
	large.held(manyHolders())
	pairs := func(x *bench) func() {
		return func() {
			for range 100 {
				_, err := x.client.Do(context.Background(), newRequest(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "pg-0"}}))
				check(b, err)
				abort := newRequest(commands.AbortRotation{Rotation: "pg-0"})
				abort.Reason = "again"
				_, err = x.client.Do(context.Background(), abort)
				check(b, err)
			}
		}
	}
	b.ResetTimer()
	for range b.N {
		large.compare(200, pairs(small), pairs(large), false)
	}
}

// BenchmarkAcknowledge gives the throughput of 64 callers that acknowledge,
// over raw atomic batches of 64.
func BenchmarkAcknowledge(b *testing.B) {
	const callers = 64
	for _, path := range []string{"handler", "request"} {
		b.Run(path, func(b *testing.B) {
			x := newBench(b)
			x.held(callers)
			at := make([]uint64, callers)
			for i := range at {
				at[i] = x.view(i).AppliedSeq
			}
			x.like(commands.AcknowledgeBinding{Slot: slotName(0), At: at[0] + 1})
			at[0]++
			do := x.h.Do
			if path == "request" {
				do = x.client.Do
			}
			const n = callers * 50
			raw := func() { x.rawBatches(n, callers) }
			ours := func() {
				var wg sync.WaitGroup
				for c := range callers {
					wg.Go(func() {
						for range n / callers {
							at[c]++
							_, err := do(context.Background(), newRequest(commands.AcknowledgeBinding{Slot: slotName(c), At: at[c]}))
							if err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
			}
			raw()
			ours()
			b.ResetTimer()
			for range b.N {
				x.compare(n, raw, ours, true)
			}
		})
	}
}

// like does a command of one event and remembers what that looks like.
func (x *bench) like(c commands.Command) {
	r := x.do(c)
	records, err := x.log.Get(x.b.Context(), r.Seq, r.Seq)
	check(x.b, err)
	x.raw = &nats.Msg{Subject: "raw" + strings.TrimPrefix(records[0].Subject, "bin"), Header: records[0].Header, Data: records[0].Data}
}

func (x *bench) view(i int) projections.BindingView {
	raw, err := x.client.Ask(context.Background(), commands.ShowBinding{Slot: slotName(i)})
	check(x.b, err)
	var v projections.BindingView
	check(x.b, json.Unmarshal(raw, &v))
	return v
}

// BenchmarkRotationShow gives the milliseconds (median) from the question to the
// answer about a rotation with many members: its summary, and all members.
func BenchmarkRotationShow(b *testing.B) {
	x := newBench(b)
	x.held(manyHolders())
	x.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "pg-0"}})
	for _, q := range []struct {
		name string
		q    commands.ShowRotation
	}{{"brief", commands.ShowRotation{Rotation: "pg-0", Brief: true}},
		{"table", commands.ShowRotation{Rotation: "pg-0", Limit: 1000}}, {"members", commands.ShowRotation{Rotation: "pg-0"}}} {
		b.Run(q.name, func(b *testing.B) {
			for range b.N {
				var ms []float64
				for range blocks {
					ms = append(ms, float64(timed(func() {
						_, err := x.client.Ask(context.Background(), q.q)
						check(b, err)
					}))/float64(time.Millisecond))
				}
				b.ReportMetric(median(ms), "ms")
				b.ReportMetric(slices.Max(ms), "ms-max")
			}
		})
	}
}

// BenchmarkCredentialBytes gives the bytes of state a credential takes: each
// consumer gets a second one.
func BenchmarkCredentialBytes(b *testing.B) {
	x := newBench(b)
	n := manyHolders()
	x.held(n)
	last, err := x.log.Last(b.Context())
	check(b, err)
	first := last
	x.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "pg-0"}})
	generation := first + 1
	x.each(n, func(i int) { x.renew(i, generation) })
	last, err = x.log.Last(b.Context())
	check(b, err)
	before := heap()
	one := x.fold(first)
	middle := heap()
	two := x.fold(last)
	after := heap()
	b.ReportMetric((float64(after-middle)-float64(middle-before))/float64(n), "B/credential")
	b.ReportMetric(float64(middle-before)/float64(n), "B/binding-with-one")
	runtime.KeepAlive(one)
	runtime.KeepAlive(two)
}

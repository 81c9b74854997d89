package projections

import (
	"bytes"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"bindery/events"
)

// fleetOf is a state with n bindings, four a consumer, each with the credential that
// is asked for, on a hundred nodes.
func fleetOf(tb testing.TB, n int) *State {
	tb.Helper()
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s, ids := New(), uint64(0)
	next := func() events.ID { ids++; return idAt(at, ids) }
	mesh := next()
	apply := func(entities []events.ID, payloads ...events.Payload) {
		command := next()
		for k, p := range payloads {
			e := &events.Event{Envelope: events.Envelope{ID: next(), Mesh: mesh, Time: at, Actor: "ann@example", Command: command,
				Origin: events.OriginCommand, K: k + 1, N: len(payloads)}, Seq: s.Seq + 1, MeshName: "home", Type: p.EventType(), Entity: entities[k], Data: p}
			if err := s.Apply(e); err != nil {
				tb.Fatal(err)
			}
		}
	}
	one := func(p events.Payload) events.ID {
		id := next()
		apply([]events.ID{id}, p)
		return id
	}
	apply([]events.ID{mesh}, &events.MeshCreated{Name: "home"})
	slots := []string{"db", "cache", "files", "sso"}
	m := &events.ModuleDeclared{Name: "app", Requires: map[string]events.Requirement{}}
	for _, slot := range slots {
		m.Requires[slot] = events.Requirement{Provision: one(&events.ProvisionDefined{Name: slot, Scope: events.ScopeNode, Credentials: events.CredentialsManaged})}
	}
	var nodes [100]events.ID
	var providers [100][]events.ID
	for i := range nodes {
		nodes[i] = one(&events.NodeRegistered{Name: fmt.Sprintf("node-%d", i)})
		for _, slot := range slots {
			providers[i] = append(providers[i], one(&events.ProviderRegistered{Name: fmt.Sprintf("%s-node-%d", slot, i), Provision: m.Requires[slot].Provision,
				Node: nodes[i], Endpoint: fmt.Sprintf("%s.node-%d:1", slot, i)}))
		}
	}
	module := one(m)
	for i := range n / len(slots) {
		created := &events.AssignmentCreated{Name: fmt.Sprintf("app-%d", i), Module: module, Node: nodes[i%100], Slots: map[string]events.ID{}}
		entities, payloads := []events.ID{next()}, []events.Payload{created}
		for k, slot := range slots {
			created.Slots[slot] = next()
			entities = append(entities, created.Slots[slot])
			payloads = append(payloads, &events.BindingBound{Assignment: entities[0], Slot: slot, Target: events.Target{Provider: providers[i%100][k]},
				Rule: events.RuleCoLocated, Basis: s.Seq})
		}
		apply(entities, payloads...)
	}
	return s
}

// cpuTime is what this process has used of the processors: the garbage collector's
// part is in it, what others use of the machine is not.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSnapshot gives the time to save and to load a state, and the bytes a
// binding.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		s := fleetOf(b, n)
		var data bytes.Buffer
		if err := s.Snapshot(&data); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("bindings=%d/save", n), func(b *testing.B) {
			cpu := cpuTime()
			for b.Loop() {
				if err := s.Snapshot(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpuTime()-cpu).Seconds()*1e3/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(data.Len())/float64(n), "B/binding")
		})
		b.Run(fmt.Sprintf("bindings=%d/load", n), func(b *testing.B) {
			cpu := cpuTime()
			for b.Loop() {
				if _, err := Load(bytes.NewReader(data.Bytes())); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpuTime()-cpu).Seconds()*1e3/float64(b.N), "cpu-ms/op")
		})
	}
}

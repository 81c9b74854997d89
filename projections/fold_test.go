package projections

import (
	"errors"
	"testing"
	"time"

	"bindery/events"
)

// Kind: a log that says what cannot be is folded all the same. What does not
// fit the events before it is an error, and damage for whoever reads the log.
func TestFoldRefusesWhatDoesNotFit(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	id := func(n uint64) events.ID { return idAt(at, n) }
	make := func(seq uint64, entity events.ID, p events.Payload) *events.Event {
		return &events.Event{Envelope: events.Envelope{ID: id(1000 + seq), Mesh: id(1), Time: at, Actor: "ann", Command: id(2000 + seq),
			Origin: events.OriginCommand, K: 1, N: 1}, Seq: seq, MeshName: "home", Type: p.EventType(), Entity: entity, Data: p}
	}
	good := []*events.Event{
		make(1, id(1), &events.MeshCreated{Name: "home"}),
		make(2, id(2), &events.NodeRegistered{Name: "alpha"}),
		make(3, id(3), &events.ProvisionDefined{Name: "pg", Scope: events.ScopeNode, Credentials: events.CredentialsNone}),
		make(4, id(4), &events.ProviderRegistered{Name: "pg-a", Provision: id(3), Node: id(2), Endpoint: "a:1"}),
		make(5, id(5), &events.ModuleDeclared{Name: "wiki", Requires: map[string]events.Requirement{"db": {Provision: id(3)}}}),
		make(6, id(6), &events.AssignmentCreated{Name: "wiki", Module: id(5), Node: id(2), Slots: map[string]events.ID{"db": id(7)}}),
		make(7, id(7), &events.BindingBound{Assignment: id(6), Slot: "db", Target: events.Target{Provider: id(4)}, Rule: events.RuleCoLocated}),
	}
	for what, bad := range map[string]*events.Event{
		"a second mesh":        make(8, id(9), &events.MeshCreated{Name: "home"}),
		"a name twice":         make(8, id(9), &events.NodeRegistered{Name: "alpha"}),
		"an id twice":          make(8, id(2), &events.NodeRegistered{Name: "beta"}),
		"an unknown node":      make(8, id(9), &events.NodeRetired{}),
		"a node as a provider": make(8, id(2), &events.ProviderCordoned{}),
		"bound twice":          make(8, id(7), &events.BindingBound{Assignment: id(6), Slot: "db", Target: events.Target{Provider: id(4)}, Rule: events.RuleCoLocated}),
		"leaving what it has not": make(8, id(7), &events.BindingRebound{Assignment: id(6), Slot: "db", From: events.Target{Embedded: true},
			To: events.Target{Provider: id(4)}, Rule: events.RuleCoLocated}),
		"another's binding": make(8, id(7), &events.BindingBound{Assignment: id(6), Slot: "files", Target: events.Target{Provider: id(4)}, Rule: events.RuleCoLocated}),
		"an old sequence":   make(7, id(9), &events.NodeRegistered{Name: "beta"}),
		"half a command": func() *events.Event {
			e := make(8, id(9), &events.NodeRegistered{Name: "beta"})
			e.K, e.N = 2, 2
			return e
		}(),
	} {
		s := New()
		for _, e := range good {
			if err := s.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		var fold *FoldError
		if err := s.Apply(bad); !errors.As(err, &fold) || fold.Seq != bad.Seq {
			t.Errorf("%s: %v", what, err)
		}
	}
}

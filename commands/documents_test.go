package commands

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"bindery/events"
	"bindery/projections"
)

// kept are documents as somebody keeps them who is told of events alone.
type kept struct {
	docs  map[projections.BindingRef]string
	aside map[projections.BindingRef]bool
}

// documents are those of one binding, without the stamp.
func documents(s *projections.State, r projections.BindingRef) string {
	var all []any
	if s.HasDocument(r) {
		d := s.BindingDocument(r)
		d.Stamp = projections.Stamp{}
		all = append(all, d.Key(), d)
	}
	for _, h := range s.HolderDocuments(r) {
		h.Stamp = projections.Stamp{}
		all = append(all, h.Key(), h)
	}
	if all == nil {
		return ""
	}
	data, _ := json.Marshal(all)
	return string(data)
}

func (k *kept) make(s *projections.State, r projections.BindingRef) {
	k.docs[r], k.aside[r] = documents(s, r), s.Aside(r)
}

func (k *kept) hear(s *projections.State, evs []events.Event) {
	elsewhere := false
	for i := range evs {
		if s.Affected(&evs[i], func(r projections.BindingRef) { k.make(s, r) }) {
			elsewhere = true
		}
	}
	if elsewhere {
		for r, is := range k.aside {
			if is {
				k.make(s, r)
			}
		}
	}
}

// TestAffected: whoever makes anew the documents that Affected names has the
// documents of everybody, always. The moves are those of the credentials' model;
// what is heard comes late now and then, several commands at once.
func TestAffected(t *testing.T) {
	t.Parallel()
	operator, agent := publicKey(t), publicKey(t)
	for seed := range seeds() {
		rng := rand.New(rand.NewPCG(seed, 77))
		p := newPlay(t, func(n int) int { return rng.IntN(n) }, t.Fatalf)
		k := &kept{docs: map[projections.BindingRef]string{}, aside: map[projections.BindingRef]bool{}}
		heard := 0
		for step := range 150 {
			p.step(p.next())
			if step == 60 {
				p.w.must(GrantAccess{Name: "root", Role: events.RoleOperator, NKey: operator}, GrantAccess{Name: "hand", Role: events.RoleAgent, Node: "beta", NKey: agent})
				p.m.command(p.w.log[len(p.w.log)-2:])
			}
			if rng.IntN(3) == 0 {
				continue
			}
			k.hear(p.w.s, p.w.log[heard:])
			heard = len(p.w.log)
			for i := 1; i <= p.w.s.BindingCount(); i++ {
				r := projections.BindingRef(i)
				if want := documents(p.w.s, r); k.docs[r] != want {
					t.Fatalf("seed %d, step %d: the documents of binding %d are\n%s\nwant\n%s\nafter %v", seed, step, i, k.docs[r], want, p.steps[max(0, len(p.steps)-5):])
				}
				if is := p.w.s.Aside(r); k.aside[r] != is {
					t.Fatalf("seed %d, step %d: binding %d is aside: %v, want %v", seed, step, i, k.aside[r], is)
				}
			}
		}
	}
}

// TestTags: what a decision folds has the same tags as what is read from the log.
func TestTags(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	p := newPlay(t, func(n int) int { return rng.IntN(n) }, t.Fatalf)
	p.run(150)
	again := projections.New()
	for i := range p.w.log {
		if err := again.Apply(&p.w.log[i]); err != nil {
			t.Fatal(err)
		}
	}
	chains := map[uint64]string{}
	for i := range p.w.log {
		chains[p.w.log[i].Seq] = p.w.log[i].Chain.String()[:8]
	}
	seen := 0
	for i := 1; i <= p.w.s.BindingCount(); i++ {
		r := projections.BindingRef(i)
		now, then := slices.Collect(p.w.s.Credentials(r)), slices.Collect(again.Credentials(r))
		for j := range now {
			seen++
			if got, want := p.w.s.Tag(&now[j]), chains[now[j].Generation]; got != want {
				t.Errorf("generation %d has tag %s, want %s", now[j].Generation, got, want)
			}
			if got, want := again.Tag(&then[j]), chains[then[j].Generation]; got != want {
				t.Errorf("read again, generation %d has tag %s, want %s", then[j].Generation, got, want)
			}
		}
	}
	if seen < 20 {
		t.Fatalf("%d credentials were compared", seen)
	}
}

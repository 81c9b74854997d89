package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// stored are the records of the ledger as its own log gives them.
func (f *fleet) stored() (out []StoredRecord) {
	f.t.Helper()
	last, err := f.log.Last(f.t.Context())
	f.must(err)
	for group, err := range f.log.Records(f.t.Context(), ledger.Position{}, last) {
		f.must(err)
		for _, r := range group {
			out = append(out, StoredRecord{r.Seq, r.Subject, r.Header, r.Data})
		}
	}
	return out
}

func (f *fleet) records(q RecordsQuery) RecordsPage {
	f.t.Helper()
	page, err := f.client.Records(f.t.Context(), q)
	f.must(err)
	return page
}

// stray stores a message that is no part of the ledger: the copy of an event, but for
// its chain value.
func (f *fleet) stray(of StoredRecord) {
	f.t.Helper()
	m := nats.NewMsg(of.Subject)
	m.Header, m.Data = nats.Header(maps.Clone(of.Headers)), of.Data
	delete(m.Header, events.HeaderChain)
	_, err := f.nc.RequestMsg(m, patience)
	f.must(err)
}

// Kind: what a reader gets is not what is stored. Every byte is the same, from each
// place on, in pages of each size, and what is no part of the ledger is left out.
func TestRecordsAreWhatIsStored(t *testing.T) {
	f := newFleet(t, false)
	old := f.stored()
	for i := range 5 {
		f.assign(fmt.Sprintf("a-%d", i), "alpha", "pg-alpha")
		if i%2 == 0 {
			f.stray(old[2])
			f.stray(StoredRecord{Subject: "bindery.home.stray", Data: []byte("no event")})
		}
	}
	f.do(commands.RegisterNode{Name: "ends-it"})
	want := f.stored()
	head := want[len(want)-1].Seq
	if head <= uint64(len(want)) {
		t.Fatalf("%d records up to %d: nothing is foreign", len(want), head)
	}
	for _, limit := range []int{1, 3, 7, 0} {
		var got []StoredRecord
		for first := uint64(1); first != 0; {
			page := f.records(RecordsQuery{First: first, Limit: limit})
			if page.Seq != head || page.Mesh != "home" || len(page.Items) == 0 || limit > 0 && len(page.Items) > limit+1 {
				t.Fatalf("limit %d, from %d: %d items, next %d", limit, first, len(page.Items), page.Next)
			}
			got = append(got, page.Items...)
			first = page.Next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
	for first := uint64(1); first <= head; first++ { // within a command, and on what is foreign
		var from []StoredRecord
		for _, r := range want {
			if r.Seq >= first {
				from = append(from, r)
			}
		}
		if diff := cmp.Diff(from, f.records(RecordsQuery{First: first}).Items); diff != "" {
			t.Fatalf("from %d (-want +got):\n%s", first, diff)
		}
	}
	if page := f.records(RecordsQuery{First: head + 1}); len(page.Items) != 0 || page.Seq != head {
		t.Errorf("beyond the end: %+v", page)
	}
}

// A reader waits for what comes, and is told that the ledger is another one.
func TestRecordsWait(t *testing.T) {
	f := newFleet(t, false)
	all := f.stored()
	last := all[len(all)-1].Record()
	q := RecordsQuery{First: last.Seq + 1, Chain: last.Get(events.HeaderChain), Wait: 30_000}
	got := make(chan RecordsPage, 1)
	go func() { got <- f.records(q) }()
	f.do(commands.RegisterNode{Name: "gamma"})
	if page := <-got; len(page.Items) != 1 || page.Items[0].Seq != last.Seq+1 || page.Next != 0 {
		t.Errorf("%+v", page)
	}
	for _, bad := range []RecordsQuery{{First: 3, Chain: q.Chain, Wait: 30_000}, {First: 100, Chain: q.Chain, Wait: 30_000}} {
		if _, err := f.client.Records(t.Context(), bad); AsRefusal(err).Code != commands.LedgerRestored {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Kind: a reader that folds something else than the ledger. It has the state of the
// writer, is told what follows, and takes nothing that does not continue its chain.
func TestCommands(t *testing.T) {
	f := newFleet(t, false)
	old := f.stored()
	for i := range 5 {
		f.assign(fmt.Sprintf("a-%d", i), "alpha", "pg-alpha")
		f.stray(old[i])
	}
	f.do(commands.RegisterNode{Name: "gamma"})
	st := projections.New()
	n := 0
	for group, err := range f.client.Commands(t.Context(), ledger.Position{}) {
		f.must(err)
		f.must(st.ApplyCommand(group))
		if n++; st.Seq == f.h.Position().Seq {
			if n > 30 {
				break
			}
			f.do(commands.RegisterNode{Name: fmt.Sprintf("n-%d", n)})
		}
	}
	at := f.h.Position()
	if st.Seq != at.Seq || st.Chain != at.Chain {
		t.Errorf("it is at %d with %s, the writer at %d with %s", st.Seq, st.Chain, at.Seq, at.Chain)
	}
	other := at
	other.Chain[0] ^= 1
	for _, err := range f.client.Commands(t.Context(), other) {
		var r *commands.Refusal
		if !errors.As(err, &r) || r.Code != commands.LedgerRestored {
			t.Errorf("from a place of another ledger: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range f.client.Commands(ctx, at) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	}
}

// Kind: a page that was altered on its way.
func TestCommandsChecks(t *testing.T) {
	f := newFleet(t, false)
	f.assign("a-0", "alpha", "pg-alpha")
	all := f.stored()
	batch := func(r StoredRecord) string { e := r.Record(); return e.Get(events.HeaderBatch) }
	split := 0 // the first event of a command of several
	for split < len(all) && batch(all[split]) != "1/2" {
		split++
	}
	if split == len(all) {
		t.Fatal("no command has two events")
	}
	for what, alter := range map[string]func([]StoredRecord) []StoredRecord{
		"a payload":         func(s []StoredRecord) []StoredRecord { s[3].Data = append([]byte(" "), s[3].Data...); return s },
		"one left out":      func(s []StoredRecord) []StoredRecord { return append(s[:3:3], s[4:]...) },
		"one twice":         func(s []StoredRecord) []StoredRecord { return append(s[:3:3], s[2:]...) },
		"half a command":    func(s []StoredRecord) []StoredRecord { return s[:split+1] },
		"another's subject": func(s []StoredRecord) []StoredRecord { s[2].Subject = s[1].Subject; return s },
	} {
		items := alter(append([]StoredRecord(nil), all...))
		last := items[len(items)-1].Record()
		mesh, err := events.MeshOf(&last)
		f.must(err)
		d, err := look(ledger.Position{}, []byte(encoded(RecordsPage{MeshID: mesh, Seq: last.Seq, Chain: last.Get(events.HeaderChain), Items: items})))
		f.must(err)
		d.decode()
		var damage *ledger.DamageError
		if !errors.As(d.err, &damage) {
			t.Errorf("%s: %v", what, d.err)
		}
		for _, g := range d.groups {
			if g[0].K != 1 || g[len(g)-1].K != g[0].N {
				t.Errorf("%s: half a command is yielded", what)
			}
		}
	}
}

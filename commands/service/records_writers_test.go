package service

import (
	"testing"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
)

// Kind: who reads on from the middle of a ledger on a server does not know its writers:
// a writer that is granted there is not the only one, and what nobody has proven is
// skipped there, too.
func TestRecordsFromTheMiddle(t *testing.T) {
	f := newFleet(t, false)
	one, err := ledger.NewKey()
	f.must(err)
	two, err := ledger.NewKey()
	f.must(err)
	f.log.ProveWith(one)
	writer := func(name string, key ledger.Key) commands.Command {
		return commands.GrantAccess{Name: name, Role: events.RoleWriter, NKey: key.Public}
	}
	f.do(writer("one", one), commands.RegisterNode{Name: "gamma"})
	forge := func() { // a command that continues the ledger, and that nobody has proven
		last, err := f.log.Last(t.Context())
		f.must(err)
		at := f.h.Position()
		recs, err := f.log.Get(t.Context(), at.Seq, at.Seq)
		f.must(err)
		e, err := events.Decode(&recs[0])
		f.must(err)
		e.Seq = last + 1
		r, err := e.Encode(at.Chain)
		f.must(err)
		m := nats.NewMsg(r.Subject)
		m.Header, m.Data = nats.Header(r.Header), r.Data
		_, err = f.nc.RequestMsg(m, patience)
		f.must(err)
	}
	forge()
	f.do(writer("two", two), commands.RegisterNode{Name: "delta"}, commands.RevokeAccess{Name: "two"})
	forge()
	f.do(commands.RegisterNode{Name: "epsilon"})
	whole := f.stored()
	for _, first := range whole {
		var got []StoredRecord
		for q := (RecordsQuery{First: first.Seq}); q.First > 0; {
			page := f.records(q)
			got, q.First = append(got, page.Items...), page.Next
			if len(page.Items) == 0 {
				break
			}
			if n := len(page.Items); page.Next > 0 {
				t.Errorf("from %d on a page ends with %d of %d", first.Seq, page.Items[n-1].Seq, page.Seq)
			}
		}
		n := 0
		for n < len(whole) && whole[n].Seq < first.Seq {
			n++
		}
		if want := whole[n:]; len(got) != len(want) || got[len(got)-1].Seq != want[len(want)-1].Seq {
			t.Errorf("from %d on there are %d records, want %d", first.Seq, len(got), len(want))
		}
		if n := f.log.Foreign().Count; n != 2 {
			t.Errorf("after reading from %d on %d messages are foreign, want 2", first.Seq, n)
		}
	}
}

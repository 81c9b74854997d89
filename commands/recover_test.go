package commands

import (
	"errors"
	"strings"
	"testing"

	"bindery/events"
)

// Kind: a loss is recorded that is none, or of another ledger than the one that is
// left.
func TestRecoverMesh(t *testing.T) {
	w := newWorld(t)
	w.must(RegisterNode{Name: "alpha"})
	chain := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		cmd    RecoverMesh
		reason string
		want   Code
	}{
		"no reason":        {RecoverMesh{AnchorSeq: 9, AnchorChain: chain, FoundSeq: w.s.Seq}, "", ReasonRequired},
		"another end":      {RecoverMesh{AnchorSeq: 9, AnchorChain: chain, FoundSeq: w.s.Seq - 1}, "it died", LedgerMoved},
		"nothing lost":     {RecoverMesh{AnchorSeq: w.s.Seq, AnchorChain: w.s.Chain.String(), FoundSeq: w.s.Seq}, "it died", NothingLost},
		"no value of hash": {RecoverMesh{AnchorSeq: 9, AnchorChain: "x", FoundSeq: w.s.Seq}, "it died", Usage},
	} {
		w.reason = c.reason
		_, err := w.do(c.cmd)
		var r *Refusal
		if !errors.As(err, &r) && c.want != Usage || r != nil && r.Code != c.want || err == nil {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	w.reason = "it died"
	d := w.must(RecoverMesh{AnchorSeq: w.s.Seq, AnchorChain: chain, FoundSeq: w.s.Seq}) // the same length, another history
	p, ok := d.Events[0].Data.(*events.MeshRecovered)
	if !ok || len(d.Events) != 1 || p.AnchorChain != chain || p.FoundSeq != w.s.Seq-1 {
		t.Errorf("wrote %+v", d.Events)
	}
	d = w.must(RecoverMesh{AnchorSeq: w.s.Seq, AnchorChain: w.s.Chain.String(), FoundSeq: w.s.Seq, Skipped: 3})
	if p, ok := d.Events[0].Data.(*events.MeshRecovered); !ok || p.Skipped != 3 {
		t.Errorf("foreign messages are acknowledged by %+v", d.Events)
	}
}

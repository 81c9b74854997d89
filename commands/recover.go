package commands

import (
	"strconv"

	"bindery/events"
)

// RecoverMesh goes on with a ledger that has lost what was acknowledged, or that
// somebody else has written messages into: it records what is known of it. Only who
// holds the store gives it, after looking: it is no request.
type RecoverMesh struct {
	// AnchorSeq and AnchorChain are what was proven: the last sequence that had been
	// acknowledged, and the chain value there (64 hexadecimal digits).
	AnchorSeq   uint64 `json:"anchor_seq"`
	AnchorChain string `json:"anchor_chain"`
	// FoundSeq is the last event that is left. The ledger must be there.
	FoundSeq uint64 `json:"found_seq"`
	// Skipped is how many messages are no part of the ledger.
	Skipped uint64 `json:"skipped,omitempty"`
}

// Verb implements Command.
func (RecoverMesh) Verb() string { return "mesh.recover" }

// Decide implements Command.
func (c RecoverMesh) Decide(t *Tx) error {
	if err := t.needReason("going on without what is lost"); err != nil {
		return err
	}
	if c.FoundSeq != t.Seq {
		return refuse(LedgerMoved, "the ledger does not end at sequence "+strconv.FormatUint(c.FoundSeq, 10),
			"it is at "+strconv.FormatUint(t.Seq, 10), do("status"))
	}
	if c.Skipped == 0 && c.AnchorSeq == t.Seq && c.AnchorChain == t.Chain.String() {
		return refuse(NothingLost, "nothing is lost", "the ledger is what its anchor proves, up to sequence "+strconv.FormatUint(t.Seq, 10), do("audit verify"))
	}
	return t.emit(t.Mesh.ID, &events.MeshRecovered{AnchorSeq: c.AnchorSeq, AnchorChain: c.AnchorChain, FoundSeq: c.FoundSeq, Skipped: c.Skipped})
}

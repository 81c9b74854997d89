package events

import "strconv"

// HeaderProof is the header with the proof of a command: who vouches for the chain
// value of its last event, which carries it. It is no part of the chain.
const HeaderProof = "Bindery-Proof"

// proofHead begins the text that a proof is made over.
const proofHead = "bindery proof 1\n"

// ProofText is what a proof is made over: the place of an event in the ledger of a
// mesh, and its chain value as stored.
func ProofText(mesh ID, seq uint64, chain string) []byte {
	b := make([]byte, 0, len(proofHead)+26+1+20+1+64+1)
	b = append(b, proofHead...)
	b = append(b, mesh.String()...)
	b = append(b, '\n')
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, '\n')
	b = append(b, chain...)
	return append(b, '\n')
}

// Stray reports whether a record has a header that is no event's: one that takes no
// part in the chain, is not the server's ("Nats-…") and not the proof.
func (r *Record) Stray() bool {
	for name := range r.Header {
		if len(name) > 3 && name[:3] == "ce-" || len(name) > 5 && name[:5] == "Nats-" || name == HeaderProof {
			continue
		}
		return true
	}
	return false
}

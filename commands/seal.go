package commands

import "bindery/events"

// SealMesh ends a ledger that has moved elsewhere. Nothing follows it.
type SealMesh struct {
	Successor string `json:"successor,omitempty"` // where the ledger lives now
}

// Verb implements Command.
func (SealMesh) Verb() string { return "mesh.seal" }

// Decide implements Command.
func (c SealMesh) Decide(t *Tx) error {
	if err := t.needReason("sealing a ledger"); err != nil {
		return err
	}
	return t.emit(t.Mesh.ID, &events.MeshSealed{Successor: c.Successor})
}

package events

import (
	"errors"
	"time"
)

// MeshCreated is the first event of every ledger; its entity is the mesh's id.
type MeshCreated struct {
	Name string `json:"name" jsonschema:"description=the mesh's name; also a token of every subject"`
}

// MeshClockStepped records that the writer's clock went back by more than a
// minute: time restarts from the clock.
type MeshClockStepped struct {
	From time.Time `json:"from" jsonschema:"description=the time of the event before"`
	To   time.Time `json:"to" jsonschema:"description=the writer's clock"`
}

// MeshRecovered records that the log lost events that had been acknowledged,
// and that an operator accepted it.
type MeshRecovered struct {
	AnchorSeq   uint64 `json:"anchor_seq" jsonschema:"description=last sequence the anchor had proved"`
	AnchorChain string `json:"anchor_chain" jsonschema:"description=chain value there (64 hexadecimal digits)"`
	FoundSeq    uint64 `json:"found_seq" jsonschema:"description=last sequence found in the log"`
}

// MeshSealed ends a ledger that has moved elsewhere: nothing may follow.
type MeshSealed struct {
	Successor string `json:"successor,omitempty" jsonschema:"description=where the ledger lives now"`
}

func (*MeshCreated) EventType() Type      { return Type{EntityMesh, "created", 1} }
func (*MeshClockStepped) EventType() Type { return Type{EntityMesh, "clock-stepped", 1} }
func (*MeshRecovered) EventType() Type    { return Type{EntityMesh, "recovered", 1} }
func (*MeshSealed) EventType() Type       { return Type{EntityMesh, "sealed", 1} }

func (p *MeshCreated) Check() error { return CheckName(p.Name) }

func (p *MeshClockStepped) Check() error {
	if !p.To.Before(p.From) {
		return errors.New("the clock did not step back")
	}
	return nil
}

func (p *MeshRecovered) Check() error {
	_, err := ParseChain(p.AnchorChain)
	return err
}

func (p *MeshSealed) Check() error { return CheckNoSecret(p.Successor) }

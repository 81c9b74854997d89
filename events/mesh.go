package events

import (
	"cmp"
	"encoding/json"
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

// MeshRecovered records that the log lost events that had been acknowledged, or
// holds messages that none of its writers appended, and that an operator accepted it.
type MeshRecovered struct {
	AnchorSeq   uint64 `json:"anchor_seq" jsonschema:"description=last sequence the anchor had proved"`
	AnchorChain string `json:"anchor_chain" jsonschema:"description=chain value there (64 hexadecimal digits)"`
	FoundSeq    uint64 `json:"found_seq" jsonschema:"description=last sequence found in the log"`
	Skipped     uint64 `json:"skipped,omitempty" jsonschema:"description=how many messages before it are no part of the ledger and were not acknowledged yet"`
}

// MeshSealed ends a ledger that has moved elsewhere: nothing may follow.
type MeshSealed struct {
	Successor string `json:"successor,omitempty" jsonschema:"description=where the ledger lives now"`
}

// EventType implements Payload, for each type of this file.
func (*MeshCreated) EventType() Type      { return Type{EntityMesh, "created", 1} }
func (*MeshClockStepped) EventType() Type { return Type{EntityMesh, "clock-stepped", 1} }
func (*MeshRecovered) EventType() Type    { return Type{EntityMesh, "recovered", 1} }
func (*MeshSealed) EventType() Type       { return Type{EntityMesh, "sealed", 1} }

// Check implements Payload, for each type of this file.
func (p *MeshCreated) Check() error { return CheckName(p.Name) }

func (p *MeshClockStepped) Check() error {
	if err := cmp.Or(Moment(p.From).check(), Moment(p.To).check()); err != nil {
		return err
	}
	if !p.To.Before(p.From) {
		return errors.New("the clock did not step back")
	}
	return nil
}

// clockStepped is MeshClockStepped as it is written: with times spelt as in the
// envelope, since encoding/json's own vary in zone and decimals.
type clockStepped struct {
	From Moment `json:"from"`
	To   Moment `json:"to"`
}

// MarshalJSON implements json.Marshaler.
func (p MeshClockStepped) MarshalJSON() ([]byte, error) {
	return json.Marshal(clockStepped{Moment(p.From), Moment(p.To)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *MeshClockStepped) UnmarshalJSON(b []byte) error {
	var c clockStepped
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	*p = MeshClockStepped{From: time.Time(c.From), To: time.Time(c.To)}
	return nil
}

func (p *MeshRecovered) Check() error {
	_, err := ParseChain(p.AnchorChain)
	return err
}

func (p *MeshSealed) Check() error {
	return cmp.Or(CheckNoSecret(p.Successor), checkText("successor", p.Successor, MaxReason))
}

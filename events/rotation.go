package events

import (
	"cmp"
	"errors"
)

// RotationStarted begins to replace the credentials that are live at one target
// when it is written, or those of them that Binding and IssuedBefore leave. It
// asks for a new credential for each binding that is decided on the target, uses
// one of those, and has no open ask; the sequence of this event is the
// generation asked for.
type RotationStarted struct {
	Target       Target `json:"target"`
	Binding      ID     `json:"binding,omitzero" jsonschema:"description=this binding's credentials alone; always there where the target is embedded"`
	IssuedBefore uint64 `json:"issued_before,omitempty" jsonschema:"description=only credentials issued at a lower sequence"`
	Deadline     Moment `json:"deadline,omitzero" jsonschema:"description=when it is overdue"`
	Urgent       bool   `json:"urgent,omitempty" jsonschema:"description=a credential may be revoked as soon as the next one is issued"`
	Members      uint64 `json:"members" jsonschema:"description=how many credentials it is about"`
}

// RotationUrged makes a rotation urgent.
type RotationUrged struct{}

// RotationCompleted says that every credential of the rotation is revoked,
// written off or gone.
type RotationCompleted struct{}

// RotationAborted ends a rotation before that. Its own asks are withdrawn where
// the binding has a live credential in use.
type RotationAborted struct{}

// EventType implements Payload, for each type of this file.
func (*RotationStarted) EventType() Type   { return Type{EntityRotation, "started", 1} }
func (*RotationUrged) EventType() Type     { return Type{EntityRotation, "urged", 1} }
func (*RotationCompleted) EventType() Type { return Type{EntityRotation, "completed", 1} }
func (*RotationAborted) EventType() Type   { return Type{EntityRotation, "aborted", 1} }

// Check implements Payload, for each type of this file.
func (p *RotationStarted) Check() error {
	switch {
	case p.Target.IsZero():
		return errors.New("a rotation of nothing")
	case p.Target.Embedded && p.Binding.IsZero():
		return errors.New("an embedded target without its binding")
	}
	return cmp.Or(p.Target.check(), p.Deadline.check())
}

func (*RotationUrged) Check() error     { return nil }
func (*RotationCompleted) Check() error { return nil }
func (*RotationAborted) Check() error   { return nil }

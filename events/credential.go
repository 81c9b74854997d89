package events

import (
	"cmp"
	"errors"
)

// The events of a credential stand under the id of the binding that uses it; a
// credential itself is told from the binding's others by its generation: the
// sequence of the event that asked for it (binding.bound, binding.rebound,
// credential.requested or rotation.started). What it logs in to was fixed by
// that event.

// CredentialRequested asks for a new credential of a binding, in place of an
// ask that is still open.
type CredentialRequested struct {
	Target Target `json:"target" jsonschema:"description=what the credential shall log in to: what the binding is decided on"`
}

// CredentialIssued answers an ask: the credential exists at its target and its
// secret lies where the reference leads.
type CredentialIssued struct {
	Generation uint64    `json:"generation"`
	SecretRef  SecretRef `json:"secret_ref"`
}

// CredentialFailed says that the provider side could not issue or revoke a
// credential; why stands in ce-reason.
type CredentialFailed struct {
	Generation uint64 `json:"generation"`
	Attempts   uint64 `json:"attempts" jsonschema:"description=how often it has been tried"`
}

// CredentialRevoked says that a credential logs in to its target no longer.
type CredentialRevoked struct {
	Generation uint64 `json:"generation"`
	Forced     bool   `json:"forced,omitempty" jsonschema:"description=it was not replaced yet"`
}

// CredentialWrittenOff gives up on revoking a credential: why stands in
// ce-reason.
type CredentialWrittenOff struct {
	Generation uint64 `json:"generation"`
	Forced     bool   `json:"forced,omitempty" jsonschema:"description=it was not replaced yet\\, and its provider was not retired"`
}

// EventType implements Payload, for each type of this file.
func (*CredentialRequested) EventType() Type  { return Type{EntityCredential, "requested", 1} }
func (*CredentialIssued) EventType() Type     { return Type{EntityCredential, "issued", 1} }
func (*CredentialFailed) EventType() Type     { return Type{EntityCredential, "failed", 1} }
func (*CredentialRevoked) EventType() Type    { return Type{EntityCredential, "revoked", 1} }
func (*CredentialWrittenOff) EventType() Type { return Type{EntityCredential, "written-off", 1} }

// Check implements Payload, for each type of this file.
func (p *CredentialRequested) Check() error {
	if p.Target.IsZero() {
		return errors.New("a credential for nothing")
	}
	return p.Target.check()
}

func (p *CredentialIssued) Check() error {
	return cmp.Or(checkGeneration(p.Generation), CheckSecretRef(string(p.SecretRef)))
}

func (p *CredentialFailed) Check() error {
	if p.Attempts == 0 {
		return errors.New("a failure of no attempt")
	}
	return checkGeneration(p.Generation)
}

func (p *CredentialRevoked) Check() error    { return checkGeneration(p.Generation) }
func (p *CredentialWrittenOff) Check() error { return checkGeneration(p.Generation) }

func checkGeneration(g uint64) error {
	if g == 0 {
		return errors.New("no generation")
	}
	return nil
}

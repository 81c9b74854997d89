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
//
// Who made the login is on record, since nobody else can be relied on to end it: an
// agent's hook, or somebody by hand. Events of before neither was told have neither.
type CredentialIssued struct {
	Generation uint64    `json:"generation"`
	SecretRef  SecretRef `json:"secret_ref"`
	Login      *Login    `json:"login,omitempty" jsonschema:"description=what it logs in as\\, where that is known"`
	Maker      *Maker    `json:"maker,omitempty" jsonschema:"description=the agent and the hook that made it"`
	ByHand     bool      `json:"by_hand,omitempty" jsonschema:"description=somebody made it who is no agent"`
}

// CredentialLoginTold says what a credential that was made by hand logs in as.
type CredentialLoginTold struct {
	Generation uint64 `json:"generation"`
	Login      Login  `json:"login"`
}

// CredentialFailed says that the provider side could not issue or revoke a
// credential; why stands in ce-reason.
type CredentialFailed struct {
	Generation uint64 `json:"generation"`
	Attempts   uint64 `json:"attempts" jsonschema:"description=how often it has been tried"`
	Operator   bool   `json:"operator,omitempty" jsonschema:"description=trying again does not help: an operator has to see to it"`
}

// CredentialRevoked says that a credential logs in to its target no longer.
type CredentialRevoked struct {
	Generation uint64 `json:"generation"`
	Forced     bool   `json:"forced,omitempty" jsonschema:"description=it was not replaced yet"`
	Did        Did    `json:"did,omitempty" jsonschema:"description=what was done: the login was dropped\\, or was absent"`
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
func (*CredentialLoginTold) EventType() Type  { return Type{EntityCredential, "login-told", 1} }
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
	if p.ByHand && p.Maker != nil {
		return errors.New("made by hand, and by an agent")
	}
	return cmp.Or(checkGeneration(p.Generation), CheckSecretRef(string(p.SecretRef)), p.Login.check(), p.Maker.check())
}

func (p *CredentialLoginTold) Check() error {
	return cmp.Or(checkGeneration(p.Generation), p.Login.check())
}

func (p *CredentialFailed) Check() error {
	if p.Attempts == 0 {
		return errors.New("a failure of no attempt")
	}
	return checkGeneration(p.Generation)
}

func (p *CredentialRevoked) Check() error {
	return cmp.Or(checkGeneration(p.Generation), p.Did.check())
}

func (p *CredentialWrittenOff) Check() error { return checkGeneration(p.Generation) }

func checkGeneration(g uint64) error {
	if g == 0 {
		return errors.New("no generation")
	}
	return nil
}

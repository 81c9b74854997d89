package events

import (
	"cmp"
	"errors"
	"regexp"
)

// Role is what somebody may do with the ledger.
type Role string

// The roles.
const (
	RoleOperator Role = "operator" // all commands
	RoleAgent    Role = "agent"    // acknowledges for what is on its node, and reads what concerns it
	RoleAuditor  Role = "auditor"  // reads
	RoleWriter   Role = "writer"   // proves commands of a ledger on a server, and may ask nothing
)

var allRoles = []Role{RoleOperator, RoleAgent, RoleAuditor, RoleWriter}

// Roles lists the roles.
func Roles() []Role { return append([]Role{}, allRoles...) }

// AccessGranted lets whoever has the secret half of a key do what a role may.
type AccessGranted struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	Node ID     `json:"node,omitzero" jsonschema:"description=of an agent: its node"`
	NKey string `json:"nkey" jsonschema:"description=the public key"`
}

// AccessRevoked ends a grant.
type AccessRevoked struct{}

// EventType implements Payload, for each type of this file.
func (*AccessGranted) EventType() Type { return Type{EntityAccess, "granted", 1} }
func (*AccessRevoked) EventType() Type { return Type{EntityAccess, "revoked", 1} }

// Check implements Payload, for each type of this file.
func (p *AccessGranted) Check() error {
	if err := cmp.Or(CheckName(p.Name), oneOf("role", p.Role, allRoles...), CheckNKey(p.NKey)); err != nil {
		return err
	}
	if (p.Role == RoleAgent) == p.Node.IsZero() {
		return errors.New("an agent has a node, and nobody else has")
	}
	return nil
}

func (*AccessRevoked) Check() error { return nil }

var nkeyForm = regexp.MustCompile(`^U[A-Z2-7]{55}$`)

// CheckNKey reports whether s looks like the public nkey of a user: U and 55 of
// base32. Its checksum is not looked at.
func CheckNKey(s string) error {
	if err := CheckNoSecret(s); err != nil {
		return err
	}
	if !nkeyForm.MatchString(s) {
		return errors.New("the key is not the public nkey of a user: U and 55 of A-Z and 2-7")
	}
	return nil
}

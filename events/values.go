package events

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
)

// Scope is how many providers a provision may have.
type Scope string

// The scopes.
const (
	ScopeNode Scope = "node" // any number of providers
	ScopeMesh Scope = "mesh" // at most one active provider in the mesh
)

// Credentials says whether a provision's consumers log in with a credential of
// their own.
type Credentials string

// The kinds of credentials.
const (
	CredentialsManaged Credentials = "managed" // asked for, issued, acknowledged, revoked
	CredentialsNone    Credentials = "none"
)

// Rule is what decided a binding.
type Rule string

// The rungs of the resolution ladder, in their order, and the two rules that
// are no rung: an embed nobody overrides, and a drain.
const (
	RuleOverride    Rule = "override"
	RuleAssignment  Rule = "assignment"
	RuleModule      Rule = "module"
	RuleMeshScope   Rule = "mesh-scope"
	RuleNodeDefault Rule = "node-default"
	RuleCoLocated   Rule = "co-located"
	RuleMeshDefault Rule = "mesh-default"

	RuleEmbedded Rule = "embedded"
	RuleDrain    Rule = "drain"
)

// Rules lists every rule, the ladder's rungs first and in order.
func Rules() []Rule {
	return []Rule{RuleOverride, RuleAssignment, RuleModule, RuleMeshScope, RuleNodeDefault, RuleCoLocated,
		RuleMeshDefault, RuleEmbedded, RuleDrain}
}

// Because is why a module ships its own instance.
type Because string

// The reasons to embed.
const (
	BecauseFork      Because = "fork"
	BecauseVersion   Because = "version"
	BecauseExtension Because = "extension"
)

// Every value of each, for the checks and the schemas.
var (
	allScopes      = []Scope{ScopeNode, ScopeMesh}
	allCredentials = []Credentials{CredentialsManaged, CredentialsNone}
	allRules       = Rules()
	allBecause     = []Because{BecauseFork, BecauseVersion, BecauseExtension}
)

// Target is what serves a slot: a provider, or the slot's own embedded
// instance, or (the zero Target) nothing yet.
type Target struct {
	Provider ID   `json:"provider,omitzero"`
	Embedded bool `json:"embedded,omitempty"`
}

// IsZero reports whether nothing serves the slot.
func (t Target) IsZero() bool { return t == Target{} }

func (t Target) check() error {
	if t.Embedded && !t.Provider.IsZero() {
		return errors.New("target is both a provider and embedded")
	}
	return nil
}

// Moment is an instant in a payload, spelt as ce-time is: encoding/json's own
// spelling varies in zone and decimals.
type Moment time.Time

// IsZero reports whether there is none.
func (m Moment) IsZero() bool { return time.Time(m).IsZero() }

// Equal reports whether both are the same instant.
func (m Moment) Equal(o Moment) bool { return time.Time(m).Equal(time.Time(o)) }

// MarshalText implements encoding.TextMarshaler.
func (m Moment) MarshalText() ([]byte, error) {
	return time.Time(m).UTC().AppendFormat(nil, timeLayout), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Moment) UnmarshalText(b []byte) error {
	v, err := parseTime(string(b))
	*m = Moment(v)
	return err
}

// check reports what ce-time could not spell.
func (m Moment) check() error {
	if t := time.Time(m); !t.Equal(Instant(t)) || t.Year() < 0 || t.Year() > 9999 {
		return errors.New("a time is not in whole milliseconds, or not of the years 0 to 9999")
	}
	return nil
}

// MaxVersion is the greatest length of a version or a constraint in bytes.
const MaxVersion = 64

// CheckVersion reports whether s is a version: one that Semantic Versioning
// 2.0 reads, minor and patch may be missing ("16", "16.4").
func CheckVersion(s string) error {
	if len(s) > MaxVersion {
		return fmt.Errorf("version is %d bytes long; at most %d are allowed", len(s), MaxVersion)
	}
	if err := CheckNoSecret(s); err != nil {
		return err
	}
	if _, err := semver.NewVersion(s); err != nil {
		return fmt.Errorf("version %q is not like 16, 16.4 or 16.4.1 (Semantic Versioning 2.0)", s)
	}
	return nil
}

// CheckConstraint reports whether s constrains versions: ">=14", "14.x",
// ">=14 <17", "^8.0 || ^9.0".
func CheckConstraint(s string) error {
	if err := cmp.Or(CheckNoSecret(s), checkText("version constraint", s, MaxVersion)); err != nil {
		return err
	}
	if _, err := semver.NewConstraint(s); err != nil {
		return fmt.Errorf("version constraint %q is not like >=14, 14.x or >=14 <17", s)
	}
	return nil
}

// MaxFeatures is the greatest number of features of one provider or need.
const MaxFeatures = 100

var featureForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// CheckFeatures reports whether f is a set of features: each 1 to 63 of
// a-z 0-9 . _ -, sorted, none twice.
func CheckFeatures(f []string) error {
	if len(f) > MaxFeatures {
		return fmt.Errorf("%d features; at most %d are allowed", len(f), MaxFeatures)
	}
	for i, s := range f {
		if !featureForm.MatchString(s) {
			return fmt.Errorf("feature %q is not 1 to 63 of a-z 0-9 . _ -, beginning with a letter or a digit", clip(s))
		}
		if i > 0 && f[i-1] >= s {
			return fmt.Errorf("features are not sorted or not distinct at %q", s)
		}
	}
	return nil
}

// SortFeatures returns f sorted and without repetition, as payloads hold it;
// never nil, which in ProviderUpdated would say nothing.
func SortFeatures(f []string) []string {
	out := append(make([]string, 0, len(f)), f...)
	slices.Sort(out)
	return slices.Compact(out)
}

// checkNames is CheckName over the names of one payload.
func checkNames(names ...string) error {
	for _, n := range names {
		if err := CheckName(n); err != nil {
			return err
		}
	}
	return nil
}

// checkID reports a missing id of a what.
func checkID(what string, id ID) error {
	if id.IsZero() {
		return fmt.Errorf("no %s id", what)
	}
	return nil
}

func oneOf[T ~string](what string, v T, allowed ...T) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	all := make([]string, len(allowed))
	for i, a := range allowed {
		all[i] = string(a)
	}
	return fmt.Errorf("%s is %q, not one of %s", what, clip(string(v)), strings.Join(all, ", "))
}

package events

import (
	"fmt"
	"strings"
)

// MaxName is the greatest length of a name in bytes: a DNS label (RFC 1035
// section 2.3.4), since names end up in host names, paths and subjects.
const MaxName = 63

// reservedNames can be no entity's name. Appending to the list needs a new
// format version: a ledger that already holds such a name must still be read.
var reservedNames = map[string]bool{
	"all": true, "any": true, "default": true, "embedded": true, "none": true, "pending": true, "self": true,
}

// ReservedNames lists the names no entity may bear, in alphabetical order.
func ReservedNames() []string { return sortedKeys(reservedNames) }

// NameError says why a name cannot be one.
type NameError struct {
	Name     string // as given, shortened
	Why      string
	Suggest  string // the nearest valid name, or empty
	Reserved bool   // well formed, but reserved
}

func (e *NameError) Error() string { return fmt.Sprintf("name %q %s", e.Name, e.Why) }

// CheckName reports whether s can name an entity: ^[a-z][a-z0-9-]{0,62}$, not
// ending in "-", not reserved. It returns a *NameError otherwise. Nothing is
// folded: PG-A is refused, and pg-a is suggested.
func CheckName(s string) error {
	why := nameFault(s)
	if why == "" {
		if reservedNames[s] {
			return &NameError{Name: s, Why: "is reserved", Reserved: true}
		}
		return nil
	}
	if CheckNoSecret(s) != nil {
		return &NameError{Name: "(not shown)", Why: why}
	}
	e := &NameError{Name: clip(s), Why: why}
	if c := nearestName(s); c != s && nameFault(c) == "" && !reservedNames[c] {
		e.Suggest = c
	}
	return e
}

func nameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > MaxName:
		return fmt.Sprintf("is %d bytes long; at most %d are allowed", len(s), MaxName)
	case s[0] < 'a' || s[0] > 'z':
		return "does not begin with a letter a-z"
	case s[len(s)-1] == '-':
		return "ends in '-'"
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-') {
			return fmt.Sprintf("has the character %q; only a-z, 0-9 and '-' are allowed", r)
		}
	}
	return ""
}

// nearestName is what somebody who typed s may have meant: lower case, with
// '-' for what is not allowed.
func nearestName(s string) string {
	if len(s) > MaxName {
		s = s[:MaxName]
	}
	mapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, s)
	return strings.Trim(mapped, "-")
}

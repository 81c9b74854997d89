package events

import (
	"errors"
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"
)

// ID is the identity of an entity, an event or a command: a ULID
// (https://github.com/ulid/spec), 16 bytes in memory and 26 upper-case
// Crockford base32 characters in text. The zero ID means "none" and is never
// minted.
type ID ulid.ULID

// IDLen is the length of an ID's text form in characters.
const IDLen = ulid.EncodedSize

var (
	errLowerCase = errors.New("not in upper case")
	errZeroID    = errors.New("the zero id stands for none and is never written")
)

// ParseID reads the canonical text form: 26 characters, upper case only, so
// that one id has one spelling in subjects, headers and payloads. The zero ID
// has no spelling: a field without an id is absent.
func ParseID(s string) (ID, error) {
	u, err := ulid.ParseStrict(s)
	switch {
	case err != nil:
	case u.IsZero():
		err = errZeroID
	case hasByte(s, 'a', 'z'):
		err = errLowerCase
	default:
		return ID(u), nil
	}
	// The clone keeps s itself off the heap, also for UnmarshalText: a rebuild
	// parses several ids an event.
	return ID{}, fmt.Errorf("id %q: %w", clip(strings.Clone(s)), err)
}

func hasByte(s string, from, to byte) bool {
	for i := range len(s) {
		if s[i] >= from && s[i] <= to {
			return true
		}
	}
	return false
}

// String returns the 26-character text form.
func (id ID) String() string { return ulid.ULID(id).String() }

// IsZero reports whether id is the zero ID, "none".
func (id ID) IsZero() bool { return id == ID{} }

// Milli is the instant in the id, in milliseconds since the Unix epoch.
func (id ID) Milli() int64 { return int64(ulid.ULID(id).Time()) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return ulid.ULID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler; it is as strict as ParseID.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := ParseID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}

// clip shortens a value of unknown origin for an error message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

package events

import (
	"fmt"

	"github.com/oklog/ulid/v2"
)

// ID is the identity of an entity, an event or a command: a ULID
// (https://github.com/ulid/spec), 16 bytes in memory and 26 upper-case
// Crockford base32 characters in text. The zero ID means "none" and is never
// minted.
type ID ulid.ULID

// IDLen is the length of an ID's text form in characters.
const IDLen = ulid.EncodedSize

// ParseID reads the canonical text form: 26 characters, upper case only, so
// that one id has one spelling in subjects, headers and payloads.
func ParseID(s string) (ID, error) {
	u, err := ulid.ParseStrict(s)
	if err != nil {
		return ID{}, fmt.Errorf("id %q: %w", clip(s), err)
	}
	for i := range len(s) {
		if s[i] >= 'a' && s[i] <= 'z' {
			return ID{}, fmt.Errorf("id %q: not in upper case", s)
		}
	}
	return ID(u), nil
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

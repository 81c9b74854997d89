package events

import (
	"fmt"
	"slices"
	"strings"
)

// Record is an event as it lies in the stream: the bytes another
// implementation would see.
type Record struct {
	Seq     uint64 // the stream's sequence; of a record not yet stored, the one it must get
	Subject string
	Header  map[string][]string // nats.Header's underlying type, so that neither side copies
	Data    []byte              // the JSON payload
}

// Get returns the single value of name, or "" where it is absent. Reading
// strictly is the codec's work; this is for looking at one field.
func (r *Record) Get(name string) string {
	if v := r.Header[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// Group is what one command wrote, in order: folded whole or not at all.
type Group []Record

// SubjectRoot is the first token of every event's subject.
const SubjectRoot = "bindery"

// StreamSubjects is the filter of a mesh's stream.
func StreamSubjects(mesh string) string { return SubjectRoot + "." + mesh + ".>" }

// SubjectFor builds bindery.<mesh>.<entity>.<ulid>.<event>.
func SubjectFor(mesh string, t Type, id ID) string {
	return SubjectRoot + "." + mesh + "." + string(t.Entity) + "." + id.String() + "." + t.Name
}

// ParseSubject takes a subject apart; the type it returns has no version (the
// ce-type header has it).
func ParseSubject(s string) (mesh string, t Type, id ID, err error) {
	var tok [5]string
	rest := s
	for i := range tok {
		var found bool
		tok[i], rest, found = strings.Cut(rest, ".")
		if tok[i] == "" || found != (i < len(tok)-1) {
			return "", Type{}, ID{}, fmt.Errorf("subject %q: not of five tokens", clip(s))
		}
	}
	if tok[0] != SubjectRoot {
		return "", Type{}, ID{}, fmt.Errorf("subject %q: begins with %q, not with %q", clip(s), clip(tok[0]), SubjectRoot)
	}
	if err = CheckName(tok[1]); err != nil {
		return "", Type{}, ID{}, fmt.Errorf("subject %q: mesh: %w", clip(s), err)
	}
	if id, err = ParseID(tok[3]); err != nil {
		return "", Type{}, ID{}, fmt.Errorf("subject %q: %w", clip(s), err)
	}
	return tok[1], Type{Entity: Entity(tok[2]), Name: tok[4]}, id, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

package projections

import (
	"encoding/binary"
	"encoding/hex"

	"bindery/events"
)

// A tag is the first four bytes of the chain value at an ask. A ledger that has
// lost its tail gives sequences out again: a generation alone may then be another
// one than it was, a generation and its tag are not.
type tag uint32

func tagOf(c events.Chain) tag { return tag(binary.BigEndian.Uint32(c[:])) }

func (t tag) String() string {
	return hex.EncodeToString(binary.BigEndian.AppendUint32(nil, uint32(t)))
}

// Tag is the first eight hexadecimal digits of the chain value at the event that
// asked for c.
func (s *State) Tag(c *Credential) string { return c.tag.String() }

// Tagged puts the chain values of a command's events on record where they asked
// for credentials. A decision folds its events before they have any; Apply needs
// no help.
func (s *State) Tagged(evs []events.Event) {
	for i := range evs {
		e := &evs[i]
		switch e.Data.(type) {
		case *events.BindingBound, *events.BindingRebound, *events.CredentialRequested:
			if r, ok := s.byID[e.Entity]; ok && r.kind == kBinding {
				if c := s.CredentialOf(BindingRef(r.index), e.Seq); c != 0 {
					set(&s.j, &s.Credential(c).tag, tagOf(e.Chain))
				}
			}
		case *events.RotationStarted:
			if r, ok := s.byID[e.Entity]; ok && r.kind == kRotation {
				set(&s.j, &s.rotations.at(r.index).tag, tagOf(e.Chain))
			}
		}
	}
}

package projections

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"bindery/events"
)

// A snapshot is a state in a form of our own: what can be worked out from the rest
// is left out. It begins with a line that names it and the version of its form, then
// tells which state it is (mesh, sequence, chain value, time), and ends with the
// SHA-256 of everything before.

// SnapshotVersion is the version of the snapshots that this program writes, and the
// only one it reads. It is raised with every change of what stands in one, and of
// what the fold makes of events that were written before: a snapshot is thrown away,
// a wrong answer is not.
const SnapshotVersion = 2

const snapshotMagic = "bindery snapshot\n"

// snapshotHead is how long what names a snapshot and its version is, in bytes.
const snapshotHead = len(snapshotMagic) + 4

// SnapshotError says why something is no snapshot, or not a whole one.
type SnapshotError struct{ Why string }

func (e *SnapshotError) Error() string { return "not a snapshot: " + e.Why }

// SnapshotVersionError says that a snapshot has another version than
// SnapshotVersion.
type SnapshotVersionError struct{ Version uint32 }

func (e *SnapshotVersionError) Error() string {
	return fmt.Sprintf("the snapshot has version %d, this program reads %d", e.Version, SnapshotVersion)
}

// Newer reports whether a later program wrote it.
func (e *SnapshotVersionError) Newer() bool { return e.Version > SnapshotVersion }

// CheckSnapshot reads as much of a snapshot as tells whether this program could load
// it: nil, a *SnapshotVersionError, a *SnapshotError, or an error of r.
func CheckSnapshot(r io.Reader) error {
	head := make([]byte, snapshotHead)
	if n, err := io.ReadFull(r, head); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	} else if err != nil || string(head[:n-4]) != snapshotMagic {
		return &SnapshotError{"it does not begin as one"}
	}
	if v := binary.BigEndian.Uint32(head[len(snapshotMagic):]); v != SnapshotVersion {
		return &SnapshotVersionError{v}
	}
	return nil
}

// Snapshot writes the state. It must be at the border of a command, with nothing to
// be taken back. One state has one snapshot, byte by byte.
func (s *State) Snapshot(w io.Writer) error {
	if s.inside != (inside{}) || len(s.j.undo) > 0 {
		return errors.New("projections: a snapshot within a command")
	}
	x := newArchive(w, nil)
	x.put(binary.BigEndian.AppendUint32([]byte(snapshotMagic), SnapshotVersion))
	x.state(s)
	return x.seal()
}

// Load reads what Snapshot wrote, to the end of r. The state gives every answer that
// the one which was written gave, now and after the same events. The error is a
// *SnapshotError, a *SnapshotVersionError, or one of r.
func Load(r io.Reader) (*State, error) {
	x := newArchive(nil, r)
	head := x.take(snapshotHead)
	if x.err != nil {
		return nil, x.err
	}
	if err := CheckSnapshot(bytes.NewReader(head)); err != nil {
		return nil, err
	}
	s := New()
	x.state(s)
	if err := x.unseal(); err != nil {
		return nil, err
	}
	if err := s.derive(); err != nil {
		return nil, &SnapshotError{err.Error()}
	}
	return s, nil
}

// derive works out what a snapshot leaves out: where things are found by id and by
// name, where they stand in lists, and texts that were parsed.
func (s *State) derive() error {
	if err := s.deriveIDs(); err != nil {
		return err
	}
	for i, name := range s.slotNames {
		s.slotKeys[name] = uint32(i)
	}
	for i := 1; i <= s.providers.len(); i++ {
		p := s.providers.at(uint32(i))
		p.version = parseVersion(p.Version)
		if p.State != Retired {
			s.endpoints[endpointKey{p.Provision, p.Endpoint}] = ProviderRef(i)
		}
	}
	for i := 1; i <= s.grants.len(); i++ {
		if g := s.grants.at(uint32(i)); !g.Revoked {
			s.grantKeys[g.Key] = GrantRef(i)
		}
	}
	for i := 1; i <= s.modules.len(); i++ {
		m := s.modules.at(uint32(i))
		var err error
		if m.Slots, err = s.slotsOf(m.Decl); err != nil {
			return err
		}
	}
	s.deriveNames()
	return s.derivePlaces()
}

// deriveIDs finds everything by its id.
func (s *State) deriveIDs() error {
	want := 0
	for _, n := range [...]int{s.nodes.len(), s.provisions.len(), s.providers.len(), s.modules.len(), s.assignments.len(),
		s.bindings.len(), s.overrides.len(), s.rotations.len(), s.grants.len()} {
		want += n
	}
	s.byID = make(map[events.ID]ref, want)
	byID(s, &s.nodes, kNode, func(v *Node) events.ID { return v.ID })
	byID(s, &s.provisions, kProvision, func(v *Provision) events.ID { return v.ID })
	byID(s, &s.providers, kProvider, func(v *Provider) events.ID { return v.ID })
	byID(s, &s.modules, kModule, func(v *Module) events.ID { return v.ID })
	byID(s, &s.assignments, kAssignment, func(v *Assignment) events.ID { return v.ID })
	byID(s, &s.bindings, kBinding, func(v *Binding) events.ID { return v.ID })
	byID(s, &s.overrides, kOverride, func(v *Override) events.ID { return v.ID })
	byID(s, &s.rotations, kRotation, func(v *Rotation) events.ID { return v.ID })
	byID(s, &s.grants, kGrant, func(v *Grant) events.ID { return v.ID })
	if len(s.byID) != want {
		return errors.New("an id is there twice")
	}
	return nil
}

func byID[T any](s *State, a *arena[T], k kind, id func(*T) events.ID) {
	for i := uint32(1); i <= uint32(a.len()); i++ {
		s.byID[id(a.at(i))] = ref{k, i}
	}
}

// deriveNames finds what is live by its name, and the assignments that bore one to
// their end, in the order of their ends.
func (s *State) deriveNames() {
	for k, n := range [...]int{kNode: s.nodes.len(), kProvision: s.provisions.len(), kProvider: s.providers.len(),
		kModule: s.modules.len(), kAssignment: s.assignments.len(), kGrant: s.grants.len()} {
		live := make(map[string]uint32, n)
		for i := uint32(1); i <= uint32(n); i++ {
			if name, _ := s.liveName(kind(k), i); name != "" {
				live[name] = i
			}
		}
		s.names[k].live = live
	}
	ended := s.names[kAssignment].ended
	for i := uint32(1); i <= uint32(s.assignments.len()); i++ {
		if a := s.assignments.at(i); a.Ended {
			ended[a.Name] = append(ended[a.Name], i)
		}
	}
	for _, who := range ended {
		slices.SortFunc(who, func(a, b uint32) int { return cmp.Compare(s.assignments.at(a).Seq, s.assignments.at(b).Seq) })
	}
}

// derivePlaces notes where things stand in the lists of others.
func (s *State) derivePlaces() error {
	for i := 1; i <= s.nodes.len(); i++ {
		n := s.nodes.at(uint32(i))
		note(n.Providers, func(r ProviderRef) *uint32 { return &s.Provider(r).posInNode })
		note(n.Assignments, func(r AssignmentRef) *uint32 { return &s.Assignment(r).posInNode })
	}
	for i := 1; i <= s.provisions.len(); i++ {
		note(s.provisions.at(uint32(i)).Providers, func(r ProviderRef) *uint32 { return &s.Provider(r).posInProvision })
	}
	for i := 1; i <= s.modules.len(); i++ {
		note(s.modules.at(uint32(i)).Assignments, func(r AssignmentRef) *uint32 { return &s.Assignment(r).posInModule })
	}
	live := func(h *Holders) {
		note(h.Live, func(r CredentialRef) *uint32 { return &s.Credential(r).pos })
		for _, r := range h.Live {
			s.Binding(s.Credential(r).Binding).live++
		}
	}
	for _, h := range s.instances {
		live(h)
	}
	for i := 1; i <= s.providers.len(); i++ {
		p := s.providers.at(uint32(i))
		note(p.Bindings, func(r BindingRef) *uint32 { return &s.Binding(r).pos })
		note(p.Choices, func(r BindingRef) *uint32 { return &s.Binding(r).choicePos })
		live(&p.Holders)
		for _, r := range slices.Concat(p.Overrides, p.Memories) {
			if s.Binding(r).Override == 0 {
				return errors.New("an override is listed that does not stand")
			}
		}
		note(p.Overrides, func(r BindingRef) *uint32 { return &s.Override(s.Binding(r).Override).pos })
		note(p.Memories, func(r BindingRef) *uint32 { return &s.Override(s.Binding(r).Override).underPos })
	}
	return nil
}

// note notes the place of each element of a list.
func note[T any](l []T, place func(T) *uint32) {
	for i, r := range l {
		*place(r) = uint32(i)
	}
}

package projections

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"bindery/events"

	"pgregory.net/rapid"
)

// smallState is a node, a provider, a module and a consumer, with a credential that
// is issued and a command that is remembered.
func smallState(t testing.TB) *State {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	id := func(n uint64) events.ID { return idAt(at, n) }
	s := New()
	for i, p := range []struct {
		entity  events.ID
		payload events.Payload
	}{
		{id(1), &events.MeshCreated{Name: "home"}},
		{id(2), &events.NodeRegistered{Name: "alpha"}},
		{id(3), &events.ProvisionDefined{Name: "pg", Scope: events.ScopeNode, Credentials: events.CredentialsManaged}},
		{id(4), &events.ProviderRegistered{Name: "pg-a", Provision: id(3), Node: id(2), Endpoint: "a:1", Version: "16.4"}},
		{id(5), &events.ModuleDeclared{Name: "wiki", Requires: map[string]events.Requirement{"db": {Provision: id(3), Version: ">=14"}}}},
		{id(6), &events.AssignmentCreated{Name: "wiki", Module: id(5), Node: id(2), Slots: map[string]events.ID{"db": id(7)}}},
		{id(7), &events.BindingBound{Assignment: id(6), Slot: "db", Target: events.Target{Provider: id(4)}, Rule: events.RuleCoLocated}},
		{id(7), &events.CredentialIssued{Generation: 7, SecretRef: "file:/srv/wiki/.env"}},
		{id(2), &events.NodeRenamed{From: "alpha", To: "omega"}},
	} {
		seq := uint64(i + 1)
		e := &events.Event{Envelope: events.Envelope{ID: id(1000 + seq), Mesh: id(1), Time: at.Add(time.Duration(seq) * time.Second), Actor: "ann",
			Command: id(2000 + seq), Origin: events.OriginCommand, K: 1, N: 1},
			Seq: seq, Chain: sha256.Sum256([]byte{byte(seq)}), MeshName: "home", Type: p.payload.EventType(), Entity: p.entity, Data: p.payload}
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func snapshotOf(t testing.TB, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sealed puts the right sum at the end.
func sealed(b []byte) []byte {
	body := bytes.Clone(b[:len(b)-sha256.Size])
	sum := sha256.Sum256(body)
	return append(body, sum[:]...)
}

// Kind: a file that is cut off, changed or of somebody else is taken for a state.
func TestLoadRefuses(t *testing.T) {
	whole := snapshotOf(t, smallState(t))
	if _, err := Load(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	var not *SnapshotError
	for n := range whole {
		if _, err := Load(bytes.NewReader(whole[:n])); !errors.As(err, &not) {
			t.Fatalf("cut off after %d of %d bytes: %v", n, len(whole), err)
		}
	}
	for n := range whole {
		b := bytes.Clone(whole)
		b[n] ^= 0x10
		_, err := Load(bytes.NewReader(b))
		var version *SnapshotVersionError
		if !errors.As(err, &not) && !errors.As(err, &version) {
			t.Fatalf("with byte %d of %d changed: %v", n, len(whole), err)
		}
	}
	if _, err := Load(bytes.NewReader(append(bytes.Clone(whole), 0))); !errors.As(err, &not) {
		t.Errorf("with a byte at its end: %v", err)
	}
	// The reader's own trouble says nothing about the snapshot.
	broken := io.MultiReader(bytes.NewReader(whole[:100]), iotest.ErrReader(io.ErrClosedPipe))
	if _, err := Load(broken); !errors.Is(err, io.ErrClosedPipe) || errors.As(err, &not) {
		t.Errorf("a reader that fails: %v", err)
	}
	// However little comes at once.
	if s, err := Load(iotest.OneByteReader(bytes.NewReader(whole))); err != nil || !bytes.Equal(snapshotOf(t, s), whole) {
		t.Errorf("byte by byte: %v", err)
	}
}

func TestLoadOtherVersions(t *testing.T) {
	for version, newer := range map[uint32]bool{SnapshotVersion - 1: false, SnapshotVersion + 1: true} {
		b := snapshotOf(t, smallState(t))
		binary.BigEndian.PutUint32(b[len(snapshotMagic):], version)
		_, err := Load(bytes.NewReader(sealed(b)))
		var other *SnapshotVersionError
		if !errors.As(err, &other) || other.Version != version || other.Newer() != newer {
			t.Errorf("version %d: %v", version, err)
		}
		if err := CheckSnapshot(bytes.NewReader(b)); !errors.As(err, &other) {
			t.Errorf("version %d looked at: %v", version, err)
		}
	}
}

// A state within a command, or with something to be taken back, is no fold of what
// is durable.
func TestSnapshotWithinACommand(t *testing.T) {
	s := smallState(t)
	mark := s.Begin()
	set(&s.j, &s.live, s.live+1)
	if err := s.Snapshot(io.Discard); err == nil {
		t.Error("a state with something to be taken back has a snapshot")
	}
	s.Rollback(mark)
	s.Commit()
	s.inside = inside{first: 8, next: 1}
	if err := s.Snapshot(io.Discard); err == nil {
		t.Error("a state within a command has a snapshot")
	}
}

// What is remembered of commands, and forgotten, goes on as if nothing had been saved:
// also when it is taken back.
func TestSnapshotCommandMemory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		first := New()
		states, ids := []*State{first}, []events.ID{}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		remember := func(at time.Time) {
			id := idAt(at, uint64(len(ids)))
			ids = append(ids, id)
			for _, s := range states {
				s.commands.remember(&s.j, id, CommandRecord{First: uint64(len(ids)), Last: uint64(len(ids))}, now)
			}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				from := states[rapid.IntRange(0, len(states)-1).Draw(rt, "whose")]
				s, err := Load(bytes.NewReader(snapshotOf(t, from)))
				if err != nil {
					rt.Fatal(err)
				}
				states = append(states, s)
			case 1:
				now = now.Add(CommandMemory / 3)
			case 2:
				var marks []Mark
				for _, s := range states {
					marks = append(marks, s.Begin())
				}
				remember(now)
				remember(now)
				for i, s := range states {
					s.Rollback(marks[i])
					s.Commit()
				}
			default:
				remember(now.Add(-time.Duration(rapid.IntRange(0, 5).Draw(rt, "late")) * time.Minute))
			}
			for _, s := range states {
				s.commands.kept = 3
				for _, id := range ids {
					want, known := first.Remembered(id)
					if got, ok := s.Remembered(id); ok != known || got != want || s.CommandForgotten(id) != first.CommandForgotten(id) {
						rt.Fatalf("%s is remembered as %v (%t), want %v (%t)", id, got, ok, want, known)
					}
				}
			}
		}
	})
}

// What is forgotten gives its room back, also where a snapshot remembered it.
func TestSnapshotCommandsCompact(t *testing.T) {
	s := New()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	add := func(n int, at time.Time) {
		for i := range n {
			s.commands.remember(&s.j, idAt(at, uint64(i)), CommandRecord{First: 1, Last: 1}, at)
		}
		s.Commit()
	}
	add(3000, now)
	var err error
	if s, err = Load(bytes.NewReader(snapshotOf(t, s))); err != nil {
		t.Fatal(err)
	}
	if len(s.commands.saved) != 3000 {
		t.Fatalf("%d are remembered", len(s.commands.saved))
	}
	s.commands.kept = 10
	later := now.Add(2 * CommandMemory)
	add(3000, later)
	add(3000, later.Add(2*CommandMemory))
	if len(s.commands.saved) != 0 || len(s.commands.order) > 5000 {
		t.Errorf("%d and %d are still there", len(s.commands.saved), len(s.commands.order))
	}
	if _, ok := s.Remembered(idAt(now, 5)); ok {
		t.Error("it is remembered still")
	}
}

// FuzzLoad: whatever the bytes, Load returns: with a state that has a snapshot, or
// with an error. Their sum is put right, so that it is the reading which is tried.
func FuzzLoad(f *testing.F) {
	whole := snapshotOf(f, smallState(f))
	f.Add(whole)
	f.Add(snapshotOf(f, New()))
	f.Add([]byte(snapshotMagic))
	for _, at := range []int{25, 60, 100, 150, 200, len(whole) - 60} {
		b := bytes.Clone(whole)
		b[at] ^= 0xff
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= sha256.Size {
			b = sealed(b)
		}
		s, err := Load(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := Load(bytes.NewReader(snapshotOf(t, s)))
		if err != nil || again.Seq != s.Seq {
			t.Fatalf("loaded and saved, it does not load: %v", err)
		}
	})
}

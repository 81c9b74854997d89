package events

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxPayload is the greatest length of a payload in bytes. It leaves a command
// room for several below the server's usual limits.
const MaxPayload = 256 << 10

// ErrTooLarge is wrapped by the error of an Encode whose payload is larger than
// MaxPayload.
var ErrTooLarge = errors.New("the payload is too large")

// ErrChain is wrapped by an error about a record whose stored chain value is
// not the one its bytes and its predecessor give.
var ErrChain = errors.New("the chain is broken")

// Encode writes e as the record that follows the chain value prev, and sets
// e.Chain (and e.Time, should it not be in UTC). Seq, the envelope and Data must
// be set; it returns an error for an event that Decode would not take back, and
// one that wraps ErrSecret for a reason or a value that carries a secret.
func (e *Event) Encode(prev Chain) (Record, error) {
	if err := e.check(); err != nil {
		return Record{}, fmt.Errorf("encoding %s: %w", e.Type, err)
	}
	e.Time = e.Time.UTC()
	data, err := marshal(e.Data)
	if err != nil {
		return Record{}, fmt.Errorf("encoding %s: %w", e.Type, err)
	}
	if len(data) > MaxPayload {
		return Record{}, fmt.Errorf("encoding %s: %w: %d bytes, at most %d are allowed", e.Type, ErrTooLarge, len(data), MaxPayload)
	}
	r := Record{Seq: e.Seq, Subject: SubjectFor(e.MeshName, e.Type, e.Entity), Header: e.header(), Data: data}
	e.Chain = prev.Link(e.Mesh, &r)
	r.Header[hChain] = []string{e.Chain.String()}
	return r, nil
}

func (e *Event) check() error {
	switch {
	case e.Data == nil:
		return errors.New("no payload")
	case e.Type != e.Data.EventType():
		return fmt.Errorf("payload is a %s", e.Data.EventType())
	case e.Seq == 0 || e.ID.IsZero() || e.Mesh.IsZero() || e.Entity.IsZero() || e.Command.IsZero():
		return errors.New("sequence, event, mesh, entity or command id missing")
	case e.Origin != OriginCommand && e.Origin != OriginManifest:
		return fmt.Errorf("origin %q", e.Origin)
	case e.K < 1 || e.K > e.N:
		return fmt.Errorf("batch %d/%d", e.K, e.N)
	case !e.Time.Equal(Instant(e.Time)) || e.Time.IsZero() || e.Time.Year() > 9999:
		return fmt.Errorf("time %s is zero, beyond the year 9999 or not in whole milliseconds", e.Time)
	}
	if err := cmp.Or(CheckActor(e.Actor), CheckReason(e.Reason), CheckName(e.MeshName)); err != nil {
		return err
	}
	if err := e.checkMesh(); err != nil {
		return err
	}
	return e.Data.Check()
}

// checkMesh checks what subject, source and payload say twice about the mesh.
func (e *Event) checkMesh() error {
	if e.Type.Entity == EntityMesh && e.Entity != e.Mesh {
		return fmt.Errorf("%s about %s, in the ledger of mesh %s", e.Type.Short(), e.Entity, e.Mesh)
	}
	if p, ok := e.Data.(*MeshCreated); ok && (e.Seq != 1 || p.Name != e.MeshName) {
		return fmt.Errorf("%s of %q at sequence %d, in the ledger of mesh %q; it opens a ledger, under the mesh's own name",
			e.Type.Short(), clip(p.Name), e.Seq, e.MeshName)
	}
	return nil
}

// marshal writes canonical JSON: fields in the order of the struct, no
// insignificant space, no HTML escapes (">=14" stays readable).
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(256) // most payloads
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Decode reads a stored record strictly: every header there once and in its
// canonical form, the subject in agreement with the type, the payload of its
// declared shape. It does not check the chain (Verify does). The error is
// an *UnknownTypeError for a type of a newer program.
func Decode(r *Record) (Event, error) { return decodeWith(Known, r) }

func decodeWith(reg *Registry, r *Record) (Event, error) {
	e := Event{Seq: r.Seq}
	ceType, err := e.readHeader(r.Header)
	if err != nil {
		return Event{}, fmt.Errorf("event %d: %w", r.Seq, err)
	}
	mesh, short, id, err := ParseSubject(r.Subject)
	if err != nil {
		return Event{}, fmt.Errorf("event %d: %w", r.Seq, err)
	}
	e.MeshName, e.Entity = mesh, id
	if !utf8.Valid(r.Data) { // encoding/json would replace what is not
		return Event{}, fmt.Errorf("event %d: payload of %s: not in UTF-8", r.Seq, ceType)
	}
	if e.Data, e.Type, err = reg.decode(ceType, r.Data); err != nil {
		return Event{}, fmt.Errorf("event %d: %w", r.Seq, err)
	}
	if e.Type.Entity != short.Entity || e.Type.Name != short.Name {
		return Event{}, fmt.Errorf("event %d: subject %q does not fit type %q", r.Seq, r.Subject, ceType)
	}
	if err := cmp.Or(e.checkMesh(), e.Data.Check()); err != nil {
		return Event{}, fmt.Errorf("event %d: payload of %s: %w", r.Seq, ceType, err)
	}
	return e, nil
}

// Verify checks that r follows the chain value prev in the ledger of mesh, and
// returns r's own chain value. Nothing is decoded: it holds for events of a
// newer program, too. A zero mesh is taken from the record, which must then be
// the first of its ledger. The error wraps ErrChain.
func Verify(prev Chain, mesh ID, r *Record) (Chain, error) {
	stored, err := ParseChain(r.Get(hChain))
	if err != nil {
		return Chain{}, fmt.Errorf("event %d: %w: %w", r.Seq, ErrChain, err)
	}
	if mesh.IsZero() {
		if mesh, err = MeshOf(r); err != nil {
			return Chain{}, fmt.Errorf("event %d: %w: %w", r.Seq, ErrChain, err)
		}
	}
	if got := prev.Link(mesh, r); got != stored {
		return Chain{}, fmt.Errorf("event %d: %w: it says %s, its bytes give %s", r.Seq, ErrChain, stored, got)
	}
	return stored, nil
}

// MeshOf reads the mesh's id from a record's source.
func MeshOf(r *Record) (ID, error) { return parseSource(r.Get(hSource)) }

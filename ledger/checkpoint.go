package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"bindery/events"
)

// Checkpoint is what somebody vouched for: that the ledger of a mesh had this
// chain value at this sequence. It is kept where who writes the ledger cannot
// write.
//
// Its text is four lines, each ended by a line feed:
//
//	bindery checkpoint 1
//	<mesh id> <mesh name>
//	<sequence of an event, decimal>
//	<chain value there, 64 lower-case hexadecimal digits>
//
// and has no other spelling. Signed, it is a note of golang.org/x/mod/sumdb/note:
// the text, an empty line, and a line for each signature.
type Checkpoint struct {
	Mesh     events.ID
	MeshName string
	Seq      uint64
	Chain    events.Chain
}

// checkpointHead is the first line.
const checkpointHead = "bindery checkpoint 1"

// String returns the text that is signed.
func (c Checkpoint) String() string {
	return fmt.Sprintf("%s\n%s %s\n%d\n%s\n", checkpointHead, c.Mesh, c.MeshName, c.Seq, c.Chain)
}

// Position is the place in the ledger that the checkpoint is about.
func (c Checkpoint) Position() Position {
	return Position{Seq: c.Seq, Chain: c.Chain, Mesh: c.Mesh}
}

// ParseCheckpoint reads what String writes, and nothing else.
func ParseCheckpoint(text string) (Checkpoint, error) {
	var c Checkpoint
	lines := strings.Split(text, "\n")
	if len(lines) != 5 || lines[0] != checkpointHead || lines[4] != "" {
		return c, fmt.Errorf("reading a checkpoint: not the four lines of a %q", checkpointHead)
	}
	id, name, _ := strings.Cut(lines[1], " ")
	var err error
	if c.Mesh, err = events.ParseID(id); err == nil {
		err = events.CheckName(name)
	}
	if err == nil {
		c.Seq, err = strconv.ParseUint(lines[2], 10, 64)
	}
	if err == nil {
		c.Chain, err = events.ParseChain(lines[3])
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("reading a checkpoint: %w", err)
	}
	c.MeshName = name
	if c.Seq == 0 || c.String() != text {
		return Checkpoint{}, fmt.Errorf("reading a checkpoint: sequence %q is not spelt as one", lines[2])
	}
	return c, nil
}

// Sign returns the signed note of c, with a key that NewSigner of package note
// reads.
func (c Checkpoint) Sign(key string) ([]byte, error) {
	signer, err := note.NewSigner(strings.TrimSpace(key))
	if err != nil {
		return nil, errors.New("signing a checkpoint: the key is no signing key of a note") // its error may show the key
	}
	out, err := note.Sign(&note.Note{Text: c.String()}, signer)
	if err != nil {
		return nil, fmt.Errorf("signing a checkpoint: %w", err)
	}
	return out, nil
}

// ErrUnverified is wrapped by the error about a checkpoint that none of the given
// keys has signed.
var ErrUnverified = errors.New("none of the given keys has signed it")

// ErrBadKey is wrapped by the error about a key that is none.
var ErrBadKey = errors.New("not a verifier key of a note, NAME+HASH+KEY")

// OpenCheckpoint reads a signed note and returns its checkpoint and the names of
// those of the keys who signed it: at least one. Each key is one that NewVerifier
// of package note reads. A signature by one of them that does not fit is an error,
// whoever else has signed.
func OpenCheckpoint(signed []byte, keys []string) (c Checkpoint, by []string, err error) {
	known := make([]note.Verifier, len(keys))
	for i, key := range keys {
		if known[i], err = note.NewVerifier(strings.TrimSpace(key)); err != nil {
			return c, nil, fmt.Errorf("reading the key %q: %w", key, ErrBadKey)
		}
	}
	n, err := note.Open(signed, note.VerifierList(known...))
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unverified):
		return c, nil, fmt.Errorf("opening a checkpoint: %w", ErrUnverified)
	case err != nil:
		return c, nil, fmt.Errorf("opening a checkpoint: %w", err)
	}
	for _, s := range n.Sigs {
		by = append(by, s.Name)
	}
	c, err = ParseCheckpoint(n.Text)
	return c, by, err
}

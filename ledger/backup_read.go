package ledger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"bindery/events"
)

// BackupError says that a backup is not what Backup wrote.
type BackupError struct {
	Line int    // from 1
	Seq  uint64 // of the message; 0: it is no message's line
	Why  string
	Err  error
}

func (e *BackupError) Error() string {
	text := fmt.Sprintf("reading a backup: line %d", e.Line)
	if e.Seq > 0 {
		text += fmt.Sprintf(", sequence %d", e.Seq)
	}
	if text += ": " + e.Why; e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *BackupError) Unwrap() error { return e.Err }

// ErrTruncated is wrapped by the error about a backup that ends too soon.
var ErrTruncated = errors.New("the backup ends here")

// endPrefix begins the last line, and no other.
var endPrefix = []byte(`{"checkpoint":`)

// maxBackupLine bounds one line: a message of the greatest size a server takes, in
// base64, and its headers.
const maxBackupLine = 128 << 20

// BackupReader reads a backup and verifies it on the way: each event against the
// chain, the borders of commands, and at the end what its last line says.
type BackupReader struct {
	head BackupHead
	note string

	in   *bufio.Reader
	sum  hash.Hash
	n    int   // lines read
	size int64 // bytes of them
	a    assembler
	next uint64
	over bool
}

// BackupStep is what Next reads: one whole command, or one foreign message.
type BackupStep struct {
	Command events.Group   // nil: it is a foreign message
	Foreign *events.Record // nil: it is a command
	At      Position       // the last event so far
	Size    int64          // bytes of the backup up to here
}

// OpenBackup reads the head of a backup.
func OpenBackup(r io.Reader) (*BackupReader, error) {
	b := &BackupReader{in: bufio.NewReaderSize(r, flushBytes), sum: sha256.New(), next: 1}
	line, err := b.line()
	if err != nil {
		return nil, err
	}
	var h headLine
	if err := decodeLine(line, &h); err != nil || h.Kind != backupKind {
		return nil, b.wrong(0, "it is no backup of bindery", err)
	}
	if h.Version != backupVersion {
		return nil, b.wrong(0, fmt.Sprintf("its format has version %d, and this program reads version %d", h.Version, backupVersion), nil)
	}
	b.head = BackupHead{Mesh: h.Mesh, MeshID: h.MeshID, Seq: h.Seq, Time: h.Time}
	if b.head.Chain, err = events.ParseChain(h.Chain); err == nil {
		err = events.CheckName(h.Mesh)
	}
	if err != nil || h.Seq == 0 || h.MeshID.IsZero() {
		return nil, b.wrong(0, "what it is a backup of cannot be read", err)
	}
	b.a.pos.Mesh = h.MeshID
	return b, nil
}

// Head is what the backup is of.
func (b *BackupReader) Head() BackupHead { return b.head }

// Note is the signed note of the backup's checkpoint, once Next has returned
// io.EOF; empty: it is not signed.
func (b *BackupReader) Note() string { return b.note }

// Sum is the SHA-256 of the whole backup, its last line included, once Next has
// returned io.EOF.
func (b *BackupReader) Sum() []byte { return b.sum.Sum(nil) }

// Next reads the next step. io.EOF says that the backup is at its end, and whole;
// every other error is a *BackupError, or the reader's own.
func (b *BackupReader) Next() (BackupStep, error) {
	var cmd events.Group
	for !b.over {
		line, err := b.line()
		if err != nil {
			return BackupStep{}, err
		}
		if bytes.HasPrefix(line, endPrefix) {
			return BackupStep{}, b.end(line)
		}
		r, foreign, err := b.message(line)
		if err != nil {
			return BackupStep{}, err
		}
		if foreign {
			if len(cmd) > 0 {
				return BackupStep{}, b.wrong(r.Seq, "a foreign message lies within a command", nil)
			}
			return BackupStep{Foreign: &r, At: b.at(), Size: b.size}, nil
		}
		if cmd = append(cmd, r); b.a.whole() {
			return BackupStep{Command: cmd, At: b.at(), Size: b.size}, nil
		}
	}
	return BackupStep{}, io.EOF
}

func (b *BackupReader) at() Position { return b.a.pos }

// message reads and verifies the line of a message.
func (b *BackupReader) message(line []byte) (r events.Record, foreign bool, err error) {
	var m backupMessage
	if err := decodeLine(line, &m); err != nil {
		return r, false, b.wrong(0, "the line cannot be read", err)
	}
	if r, err = m.record(); err != nil {
		return r, false, b.wrong(m.Seq, "the line cannot be read", err)
	}
	if m.Seq != b.next || m.Seq > b.head.Seq {
		return r, false, b.wrong(m.Seq, fmt.Sprintf("sequence %d belongs there", b.next), nil)
	}
	b.next++
	if m.Foreign {
		return r, true, nil
	}
	if err := publishable(b.head.Mesh, &r); err != nil {
		return r, false, b.wrong(m.Seq, "no event of this ledger", err)
	}
	if _, err := events.Verify(b.a.pos.Chain, b.head.MeshID, &r); err != nil {
		return r, false, b.wrong(m.Seq, "not the event that was appended", err)
	}
	e, err := readBorder(&r)
	if wrong := (*DamageError)(nil); err == nil {
		if wrong = b.a.next(&e); wrong != nil {
			err = wrong
		}
	}
	if err != nil {
		return r, false, b.wrong(m.Seq, "it does not fit the events before it", err)
	}
	b.a.pos = After(&e)
	return r, false, nil
}

// end reads the last line, after which nothing may follow.
func (b *BackupReader) end(line []byte) error {
	sum := hex.EncodeToString(b.sum.Sum(nil))
	var e backupEnd
	if err := decodeLine(line, &e); err != nil {
		return b.wrong(0, "the last line cannot be read", err)
	}
	c := e.Checkpoint
	switch {
	case b.at() != b.head.Position():
		return b.wrong(0, fmt.Sprintf("it ends at sequence %d, and its first line says %d, with another chain value", b.a.pos.Seq, b.head.Seq), nil)
	case c.MeshID != b.head.MeshID || c.Seq != b.head.Seq || c.Chain != b.head.Chain.String():
		return b.wrong(0, "its last line says another place than its first", nil)
	case e.SHA256 != sum:
		return b.wrong(0, "its lines are not those that were written: their SHA-256 is "+sum, nil)
	}
	if _, err := b.in.ReadByte(); err != io.EOF {
		return b.wrong(0, "something follows the last line", err)
	}
	b.sum.Write(line)
	b.note, b.over = c.Note, true
	return io.EOF
}

func (b *BackupReader) wrong(seq uint64, why string, err error) error {
	return &BackupError{Line: b.n, Seq: seq, Why: why, Err: err}
}

// line reads one line, with its end.
func (b *BackupReader) line() ([]byte, error) {
	var long []byte
	for {
		part, err := b.in.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull && err != io.EOF {
			return nil, fmt.Errorf("reading a backup: %w", err)
		}
		if err == nil && long == nil {
			long = part // it is used up before the next is read
		} else {
			long = append(long, part...)
		}
		switch {
		case err == io.EOF:
			b.n++
			return nil, b.wrong(0, "not whole", ErrTruncated)
		case len(long) > maxBackupLine:
			b.n++
			return nil, b.wrong(0, fmt.Sprintf("a line of more than %d bytes", maxBackupLine), nil)
		case err == nil:
			b.n++
			b.size += int64(len(long))
			if !bytes.HasPrefix(long, endPrefix) {
				b.sum.Write(long)
			}
			return long, nil
		}
	}
}

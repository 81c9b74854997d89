package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// Files is what the files of a ledger in a store hold, as they lie there, read
// without a server and without a change.
type Files struct {
	Stream string
	Mesh   string
	// Last is the last sequence up to which every message is there and whole, 0 if
	// none is. Foreign messages count; the chain is not looked at.
	Last uint64
	// LastChain is the chain value of that message, 64 hexadecimal digits; empty
	// where it has none.
	LastChain string
	// End is the greatest sequence of any whole message.
	End uint64
	// Damage is what is wrong, nil for nothing: a message after Last that is not
	// whole, or is missing while others follow.
	Damage *DamageError
	// Described is why the server would not take the stream for the ledger that it
	// is: what describes it is lost or altered (a *ConfigError where it can be read).
	// nil: it would.
	Described error
	// From is where reading began: what lies before it was not looked at.
	From uint64
	// Packed is set where the server has compressed or encrypted messages: they
	// cannot be looked at, and nothing is said of them.
	Packed bool

	dir string // of the stream
}

// streamsDir is where the server keeps its streams in a store.
func streamsDir(dir string) string {
	return filepath.Join(dir, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams")
}

// Parts of a stream in its directory.
const (
	messagesDir = "msgs"
	indexFile   = "index.db"
)

// ReadFiles reads the files of the ledger in a store that is locked and that no
// server uses; nil where there is none. Where there are several, which a store
// never has, it reads the first. Damage is no error; an error is that a file
// cannot be read.
//
// Messages in files before that of sequence from, which is known to be sound, are
// not read, as long as the server has its index: without it would read them
// itself. With 0 all are read.
func ReadFiles(dir string, from uint64) (*Files, error) {
	entries, err := os.ReadDir(streamsDir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the files of the ledger: %w", err)
	}
	for _, e := range entries {
		mesh, is := strings.CutPrefix(e.Name(), streamPrefix)
		if !is || !e.IsDir() {
			continue
		}
		f := &Files{Stream: e.Name(), Mesh: mesh, dir: filepath.Join(streamsDir(dir), e.Name())}
		f.Described = f.described()
		if err := f.read(from); err != nil {
			return nil, fmt.Errorf("reading the files of the ledger: %w", err)
		}
		return f, nil
	}
	return nil, nil
}

// described looks at what describes the stream: its configuration and the
// checksum of that.
func (f *Files) described() error {
	if _, err := os.Stat(filepath.Join(f.dir, server.JetStreamMetaFileKey)); err == nil {
		f.Packed = true
		return nil
	}
	text, err := os.ReadFile(filepath.Join(f.dir, server.JetStreamMetaFile))
	if err != nil {
		return fmt.Errorf("what describes the stream cannot be read: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(f.dir, server.JetStreamMetaFileSum))
	if err != nil {
		return fmt.Errorf("the checksum of what describes the stream cannot be read: %w", err)
	}
	key := sha256.Sum256([]byte(f.Stream))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		return err
	}
	_, _ = hash.Write(text)
	if hex.EncodeToString(hash.Sum(nil)) != string(sum) {
		return errors.New("what describes the stream is not what was written: its checksum is wrong")
	}
	var cfg jetstream.StreamConfig
	if err := json.Unmarshal(text, &cfg); err != nil {
		return fmt.Errorf("what describes the stream cannot be read: %w", err)
	}
	return verifyConfig(f.Mesh, cfg)
}

// read reads the messages, from the file in which a sequence lies.
func (f *Files) read(from uint64) error {
	if f.Packed {
		return nil
	}
	files, err := blocksOf(filepath.Join(f.dir, messagesDir))
	if err != nil {
		return err
	}
	s := scan{f: f}
	if _, err := os.Stat(filepath.Join(f.dir, messagesDir, indexFile)); err == nil && f.Described == nil {
		skip, first := skipped(files, from)
		files = files[skip:]
		f.From, f.Last, f.End = first, first-1, first-1
	}
	for i, file := range files {
		b, err := readBlock(f.Stream, file)
		if err != nil {
			return err
		}
		if b.packed() {
			f.Packed, f.Damage = true, nil
			return nil
		}
		s.block(b, i == len(files)-1)
	}
	if s.last.header != nil {
		f.LastChain = s.last.chain()
	}
	return nil
}

// scan goes through the messages of a stream in order.
type scan struct {
	f    *Files
	last blockRecord // of Files.Last
}

// block goes through one; the end of the last one may be a write that was
// interrupted, which nobody was told of.
func (s *scan) block(b *block, isLast bool) {
	for at := 0; at < len(b.data); {
		r := b.at(at)
		if r.err == nil {
			s.message(r.blockRecord)
			at = r.to
			continue
		}
		next, more := b.next(at+1, s.f.End)
		if !isLast || more {
			s.wrong(s.f.Last+1, fmt.Sprintf("the message at byte %d of %s cannot be read", at, filepath.Base(b.path)), r.err)
		}
		if !more {
			return
		}
		at = next
	}
}

// message takes one that is whole.
func (s *scan) message(r blockRecord) {
	seq := r.seq &^ (erased | deletedMark)
	s.f.End = max(s.f.End, seq)
	switch {
	case r.seq != seq:
		s.wrong(seq, fmt.Sprintf("sequence %d was deleted", seq), nil)
	case s.f.Damage != nil: // what follows is not counted any more
	case seq == s.f.Last+1:
		s.f.Last, s.last = seq, r
	case seq <= s.f.Last:
		s.wrong(s.f.Last+1, fmt.Sprintf("a message of sequence %d follows that of sequence %d", seq, s.f.Last), nil)
	default:
		s.wrong(s.f.Last+1, fmt.Sprintf("sequences %d to %d are missing", s.f.Last+1, seq-1), nil)
	}
}

// wrong notes the first thing that is wrong.
func (s *scan) wrong(seq uint64, why string, err error) {
	if s.f.Damage == nil {
		s.f.Damage = &DamageError{Seq: seq, Why: why, Err: err}
	}
}

package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"bindery/events"
)

// Salvage is a log that is damaged, as far as it is sound: it is read up to the
// last whole command before what is wrong, and nothing is appended to it.
type Salvage struct {
	*Log
	refuse error

	mu  sync.Mutex
	end Position // the last event that was read; zero: none was yet
}

// NewSalvage makes one of an open log. Every Append returns refuse.
func NewSalvage(l *Log, refuse error) *Salvage { return &Salvage{Log: l, refuse: refuse} }

// Append appends nothing.
func (s *Salvage) Append(context.Context, uint64, []events.Group) (int, error) { return 0, s.refuse }

// Read is Log.Read that ends where the log is not what was appended.
func (s *Salvage) Read(ctx context.Context, from Position, to uint64) iter.Seq2[[]events.Event, error] {
	return func(yield func([]events.Event, error) bool) {
		for evs, err := range s.Log.Read(ctx, from, to) {
			var damage *DamageError
			if errors.As(err, &damage) {
				return
			}
			if err == nil {
				s.mu.Lock()
				s.end = After(&evs[len(evs)-1])
				s.mu.Unlock()
			}
			if !yield(evs, err) {
				return
			}
		}
	}
}

// End is the last event that was read: up to there the log is sound.
func (s *Salvage) End() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// CutAfter ends the ledger's files after a sequence that is whole (at most Last):
// what follows is removed, and the server's index, which it makes anew. It is for
// a copy: what is removed may be the only trace of an event.
func (f *Files) CutAfter(seq uint64) error {
	files, err := blocksOf(filepath.Join(f.dir, messagesDir))
	if err != nil {
		return err
	}
	cut := false
	for _, file := range files {
		if cut {
			if err := os.Remove(file.path); err != nil {
				return err
			}
			continue
		}
		b, err := readBlock(f.Stream, file)
		if err != nil {
			return err
		}
		keep := 0
		for keep < len(b.data) && !cut {
			r := b.at(keep)
			if cut = r.err != nil || r.seq > seq; !cut {
				keep = r.to
			}
		}
		if cut {
			if err := os.Truncate(file.path, int64(keep)); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(filepath.Join(f.dir, messagesDir, indexFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return SyncDir(filepath.Join(f.dir, messagesDir))
}

// Undescribe removes what describes the stream, where that is lost or altered: it
// is described anew by OpenSalvaged. It is for a copy.
func (f *Files) Undescribe() error {
	if f.Described == nil {
		return nil
	}
	// The index goes, too: it leaves out what other limits would have deleted.
	for _, name := range []string{server.JetStreamMetaFile, server.JetStreamMetaFileSum, filepath.Join(messagesDir, indexFile)} {
		if err := os.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// OpenSalvaged opens a ledger, and describes its stream anew where no server knows
// it: its messages then come back (measured).
func OpenSalvaged(ctx context.Context, nc *nats.Conn, mesh string) (*Log, error) {
	l, err := Open(ctx, nc, mesh)
	var none *MissingError
	if !errors.As(err, &none) {
		return l, err
	}
	if l, err = Create(ctx, nc, mesh, CreateOptions{}); errors.Is(err, ErrExists) {
		l, err = Open(ctx, nc, mesh)
	}
	return l, err
}

// CopyFiles copies what the server keeps of a store into another directory that
// is there, durably. The store must be locked, and no server use it.
func CopyFiles(from, to string) error {
	root := filepath.Join(from, server.JetStreamStoreDir)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case e.IsDir():
			return os.MkdirAll(target, 0o700)
		case e.Type().IsRegular():
			return copyFile(path, target)
		}
		return nil // the server makes nothing else
	})
	if err != nil {
		return fmt.Errorf("copying the files of %q: %w", from, err)
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"bindery/commands/snapshot"
	"bindery/projections"
)

// snapshotsHeld holds the snapshots of a store against the state that the log gives
// at the same place.
type snapshotsHeld struct {
	entries []snapshot.Entry // still to come, by sequence
	same    uint64           // how many are what the log gives
	wrong   []string         // the files of those that are not
}

// snapshotsOf are the snapshots of the store that is verified; those of a ledger on
// a server are each instance's own.
func (c *cli) snapshotsOf() (*snapshotsHeld, error) {
	h := &snapshotsHeld{}
	if _, onServer, err := c.remote(); err != nil || onServer {
		return h, err
	}
	dir, err := c.storeDir()
	if err == nil {
		h.entries, err = snapshot.In(filepath.Join(dir, snapshot.Dir), nil).List()
	}
	return h, err
}

// reach compares the snapshots of the place that a fold of the log has reached. One
// whose name has another chain value is of a log that was lost, and is never used; one
// of another version of the program is not used, either.
func (h *snapshotsHeld) reach(s *projections.State) error {
	for len(h.entries) > 0 && h.entries[0].Seq <= s.Seq {
		e := h.entries[0]
		h.entries = h.entries[1:]
		if filepath.Base(e.Path) != fmt.Sprintf("%d-%s.snap", s.Seq, s.Chain.String()[:16]) {
			continue
		}
		var version *projections.SnapshotVersionError
		same, err := isSnapshotOf(e.Path, s)
		switch {
		case errors.As(err, &version), errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
		case err != nil:
			return err
		case same:
			h.same++
		default:
			h.wrong = append(h.wrong, e.Path)
		}
	}
	return nil
}

// isSnapshotOf reports whether a file is the one snapshot that a state has.
func isSnapshotOf(path string, s *projections.State) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := projections.CheckSnapshot(f); err != nil {
		var none *projections.SnapshotError
		if errors.As(err, &none) {
			return false, nil
		}
		return false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	w := &sameAs{r: f, same: true}
	if err := s.Snapshot(w); err != nil {
		return false, err
	}
	n, err := f.Read(make([]byte, 1))
	return w.same && n == 0 && err == io.EOF, nil
}

// sameAs compares what is written to it with what r has.
type sameAs struct {
	r    io.Reader
	same bool
	buf  []byte
}

// Write implements io.Writer.
func (w *sameAs) Write(p []byte) (int, error) {
	if !w.same {
		return len(p), nil
	}
	if len(w.buf) < len(p) {
		w.buf = make([]byte, len(p))
	}
	n, _ := io.ReadFull(w.r, w.buf[:len(p)]) // what cannot be read is not the same
	w.same = bytes.Equal(w.buf[:n], p)
	return len(p), nil
}

// Package snapshot keeps snapshots of a ledger's state in a directory: so that
// opening it costs by its state and not by its history, and so that its past can be
// looked at without folding all that came before.
//
// A snapshot is a copy of what the log says, and is never trusted over it. Before it
// is used, the record at its sequence must have its chain value; it is removed where
// that is not so, and where it cannot be read. Where the store has secrets, one of them
// must have sealed it (seal.go). All of them may be deleted at any time.
package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Dir is the name of the directory in a store.
const Dir = "snapshots"

// tuning is how often a Store writes; tests shorten it.
type tuning struct {
	spacing  uint64        // events between the snapshots that are kept for looking at the past
	opening  uint64        // how many events are folded for an opening that leaves a snapshot behind, or while serving
	stopping uint64        // how many events a process that stops leaves to be folded by the next one
	look     time.Duration // how often a process that serves looks how far its ledger has grown
}

var defaultTuning = tuning{spacing: 100_000, opening: 10_000, stopping: 1_000, look: time.Second}

// Store is a directory of snapshots of one ledger, which is made with the first of
// them. A nil Store has none and takes none. Its methods may be called from several
// goroutines, and by several processes with one directory.
type Store struct {
	dir    string
	logger *slog.Logger
	tun    tuning

	mu      sync.Mutex
	ahead   *ahead // what Ahead has begun
	secrets ledger.Secrets
	log     Log // the one that was read first
}

// In is the store in a directory. What cannot be written or used is told to logger as
// a warning; nil: nobody is told.
func In(dir string, logger *slog.Logger) *Store {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Store{dir: dir, logger: logger, tun: defaultTuning}
}

// Entry is one snapshot.
type Entry struct {
	Seq    uint64 // of the last event in it
	Path   string
	digits string // the first of its chain value
}

// chainDigits is how many digits of the chain value a name has.
const chainDigits = 16

var nameForm = regexp.MustCompile(`^([1-9][0-9]{0,19})-([0-9a-f]{16})\.snap$`)

// newPrefix begins the names of snapshots that are being written.
const newPrefix = ".new-"

func nameOf(seq uint64, chain events.Chain) string {
	return fmt.Sprintf("%d-%s"+snapSuffix, seq, chain.String()[:chainDigits])
}

// List lists the snapshots, the oldest first. It reads the directory alone.
func (s *Store) List() ([]Entry, error) {
	if s == nil {
		return nil, nil
	}
	files, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, f := range files {
		m := nameForm.FindStringSubmatch(f.Name())
		if m == nil {
			continue
		}
		if seq, err := strconv.ParseUint(m[1], 10, 64); err == nil {
			out = append(out, Entry{Seq: seq, Path: filepath.Join(s.dir, f.Name()), digits: m[2]})
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Path, b.Path)) })
	return out, nil
}

// Last is the sequence of the newest snapshot, 0 for none.
func (s *Store) Last() uint64 {
	all, err := s.List()
	if err != nil || len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Seq
}

// Remove removes a snapshot; one that is gone already is none to complain of.
func (s *Store) Remove(e Entry) error {
	for _, path := range []string{e.Path, sealPath(e.Path)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Write keeps a snapshot of a state, durably, and removes those that are not needed
// any more: all but the newest and the first at or after each 100,000 events.
func (s *Store) Write(state *projections.State) error {
	if s == nil || state.Seq == 0 {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, newPrefix+"*") // with mode 0600
	if err != nil {
		return err
	}
	err = state.Snapshot(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	e := Entry{Seq: state.Seq, Path: filepath.Join(s.dir, nameOf(state.Seq, state.Chain))}
	if err == nil {
		err = os.Rename(f.Name(), e.Path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return errors.Join(ledger.SyncDir(s.dir), s.seal(e), s.prune())
}

// write is Write; what goes wrong is a warning.
func (s *Store) write(state *projections.State) {
	if s == nil {
		return
	}
	start := time.Now()
	if err := s.Write(state); err != nil {
		s.logger.Warn("writing a snapshot", "seq", state.Seq, "error", err)
		return
	}
	s.logger.Debug("wrote a snapshot", "seq", state.Seq, "took", time.Since(start))
}

// prune removes what is not needed any more. What a later program wrote is its own.
func (s *Store) prune() error {
	all, err := s.List()
	if err != nil {
		return err
	}
	var ours, gone []Entry
	for _, e := range all {
		switch usable, err := check(e); {
		case usable:
			ours = append(ours, e)
		case removable(err):
			gone = append(gone, e)
		}
	}
	for i, e := range ours {
		nth := e.Seq / s.tun.spacing
		first := nth > 0 && (i == 0 || ours[i-1].Seq/s.tun.spacing != nth)
		if !first && i < len(ours)-1 {
			gone = append(gone, e)
		}
	}
	var errs []error
	for _, e := range gone {
		errs = append(errs, s.Remove(e))
	}
	return errors.Join(append(errs, s.sweep())...)
}

// check reports whether this program could load a snapshot, from its beginning.
func check(e Entry) (usable bool, err error) {
	f, err := os.Open(e.Path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // it was read
	err = projections.CheckSnapshot(f)
	return err == nil, err
}

// removable reports whether a snapshot that could not be loaded for that reason is
// of no use to anybody.
func removable(err error) bool {
	var not *projections.SnapshotError
	var version *projections.SnapshotVersionError
	return errors.As(err, &not) || errors.As(err, &version) && !version.Newer()
}

// abandoned is how old a snapshot is that is not being written any more.
const abandoned = time.Hour

// sweep removes what was left by who was killed while writing.
func (s *Store) sweep() error {
	left, err := filepath.Glob(filepath.Join(s.dir, newPrefix+"*"))
	for _, path := range left {
		if i, err := os.Stat(path); err == nil && time.Since(i.ModTime()) > abandoned {
			_ = os.Remove(path) // the next one will try again
		}
	}
	return err
}

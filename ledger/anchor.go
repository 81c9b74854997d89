package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"bindery/events"
)

// An Anchor says, outside the place where a ledger is kept, how far its events
// are known to be durable. A log that ends before it, or has another chain value
// there, has lost what was acknowledged.
type Anchor struct {
	// ID is the store's (StoreID), or of a ledger on a server what its stream was
	// created with (Log.Created).
	ID     string       `json:"store_id"`
	Mesh   string       `json:"mesh"`
	MeshID events.ID    `json:"mesh_id"`
	Seq    uint64       `json:"seq"`
	Chain  events.Chain `json:"-"` // at Seq
	// Path is the store's directory, without symbolic links; empty for a ledger on
	// a server.
	Path string `json:"path,omitempty"`
	// Restored is how far a restore made the ledger on a server (Log.Restored): up to
	// there no proofs are asked for, so it must not grow.
	Restored uint64    `json:"restored,omitempty"`
	Time     time.Time `json:"time"` // when it was written, UTC
}

// anchorFile is an anchor as it is stored.
type anchorFile struct {
	Anchor
	ChainText string `json:"chain"` // 64 hexadecimal digits
}

// LossError says that a log is not what its anchor proves.
type LossError struct {
	Anchor Anchor
	Last   uint64 // the log's last sequence
	Why    string
}

func (e *LossError) Error() string {
	return fmt.Sprintf("holding the log against its anchor at sequence %d: %s", e.Anchor.Seq, e.Why)
}

// shortOf is the error for a log that ends too soon.
func (a Anchor) shortOf(last uint64) *LossError {
	return &LossError{Anchor: a, Last: last, Why: fmt.Sprintf("the log ends at sequence %d", last)}
}

// Check holds an open log against the anchor. It returns nil, a *LossError, or
// why the log could not be read. It writes nothing.
func (a Anchor) Check(ctx context.Context, l *Log) error {
	if a.Seq == 0 {
		return nil
	}
	last, err := l.Last(ctx)
	if err != nil {
		return err
	}
	if last < a.Seq {
		return a.shortOf(last)
	}
	records, err := l.Get(ctx, a.Seq, a.Seq)
	var none *NotFoundError
	switch {
	case errors.As(err, &none):
		return &LossError{Anchor: a, Last: last, Why: fmt.Sprintf("there is no message of sequence %d", a.Seq)}
	case err != nil:
		return err
	}
	if found := records[0].Get(events.HeaderChain); found != a.Chain.String() {
		return &LossError{Anchor: a, Last: last, Why: fmt.Sprintf("the chain value of sequence %d begins with %q, not %s", a.Seq, found[:min(8, len(found))], a.Chain.String()[:8])}
	}
	return nil
}

// Anchors is the directory that anchors are kept in: one file each, named after
// what it is the anchor of. It must not lie in a store.
type Anchors struct{ Dir string }

// anchorSuffix ends the name of the file of an anchor that stands.
const anchorSuffix = ".json"

func (s Anchors) path(id string) string { return filepath.Join(s.Dir, id+anchorSuffix) }

// File is the file of an anchor, for messages.
func (s Anchors) File(id string) string { return s.path(id) }

// Load reads an anchor; ok is false where there is none.
func (s Anchors) Load(id string) (a Anchor, ok bool, err error) {
	if id == "" || strings.ContainsAny(id, "/\\") || strings.HasPrefix(id, ".") {
		return a, false, fmt.Errorf("reading an anchor: %q is no id", id)
	}
	data, err := os.ReadFile(s.path(id))
	if isNone(err) {
		return a, false, nil
	}
	if err != nil {
		return a, false, fmt.Errorf("reading the anchor of %s: %w", id, err)
	}
	var f anchorFile
	if err := json.Unmarshal(data, &f); err != nil {
		return a, false, &AnchorError{s.path(id), err}
	}
	if f.Chain, err = events.ParseChain(f.ChainText); err != nil {
		return a, false, &AnchorError{s.path(id), err}
	}
	if f.ID != id {
		return a, false, &AnchorError{s.path(id), fmt.Errorf("it is that of %q", f.ID)}
	}
	return f.Anchor, true, nil
}

// AnchorError says that the file of an anchor holds none.
type AnchorError struct {
	Path string
	Err  error
}

func (e *AnchorError) Error() string { return fmt.Sprintf("reading the anchor %q: %v", e.Path, e.Err) }

// Unwrap returns what is wrong with it.
func (e *AnchorError) Unwrap() error { return e.Err }

// At returns the anchor that was last written of a store in the directory path;
// ok is false where there is none. Of several the newest counts. An
// *AnchorError comes beside what was found: a file that may be a newer one of that
// store cannot be read.
func (s Anchors) At(path string) (newest Anchor, ok bool, err error) {
	entries, err := os.ReadDir(s.Dir)
	if isNone(err) {
		return newest, false, nil
	}
	if err != nil {
		return newest, false, fmt.Errorf("reading anchors: %w", err)
	}
	var bad error
	for _, e := range entries {
		id, is := strings.CutSuffix(e.Name(), anchorSuffix)
		if !is || id == "" || id[0] == '.' {
			continue
		}
		a, there, err := s.Load(id)
		var unread *AnchorError
		if errors.As(err, &unread) {
			bad = err // it may be that of another store
			continue
		}
		if err != nil {
			return newest, false, err
		}
		if there && a.Path == path && (!ok || a.Time.After(newest.Time)) {
			newest, ok = a, true
		}
	}
	return newest, ok, bad
}

// Save puts a in the place of the anchor that was there: when it returns nil, the
// new one is on the disk, and at no moment there was none.
func (s Anchors) Save(a Anchor) error {
	data, err := json.Marshal(anchorFile{Anchor: a, ChainText: a.Chain.String()})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("writing the anchor of %s: %w", a.ID, err)
	}
	if err := replaceFile(s.path(a.ID), append(data, '\n')); err != nil {
		return fmt.Errorf("writing the anchor of %s: %w", a.ID, err)
	}
	return nil
}

// SetAside keeps an anchor under another name, where nothing is held against it
// any more: its id, its sequence and why. It returns the new file.
func (s Anchors) SetAside(a Anchor, why string) (string, error) {
	to := filepath.Join(s.Dir, fmt.Sprintf("%s.%d.%s", a.ID, a.Seq, why))
	if err := os.Rename(s.path(a.ID), to); err != nil {
		return "", fmt.Errorf("setting the anchor of %s aside: %w", a.ID, err)
	}
	return to, SyncDir(s.Dir)
}

// Keep keeps a copy of an anchor beside it, which goes on to stand.
func (s Anchors) Keep(a Anchor, why string) (string, error) {
	to := filepath.Join(s.Dir, fmt.Sprintf("%s.%d.%s", a.ID, a.Seq, why))
	data, err := os.ReadFile(s.path(a.ID))
	if err == nil {
		err = replaceFile(to, data)
	}
	if err != nil {
		return "", fmt.Errorf("keeping the anchor of %s: %w", a.ID, err)
	}
	return to, nil
}

// isNone reports whether there is no such file: what it would lie in need be no
// directory.
func isNone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// AnchorEvery is how far an anchor may be behind what is durable.
const AnchorEvery = time.Second

// AnchorKeeper keeps the anchor of one ledger up to date. Its methods may be
// called from several goroutines.
type AnchorKeeper struct {
	anchors Anchors
	clock   func() time.Time

	mu   sync.Mutex
	last Anchor // as it was written last
	err  error  // why the last write failed
}

// NewAnchorKeeper makes a keeper; last is the anchor that stands, or with a
// sequence of 0 what the first one is to say beside its place.
func NewAnchorKeeper(anchors Anchors, last Anchor, clock func() time.Time) *AnchorKeeper {
	return &AnchorKeeper{anchors: anchors, clock: clock, last: last}
}

// Reach writes that everything up to p is durable, unless that is known already.
func (k *AnchorKeeper) Reach(p Position) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.Seq <= k.last.Seq {
		return k.err
	}
	next := k.last
	next.Seq, next.Chain, next.MeshID, next.Time = p.Seq, p.Chain, p.Mesh, k.clock().UTC()
	if k.err = k.anchors.Save(next); k.err == nil {
		k.last = next
	}
	return k.err
}

// Last is the anchor as it was written last, and why writing it failed since.
func (k *AnchorKeeper) Last() (Anchor, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last, k.err
}

// Run writes the anchor once in AnchorEvery, as far as durable says, until ctx
// ends, and then once more. Each failure that is not the one before is told.
func (k *AnchorKeeper) Run(ctx context.Context, durable func() Position, failed func(error)) {
	tick := time.NewTicker(AnchorEvery)
	defer tick.Stop()
	said := ""
	for {
		ending := false
		select {
		case <-tick.C:
		case <-ctx.Done():
			ending = true
		}
		text := ""
		if err := k.Reach(durable()); err != nil {
			if text = err.Error(); text != said {
				failed(err)
			}
		}
		said = text
		if ending {
			return
		}
	}
}

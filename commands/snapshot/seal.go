package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"bindery/ledger"
)

// A snapshot says who may do what, so it must be known who made it: beside each lies
// its seal, a proof by a secret of the store over the snapshot's SHA-256 and over what
// was found of foreign messages up to there. A snapshot without one is not used where
// there are secrets.

const (
	snapSuffix = ".snap"
	sealSuffix = ".seal"
	// sealPurpose tells a seal from the proofs of events.
	sealPurpose = "snapshot"
)

// sealed is the file of a seal.
type sealed struct {
	Skipped ledger.Skipped `json:"skipped"`
	Seal    string         `json:"seal"`
}

var (
	errNotSealed = errors.New("it is not sealed")
	errForged    = errors.New("no secret of the store has sealed it")
)

// SealWith makes the store seal its snapshots with the newest of the secrets, and use
// only what one of them has sealed. Without secrets nothing is sealed, and all are used.
func (s *Store) SealWith(secrets ledger.Secrets) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = secrets
	return s
}

// keys are the secrets of the store, and the log that was read.
func (s *Store) keys() (ledger.Secrets, Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets, s.log
}

// of remembers the log that the snapshots are of.
func (s *Store) of(log Log) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		s.log = log
	}
}

func sealPath(snap string) string { return strings.TrimSuffix(snap, snapSuffix) + sealSuffix }

// seal seals a snapshot that is written.
func (s *Store) seal(e Entry) error {
	secrets, log := s.keys()
	newest, ok := secrets.Newest()
	if !ok {
		return nil
	}
	var f sealed
	if log != nil {
		f.Skipped = log.Skipped(e.Seq)
	}
	text, err := sealText(e.Path, f.Skipped)
	if err != nil {
		return err
	}
	f.Seal = newest.Seal(sealPurpose, text)
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return ledger.ReplaceFile(sealPath(e.Path), 0o600, ledger.Bytes(data))
}

// sealText is what a seal is made over.
func sealText(path string, skipped ledger.Skipped) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read
	var sum [sha256.Size]byte        // a snapshot ends with it
	if _, err := f.Seek(-int64(len(sum)), io.SeekEnd); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(f, sum[:]); err != nil {
		return nil, err
	}
	data, err := json.Marshal(skipped)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s\n%s\n", hex.EncodeToString(sum[:]), data), nil
}

// authentic returns what was skipped up to a snapshot, or why it is not used.
func (s *Store) authentic(e Entry) (ledger.Skipped, error) {
	secrets, _ := s.keys()
	if len(secrets) == 0 {
		return ledger.Skipped{}, nil
	}
	data, err := os.ReadFile(sealPath(e.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return ledger.Skipped{}, errNotSealed
	}
	var f sealed
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	var text []byte
	if err == nil {
		text, err = sealText(e.Path, f.Skipped)
	}
	if err != nil {
		return ledger.Skipped{}, fmt.Errorf("%w: %w", errForged, err)
	}
	if !secrets.Sealed(sealPurpose, text, f.Seal) {
		return ledger.Skipped{}, errForged
	}
	return f.Skipped, nil
}

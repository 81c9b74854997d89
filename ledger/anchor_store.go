package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"bindery/events"
)

// StoreFile is the name of the file in a store that says which store it is.
const StoreFile = "store.json"

// StoreID tells one store from every other, also from one that has the same
// events: a trial restore must not move the anchor of what it is a trial of.
type StoreID struct {
	ID   events.ID `json:"id"`
	Mesh string    `json:"mesh"`
	// Secrets prove what the store's writer appended. Who can read them can write
	// events that count.
	Secrets Secrets `json:"secrets,omitempty"`
}

// ReadStoreID reads which store a directory is; ok is false where it does not
// say: an earlier version of this program made it.
func ReadStoreID(dir string) (s StoreID, ok bool, err error) {
	path := filepath.Join(dir, StoreFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && s.ID.IsZero() {
		err = errors.New("it has no id")
	}
	if err == nil {
		err = s.Secrets.check()
	}
	if err != nil {
		return StoreID{}, false, fmt.Errorf("reading %q: %w", path, err)
	}
	return s, true, nil
}

// WriteStoreID says in a store which it is. The id must be new, but where what
// the store said was lost.
func WriteStoreID(dir string, s StoreID) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, StoreFile), append(data, '\n')); err != nil {
		return fmt.Errorf("writing which store %q is: %w", dir, err)
	}
	return nil
}

// RealPath is a directory's path as anchors name it: absolute, without symbolic
// links, as far as it is there.
func RealPath(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real
	}
	// The last part may be missing: a store that is gone.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(parent, filepath.Base(abs))
	}
	return abs
}

// Within reports whether path lies in dir, or is dir.
func Within(path, dir string) bool {
	rel, err := filepath.Rel(RealPath(dir), RealPath(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

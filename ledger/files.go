package ledger

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// ReplaceFile writes a file as a whole, durably: what is under its name is the old
// one or the new one, also after the power fails. It is synced before it gets its
// name, and its directory after.
func ReplaceFile(path string, mode os.FileMode, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// replaceFile is ReplaceFile with bytes, for their owner alone.
func replaceFile(path string, data []byte) error {
	return ReplaceFile(path, 0o600, Bytes(data))
}

// Bytes writes bytes, for ReplaceFile.
func Bytes(data []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(data); return err }
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
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

// overwrite puts data into an existing file, which keeps its inode. A link is refused:
// its target may be any file that this user can write.
func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return refuseLink(path, err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// ReadRegular reads a file of at most most bytes. It follows no link, and waits for
// no pipe.
func ReadRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refuseLink(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > most:
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read", path, info.Size(), most)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// LinkError says that a file, which bindery would write, is a link.
type LinkError struct{ Path string }

func (e *LinkError) Error() string {
	return e.Path + " is a link: bindery writes through none, since a link may lead to any file"
}

// refuseLink turns the system's error about a link that was not followed into a
// *LinkError.
func refuseLink(path string, err error) error {
	if err == nil {
		return nil
	}
	return cmp.Or(NotLink(path), err)
}

// NotLink returns a *LinkError where path is a link.
func NotLink(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return &LinkError{path}
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package owned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// mostLinks is how many links one path may lead through, as in the kernel.
const mostLinks = 40

// ErrOutside says that a link leads out of the directory that a file must lie in.
var ErrOutside = errors.New("a link leads out of the directory")

// walk goes along a path, one directory at a time, and holds each by its descriptor:
// what was checked is what the next step starts from.
type walk struct {
	dirs  []step
	floor int // ".." and absolute links do not lead above dirs[floor]; -1: they may
	links int
}

// step is a directory on the way.
type step struct {
	f      *os.File
	path   string
	shared bool // others can write it, and replace only what is theirs
}

// newWalk begins at /.
func newWalk() (*walk, error) {
	w := &walk{floor: -1}
	f, err := os.OpenFile("/", dirFlags, 0)
	if err != nil {
		return nil, err
	}
	if err := w.push(f, "/"); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *walk) close() {
	for _, d := range w.dirs {
		_ = d.f.Close()
	}
}

func (w *walk) top() step { return w.dirs[len(w.dirs)-1] }

// push takes an open directory as the place where the walk is.
func (w *walk) push(f *os.File, path string) error {
	is, err := statOf(f, path)
	w.dirs = append(w.dirs, step{f: f, path: path, shared: is.isShared()})
	if err != nil {
		return err
	}
	return is.checkDir(path)
}

// pop goes up one directory; / is above itself.
func (w *walk) pop() error {
	switch {
	case len(w.dirs)-1 == w.floor:
		return ErrOutside
	case len(w.dirs) == 1:
		return nil
	}
	_ = w.top().f.Close()
	w.dirs = w.dirs[:len(w.dirs)-1]
	return nil
}

// along goes along a path, from / if it is absolute. It returns the file at its end,
// or nil where the end is a directory, which the walk is then in.
func (w *walk) along(path string) (*os.File, error) {
	rest := parts(path)
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			if err := w.pop(); err != nil {
				return nil, err
			}
			continue
		}
		at := filepath.Join(w.top().path, name)
		is, err := statAt(w.top().f, name, at)
		if err != nil {
			return nil, err
		}
		if w.top().shared {
			if err := is.checkShared(at); err != nil {
				return nil, err
			}
		}
		switch {
		case is.kind == fs.ModeSymlink:
			to, err := w.follow(name, at)
			if err != nil {
				return nil, err
			}
			rest = append(parts(to), rest...)
		case is.kind == fs.ModeDir:
			f, err := openAt(w.top().f, name, at, dirFlags, is)
			if err != nil {
				return nil, err
			}
			if err := w.push(f, at); err != nil {
				return nil, err
			}
		case len(rest) > 0:
			return nil, &fs.PathError{Op: "open", Path: at, Err: syscall.ENOTDIR}
		default:
			return openAt(w.top().f, name, at, fileFlags, is)
		}
	}
	return nil, nil
}

// follow is where a link leads to, as seen from the directory it lies in.
func (w *walk) follow(name, at string) (string, error) {
	if w.links++; w.links > mostLinks {
		return "", &fs.PathError{Op: "open", Path: at, Err: syscall.ELOOP}
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(w.top().f.Fd()), name, buf)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: at, Err: err}
	}
	to := string(buf[:n])
	if !filepath.IsAbs(to) {
		return to, nil
	}
	if w.floor >= 0 {
		return "", ErrOutside
	}
	for len(w.dirs) > 1 {
		if err := w.pop(); err != nil {
			return "", err
		}
	}
	return to, nil
}

func parts(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

// openAt opens an entry of a directory, and follows no link. It must still be the
// one that was looked at.
func openAt(dir *os.File, name, at string, flags int, was facts) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: at, Err: err}
	}
	f := os.NewFile(uintptr(fd), at)
	is, err := statOf(f, at)
	if err == nil && (is.dev != was.dev || is.ino != was.ino) {
		err = &fs.PathError{Op: "open", Path: at, Err: errors.New("it was replaced just now")}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

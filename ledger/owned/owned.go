// Package owned finds out whether anybody but root and this process's user could
// change a file, or put another file in its place.
//
// A path is safe where every directory from / down to its end belongs to root or to
// this user, and nobody else can write it. Links are followed by hand: the directory
// that a link lies in, and every directory on the way to its target, must be safe,
// too. A sticky directory such as /tmp may be written by others: there only the owner
// of an entry may replace that entry. So a directory below it is taken if it belongs
// to root or to this user. A file or a link is not taken: whoever has one of root's
// files in a directory of his own may move or link it into a sticky directory.
//
// Access control lists need no look of their own: the group bits of a mode are the
// upper bound of what a list allows to anybody.
package owned

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Problem says who could change something, and which command ends that.
type Problem struct {
	Path string   // what could be changed
	Why  string   // who could change it
	Fix  []string // one command, word by word; nil where none helps

	// Anybody says that every user of the machine can put something else there.
	Anybody bool
}

func (p *Problem) Error() string { return p.Why }

// Rights of users other than the owner, and of users beyond the group.
const (
	othersWrite  fs.FileMode = 0o022
	anybodyWrite fs.FileMode = 0o002
)

// facts are what is looked at of a file.
type facts struct {
	kind     fs.FileMode // fs.ModeDir, fs.ModeSymlink, 0 for a regular file, or another
	perm     fs.FileMode
	sticky   bool
	uid      int
	dev, ino uint64
}

func factsOf(st *unix.Stat_t) facts {
	f := facts{perm: fs.FileMode(st.Mode) & fs.ModePerm, sticky: st.Mode&unix.S_ISVTX != 0, uid: int(st.Uid), dev: uint64(st.Dev), ino: uint64(st.Ino)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		f.kind = fs.ModeDir
	case unix.S_IFLNK:
		f.kind = fs.ModeSymlink
	case unix.S_IFREG:
	default:
		f.kind = fs.ModeIrregular
	}
	return f
}

// statOf looks at an open file.
func statOf(f *os.File, path string) (facts, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return facts{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return factsOf(&st), nil
}

// statAt looks at an entry of a directory, not at what a link leads to.
func statAt(dir *os.File, name, path string) (facts, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return facts{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return factsOf(&st), nil
}

// Check reports whether somebody else could change the file or directory at path,
// and does not look at the directories above it. A link is judged as a link. The
// result is a *Problem, an error of the file system, or nil.
func Check(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return factsOf(&st).check(path)
}

// check reports whether somebody else could change what is at path.
func (f facts) check(path string) error {
	if p := f.ownerProblem(path); p != nil {
		return p
	}
	if f.kind == fs.ModeSymlink || f.perm&othersWrite == 0 {
		return nil // a link has no mode of its own
	}
	return &Problem{Path: path, Why: fmt.Sprintf("others can write %s: its mode is %04o", path, f.perm),
		Fix: []string{"chmod", "go-w", path}, Anybody: f.perm&anybodyWrite != 0}
}

// ownerProblem is the problem of a file that belongs to neither root nor this user.
func (f facts) ownerProblem(path string) *Problem {
	if f.uid == 0 || f.uid == os.Geteuid() {
		return nil
	}
	return &Problem{Path: path, Why: fmt.Sprintf("%s belongs to user %d", path, f.uid), Fix: []string{"chown", strconv.Itoa(os.Geteuid()), path}}
}

// isShared reports whether a directory may be written by others who cannot replace
// what is not theirs.
func (f facts) isShared() bool { return f.sticky && f.perm&othersWrite != 0 }

// checkDir is check for a directory on the way.
func (f facts) checkDir(path string) error {
	if !f.isShared() {
		return f.check(path)
	}
	if p := f.ownerProblem(path); p != nil {
		return p
	}
	return nil
}

// checkShared judges an entry of a directory that isShared.
func (f facts) checkShared(path string) error {
	if p := f.ownerProblem(path); p != nil {
		p.Anybody = true
		return p
	}
	if f.kind != fs.ModeDir {
		return &Problem{Path: path, Why: fmt.Sprintf("%s lies in a directory that others can write: one of them may have put it there", path), Anybody: true}
	}
	return nil
}

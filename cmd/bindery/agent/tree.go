package agent

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gofrs/flock"

	"bindery/ledger/owned"
)

// The tree is what an agent writes, all below one directory:
//
//	agent.lock                          one agent at a time
//	curve.nk                            the seed of the key that secrets are sealed to
//	bindings/<assignment id>/<slot>     a link to one of .sets: what the consumer reads
//	bindings/<assignment id>/.sets/…    a directory for each set of files
//	bindings/by-name/<assignment>       a link to ../<assignment id>
//	secrets/<binding id>/<generation>-<tag>-<maker>   what a file: reference refers to
//	issued/<binding id>/<generation>-<tag>    the provider side's own record and copy
//	state/…                             what was done
//
// Every access goes through an os.Root: no name, link or reference leads out.
type tree struct {
	path string // absolute
	root *os.Root
	lock *flock.Flock
	gid  int // of those who may read bindings; -1: nobody beside the owner
}

// Modes of what is written: for the owner, and of what consumers read, where a
// group is named, for that.
const (
	modeDir, modeFile           = 0o700, 0o600
	modeGroupDir, modeGroupFile = 0o750, 0o640
	modeGroupRoot               = 0o710 // to pass through
)

const (
	dirBindings = "bindings"
	dirByName   = "bindings/by-name"
	dirSecrets  = "secrets"
	dirIssued   = "issued"
	dirState    = "state"
	dirAssigned = "state/assignments"
	dirSets     = ".sets"
)

// errInUse is wrapped where another process has the tree.
var errInUse = errors.New("another process uses it")

// openTree opens the tree at dir, or makes it. It belongs to this process until it
// is closed.
func openTree(dir string, gid int) (*tree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(abs, modeDir); err != nil {
		return nil, err
	}
	// Where everybody could put another directory in its place, he would have this one
	// written into any directory of this user's.
	var p *owned.Problem
	if err := owned.Dir(abs); errors.As(err, &p) && p.Anybody && p.Path != abs {
		return nil, p
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, err
	}
	t := &tree{path: abs, root: root, gid: gid}
	if err := t.prepare(); err != nil {
		_ = root.Close()
		return nil, err
	}
	return t, nil
}

func (t *tree) prepare() error {
	info, err := t.root.Stat(".")
	if err != nil {
		return err
	}
	if uid, ok := ownerOf(info); ok && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, and this is user %d", t.path, uid, os.Geteuid())
	}
	t.lock = flock.New(filepath.Join(t.path, "agent.lock"), flock.SetPermissions(modeFile), flock.SetFlag(os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW))
	locked, err := t.lock.TryLock()
	if err == nil && !locked {
		err = fmt.Errorf("%s: %w", t.path, errInUse)
	}
	if err != nil {
		return err
	}
	mode := fs.FileMode(modeDir)
	if t.gid >= 0 {
		mode = modeGroupRoot
		err = t.root.Chown(".", -1, t.gid)
	}
	err = cmp.Or(err, t.root.Chmod(".", mode), t.root.Chmod("agent.lock", modeFile))
	for _, d := range []string{dirSecrets, dirIssued, dirState, dirAssigned} {
		err = cmp.Or(err, t.mkdir(d))
	}
	for _, d := range []string{dirBindings, dirByName} {
		err = cmp.Or(err, t.mkdirShared(d))
	}
	if err != nil {
		_ = t.lock.Unlock()
	}
	return err
}

func (t *tree) close() { _ = errors.Join(t.root.Close(), t.lock.Unlock()) }

// ownerOf is the user that a file belongs to, where the system says so.
func ownerOf(info fs.FileInfo) (int, bool) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), true
	}
	return 0, false
}

// mkdir makes a directory for the owner alone. What is there and is no directory
// is an error: a link could lead elsewhere in the tree.
func (t *tree) mkdir(name string) error { return t.mkdirMode(name, modeDir, -1) }

// mkdirShared makes one that consumers may read.
func (t *tree) mkdirShared(name string) error {
	if t.gid < 0 {
		return t.mkdir(name)
	}
	return t.mkdirMode(name, modeGroupDir, t.gid)
}

func (t *tree) mkdirMode(name string, mode fs.FileMode, gid int) error {
	err := t.root.Mkdir(name, modeDir)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := t.root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s in %s is no directory", name, t.path)
	}
	if gid >= 0 {
		if err := t.root.Lchown(name, -1, gid); err != nil {
			return err
		}
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	return t.root.Chmod(name, mode)
}

// fresh is a name that nothing has.
func fresh(prefix string) string { return prefix + strings.ToLower(rand.Text()[:12]) }

// durably writes a file of the owner's, whole or not at all, and returns when it
// is on disk: what follows may rely on it after a crash of the machine.
func (t *tree) durably(name string, data []byte) error {
	if err := t.replace(name, data, true); err != nil {
		return err
	}
	return t.syncDir(path.Dir(name))
}

// replace writes a file of the owner's in place of one that is there, at once.
func (t *tree) replace(name string, data []byte, synced bool) error {
	dir := path.Dir(name)
	tmp := path.Join(dir, fresh(".new-"))
	f, err := t.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, modeFile)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(modeFile)) // whatever the umask is
	if err == nil && synced {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = t.root.Rename(tmp, name)
	}
	if err != nil {
		_ = t.root.Remove(tmp)
	}
	return err
}

// syncDir makes the names in a directory durable.
func (t *tree) syncDir(name string) error {
	d, err := t.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove removes a file, if it is there.
func (t *tree) remove(name string) error {
	if err := t.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read reads a file of at most most bytes; nil where there is none.
func (t *tree) read(name string, most int64) ([]byte, error) {
	info, err := t.root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", name)
	case info.Size() > most:
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read", name, info.Size(), most)
	}
	return t.root.ReadFile(name)
}

// list lists the names in a directory; none where it is not there.
func (t *tree) list(name string) ([]string, error) {
	d, err := t.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// link makes name a link to target, in place of whatever is there, at once.
func (t *tree) link(target, name, scratch string) error {
	tmp := path.Join(scratch, fresh(".link-"))
	if err := t.root.Symlink(target, tmp); err != nil {
		return err
	}
	err := t.root.Rename(tmp, name)
	if err != nil { // a directory is in the way: the tree is ours, so it goes
		if err = t.root.RemoveAll(name); err == nil {
			err = t.root.Rename(tmp, name)
		}
	}
	if err != nil {
		_ = t.root.Remove(tmp)
	}
	return err
}

// bare is what went wrong with a file, without its path.
func bare(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

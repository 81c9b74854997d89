package agent

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// sweepTree removes what was being written when an earlier run ended.
func (a *Agent) sweepTree() error {
	t := a.tree
	names, err := t.list(dirByName)
	for _, n := range names { // of assignments that are gone, or scratch
		if _, gone := t.root.Stat(path.Join(dirByName, n)); gone != nil {
			err = errors.Join(err, t.remove(path.Join(dirByName, n)))
		}
	}
	bindings, again := t.list(dirIssued)
	secrets, more := t.list(dirSecrets)
	err = errors.Join(err, again, more)
	dirs := []string{".", dirState, dirAssigned}
	for _, b := range bindings {
		dirs = append(dirs, path.Join(dirIssued, b))
	}
	for _, b := range secrets {
		dirs = append(dirs, path.Join(dirSecrets, b))
	}
	for _, d := range dirs {
		if info, gone := t.root.Lstat(d); gone != nil || !info.IsDir() {
			continue
		}
		names, again := t.list(d)
		err = errors.Join(err, again)
		for _, n := range names {
			if strings.HasPrefix(n, ".new-") {
				err = errors.Join(err, t.remove(path.Join(d, n)))
			}
		}
	}
	return err
}

// share gives everything that consumers read the modes that it must have: the
// group may be another one than before, or none.
func (t *tree) share() error {
	return fs.WalkDir(t.root.FS(), dirBindings, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return t.mkdirShared(name)
		case !e.Type().IsRegular():
			return nil // a link has no mode
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(modeFile)
		if t.gid >= 0 {
			mode = modeGroupFile
			if err := t.root.Lchown(name, -1, t.gid); err != nil {
				return err
			}
		}
		if info.Mode().Perm() == mode {
			return nil
		}
		return t.root.Chmod(name, mode)
	})
}

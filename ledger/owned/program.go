package owned

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Program is a program that nobody but root and this user can change. It is held
// open: what runs is the very file that was checked, whatever its name means by then.
type Program struct {
	path string
	f    *os.File
}

// ErrNotProgram says that a file is no program: no regular file, or one that cannot
// be executed.
var ErrNotProgram = errors.New("it is no program")

// Find opens the program that a command line begins with: a path, or a name that is
// looked up in PATH.
func Find(name string) (*Program, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	w, err := newWalk()
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.program(path, path)
}

// FindIn opens the program at name, a path below the directory dir. No link below
// dir may lead out of it; dir itself may be reached through links.
func FindIn(dir, name string) (*Program, error) {
	w, err := newWalk()
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.enter(dir); err != nil {
		return nil, err
	}
	w.floor = len(w.dirs) - 1
	return w.program(name, filepath.Join(dir, name))
}

// Dir reports whether somebody else could change the directory dir, or put another
// in its place. dir is absolute.
func Dir(dir string) error {
	w, err := newWalk()
	if err != nil {
		return err
	}
	defer w.close()
	return w.enter(dir)
}

// enter goes along a path whose end is a directory.
func (w *walk) enter(dir string) error {
	f, err := w.along(dir)
	if err == nil && f != nil {
		_ = f.Close()
		return fmt.Errorf("%s is no directory", dir)
	}
	return err
}

// program opens the program at the end of a path; shown is its path for people.
func (w *walk) program(path, shown string) (*Program, error) {
	f, err := w.along(path)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("%w: it is a directory", ErrNotProgram)
	}
	is, err := statOf(f, shown)
	switch {
	case err != nil:
	case is.kind != 0:
		err = fmt.Errorf("%w: it is no regular file", ErrNotProgram)
	case is.perm&0o111 == 0:
		err = fmt.Errorf("%w: it cannot be executed", ErrNotProgram)
	default:
		err = is.check(f.Name())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Program{path: shown, f: f}, nil
}

// Path is the absolute path under which the program was found.
func (p *Program) Path() string { return p.path }

// Close ends the right to run the program.
func (p *Program) Close() error { return p.f.Close() }

// PathVariable is the environment variable that tells a program the path under which
// it was found. A script does not find it in $0: that is the descriptor's path.
const PathVariable = "BINDERY_PROGRAM"

// Environment is what a program finds of itself in its environment.
func (p *Program) Environment() string { return PathVariable + "=" + p.path }

// Command prepares a run. The program must not be closed before the run has begun.
func (p *Program) Command(ctx context.Context, args ...string) *exec.Cmd {
	path, extra := p.executable()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Args[0], cmd.ExtraFiles = p.path, extra
	return cmd
}

// CannotStart says why a run could not be started, or nothing where err is not about
// that.
func CannotStart(err error) string {
	var at *fs.PathError
	switch {
	case !errors.As(err, &at):
		return ""
	case errors.Is(err, fs.ErrNotExist) && !hasDescriptors():
		return "it could not be started: /proc is not mounted, and programs are run by descriptor"
	case errors.Is(err, fs.ErrNotExist):
		return "it could not be started: its interpreter is missing"
	case errors.Is(err, fs.ErrPermission):
		return "it could not be started: permission denied"
	}
	return "it could not be started"
}

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"time"
)

// hooks finds the operator's programs in a directory:
//
//	provider/<provider>, else provider/<provision>, else provider/default
//	consumer/<assignment>, else consumer/<module>, else consumer/default
type hooks struct {
	path string // absolute
	root *os.Root
}

// openHooks opens the directory of hooks.
func openHooks(dir string) (*hooks, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, err
	}
	return &hooks{path: abs, root: root}, nil
}

// errNoHook says that there is no hook for what is to be done.
var errNoHook = errors.New("no hook")

const defaultHook = "default"

// find is the path of the first hook of a side that there is, among names. One
// that others could have written is not run, and nothing else in its place.
func (h *hooks) find(side string, names ...string) (string, error) {
	for _, name := range append(names, defaultHook) {
		if name == "" {
			continue
		}
		file := path.Join(side, name)
		info, err := h.root.Stat(file) // follows no link out of the directory
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("the hook %s cannot be used: %w", file, bare(err))
		}
		if err := h.trust(file, info); err != nil {
			return "", err
		}
		return filepath.Join(h.path, filepath.FromSlash(file)), nil
	}
	return "", errNoHook
}

// trust reports whether nobody but root and this user could have written a hook.
func (h *hooks) trust(file string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("the hook %s is no file", file)
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("the hook %s cannot be executed", file)
	}
	if err := trusted(file, info); err != nil {
		return err
	}
	dirs, err := h.above(file)
	if err != nil {
		return fmt.Errorf("the hook %s cannot be used: %w", file, err)
	}
	for _, dir := range dirs {
		info, err := h.root.Stat(dir)
		if err != nil {
			return fmt.Errorf("the directory of the hook %s cannot be read", file)
		}
		if err := trusted("the directory of "+file, info); err != nil {
			return err
		}
	}
	return nil
}

// above are the directories that a hook lies in, and where it is a link those that
// what it leads to lies in: who can write one of them can put another hook there.
func (h *hooks) above(file string) ([]string, error) {
	out := []string{"."}
	for range 10 { // links that lead on
		for dir := path.Dir(file); dir != "." && dir != "/"; dir = path.Dir(dir) {
			out = append(out, dir)
		}
		to, err := h.root.Readlink(file)
		if err != nil {
			return out, nil // it is none
		}
		file = path.Join(path.Dir(file), filepath.ToSlash(to))
	}
	return nil, errors.New("too many links")
}

func trusted(what string, info fs.FileInfo) error {
	if uid, ok := ownerOf(info); ok && uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("the hook is not run: %s belongs to another user", what)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("the hook is not run: others can write %s", what)
	}
	return nil
}

// Bounds of what a hook may print.
const (
	maxHookOut = 2 * maxSecretLen // on standard output: a secret in JSON
	maxHookErr = 8 << 10          // the end of its standard error is kept
)

// hookGrace is how long a hook has to end after SIGTERM.
const hookGrace = 2 * time.Second

// hookRun is one run of a program.
type hookRun struct {
	path    string
	args    []string
	env     []string
	stdin   []byte
	limit   time.Duration
	secrets []string // what no reason may repeat
	secret  bool     // what it prints is a secret, too
}

// runFailure is why a run failed: its reason is fit for the ledger.
type runFailure struct{ reason string }

func (f *runFailure) Error() string { return f.reason }

// run runs it to its end without a shell, and returns what it printed. Its process
// group is ended when limit is over or ctx ends, and what is left of it when the
// program itself has ended.
func (r *hookRun) run(ctx context.Context) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	cmd := exec.CommandContext(limited, r.path, r.args...)
	stdin, err := input(r.stdin)
	if err != nil {
		return nil, err
	}
	cmd.Env, cmd.Stdin, cmd.Dir = r.env, stdin, "/"
	out, errs := &head{most: maxHookOut}, &tail{most: maxHookErr}
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		// A process that has not become a group yet: nothing is lost, it is killed below.
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	}
	cmd.WaitDelay = hookGrace // then it is killed, and what holds its output is left
	err = cmd.Run()
	if f, ok := stdin.(*os.File); ok {
		_ = f.Close()
	}
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
	}
	done := err == nil || errors.Is(err, exec.ErrWaitDelay) // it ended well, and may have left something that held its output
	switch {
	case done && out.over:
		return nil, &runFailure{fmt.Sprintf("it printed more than %d bytes", maxHookOut)}
	case done:
		return out.data, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, &runFailure{fmt.Sprintf("it took longer than %s and was ended", r.limit)}
	}
	return nil, &runFailure{r.reason(err, out, errs)}
}

// pipeRoom is what a pipe takes at least before somebody reads it, in bytes.
const pipeRoom = 4096

// input is what a program reads data from. What fits into a pipe is there before
// the program starts: it reads all of it even where the agent is killed.
func input(data []byte) (io.Reader, error) {
	if len(data) > pipeRoom {
		return bytes.NewReader(data), nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(data); err == nil {
		err = w.Close()
	}
	return r, err
}

// reason says why a run failed, in words the ledger takes.
func (r *hookRun) reason(err error, out *head, errs *tail) string {
	fallback := "it could not be started"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		fallback = exitText(exit)
	} else if errors.Is(err, fs.ErrPermission) {
		fallback = "it could not be started: permission denied"
	}
	line, secrets := lastLine(string(errs.data), errs.cut), r.secrets
	if r.secret {
		var printed map[string]string
		if json.Unmarshal(out.data, &printed) == nil {
			secrets = append(values(printed), secrets...)
		}
	} else if line == "" && !out.over {
		line = lastLine(string(out.data), false)
	}
	if text, ok := fit(line, secrets); ok && text != "" {
		return text
	}
	return fallback
}

func exitText(e *exec.ExitError) string {
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return "ended by " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", e.ExitCode())
}

// head keeps the first bytes of what is written.
type head struct {
	data []byte
	most int
	over bool
}

func (h *head) Write(p []byte) (int, error) {
	keep := min(len(p), h.most-len(h.data))
	h.data = append(h.data, p[:keep]...)
	h.over = h.over || keep < len(p)
	return len(p), nil
}

// tail keeps the last bytes of what is written.
type tail struct {
	data []byte
	most int
	cut  bool // something before data is gone
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.most {
		p, t.cut = p[len(p)-t.most:], true
	}
	if over := len(t.data) + len(p) - t.most; over > 0 {
		t.data, t.cut = append(t.data[:0], t.data[over:]...), true
	}
	t.data = append(t.data, p...)
	return n, nil
}

// environment is what every run sees of the agent's own environment.
func environment(getenv func(string) string) []string {
	var out []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} {
		if v := getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}

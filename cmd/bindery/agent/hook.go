package agent

import (
	"bytes"
	"cmp"
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

	"bindery/ledger/owned"
)

// hooks finds the operator's programs in a directory:
//
//	provider/<provider>, else provider/<provision>, else provider/default
//	consumer/<assignment>, else consumer/<module>, else consumer/default
type hooks struct{ path string } // absolute

// openHooks takes a directory of hooks, if nobody else could change it.
func openHooks(dir string) (*hooks, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := owned.Dir(abs); err != nil {
		return nil, err
	}
	return &hooks{path: abs}, nil
}

// errNoHook says that there is no hook for what is to be done.
var errNoHook = errors.New("no hook")

const defaultHook = "default"

// find opens the first hook of a side that exists, among names, and says which file it
// is. A hook that others could change is not run, and no other hook is run in its place.
// The whole way is checked each time: rights may have changed since the agent started.
func (h *hooks) find(side string, names ...string) (*owned.Program, string, error) {
	for _, name := range append(names, defaultHook) {
		if name == "" {
			continue
		}
		file := path.Join(side, name)
		p, err := h.open(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return p, file, err
	}
	return nil, "", errNoHook
}

// open opens one hook, if nobody else could change it.
func (h *hooks) open(file string) (*owned.Program, error) {
	p, err := owned.FindIn(h.path, file)
	var problem *owned.Problem
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case errors.As(err, &problem):
		return nil, fmt.Errorf("the hook %s is not run: %w", file, problem)
	}
	return nil, fmt.Errorf("the hook %s cannot be used: %w", file, bare(err))
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
	program *owned.Program // closed when the run has ended
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
	defer r.program.Close()
	cmd := r.program.Command(limited, r.args...)
	stdin, err := input(r.stdin)
	if err != nil {
		return nil, err
	}
	cmd.Env, cmd.Stdin, cmd.Dir = append(r.env, r.program.Environment()), stdin, "/"
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
	fallback := cmp.Or(owned.CannotStart(err), "it could not be started")
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		fallback = exitText(exit)
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

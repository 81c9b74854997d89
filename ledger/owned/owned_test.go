package owned

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// world is a directory with parts of a path that tests change.
type world struct {
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return world{t, dir}
}

func (w world) in(name string) string { return filepath.Join(w.dir, name) }

func (w world) mkdir(name string, mode fs.FileMode) {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(w.in(name), 0o755), os.Chmod(w.in(name), mode)); err != nil {
		w.t.Fatal(err)
	}
}

func (w world) script(name, text string, mode fs.FileMode) {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(w.in(name)), 0o755), os.WriteFile(w.in(name), []byte("#!/bin/sh\n"+text+"\n"), 0o700),
		os.Chmod(w.in(name), mode)); err != nil {
		w.t.Fatal(err)
	}
}

func (w world) link(to, name string) {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(w.in(name)), 0o755), os.Symlink(to, w.in(name))); err != nil {
		w.t.Fatal(err)
	}
}

// giveAway makes a file another user's, which only root can.
func (w world) giveAway(name string) {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("only root gives files away")
	}
	if err := os.Lchown(w.in(name), 12345, -1); err != nil {
		w.t.Fatal(err)
	}
}

// output is what a program prints.
func output(t *testing.T, p *Program, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	cmd := p.Command(t.Context(), args...)
	cmd.Env, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH"), p.Environment()}, &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// Each place on the way to a program where somebody else could put another one.
func TestSomebodyElseCouldChangeIt(t *testing.T) {
	for name, spoil := range map[string]func(w world){
		"the file is writable by a group":            func(w world) { w.script("a/b/run", "", 0o775) },
		"the file is writable by all":                func(w world) { w.script("a/b/run", "", 0o757) },
		"the file is another user's":                 func(w world) { w.giveAway("a/b/run") },
		"its directory is writable by a group":       func(w world) { w.mkdir("a/b", 0o775) },
		"its directory is writable by all":           func(w world) { w.mkdir("a/b", 0o777) },
		"its directory is another user's":            func(w world) { w.giveAway("a/b") },
		"a directory above is writable by a group":   func(w world) { w.mkdir("a", 0o775) },
		"a directory above is writable by all":       func(w world) { w.mkdir("a", 0o777) },
		"a directory above is another user's":        func(w world) { w.giveAway("a") },
		"a sticky directory has the file":            func(w world) { w.mkdir("a/b", 0o777|fs.ModeSticky) },
		"a sticky directory of a group has the file": func(w world) { w.mkdir("a/b", 0o770|fs.ModeSticky) },
		"a sticky directory is another user's":       func(w world) { w.mkdir("a", 0o777|fs.ModeSticky); w.giveAway("a") },
		"a sticky directory has another user's one":  func(w world) { w.mkdir("a", 0o777|fs.ModeSticky); w.giveAway("a/b") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.script("a/b/run", "", 0o755)
			p, err := Find(w.in("a/b/run"))
			if err != nil {
				t.Fatal(err)
			}
			_ = p.Close()
			spoil(w)
			var problem *Problem
			if _, err := Find(w.in("a/b/run")); !errors.As(err, &problem) {
				t.Errorf("found: %v", err)
			}
			if _, err := FindIn(w.in("a"), "b/run"); !errors.As(err, &problem) {
				t.Errorf("found below the directory: %v", err)
			}
		})
	}
}

// A link is as safe as the directory it lies in and all that its target lies in.
func TestLinksOnTheWay(t *testing.T) {
	for name, spoil := range map[string]func(w world){
		"":                                     func(world) {},
		"the link's directory":                 func(w world) { w.mkdir("links", 0o777) },
		"the link's directory is sticky":       func(w world) { w.mkdir("links", 0o777|fs.ModeSticky) },
		"a second link's directory":            func(w world) { w.mkdir("more", 0o777) },
		"the target's directory":               func(w world) { w.mkdir("real/dir", 0o777) },
		"a directory above the target":         func(w world) { w.mkdir("real", 0o777) },
		"a directory that is left again by ..": func(w world) { w.mkdir("more/aside", 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.script("real/dir/run", "echo ran", 0o755)
			w.mkdir("more/aside", 0o755)
			w.link("../more/aside/../dir", "links/dir")
			w.link(w.in("real/dir"), "more/dir")
			spoil(w)
			p, err := Find(w.in("links/dir/run"))
			var problem *Problem
			if isGood := name == ""; isGood != (err == nil) || !isGood && !errors.As(err, &problem) {
				t.Fatalf("%v", err)
			}
			if err == nil && output(t, p) != "ran" {
				t.Error("it did not run")
			}
		})
	}
}

// No link below a directory of programs leads out of it, and a circle ends.
func TestLinksOut(t *testing.T) {
	w := newWorld(t)
	w.script("out", "", 0o755)
	w.script("dir/in", "", 0o755)
	w.link("../out", "dir/up")
	w.link(w.in("dir/in"), "dir/absolute")
	w.link("sub/../../dir/in", "dir/over")
	w.mkdir("dir/sub", 0o755)
	w.link("circle", "dir/circle")
	w.link("in", "dir/fine")
	w.link("dir", "alias")
	for name, want := range map[string]error{"in": nil, "fine": nil, "up": ErrOutside, "absolute": ErrOutside, "over": ErrOutside, "sub/../../out": ErrOutside,
		"none": fs.ErrNotExist, "in/below": errors.New("not a directory"), "circle": errors.New("too many levels of symbolic links"), "sub": ErrNotProgram} {
		for _, dir := range []string{"dir", "alias"} {
			p, err := FindIn(w.in(dir), name)
			if !errors.Is(err, want) && (want == nil || err == nil || !strings.Contains(err.Error(), want.Error())) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
			if err == nil {
				_ = p.Close()
			}
		}
	}
}

// What was checked is what runs, whatever is at its place by then.
func TestSwappedAfterTheCheck(t *testing.T) {
	for name, swap := range map[string]func(w world) error{
		"the file": func(w world) error {
			w.script("evil", "echo evil", 0o755)
			return os.Rename(w.in("evil"), w.in("a/b/run"))
		},
		"its directory": func(w world) error {
			w.script("evil/run", "echo evil", 0o755)
			return errors.Join(os.Rename(w.in("a/b"), w.in("was")), os.Rename(w.in("evil"), w.in("a/b")))
		},
		"a directory above": func(w world) error {
			w.script("evil/b/run", "echo evil", 0o755)
			return errors.Join(os.Rename(w.in("a"), w.in("was")), os.Rename(w.in("evil"), w.in("a")))
		},
		"a directory above, by a link": func(w world) error {
			w.script("evil/b/run", "echo evil", 0o755)
			return errors.Join(os.Rename(w.in("a"), w.in("was")), os.Symlink("evil", w.in("a")))
		},
		"the link to it": func(w world) error {
			w.script("evil", "echo evil", 0o755)
			return errors.Join(os.Remove(w.in("start")), os.Symlink("evil", w.in("start")))
		},
		"it is gone": func(w world) error { return os.RemoveAll(w.in("a")) },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/proc/self/fd"); err != nil {
				t.Skip("programs run by their path here")
			}
			w := newWorld(t)
			w.script("a/b/run", "echo good", 0o755)
			w.link("a/b/run", "start")
			p, err := Find(w.in("start"))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := swap(w); err != nil {
				t.Fatal(err)
			}
			if got := output(t, p); got != "good" {
				t.Errorf("it ran %q", got)
			}
		})
	}
}

// A program knows how it was found: by its first argument, and a script, whose $0 is
// the descriptor's path, by its environment. Arguments and the descriptor's number
// are as documented.
func TestWhatAProgramIsCalled(t *testing.T) {
	w := newWorld(t)
	w.script("say", `echo "$BINDERY_PROGRAM $1 $#"; case $0 in /proc/self/fd/*|*/say) ;; *) echo "$0";; esac; . "$(dirname "$BINDERY_PROGRAM")/beside"`, 0o755)
	w.script("beside", "echo beside", 0o644)
	p, err := Find(w.in("say"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got, want := output(t, p, "a b"), w.in("say")+" a b 1\nbeside"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if p.Path() != w.in("say") {
		t.Error(p.Path())
	}
	// A binary, by its name in PATH.
	sh, err := Find("sh")
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	if got := output(t, sh, "-c", `echo "$0"`); got != sh.Path() {
		t.Errorf("$0 of a binary is %q, want %q", got, sh.Path())
	}
}

// A program that cannot be found, or is none, is no program.
func TestNoProgram(t *testing.T) {
	w := newWorld(t)
	w.script("text", "", 0o644)
	w.mkdir("dir", 0o755)
	if err := os.WriteFile(w.in("lost"), []byte("#!"+w.in("nowhere")+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{w.in("none"), w.in("text"), w.in("dir"), "no-such-program-anywhere"} {
		if _, err := Find(name); err == nil {
			t.Errorf("%s is a program", name)
		}
	}
	for _, name := range []string{"text", "dir"} {
		if _, err := FindIn(w.dir, name); !errors.Is(err, ErrNotProgram) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := Find(w.in("lost"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = p.Command(t.Context()).Run()
	if got := CannotStart(err); got != "it could not be started: its interpreter is missing" {
		t.Errorf("%q of %v", got, err)
	}
	if got := CannotStart(&exec.ExitError{}); got != "" {
		t.Errorf("%q of an exit", got)
	}
}

// Dir judges a directory and all above it.
func TestDir(t *testing.T) {
	w := newWorld(t)
	w.mkdir("a/b", 0o755)
	w.script("file", "", 0o755)
	if err := Dir(w.in("a/b")); err != nil {
		t.Error(err)
	}
	if err := Dir(w.in("file")); err == nil {
		t.Error("a file is a directory")
	}
	w.mkdir("a", 0o777)
	var p *Problem
	if err := Dir(w.in("a/b")); !errors.As(err, &p) || !p.Anybody || p.Path != w.in("a") || !slices.Equal(p.Fix, []string{"chmod", "go-w", w.in("a")}) {
		t.Errorf("%+v", err)
	}
	w.mkdir("a", 0o770)
	if err := Dir(w.in("a/b")); !errors.As(err, &p) || p.Anybody {
		t.Errorf("%+v", err)
	}
}

package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"bindery/events"
	"bindery/ledger/owned"
)

// program is an open program, a shell script of text.
func program(t *testing.T, text string) *owned.Program {
	t.Helper()
	p, err := owned.Find(script(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whatever a program does, its run ends, and says why in words the ledger takes.
func TestHookRun(t *testing.T) {
	const password = "QWERTYUIOPASDFGHJKLZXCVBNM"
	for name, c := range map[string]struct {
		text string
		want string // reason; "": it succeeds
	}{
		"succeeds":               {"cat > /dev/null", ""},
		"reads nothing":          {"exec 0<&-; exit 0", ""},
		"fails":                  {"exit 7", "exit status 7"},
		"says why":               {"echo first; echo why >&2; exit 1", "why"},
		"says why, the last":     {"echo one >&2; echo two >&2; echo >&2; exit 1", "two"},
		"says why on stdout":     {"echo why; exit 1", "why"},
		"is killed":              {"kill -9 $$", "ended by killed"},
		"crashes":                {"kill -SEGV $$", "ended by segmentation fault"},
		"hangs":                  {"sleep 1000", "it took longer than 1s and was ended"},
		"hangs, deaf":            {"trap '' TERM; while :; do sleep 0.1; done", "it took longer than 1s and was ended"},
		"forks and hangs":        {"sleep 1000 & sleep 1000", "it took longer than 1s and was ended"},
		"leaves something":       {"sleep 1000 & exit 0", ""},
		"leaves something, deaf": {"(trap '' TERM HUP; while :; do sleep 1; done) & exit 0", ""},
		"leaves its output":      {"sleep 1000 >/dev/null 2>&1 & exit 0", ""},
		"tells the password":     {"echo " + password + " >&2; exit 1", "***"},
		"tells it in words":      {"echo \"FATAL: role 'x' with $(cat) fails\" >&2; exit 1", "FATAL: role 'x' with *** fails"},
		"tells it in base64":     {"echo " + base64.StdEncoding.EncodeToString([]byte(password)) + " >&2; exit 1", "***"},
		"tells another secret":   {"echo 'postgres://u:pass4word@h/db is down' >&2; exit 1", "exit status 1"},
		"prints controls":        {`printf 'a\033[31mb\tc\001' >&2; exit 1`, "a [31mb c"},
		"prints no UTF-8":        {`printf 'a\377\376b' >&2; exit 1`, "a b"},
		"prints much":            {"yes | head -c 1000000", "it printed more than 131072 bytes"},
		"prints one long line":   {"yes | tr -d '\\n' | head -c 100000 >&2; exit 1", "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := hookRun{program: program(t, c.text), env: []string{"PATH=" + os.Getenv("PATH")}, stdin: []byte(password), limit: time.Second, secrets: []string{password}}
			began := time.Now()
			if !strings.HasPrefix(c.want, "it took") {
				r.limit = patience
			}
			_, err := r.run(t.Context())
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if took := time.Since(began); took > patience {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// What a program leaves running is ended with it, however it ends.
func TestHookLeavesNothing(t *testing.T) {
	for name, text := range map[string]string{
		"ends":  "(while :; do echo x >> $OUT; sleep 0.05; done) & exit 0",
		"fails": "(while :; do echo x >> $OUT; sleep 0.05; done) & exit 1",
		"hangs": "(trap '' TERM; while :; do echo x >> $OUT; sleep 0.05; done) & sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			r := hookRun{program: program(t, text), env: []string{"PATH=" + os.Getenv("PATH"), "OUT=" + out}, limit: time.Second}
			_, _ = r.run(t.Context())
			size := func() int64 {
				i, err := os.Stat(out)
				if err != nil {
					return 0
				}
				return i.Size()
			}
			before := size()
			time.Sleep(500 * time.Millisecond)
			if after := size(); after != before {
				t.Errorf("it wrote %d bytes after its end", after-before)
			}
		})
	}
}

// A run that is stopped is no failure of its own.
func TestHookStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	r := hookRun{program: program(t, "sleep 1000"), env: []string{"PATH=" + os.Getenv("PATH")}, limit: time.Minute}
	if _, err := r.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A program whose output is a secret is not quoted from it.
func TestSecretOutputIsNotQuoted(t *testing.T) {
	for _, text := range []string{
		`echo '{"token":"made-by-the-server"}'; exit 1`,
		`echo '{"token":"made-by-the-server"}'; echo made-by-the-server >&2; exit 1`,
		`echo made-by-the-server; exit 1`,
	} {
		r := hookRun{program: program(t, text), limit: time.Minute, secret: true}
		_, err := r.run(t.Context())
		if err == nil || strings.Contains(err.Error(), "made-by") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// No reason repeats a secret, whatever is around it; each is what the ledger takes.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.OneOf(rapid.StringMatching(`[A-Z2-7]{26}`), rapid.StringMatching(`[ -~]{1,40}`), rapid.StringN(1, 20, 60)).Draw(t, "secret")
		around := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,300}`))
		line := around.Draw(t, "before") + secret + around.Draw(t, "after")
		text, ok := fit(line, []string{secret})
		if !ok {
			return
		}
		if len(secret) >= shortSecret && strings.Trim(secret, "*") != "" && strings.Contains(text, secret) || len(text) > maxReason || !utf8.ValidString(text) {
			t.Fatalf("%q of %q", text, line)
		}
		if err := events.CheckReason(text); err != nil {
			t.Fatal(err)
		}
	})
}

// A short secret is not cut out of a text: what is left would tell.
func TestFitShortSecret(t *testing.T) {
	if text, ok := fit("cannot log in as abc", []string{"abc"}); ok {
		t.Errorf("%q", text)
	}
	if text, ok := fit("cannot log in", []string{"abc", ""}); !ok || text != "cannot log in" {
		t.Errorf("%q %v", text, ok)
	}
}

// Which hook is run, and which is not trusted.
func TestFindHook(t *testing.T) {
	elsewhere := script(t, "exit 0")
	for name, c := range map[string]struct {
		files map[string]os.FileMode
		links map[string]string
		names []string
		want  string // the file, or what is wrong
	}{
		"the first name":      {files: map[string]os.FileMode{"a": 0o755, "b": 0o755, "default": 0o755}, names: []string{"a", "b"}, want: "a"},
		"the second":          {files: map[string]os.FileMode{"b": 0o700, "default": 0o755}, names: []string{"a", "b"}, want: "b"},
		"the default":         {files: map[string]os.FileMode{"default": 0o755}, names: []string{"a", "b"}, want: "default"},
		"no name":             {files: map[string]os.FileMode{"default": 0o755}, names: []string{"", "b"}, want: "default"},
		"none":                {names: []string{"a"}, want: errNoHook.Error()},
		"writable by a group": {files: map[string]os.FileMode{"a": 0o775, "default": 0o755}, names: []string{"a"}, want: "the hook provider/a is not run: others can write DIR/provider/a: its mode is MODE"},
		"writable by all":     {files: map[string]os.FileMode{"a": 0o757}, names: []string{"a"}, want: "the hook provider/a is not run: others can write DIR/provider/a: its mode is MODE"},
		"no program":          {files: map[string]os.FileMode{"a": 0o644}, names: []string{"a"}, want: "the hook provider/a cannot be used: it is no program: it cannot be executed"},
		"a directory":         {links: map[string]string{"a": "."}, names: []string{"a"}, want: "the hook provider/a cannot be used: it is no program: it is a directory"},
		"a link within":       {files: map[string]os.FileMode{"b": 0o755}, links: map[string]string{"a": "b"}, names: []string{"a"}, want: "a"},
		"a link out":          {links: map[string]string{"a": "../../../../../.." + elsewhere}, names: []string{"a"}, want: "the hook provider/a cannot be used: a link leads out of the directory"},
		"an absolute link":    {links: map[string]string{"a": elsewhere}, names: []string{"a"}, want: "the hook provider/a cannot be used: a link leads out of the directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "provider"), 0o755); err != nil {
				t.Fatal(err)
			}
			for f, mode := range c.files {
				path := filepath.Join(dir, "provider", f)
				if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
					t.Fatal(err)
				}
			}
			for f, to := range c.links {
				if err := os.Symlink(to, filepath.Join(dir, "provider", f)); err != nil {
					t.Fatal(err)
				}
			}
			h, err := openHooks(dir)
			if err != nil {
				t.Fatal(err)
			}
			p, _, err := h.find("provider", c.names...)
			got := fmt.Sprint(err)
			if err == nil {
				got = filepath.Base(p.Path())
				_ = p.Close()
			}
			got = regexp.MustCompile(`0[0-7]{3}$`).ReplaceAllString(strings.ReplaceAll(got, dir, "DIR"), "MODE")
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	t.Run("a directory that others can write", func(t *testing.T) {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "provider"), 0o755), os.WriteFile(filepath.Join(dir, "provider", "a"), nil, 0o755),
			os.Chmod(filepath.Join(dir, "provider"), 0o777)); err != nil {
			t.Fatal(err)
		}
		h, err := openHooks(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.find("provider", "a"); err == nil || !strings.Contains(err.Error(), "others can write") {
			t.Errorf("%v", err)
		}
	})
}

// A hook that is a link is what it leads to: whoever can write there can write the hook.
func TestHookThatIsALink(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(in("provider"), 0o755), os.Mkdir(in("lib"), 0o755), os.Mkdir(in("mid"), 0o755), os.WriteFile(in("lib/toy"), nil, 0o755),
		os.Symlink("../mid/toy", in("provider/toy")), os.Symlink("../lib/toy", in("mid/toy"))); err != nil {
		t.Fatal(err)
	}
	h, err := openHooks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.find("provider", "toy"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"lib", "mid"} {
		if err := os.Chmod(in(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.find("provider", "toy"); err == nil || !strings.Contains(err.Error(), "others can write") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Chmod(in(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// What was found is what runs, whatever is put in its place before it is run.
func TestHookSwappedBeforeItsRun(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.MkdirAll(in("hooks/provider"), 0o755), os.Rename(script(t, "echo good"), in("hooks/provider/toy")),
		os.MkdirAll(in("evil/provider"), 0o755), os.Rename(script(t, "echo evil"), in("evil/provider/toy")), os.Symlink("hooks", in("alias"))); err != nil {
		t.Fatal(err)
	}
	h, err := openHooks(in("alias"))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := h.find("provider", "toy")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(in("alias")), os.Symlink("evil", in("alias"))); err != nil {
		t.Fatal(err)
	}
	r := hookRun{program: p, limit: time.Minute}
	if out, err := r.run(t.Context()); string(out) != "good\n" || err != nil {
		t.Errorf("%q %v", out, err)
	}
}

// A directory of hooks is not taken where somebody above it could swap it, however
// it is named; nor is a resolver that somebody could swap.
func TestDirectoryAboveTheHooks(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.MkdirAll(in("open/hooks/provider"), 0o755), os.Rename(script(t, "echo '{}'"), in("open/hooks/provider/toy")),
		os.Symlink("open/hooks", in("alias"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	names := []string{in("open/hooks"), in("alias"), "open/hooks", "./alias", "open/../alias"}
	for _, mode := range []os.FileMode{0o755, 0o777, 0o775} {
		if err := os.Chmod(in("open"), mode); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			_, err := openHooks(name)
			if isRight := mode == 0o755; isRight != (err == nil) {
				t.Errorf("%s where the mode above is %o: %v", name, mode, err)
			}
		}
		a := &Agent{cfg: Config{HookTimeout: time.Minute, Getenv: os.Getenv}}
		_, err := a.resolveBy(t.Context(), in("alias/provider/toy"), &need{ref: "vault:x"})
		if refused := err != nil && strings.Contains(err.Error(), "is not run: others can write"); refused == (mode == 0o755) {
			t.Errorf("a resolver where the mode above is %o: %v", mode, err)
		}
	}
}

// Rights that change while the agent runs count at the next run.
func TestDirectoryAboveTheHooksOpensLater(t *testing.T) {
	dir := t.TempDir()
	hooksDir := filepath.Join(dir, "above", "hooks")
	if err := errors.Join(os.MkdirAll(filepath.Join(hooksDir, "provider"), 0o755), os.Rename(script(t, ""), filepath.Join(hooksDir, "provider", "toy"))); err != nil {
		t.Fatal(err)
	}
	h, err := openHooks(hooksDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "above"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.find("provider", "toy"); err == nil || !strings.Contains(err.Error(), "others can write") {
		t.Errorf("%v", err)
	}
}

// Delays double, up to five minutes, and are never none.
func TestBackOff(t *testing.T) {
	for n := 1; n < 100; n++ {
		most := min(time.Second<<min(n-1, 20), 5*time.Minute)
		for range 20 {
			if d := backOff(n); d < most/2 || d > most {
				t.Fatalf("after %d failures %s, want %s to %s", n, d, most/2, most)
			}
		}
	}
}

func TestHostPort(t *testing.T) {
	for endpoint, want := range map[string]string{
		"alpha.home.arpa:5432":        "alpha.home.arpa 5432",
		"[fd00::1]:5432":              "fd00::1 5432",
		"https://s3.home.arpa":        "s3.home.arpa ",
		"https://s3.home.arpa:8443/a": "s3.home.arpa 8443",
		"https://[fd00::1]/a":         "fd00::1 ",
		"":                            " ",
		"no endpoint":                 " ",
	} {
		host, port := hostPort(endpoint)
		if got := fmt.Sprintf("%s %s", host, port); got != want {
			t.Errorf("%q: %q, want %q", endpoint, got, want)
		}
	}
}

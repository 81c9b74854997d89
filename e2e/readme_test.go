package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const readme = "../README.md"

// marked are the fenced blocks of a language that are marked as tests.
func marked(t *testing.T, lang string) []string {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^<!-- test -->\n```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if m[1] == lang && !strings.Contains(m[2], "go test") { // the tests would run themselves
			out = append(out, m[2])
		}
	}
	if len(out) == 0 {
		t.Fatalf("the README has no %s block that is marked as a test", lang)
	}
	return out
}

// cleanCopy is what git has of the tree, as it is now.
func cleanCopy(t *testing.T) string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = ".."
	files, err := list.Output()
	if err != nil {
		t.Skip("this is no git checkout: ", err)
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.Trim(string(files), "\x00"), "\x00") {
		from := filepath.Join("..", name)
		info, err := os.Lstat(from)
		if os.IsNotExist(err) {
			continue // removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Kind: the first commands that anybody types do not work.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	dir := cleanCopy(t)
	home := t.TempDir()
	goEnv, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Split(strings.TrimSpace(string(goEnv)), "\n")
	for _, block := range marked(t, "sh") {
		ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
		cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", block)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + filepath.Join(dirs[2], "bin") + ":" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "XDG_DATA_HOME=" + filepath.Join(home, "data"),
			"TERM=dumb", "GOCACHE=" + dirs[0], "GOMODCACHE=" + dirs[1], "GOFLAGS=-buildvcs=false", "GOPROXY=off", "CGO_ENABLED=0"}
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Errorf("%v\n%s\n%s", err, block, out)
		}
		t.Logf("%s\n%s", block, out)
	}
}

// Kind: what the README shows is not what the program says.
func TestReadmeSession(t *testing.T) {
	t.Parallel()
	for i, block := range marked(t, "console") {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			c := newCLI(t)
			c.must(t, "apply", "--init", "-f", fleet)
			got := session(t, c, block)
			if diff := cmp.Diff(timeless(block), timeless(got)); diff != "" {
				t.Errorf("the README is not what the program says:\n%s\n\nit says:\n%s", diff, got)
			}
		})
	}
}

// session types the lines of a block that begin with "$ ", and returns the
// block as it should be.
func session(t *testing.T, c *cli, block string) string {
	var out strings.Builder
	for i, part := range strings.Split("\n"+block, "\n$ ") {
		if i == 0 {
			continue
		}
		line, _, _ := strings.Cut(part, "\n")
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.Env = environ(filepath.Dir(c.store), c.store)
		cmd.Env[0] = "PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")
		var both bytes.Buffer
		cmd.Stdout, cmd.Stderr = &both, &both
		err := cmd.Run()
		cancel()
		if err != nil && cmd.ProcessState == nil {
			t.Fatalf("%s: %v", line, err)
		}
		if out.Len() > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "$ %s\n%s", line, both.String())
	}
	return out.String()
}

// timeless takes ids and times out of a text.
func timeless(text string) string {
	text = anID.ReplaceAllStringFunc(text, func(id string) string {
		if strings.HasPrefix(id, "…") {
			return "…<id>"
		}
		return "<id>"
	})
	return ago.ReplaceAllString(instants.ReplaceAllString(text, "<time>"), ", <ago>$2")
}

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
	"time"
)

// demo runs docs/postgres/demo as it lies in a directory, and returns what it printed.
func demo(t *testing.T, dir string) (stdout, stderr string, err error) {
	t.Helper()
	needsPostgres(t)
	var ports []string
	for range 4 {
		ports = append(ports, fmt.Sprint(freePort(t)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "demo"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8", "TERM=dumb",
		"BINDERY=" + program, "PORTS=" + strings.Join(ports, " ")}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it takes everything away
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	noticeSources()
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Kind: the script that the page shows does not run, or says something else.
func TestPostgresDemo(t *testing.T) {
	t.Parallel()
	out, errs, err := demo(t, "../docs/postgres")
	if err != nil || !strings.HasSuffix(out, "# All is as it should be\n") {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	if errs != "" {
		t.Errorf("it says on standard error:\n%s", errs)
	}
	page, err := os.ReadFile("../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^<!-- demo -->\n```console\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 4 {
		t.Fatalf("the page shows %d parts of it", len(blocks))
	}
	said := numberless(out)
	for _, b := range blocks {
		if !strings.Contains(said, numberless(b[1])) {
			t.Errorf("the page has\n%s\nand it says\n%s", numberless(b[1]), said)
		}
	}
}

// numberless takes out of a text what is another in each run: ids, roles, numbers and how
// long ago, and the blanks that depend on their length.
func numberless(text string) string {
	text = regexp.MustCompile(`\b(\d+[smh] ago|now)\b`).ReplaceAllString(text, "<ago>")
	text = regexp.MustCompile(`b[0-9a-z]{10}_\d+_[0-9a-f]{8}`).ReplaceAllString(timeless(text), "<role>")
	text = regexp.MustCompile(`_[0-9a-z]{10}\b`).ReplaceAllString(text, "_<id>")
	text = regexp.MustCompile(`/\d+-[0-9a-f]{8}-[0-9a-z]{8}`).ReplaceAllString(text, "/<generation>")
	text = regexp.MustCompile(`\b\d+\b`).ReplaceAllString(text, "<n>")
	return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
}

// Kind: the script says that all is well, whatever the hooks do.
func TestPostgresDemoNotices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../docs/postgres")); err != nil {
		t.Fatal(err)
	}
	hook := filepath.Join(dir, "provider", "postgres-database")
	text, err := os.ReadFile(hook)
	if err != nil {
		t.Fatal(err)
	}
	lazy := strings.Replace(string(text), "revoke | clean) drop ;;", "revoke | clean) did dropped ;;", 1) // it lies
	if lazy == string(text) {
		t.Fatal("the hook has no such line any more")
	}
	if err := os.WriteFile(hook, []byte(lazy), 0o755); err != nil {
		t.Fatal(err)
	}
	out, errs, err := demo(t, dir)
	if err == nil || !strings.Contains(errs, "NOT AS IT SHOULD BE: whoever has the files in") {
		t.Errorf("an old role is left, and it says: %v\n%s\n%s", err, out, errs)
	}
	if left, _ := filepath.Glob("/tmp/bindery-demo.*"); len(left) > 1 { // one may be that of TestPostgresDemo
		t.Errorf("left: %v", left)
	}
}

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// walk calls f for each command that a user may see.
func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			walk(sub, f)
		}
	}
}

func newTree(t *testing.T) *cobra.Command {
	t.Helper()
	p := NewProgram()
	p.Getenv = func(string) string { return "" }
	root := (&cli{program: p, streams: Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}, interrupted: t.Context()}).root()
	root.InitDefaultHelpCmd()
	return root
}

// Each command says what it is in a line, and opens its help with an example.
func TestEveryCommandHasHelp(t *testing.T) {
	n := 0
	walk(newTree(t), func(cmd *cobra.Command) {
		n++
		path := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short is %q", path, cmd.Short)
		}
		if !cmd.HasSubCommands() && cmd.Long == "" {
			t.Errorf("%s: no Long", path)
		}
		if !strings.Contains(cmd.Example, "  bindery") && cmd.Name() != "completion" {
			t.Errorf("%s: Example is %q", path, cmd.Example)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s: no usage", path, f.Name)
			}
		})
	})
	if n < 50 {
		t.Errorf("%d commands; where are the others?", n)
	}
}

// What an example shows, the command line can read.
func TestExamplesParse(t *testing.T) {
	walk(newTree(t), func(cmd *cobra.Command) {
		for _, line := range exampleLines(cmd.Example) {
			args := words(t, line)
			root := newTree(t)
			target, rest, err := root.Find(args[1:])
			if err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
				continue
			}
			if cmd.Name() != "bindery" && !cmd.HasSubCommands() && target.CommandPath() != cmd.CommandPath() {
				t.Errorf("%s: its example is one of %s", cmd.CommandPath(), target.CommandPath())
			}
			if err := target.ParseFlags(rest); err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
				continue
			}
			if err := target.ValidateArgs(target.Flags().Args()); err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
			}
			if err := target.ValidateFlagGroups(); err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
			}
		}
	})
}

// exampleLines are the command lines in an example.
func exampleLines(example string) []string {
	var out []string
	for _, line := range strings.Split(strings.ReplaceAll(example, "\\\n", " "), "\n") {
		line = strings.TrimSpace(line)
		for _, end := range []string{" && ", " > ", " | "} {
			line, _, _ = strings.Cut(line, end)
		}
		line = strings.TrimSuffix(strings.TrimPrefix(line, "source <("), ")")
		if strings.HasPrefix(line, "bindery") {
			out = append(out, line)
		}
	}
	return out
}

// words splits a line as a shell does, as far as the examples go.
func words(t *testing.T, line string) []string {
	t.Helper()
	var out []string
	var quote rune
	word, open := "", false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, open = r, true
		case quote == 0 && r == ' ':
			if open {
				out, word, open = append(out, word), "", false
			}
		default:
			word, open = word+string(r), true
		}
	}
	if quote != 0 {
		t.Fatalf("%s: a quote is open", line)
	}
	if open {
		out = append(out, word)
	}
	return out
}

// A write has the flags of every write, and a read has none of them.
func TestWritesHaveTheirFlags(t *testing.T) {
	reads := map[string]bool{"list": true, "show": true, "status": true, "holders": true, "wait": true, "explain": true, "history": true, "log": true, "watch": true, "agent": true, "version": true, "serve": true, "doctor": true, "keygen": true, "verify": true, "checkpoint": true, "backup": true, "restore": true, "permissions": true, "completion": true, "help": true}
	walk(newTree(t), func(cmd *cobra.Command) {
		if cmd.HasSubCommands() {
			return
		}
		for name := range writeFlagNames {
			if cmd.Name() == "log" && name == "actor" {
				continue // whose events to list
			}
			if has := cmd.Flags().Lookup(name) != nil; has == reads[cmd.Name()] {
				t.Errorf("%s: has --%s: %t", cmd.CommandPath(), name, has)
			}
		}
	})
}

// An interrupt before anything happened is exit code 130, and closes the store.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir() + "/store"
	p := NewProgram()
	var out, errs bytes.Buffer
	run := func(ctx context.Context, args ...string) int {
		out.Reset()
		errs.Reset()
		return p.Run(ctx, append(args, "--store", dir), Streams{Out: &out, Err: &errs})
	}
	if code := run(t.Context(), "init", "--mesh", "home"); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, "node", "register", "alpha"); code != 130 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	if code := run(t.Context(), "node", "register", "alpha", "--timeout", "1ns"); code != 8 || !strings.Contains(errs.String(), "fix: bindery node register alpha --timeout 1ns --store "+dir+" --command-id 0") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	if code := run(t.Context(), "status"); code != 0 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}

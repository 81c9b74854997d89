package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bindery/commands"
	"bindery/projections"
)

// What helps is a value until it is shown: a verb with its arguments and flags. Here,
// and nowhere else, it becomes a line that can be pasted, with the flags by which this
// run reached its ledger.

func do(verb string, args ...string) commands.Fix { return projections.Do(verb, args...) }

func again() commands.Fix { return projections.Again() }

func program(words ...string) commands.Fix { return projections.Program(words...) }

func advise(text string) commands.Fix { return projections.Advise(text) }

// helpOf is the help of a command, given its path: "bindery node list".
func helpOf(path string) commands.Fix {
	return do(strings.TrimPrefix(strings.TrimPrefix(path, programName), " ")).With("--help")
}

// programName is what this program is called in a line to paste.
const programName = "bindery"

// theSame is this command line with other arguments, whole.
func theSame(args ...string) commands.Fix { return program(append([]string{programName}, args...)...) }

// line is a fix as one line of a shell; "" for none.
func (c *cli) line(f commands.Fix) string {
	switch {
	case f.Text() != "":
		return f.Text()
	case f.Advice != "":
		return f.Advice
	case len(f.Program) > 0:
		return quoteAll(f.Program)
	case f.Again:
		return quoteAll(append([]string{programName}, c.again(f)...))
	case f.IsZero():
		return ""
	}
	return quoteAll(slices.Concat([]string{programName}, f.Words(), c.reaching(f)))
}

// textual is a fix that is shown to people, and is text in JSON.
func (c *cli) textual(f commands.Fix) commands.Fix { return f.Shown(c.mask(c.line(f))) }

// again is the command line that was given, with other flags.
func (c *cli) again(f commands.Fix) []string {
	args := shown(c.args)
	for _, flag := range f.Without {
		args = c.without(args, flag)
	}
	for _, flag := range f.Flags {
		args = c.without(args, flag.Name)
	}
	// What follows "--" is no flag any more.
	at := len(args)
	if i := slices.Index(args, "--"); i >= 0 {
		at = i
	}
	return slices.Insert(slices.Clone(args), at, f.FlagWords()...)
}

// reaching are the flags by which this run was told where its ledger is, as far as a fix
// says nothing else: what follows from the environment holds for the next command, too.
func (c *cli) reaching(f commands.Fix) (words []string) {
	g := &c.globals
	says := func(names ...string) bool {
		return slices.ContainsFunc(f.Flags, func(flag projections.FixFlag) bool { return slices.Contains(names, flag.Name) })
	}
	if says("--help") {
		return nil
	}
	if !says("--store", "--server", "--context") {
		for _, flag := range []struct{ name, value string }{{"--store", g.store}, {"--server", publicURL(g.server)}, {"--context", g.context}} {
			if flag.value != "" {
				words = append(words, flag.name, flag.value)
			}
		}
	}
	if g.creds != "" && !says("--creds", "--store") {
		words = append(words, "--creds", g.creds)
	}
	if g.mesh != "" && !says("--mesh", "--store") && f.Verb != "init" {
		words = append(words, "--mesh", g.mesh)
	}
	return words
}

// without takes a flag out of a command line, with its value where it has one.
func (c *cli) without(args []string, flag string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return append(out, args[i:]...)
		case args[i] == flag:
			if !c.isSwitch(flag) {
				i++
			}
		case strings.HasPrefix(args[i], flag+"="):
		default:
			out = append(out, args[i])
		}
	}
	return out
}

// isSwitch reports whether a flag of the command that was given takes no value.
func (c *cli) isSwitch(flag string) bool {
	f := flagOf(c.given(), flag)
	return f != nil && f.NoOptDefVal != ""
}

// given is the command that was given; that of nothing where there is none such.
func (c *cli) given() *cobra.Command {
	if c.tree == nil {
		c.tree = (&cli{program: c.program}).root()
	}
	cmd, _, err := c.tree.Find(c.args)
	if err != nil {
		return c.tree
	}
	return cmd
}

func flagOf(cmd *cobra.Command, flag string) *pflag.Flag {
	if name, long := strings.CutPrefix(flag, "--"); long {
		if f := cmd.Flags().Lookup(name); f != nil {
			return f
		}
		return cmd.InheritedFlags().Lookup(name)
	}
	return cmd.Flags().ShorthandLookup(strings.TrimPrefix(flag, "-"))
}

func quoteAll(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = quote(a)
	}
	return strings.Join(out, " ")
}

// quote makes one word of s for a POSIX shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,+%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// asText makes text of every fix in an answer. In JSON that a program wrote, what is
// looked for cannot stand in a string: there the quotes are escaped.
func (c *cli) asText(answer json.RawMessage) (json.RawMessage, error) {
	var out []byte
	for rest := []byte(answer); ; {
		i := bytes.Index(rest, fixKey)
		if i < 0 {
			if out == nil {
				return answer, nil
			}
			return append(out, rest...), nil
		}
		i += len(fixKey) - 1 // the value begins with {
		var f commands.Fix
		d := json.NewDecoder(bytes.NewReader(rest[i:]))
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("reading an answer: %w", err)
		}
		text, err := json.Marshal(c.textual(f))
		if err != nil {
			return nil, fmt.Errorf("encoding an answer: %w", err)
		}
		out = append(append(out, rest[:i]...), text...)
		rest = rest[i+int(d.InputOffset()):]
	}
}

var fixKey = []byte(`"fix":{`)

package main

// The rules of output. This file and those it names (paper.go, table.go,
// format.go) print; nothing else does.
//
//   - Data goes to stdout, all else (errors, warnings, progress, "nothing there")
//     to stderr, so that a pipe carries data alone.
//   - ui.print prints every answer in every format. What people read (table,
//     wide) is made of the same JSON that machines get.
//   - JSON is the documented contract: fields are only ever added. Tables are for
//     people and may change.
//   - A write prints a line for each thing that is now so: what, which id (its
//     tail: the beginning of a ULID is time), which sequence. Where nothing is
//     different it says "unchanged".
//   - A state is always a word. Colour only repeats what the word says, and is
//     left out in pipes, with NO_COLOR, and where TERM is dumb.
//   - A character that a terminal would not show as itself is printed as its escape
//     (shown.go).
//   - Instants are relative in tables and RFC 3339 in UTC elsewhere.
//   - -q leaves out what was done and what was noticed, never data or errors.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"bindery/commands"
)

// ui is where a run speaks to its user.
type ui struct {
	out, err io.Writer
	format   format
	quiet    bool
	now      time.Time
	color    bool // of stdout
	errColor bool // of stderr
	width    int  // of the terminal that stdout is; 0: unbounded
	errTerm  bool // stderr is a terminal
}

// answer is something to be printed in any format.
type answer struct {
	json  json.RawMessage   // all of it
	items []json.RawMessage // what jsonl prints, a line each
	names []string          // what name prints
	human func(p *paper)    // what table and wide print
	// none is said on stderr where there are no items.
	none string
}

// newUI reads how to print from flags and environment.
func (c *cli) newUI() (*ui, error) {
	u := &ui{out: c.streams.Out, err: c.streams.Err, format: c.globals.output, quiet: c.globals.quiet, now: c.program.Clock()}
	if u.format == "" {
		if env := c.program.Getenv("BINDERY_OUTPUT"); env != "" {
			if err := u.format.Set(env); err != nil {
				return nil, usage(fmt.Sprintf("BINDERY_OUTPUT is %q", clip(env)), err.Error(), advise("unset BINDERY_OUTPUT"))
			}
		}
	}
	if u.format == "" {
		u.format = formatTable
	}
	u.color = c.colored(u.out)
	u.errColor = c.colored(u.err)
	u.width = terminalWidth(u.out)
	u.errTerm = isTerminal(u.err)
	return u, nil
}

// errorUI is a ui for an error that may have come before the flags were read.
func (c *cli) errorUI() *ui {
	if c.ui != nil {
		return c.ui
	}
	if c.globals.output == "" {
		_ = c.globals.output.Set(formatIn(c.args)) // what is no format is reported already
	}
	if u, err := c.newUI(); err == nil {
		return u
	}
	return &ui{out: c.streams.Out, err: c.streams.Err, format: formatTable}
}

func (c *cli) colored(w io.Writer) bool {
	switch c.globals.color {
	case colorAlways:
		return true
	case colorNever:
		return false
	}
	return isTerminal(w) && c.program.Getenv("NO_COLOR") == "" && c.program.Getenv("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// print prints an answer in the format asked for.
func (u *ui) print(a answer) error {
	var out []byte
	var err error
	switch u.format {
	case formatJSON:
		out, err = indented(a.json)
		out = shownJSON(out)
	case formatJSONLines:
		out = shownJSON(lines(a.items))
	case formatYAML:
		out, err = yamlOf(a.json)
	case formatName:
		for _, n := range a.names {
			out = append(append(out, shownLine(n)...), '\n')
		}
	default:
		p := &paper{ui: u, color: u.color, width: u.width, wide: u.format == formatWide}
		a.human(p)
		out = p.bytes()
		if a.none != "" && len(a.items) == 0 {
			u.note(a.none)
		}
	}
	if err == nil {
		_, err = u.out.Write(out)
	}
	return err
}

// note says something that is no data.
func (u *ui) note(text string) {
	if !u.quiet {
		fmt.Fprintln(u.err, shownText(text))
	}
}

// warn says what the user should know beside what was asked for.
func (u *ui) warn(texts []string) {
	if u.quiet || u.machine() {
		return // machines find them in the JSON
	}
	p := &paper{ui: u, color: u.errColor}
	for _, t := range texts {
		p.line(p.paint(yellow, "warning:") + " " + t)
	}
	_, _ = u.err.Write(p.bytes())
}

// machine reports whether JSON was asked for.
func (u *ui) machine() bool { return u.format == formatJSON || u.format == formatJSONLines }

// refusal shows an error.
func (u *ui) refusal(r *commands.Refusal) {
	if u.machine() {
		out := *r
		if out.Candidates == nil {
			out.Candidates = []commands.Candidate{}
		}
		data, err := json.Marshal(out)
		if err != nil {
			data = []byte(`{"code":"internal","message":"an error that cannot be shown","why":"","fix":"","candidates":[]}`)
		}
		_, _ = u.err.Write(append(shownJSON(unescapeHTML(data)), '\n'))
		return
	}
	p := &paper{ui: u, color: u.errColor}
	p.line(fmt.Sprintf("%s %s [%s]", p.paint(red, "error:"), shownLine(r.Message), r.Code))
	if r.Why != "" {
		p.line(p.paint(faint, "why:") + " " + strings.ReplaceAll(r.Why, "\n", "\n  "))
	}
	if len(r.Candidates) > 0 {
		p.line(p.paint(faint, "candidates:"))
		p.printCandidates(r.Candidates)
	}
	if !r.Fix.IsZero() {
		p.line(p.paint(faint, "fix:") + " " + shownLine(r.Fix.Text()))
	}
	_, _ = u.err.Write(p.bytes())
}

// printCandidates prints what could be chosen, two spaces in.
func (p *paper) printCandidates(cs []commands.Candidate) {
	g := grid{rows: make([][]string, len(cs)), below: make([]string, len(cs))}
	for _, column := range []struct {
		prose bool
		cell  func(c commands.Candidate) string
	}{
		{false, func(c commands.Candidate) string { return c.Name }},
		{false, func(c commands.Candidate) string { return c.Node }},
		{true, func(c commands.Candidate) string { return c.Why }},
		{false, func(c commands.Candidate) string { return c.Flag }},
	} {
		if !slices.ContainsFunc(cs, func(c commands.Candidate) bool { return column.cell(c) != "" }) {
			continue
		}
		g.prose = append(g.prose, column.prose)
		for i, c := range cs {
			g.rows[i] = append(g.rows[i], column.cell(c))
			g.below[i] = c.Fix.Text()
		}
	}
	p.inside(g.print)
}

// lines puts each item on a line of its own.
func lines(items []json.RawMessage) []byte {
	var b bytes.Buffer
	for _, item := range items {
		var one bytes.Buffer
		if json.Compact(&one, item) == nil {
			b.Write(unescapeHTML(one.Bytes()))
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

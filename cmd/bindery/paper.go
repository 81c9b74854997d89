package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// paper is what people read, while it is being written.
type paper struct {
	ui    *ui
	buf   bytes.Buffer
	color bool
	width int // 0: unbounded
	wide  bool
}

// The colours; each repeats what a word beside it says.
var (
	red    = text.Colors{text.FgRed}
	yellow = text.Colors{text.FgYellow}
	green  = text.Colors{text.FgGreen}
	bold   = text.Colors{text.Bold}
	faint  = text.Colors{text.Faint}
)

func (p *paper) paint(c text.Colors, s string) string {
	if !p.color || s == "" {
		return s
	}
	return markedColor(c, s)
}

func (p *paper) line(s string) {
	p.buf.WriteString(s)
	p.buf.WriteByte('\n')
}

// bytes is the page as a terminal may show it.
func (p *paper) bytes() []byte { return []byte(shownPaper(p.buf.String())) }

func (p *paper) linef(format string, args ...any) { p.line(fmt.Sprintf(format, args...)) }

// heading begins a part of a page.
func (p *paper) heading(s string) {
	if p.buf.Len() > 0 {
		p.line("")
	}
	p.line(p.paint(bold, s))
}

// state paints the word of a state.
func (p *paper) state(word string) string {
	switch word {
	case "active", "created", "eligible", "yes", "adopted", "completed", "done", "ok":
		return p.paint(green, word)
	case "cordoned", "pending", "ended", "kept", "changed", "asked", "to-revoke", "revocable", "outdated", "switching", "released",
		"urgent", "aborted", "warn":
		return p.paint(yellow, word)
	case "retired", "drift", "unsatisfied", "stranded", "node_retired", "needs --rebind", "needs --prune", "cut-off", "stuck",
		"overdue", "failing", "fail":
		return p.paint(red, word)
	}
	return word
}

// states paints several.
func states[T ~string](p *paper, words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = p.state(string(w))
	}
	return strings.Join(out, ",")
}

// ago is an instant as people say it.
func (p *paper) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return ago(p.ui.now.Sub(t))
}

func ago(d time.Duration) string {
	units := []struct {
		unit time.Duration
		name string
	}{{365 * 24 * time.Hour, "y"}, {24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	before, after := "", " ago"
	if d < 0 {
		d, before, after = -d, "in ", ""
	}
	for _, u := range units {
		if d >= u.unit {
			return fmt.Sprintf("%s%d%s%s", before, d/u.unit, u.name, after)
		}
	}
	return "now"
}

// tail is the end of an id: its beginning is time, and the same for all that
// was made together.
func tail(id string) string {
	const shown = 8
	if len(id) <= shown {
		return id
	}
	return "…" + id[len(id)-shown:]
}

// atSeq is a sequence in a page; 0 is none.
func atSeq(seq uint64) string {
	if seq == 0 {
		return ""
	}
	return fmt.Sprintf("sequence %d", seq)
}

// orDash stands for nothing.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// plural is "1 batch", "3 batches".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

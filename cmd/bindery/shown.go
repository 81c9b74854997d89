package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Much of what is printed was written by others: reasons, actors, endpoints, what a
// hook or a server says. A terminal must show what is there. So no character reaches
// it that moves, hides or reorders what is around it: each is printed as its escape,
// \u202e, and JSON has it as an escape of JSON, with the same value. This also touches
// the joiners that some scripts and emoji are written with: a reason in Persian is
// harder to read for it, and exact in JSON.

// isHidden reports whether a terminal does not show r as itself: controls, format
// characters (direction, zero width, tags), separators of lines, what fonts ignore,
// and what is no character yet. Spaces of any width are shown.
func isHidden(r rune) bool {
	switch {
	case r == ' ' || r > ' ' && r < 0x7f:
		return false
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return true
	}
	return !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r)
}

// escaped is a hidden character as text.
func escaped(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// shownText is text of several lines as a terminal may show it.
func shownText(s string) string { return escapeHidden(s, "\n\t") }

// shownLine is text that must not begin another line.
func shownLine(s string) string { return escapeHidden(s, "") }

// escapeHidden escapes all that is hidden, but for the characters of kept, and every
// byte that is not UTF-8.
func escapeHidden(s, kept string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r == utf8.RuneError || isHidden(r) && !strings.ContainsRune(kept, r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case isHidden(r) && !strings.ContainsRune(kept, r):
			b.WriteString(escaped(r))
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// shownJSON is JSON of the same value without a hidden character. In JSON that is
// valid they are in strings alone, or are blanks between values.
func shownJSON(data []byte) []byte {
	isBlank := func(r rune) bool { return r == '\n' || r == '\t' || r == '\r' }
	if bytes.IndexFunc(data, func(r rune) bool { return r == utf8.RuneError || isHidden(r) && !isBlank(r) }) < 0 {
		return data
	}
	out := make([]byte, 0, len(data)+64)
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(out, `\ufffd`...) // as encoding/json reads it
		case !isHidden(r) || isBlank(r):
			out = append(out, data[i:i+n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}

// exact is a string in YAML that hidden characters are in: in double quotes, with
// escapes.
type exact string

// MarshalYAML implements yaml.BytesMarshaler.
func (s exact) MarshalYAML() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range string(s) {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case isHidden(r):
			b.WriteString(escaped(r))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return []byte(b.String()), nil
}

// exactly is a string for YAML: as it is, or exact.
func exactly(s string) any {
	if strings.IndexFunc(s, func(r rune) bool { return isHidden(r) && r != '\n' && r != '\t' }) < 0 {
		return s
	}
	return exact(s)
}

// shownWriter escapes what is hidden in lines on their way to a terminal or a log.
type shownWriter struct {
	to   io.Writer
	hide func(string) string // takes out what must not be shown at all; nil: nothing
}

// Write implements io.Writer.
func (w shownWriter) Write(p []byte) (int, error) {
	line := string(p)
	if w.hide != nil {
		line = w.hide(line)
	}
	if _, err := io.WriteString(w.to, shownText(line)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ownMark is in every colour of this process and in nothing that others wrote: they
// cannot know it.
var ownMark = fmt.Sprintf("%d;", rand.Uint64())

const escape = "\x1b["

// markedColor is s in a colour; shownPaper makes it known to a terminal.
func markedColor(c text.Colors, s string) string {
	return escape + ownMark + strings.TrimPrefix(c.EscapeSeq(), escape) + s + escape + ownMark + strings.TrimPrefix(text.EscapeReset, escape)
}

// shownPaper is a page as a terminal may show it: its own colours are left, and
// everything else that is hidden is escaped.
func shownPaper(page string) string { return aroundColors(page, shownText, escape) }

// shownCell is what stands in a table, on one line: its width is known only when what
// is hidden is escaped. Its colours stay marked.
func shownCell(cell string) string { return aroundColors(cell, shownLine, escape+ownMark) }

// aroundColors maps what stands around the colours of this process, and begins each
// of those with mark.
func aroundColors(s string, f func(string) string, mark string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, escape+ownMark)
		b.WriteString(f(before))
		if !found {
			return b.String()
		}
		b.WriteString(mark)
		s = after
		if end := strings.IndexByte(s, 'm'); end >= 0 {
			b.WriteString(s[:end+1])
			s = s[end+1:]
		}
	}
}

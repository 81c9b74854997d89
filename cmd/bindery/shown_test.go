package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"bindery/events"
)

// deceiving are characters that a terminal does not show as themselves: one of each
// kind that could hide, move or reorder what is around it.
var deceiving = []rune{
	0x1b, 0x7f, 0x85, 0x9b, 0x08, 0x07, // controls
	0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069, 0x200e, 0x200f, 0x061c, // direction
	0x200b, 0x200c, 0x200d, 0x2060, 0xfeff, 0x00ad, 0x180e, // no width
	0x2028, 0x2029, // lines
	0xe0001, 0xe0041, 0xe007f, 0xfff9, 0xfff0, // tags, annotations
	0x115f, 0x3164, 0xffa0, 0x034f, 0xfe0f, 0xe0100, // fonts ignore them
	0xe000, 0x10ffff, 0x378, // private, never and not yet a character
}

// hiddenIn is the first character of text that a terminal would not show as itself.
func hiddenIn(text string) (rune, bool) {
	if !utf8.ValidString(text) {
		return utf8.RuneError, true
	}
	for _, r := range text {
		if unicode.Is(unicode.Cf, r) || r != '\n' && r != '\t' && isHidden(r) {
			return r, true
		}
	}
	return 0, false
}

// Text with any character is shown without one that deceives, and what is harmless
// is shown as it is.
func TestShownText(t *testing.T) {
	for _, r := range deceiving {
		for _, show := range []func(string) string{shownText, shownLine, shownCell, shownPaper} {
			got := show("a" + string(r) + "b")
			if _, found := hiddenIn(got); found || !strings.HasPrefix(got, `a\`) || !strings.HasSuffix(got, "b") {
				t.Errorf("%U is shown as %q", r, got)
			}
		}
	}
	const fine = "naïve Straße 日本語\u3000テスト עברית العربية हिन्दी é … → “x” 🚀 a b"
	if got := shownText(fine + "\n\t."); got != fine+"\n\t." {
		t.Errorf("%q", got)
	}
	if got := shownLine("a\nb\tc\rd\xff"); got != `a\nb\tc\rd\xff` {
		t.Errorf("%q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		if r, found := hiddenIn(shownPaper(s)); found {
			t.Fatalf("%q has %U", shownPaper(s), r)
		}
	})
}

// JSON and YAML have the same value, and no character that deceives.
func TestShownMachineFormats(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, s string) {
		v := map[string]any{"k": s, "list": []any{s, map[string]any{"k": s}}}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%v", err)
		}
		plain, err := indented(data)
		if err != nil {
			t.Fatalf("%v", err)
		}
		shown := shownJSON(plain)
		var was, is any
		if err := errors.Join(json.Unmarshal(plain, &was), json.Unmarshal(shown, &is)); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if a, b := asJSON(was), asJSON(is); a != b {
			t.Fatalf("%q: JSON has %s, want %s", s, b, a)
		}
		text, err := yamlOf(data)
		if err != nil {
			t.Fatalf("%v", err)
		}
		var y map[string]any
		if err := yaml.Unmarshal(text, &y); err != nil {
			t.Fatalf("%q: %v\n%s", s, err, text)
		}
		if got := y["k"]; got != s {
			t.Fatalf("YAML has %q, want %q: %s", got, s, text)
		}
		for _, out := range []string{string(shown), string(text)} {
			if r, found := hiddenIn(out); found {
				t.Fatalf("%U in %q", r, out)
			}
		}
	}
	for _, r := range deceiving {
		check(t, "a\"\\"+string(r)+"b")
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-z"\\ :#-]{0,5}`).Draw(t, "s") + string(rapid.SampledFrom(deceiving).Draw(t, "r"))
		check(t, s+rapid.StringMatching(`[a-z"\\ ]{0,5}`).Draw(t, "more"))
	})
	if got := shownJSON([]byte("\"\xff\"")); string(got) != `"\ufffd"` {
		t.Errorf("%s", got)
	}
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// The colours of the program reach the terminal, and nobody else's: what others
// wrote cannot even paint.
func TestOnlyOwnColors(t *testing.T) {
	p := &paper{ui: &ui{}, color: true, width: 60}
	grid{heads: []string{"STATE", "WHY"}, prose: []bool{false, true}, rows: [][]string{{p.state("active"), "\x1b[32mforged\x1b[0m"}, {p.paint(red, "a\x1b[0m\nb"), strings.Repeat("long ", 20)}}}.print(p)
	p.line(p.paint(yellow, "warning:") + " \x1b[2J")
	got := string(p.bytes())
	for _, want := range []string{"\x1b[32mactive\x1b[0m", `\u001b[32mforged`, "\x1b[31m" + `a\u001b[0m\nb` + "\x1b[0m", "\x1b[33mwarning:\x1b[0m " + `\u001b[2J`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if n := strings.Count(got, "\x1b"); n != strings.Count(got, "\x1b[32m")+strings.Count(got, "\x1b[31m")+strings.Count(got, "\x1b[33m")+strings.Count(got, "\x1b[2m")+strings.Count(got, "\x1b[0m") {
		t.Errorf("other escapes are in %q", got)
	}
	if strings.Contains(got, ownMark) {
		t.Errorf("the mark is shown: %q", got)
	}
}

// What is printed of a ledger in which others wrote such characters has none of them,
// whatever is asked for in whatever format; JSON has them exactly.
func TestNothingPrintedDeceives(t *testing.T) {
	p := newPatientStore(t)
	reason := "the disk"
	for _, r := range deceiving {
		if events.CheckReason(string(r)) == nil {
			reason += string(r)
		}
	}
	if !strings.Contains(reason, "\u202e") || !strings.Contains(reason, "\u200b") {
		t.Fatalf("%q", reason)
	}
	p.must("override", "set", "wiki/db", "--provider", "pg-alpha", "--reason", reason, "--actor", "ann\u202etoor")
	manifest := filepath.Join(t.TempDir(), "a\u202eb.yaml")
	if err := os.WriteFile(manifest, []byte("mesh: home\nnodes: [\"x\u202ey\"]\nzz\u200b: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, args := range [][]string{{"status"}, {"log"}, {"history", "wiki/db"}, {"history"}, {"explain", "wiki/db"}, {"override", "list"}, {"binding", "show", "wiki/db"},
		{"binding", "list"}, {"node", "list"}, {"provider", "list"}, {"doctor"}, {"export"}, {"audit", "verify"}, {"node", "show", "no\u202eone"}, {"no\u202ecommand"},
		{"node", "list", "--no\u202eflag"}, {"apply", "-f", manifest}, {"node", "register", "beta\u202e"}, {"override", "set", "wiki/db", "--provider", "pg-alpha", "--reason", "x\x1b"},
		{"assignment", "end", "\u202e", "--dry-run"}, {"--store", filepath.Join(t.TempDir(), "no\u202ewhere"), "status"}} {
		for _, format := range formatNames() {
			p.run(t.Context(), append(args, "-o", format)...)
			for name, out := range map[string]*bytes.Buffer{"stdout": &p.out, "stderr": &p.errs} {
				ran += out.Len()
				if r, found := hiddenIn(out.String()); found {
					t.Errorf("%q -o %s: %s has %U: %q", args, format, name, r, out.String())
				}
			}
		}
	}
	if ran == 0 {
		t.Error("nothing was printed")
	}
	p.must("override", "list", "-o", "json")
	var list struct {
		Items []struct{ Reason string }
	}
	if err := json.Unmarshal(p.out.Bytes(), &list); err != nil || len(list.Items) != 1 || list.Items[0].Reason != reason {
		t.Errorf("%v: %q", err, list)
	}
}

// What a serving process or an agent logs has none either.
func TestNothingLoggedDeceives(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(shownWriter{to: &out}, nil))
	for _, r := range deceiving {
		log.LogAttrs(context.Background(), slog.LevelWarn, "m"+string(r), slog.String("k"+string(r), "v"+string(r)), slog.Any("error", errors.New(string(r))))
	}
	if r, found := hiddenIn(out.String()); found || strings.Count(out.String(), "\n") != len(deceiving) {
		t.Errorf("%U in %q", r, out.String())
	}
}

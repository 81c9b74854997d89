package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"bindery/events"
	"bindery/projections"
)

var longRow = bindingView{
	Assignment: "nextcloud-of-the-whole-family", Slot: "files-and-previews", Node: "storage-node-in-the-cellar", Provision: "s3-bucket",
	Provider: "minio-of-the-storage-node-in-the-cellar", ProviderNode: "storage-node-in-the-cellar", Endpoint: "https://minio.storage-node-in-the-cellar.mesh:9000",
	Rule: events.RuleCoLocated, Flags: []projections.Flag{projections.FlagOutdated, projections.FlagDrift},
}

var shortRow = bindingView{Assignment: "wiki", Slot: "db", Node: "alpha", Provision: "postgres-database", Provider: "pg-alpha",
	ProviderNode: "alpha", Endpoint: "alpha.mesh:5432", Rule: events.RuleCoLocated}

// Kind: a table that cuts what one looks for. However narrow the terminal is, each name is
// there whole, and no line is longer than the terminal where its words can be parted.
func TestNamesAreNeverCut(t *testing.T) {
	for _, width := range []int{0, 200, 120, 80, 40} {
		for _, wide := range []bool{false, true} {
			for _, rows := range [][]bindingView{{shortRow}, {shortRow, longRow}} {
				p := &paper{ui: &ui{}, width: width, wide: wide}
				itemTable(p, rows, bindingColumns())
				got := p.buf.String()
				if strings.Contains(got, "…") && !strings.Contains(got, "  …") { // a tail of an id
					t.Errorf("width %d: cut:\n%s", width, got)
				}
				for _, v := range rows {
					for _, name := range []string{v.Assignment + "/" + v.Slot, v.Node, v.Provider, "outdated,drift"} {
						if !strings.Contains(got, name) && !(name == "outdated,drift" && v.Flags == nil) {
							t.Errorf("width %d, wide %t: %s is not there:\n%s", width, wide, name, got)
						}
					}
					if wide && !strings.Contains(got, v.Endpoint) {
						t.Errorf("width %d: -o wide leaves out %s:\n%s", width, v.Endpoint, got)
					}
				}
				if width >= 80 {
					linesFit(t, got, width)
				}
			}
		}
	}
}

func linesFit(t *testing.T, page string, width int) {
	t.Helper()
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if n := text.StringWidthWithoutEscSequences(line); n > width && !strings.Contains(line, "fix: ") {
			t.Errorf("width %d: a line of %d: %q\n%s", width, n, line, page)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("width %d: spaces at the end of %q", width, line)
		}
	}
}

// What is left out is said, and with it how to see it.
func TestLeftOutIsSaid(t *testing.T) {
	p := &paper{ui: &ui{}, width: 80}
	itemTable(p, []bindingView{shortRow}, bindingColumns())
	if got := p.buf.String(); !strings.Contains(got, "left out: ENDPOINT") || !strings.Contains(got, "-o wide") || strings.Contains(got, "alpha.mesh:5432") {
		t.Errorf("got\n%s", got)
	}
	p = &paper{ui: &ui{}, width: 200}
	itemTable(p, []bindingView{shortRow}, bindingColumns())
	if got := p.buf.String(); strings.Contains(got, "left out") {
		t.Errorf("got\n%s", got)
	}
}

// A command stands on a line of its own and can be pasted; sentences go on in the next
// line.
func TestFixesCanBePasted(t *testing.T) {
	fix := "bindery binding rebind a-module-with-a-long-name/db --provider pg-in-the-cellar --server nats://cellar.mesh:4222"
	st := statusView{Mesh: "home", Attention: []projections.Attention{
		{Code: "drift", What: "a-module-with-a-long-name/db", Why: "it is bound to pg-alpha, and the module asks for pg-in-the-cellar, which cannot serve it",
			Fix: projections.Fix{}.Shown(fix)},
		{Code: "sealed", What: "mesh home", Why: "nothing more is written"},
	}}
	for _, width := range []int{0, 40, 80, 120, 200} {
		p := &paper{ui: &ui{}, width: width, color: true}
		statusPage(p, st)
		got := text.StripEscape(p.buf.String())
		if !slices.Contains(strings.Split(got, "\n"), "  fix: "+fix) {
			t.Errorf("width %d: no line of its own:\n%s", width, got)
		}
		if words := strings.Join(strings.Fields(got), " "); width >= 80 && !strings.Contains(words, "a-module-with-a-long-name/db") {
			t.Errorf("width %d:\n%s", width, got)
		}
		linesFit(t, got, max(width, 80)+1000*(1-min(width, 1)))
		if n := strings.Count(got, "fix:"); n != 1 {
			t.Errorf("width %d: %d fixes:\n%s", width, n, got)
		}
	}
}

// No table of the program shortens anything, and each has a first column by which a row
// is found.
func TestColumns(t *testing.T) {
	columns := []column[string]{
		plain("SLOT", func(s string) string { return "a-rather-long-name/db" }),
		plain("WHY", func(s string) string { return strings.Repeat("xxx ", 30) }),
		rare("ERROR", func(s string) string { return s }),
	}
	p := &paper{ui: &ui{}, width: 60}
	itemTable(p, []string{""}, columns)
	got := p.buf.String()
	if strings.Contains(got, "ERROR") || strings.Count(got, "xxx") != 30 {
		t.Errorf("got\n%s", got)
	}
	linesFit(t, got, 60)
	p = &paper{ui: &ui{}}
	itemTable(p, []string{"", "full"}, columns)
	if got := p.buf.String(); !strings.Contains(got, "ERROR") || !strings.Contains(got, "  -\n") {
		t.Errorf("got %q", got)
	}
}

// Where nothing fits, a row is a block.
func TestRowsFold(t *testing.T) {
	p := &paper{ui: &ui{}, width: 40}
	itemTable(p, []bindingView{longRow}, bindingColumns())
	got := p.buf.String()
	for i, want := range []string{"nextcloud-of-the-whole-family/files-and-previews", "  NODE", "  PROVIDER"} {
		if !strings.Contains(got, want) {
			t.Errorf("%d: no %q in\n%s", i, want, got)
		}
	}
	if strings.HasPrefix(got, "SLOT") {
		t.Errorf("folded, and with a head:\n%s", got)
	}
	fmt.Fprint(t.Output(), got)
}

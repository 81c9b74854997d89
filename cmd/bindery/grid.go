package main

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// grid is rows of cells as they are laid out. Names, ids and commands are never cut:
// where a row is longer than the terminal is wide, sentences go on in the next line,
// then columns that people can spare are left out, and at last each row becomes a block
// of lines.
type grid struct {
	heads []string // nil: none
	rows  [][]string
	prose []bool   // of a column: sentences, which may go on in the next line
	spare []int    // of a column: 0 stays, else the lowest is left out first
	below []string // of a row: what stands on a line of its own below it; nil: nothing
}

// gap is what stands between two columns.
const gap = "  "

// leastProse is how narrow a column of sentences gets at most.
const leastProse = 24

// print lays the grid out.
func (g grid) print(p *paper) {
	if len(g.rows) == 0 {
		return
	}
	g.rows = shownCells(g.rows)
	fitting, widths, out := g.fit(p)
	if widths == nil {
		g.fold(p)
		return
	}
	if g = fitting; g.below == nil {
		p.line(g.render(p, g.heads, g.rows, widths, false))
	} else {
		g.eachRow(p, widths)
	}
	if len(out) > 0 {
		p.line(p.paint(faint, "left out: "+strings.Join(out, ", ")+"; -o wide shows more"))
	}
}

// eachRow prints row by row, with what stands below each.
func (g grid) eachRow(p *paper, widths []int) {
	if g.heads != nil {
		p.line(g.render(p, g.heads, nil, widths, true))
	}
	for i, row := range g.rows {
		p.line(g.render(p, nil, [][]string{row}, widths, true))
		g.printBelow(p, i)
	}
}

func (g grid) printBelow(p *paper, row int) {
	if g.below != nil && g.below[row] != "" {
		p.line(gap + p.paint(faint, "fix:") + " " + shownCell(g.below[row]))
	}
}

// fit is the grid without the columns that the terminal has no room for, with the widths
// of the others, and the heads of what is left out; no widths where no row fits.
func (g grid) fit(p *paper) (left grid, widths []int, out []string) {
	for left = g; ; {
		widths = left.widths()
		if p.width <= 0 || left.narrow(widths, p.width) {
			return left, widths, out
		}
		at := left.dispensable()
		if at < 0 || p.wide {
			return left, nil, nil
		}
		out = append(out, left.heads[at])
		left = left.but(at)
	}
}

// widths are what the columns take where nothing is in the way.
func (g grid) widths() []int {
	var widths []int
	for _, r := range append([][]string{g.heads}, g.rows...) {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], text.LongestLineLen(cell))
		}
	}
	return widths
}

// narrow takes from the widest of the sentences until a row fits, and reports whether
// it does.
func (g grid) narrow(widths []int, width int) bool {
	over := len(gap)*(len(widths)-1) - width
	for _, w := range widths {
		over += w
	}
	if over <= 0 {
		return true
	}
	least := make([]int, len(widths))
	for i := range widths {
		least[i] = widths[i]
		if g.isProse(i) {
			least[i] = min(widths[i], max(leastProse, g.longestWord(i)))
		}
	}
	for ; over > 0; over-- {
		widest := -1
		for i, w := range widths {
			if w > least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

func (g grid) isProse(column int) bool { return column < len(g.prose) && g.prose[column] }

func (g grid) longestWord(column int) (longest int) {
	for _, r := range g.rows {
		for _, word := range strings.Fields(r[column]) {
			longest = max(longest, text.StringWidthWithoutEscSequences(word))
		}
	}
	return longest
}

// dispensable is the column that is left out next; -1 for none.
func (g grid) dispensable() int {
	at := -1
	for i, n := range g.spare {
		if n > 0 && g.heads != nil && (at < 0 || n < g.spare[at]) {
			at = i
		}
	}
	return at
}

// but is the grid without a column.
func (g grid) but(column int) grid {
	out := grid{heads: without(g.heads, column), prose: without(g.prose, column), spare: without(g.spare, column),
		below: g.below, rows: make([][]string, len(g.rows))}
	for i, r := range g.rows {
		out.rows[i] = without(r, column)
	}
	return out
}

func without[T any](l []T, at int) []T { return slices.Delete(slices.Clone(l), at, at+1) }

// render makes aligned columns without borders.
func (g grid) render(p *paper, heads []string, rows [][]string, widths []int, padded bool) string {
	t := table.NewWriter()
	t.SetStyle(plainStyle())
	t.SuppressTrailingSpaces()
	if heads != nil {
		head := make(table.Row, len(heads))
		for i, h := range heads {
			head[i] = p.paint(faint, h)
		}
		t.AppendHeader(head)
	}
	for _, r := range rows {
		row := make(table.Row, len(r))
		for i, cell := range r {
			row[i] = cell
		}
		t.AppendRow(row)
	}
	var columns []table.ColumnConfig
	for i, w := range widths {
		c := table.ColumnConfig{Number: i + 1}
		if padded && i < len(widths)-1 {
			c.WidthMin = w
		}
		if g.isProse(i) && p.width > 0 {
			c.WidthMax, c.WidthMaxEnforcer = w, text.WrapSoft
		}
		columns = append(columns, c)
	}
	t.SetColumnConfigs(columns)
	return t.Render()
}

func plainStyle() table.Style {
	s := table.Style{Name: "plain", Box: table.StyleBoxDefault, Format: table.FormatOptions{}, Options: table.OptionsNoBordersAndSeparators}
	s.Box.PaddingLeft, s.Box.PaddingRight = "", gap
	return s
}

// fold prints each row as a block: its first cell, and below it the others with their
// heads.
func (g grid) fold(p *paper) {
	for i, row := range g.rows {
		p.line(row[0])
		var rest grid
		for j, cell := range row[1:] {
			if cell == "" || cell == "-" {
				continue
			}
			line := []string{cell}
			if g.heads != nil {
				line = []string{p.paint(faint, g.heads[j+1]), cell}
			}
			rest.rows = append(rest.rows, line)
		}
		if rest.rows != nil {
			rest.prose = make([]bool, len(rest.rows[0]))
			rest.prose[len(rest.prose)-1] = true
			p.inside(func(inner *paper) { inner.line(rest.render(inner, nil, rest.rows, rest.folded(inner.width), false)) })
		}
		g.printBelow(p, i)
	}
}

// folded are the widths within a block: what is longer than the terminal is wide goes on
// in the next line between words alone.
func (g grid) folded(width int) []int {
	widths := g.widths()
	last := len(widths) - 1
	room := width
	if last > 0 {
		room -= widths[0] + len(gap)
	}
	widths[last] = min(widths[last], max(room, leastProse, g.longestWord(last)))
	return widths
}

// inside prints two spaces in.
func (p *paper) inside(f func(inner *paper)) {
	inner := &paper{ui: p.ui, color: p.color, wide: p.wide}
	if p.width > 0 {
		inner.width = max(1, p.width-len(gap))
	}
	f(inner)
	for line := range strings.Lines(inner.buf.String()) {
		p.buf.WriteString(gap + line)
	}
}

// table prints aligned columns without heads; the last of several is of sentences.
func (p *paper) table(rows [][]string) {
	g := grid{rows: rows}
	if len(rows) > 0 {
		g.prose = make([]bool, len(rows[0]))
		g.prose[len(g.prose)-1] = len(g.prose) > 1
	}
	g.print(p)
}

// fields prints names and values; what has no value is left out.
func (p *paper) fields(pairs ...string) {
	var rows [][]string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			rows = append(rows, []string{p.paint(faint, pairs[i]), pairs[i+1]})
		}
	}
	p.table(rows)
}

func shownCells(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for i, r := range rows {
		out[i] = make([]string, len(r))
		for j, cell := range r {
			out[i][j] = shownCell(cell)
		}
	}
	return out
}

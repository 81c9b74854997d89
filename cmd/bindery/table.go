package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"bindery/commands"
	"bindery/events"
)

// column is one column of a table of items.
type column[T any] struct {
	head string
	cell func(p *paper, v T) string
	wide bool // only with -o wide
	rare bool // only where a cell is not empty
	last bool // shortened only where nothing else can be
}

// list is the JSON of every list, its items still in JSON.
type list struct {
	Items []json.RawMessage `json:"items"`
}

// listAnswer makes the answer of a list: its table is made of its JSON.
func listAnswer[T any](data json.RawMessage, none string, name func(T) string, columns []column[T]) (answer, error) {
	var l list
	if err := json.Unmarshal(data, &l); err != nil {
		return answer{}, fmt.Errorf("reading an answer: %w", err)
	}
	items := make([]T, len(l.Items))
	a := answer{json: data, items: l.Items, none: none}
	for i, raw := range l.Items {
		if err := json.Unmarshal(raw, &items[i]); err != nil {
			return answer{}, fmt.Errorf("reading an answer: %w", err)
		}
		a.names = append(a.names, name(items[i]))
	}
	a.human = func(p *paper) { itemTable(p, items, columns) }
	return a, nil
}

// printList asks for a list and prints it.
func printList[T any](ctx context.Context, c *cli, q commands.Query, none string, name func(T) string, columns []column[T]) error {
	data, err := c.ask(ctx, q)
	if err != nil {
		return err
	}
	a, err := listAnswer(data, none, name, columns)
	if err != nil {
		return err
	}
	return c.ui.print(a)
}

// printItem asks for one thing and prints it.
func printItem[T any](ctx context.Context, c *cli, q commands.Query, name func(T) string, page func(p *paper, v T)) error {
	data, err := c.ask(ctx, q)
	if err != nil {
		return err
	}
	a, err := showAnswer(data, name, page)
	if err != nil {
		return err
	}
	return c.ui.print(a)
}

// itemTable prints items in columns.
func itemTable[T any](p *paper, items []T, columns []column[T]) {
	if len(items) == 0 {
		return
	}
	var heads []string
	var last []bool
	rows := make([][]string, len(items))
	for _, c := range columns {
		cells, used := cellsOf(p, c, items)
		if c.wide && !p.wide || c.rare && !used {
			continue
		}
		heads, last = append(heads, c.head), append(last, c.last)
		for i, cell := range cells {
			rows[i] = append(rows[i], orDash(cell))
		}
	}
	p.tableOf(heads, rows, last)
}

// cellsOf are the cells of a column, and whether one of them is not empty.
func cellsOf[T any](p *paper, c column[T], items []T) (cells []string, used bool) {
	cells = make([]string, len(items))
	for i, v := range items {
		cells[i] = c.cell(p, v)
		used = used || cells[i] != ""
	}
	return cells, used
}

// showAnswer makes the answer of a show.
func showAnswer[T any](data json.RawMessage, name func(T) string, page func(p *paper, v T)) (answer, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return answer{}, fmt.Errorf("reading an answer: %w", err)
	}
	return answer{json: data, items: []json.RawMessage{data}, names: []string{name(v)},
		human: func(p *paper) { page(p, v) }}, nil
}

// plain is a column of words.
func plain[T any](head string, cell func(T) string) column[T] {
	return column[T]{head: head, cell: func(_ *paper, v T) string { return cell(v) }}
}

// painted is a column whose words are painted, or whose text depends on now.
func painted[T any](head string, cell func(*paper, T) string) column[T] {
	return column[T]{head: head, cell: cell}
}

// wide is a column that only -o wide shows.
func wide[T any](head string, cell func(T) string) column[T] {
	c := plain(head, cell)
	c.wide = true
	return c
}

// rare is a column of what there seldom is: it is left out where nothing has it.
func rare[T any](head string, cell func(T) string) column[T] {
	c := plain(head, cell)
	c.rare = true
	return c
}

// rarelyWide is a rare column that only -o wide shows.
func rarelyWide[T any](head string, cell func(T) string) column[T] {
	c := rare(head, cell)
	c.wide = true
	return c
}

// whole makes a column the last to be shortened: what people look for in a row,
// or copy from it.
func whole[T any](c column[T]) column[T] {
	c.last = true
	return c
}

// idColumn and seqColumn are in every wide table.
func idColumn[T any](id func(T) events.ID) column[T] {
	return wide("ID", func(v T) string { return tail(id(v).String()) })
}

func seqColumn[T any](seq func(T) uint64) column[T] {
	return wide("SEQ", func(v T) string { return fmt.Sprint(seq(v)) })
}

// gap is what stands between two columns.
const gap = "  "

// table prints aligned columns without borders; heads may be nil.
func (p *paper) table(heads []string, rows [][]string) { p.tableOf(heads, rows, nil) }

// tableOf is table; last are the columns to be shortened last, none if it is nil.
func (p *paper) tableOf(heads []string, rows [][]string, last []bool) {
	if len(rows) == 0 {
		return
	}
	rows = shownCells(rows)
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
	t.SetColumnConfigs(fit(heads, rows, last, p.width))
	p.line(t.Render())
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

func plainStyle() table.Style {
	s := table.Style{Name: "plain", Box: table.StyleBoxDefault, Format: table.FormatOptions{}, Options: table.OptionsNoBordersAndSeparators}
	s.Box.PaddingLeft, s.Box.PaddingRight = "", gap
	return s
}

// fit bounds the widest columns so that a row fits the width, those of last
// after the others.
func fit(heads []string, rows [][]string, last []bool, width int) []table.ColumnConfig {
	if width <= 0 {
		return nil
	}
	var widths []int
	for _, r := range append([][]string{heads}, rows...) {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], text.LongestLineLen(cell))
		}
	}
	over := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		over += w
	}
	over = narrow(widths, func(i int) bool { return i >= len(last) || !last[i] }, over-width)
	narrow(widths, func(int) bool { return true }, over)
	var out []table.ColumnConfig
	for i, w := range widths {
		out = append(out, table.ColumnConfig{Number: i + 1, WidthMax: w, WidthMaxEnforcer: snip})
	}
	return out
}

// leastWidth is what a column keeps however narrow the terminal is.
const leastWidth = 8

// narrow takes up to n from the widest of some columns, and returns what it could
// not take.
func narrow(widths []int, some func(i int) bool, n int) int {
	for ; n > 0; n-- {
		widest := -1
		for i, w := range widths {
			if some(i) && w > leastWidth && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return n
}

// snip shortens a cell and shows that it did.
func snip(s string, most int) string { return text.Snip(s, most, "…") }

// indented prints rows without a head, two spaces in.
func (p *paper) indented(rows [][]string) {
	inner := &paper{ui: p.ui, color: p.color, wide: p.wide}
	if p.width > 0 {
		inner.width = max(1, p.width-len(gap))
	}
	inner.table(nil, rows)
	for line := range strings.Lines(inner.buf.String()) {
		p.buf.WriteString(gap + line)
	}
}

// fields prints names and values; what has no value is left out.
func (p *paper) fields(pairs ...string) {
	var rows [][]string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			rows = append(rows, []string{p.paint(faint, pairs[i]), pairs[i+1]})
		}
	}
	p.table(nil, rows)
}

// withoutEmpty leaves out the columns that are empty in every row.
func withoutEmpty(rows [][]string) [][]string {
	if len(rows) == 0 {
		return rows
	}
	out := make([][]string, len(rows))
	for col := range rows[0] {
		used := false
		for _, r := range rows {
			used = used || r[col] != ""
		}
		if !used {
			continue
		}
		for i, r := range rows {
			out[i] = append(out[i], r[col])
		}
	}
	return out
}

// names is a list of names in one line.
func names(ns []string) string { return orDash(strings.Join(ns, ", ")) }

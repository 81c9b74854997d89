package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"bindery/commands"
	"bindery/events"
)

// column is one column of a table of items.
type column[T any] struct {
	head  string
	cell  func(p *paper, v T) string
	wide  bool // only with -o wide
	rare  bool // only where a cell is not empty
	below bool // on a line of its own below the row: a command to paste
}

// sentences are the heads of columns that may go on in the next line.
var sentences = []string{"WHAT", "WHY", "REASON", "ERROR", "NOTE", "REQUIRES", "EMBEDS", "DEFAULTS"}

// spared are the heads of columns that are left out on a narrow terminal, one after the
// other until a row fits.
var spared = []string{"ENDPOINT", "ON", "SECRET", "SINCE", "STARTED", "BY", "FEATURES", "PROVISION", "HOLDERS"}

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
	g := grid{rows: make([][]string, len(items))}
	for _, c := range columns {
		cells, used := cellsOf(p, c, items)
		if c.wide && !p.wide || c.rare && !used {
			continue
		}
		if c.below {
			g.below = cells
			continue
		}
		g.heads, g.prose = append(g.heads, c.head), append(g.prose, slices.Contains(sentences, c.head))
		g.spare = append(g.spare, slices.Index(spared, c.head)+1)
		for i, cell := range cells {
			g.rows[i] = append(g.rows[i], orDash(cell))
		}
	}
	g.print(p)
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

// below is a column of commands, each on a line of its own below its row.
func below[T any](fix func(T) string) column[T] {
	return column[T]{cell: func(_ *paper, v T) string { return fix(v) }, rare: true, below: true}
}

// idColumn and seqColumn are in every wide table.
func idColumn[T any](id func(T) events.ID) column[T] {
	return wide("ID", func(v T) string { return tail(id(v).String()) })
}

func seqColumn[T any](seq func(T) uint64) column[T] {
	return wide("SEQ", func(v T) string { return fmt.Sprint(seq(v)) })
}

// names is a list of names in one line.
func names(ns []string) string { return orDash(strings.Join(ns, ", ")) }

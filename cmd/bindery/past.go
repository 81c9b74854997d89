package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/projections"
)

// pastVerbs are what can be read as of a moment.
var pastVerbs = []string{"list", "show", "holders", "status", "explain", "history", "log"}

// checkAsOf refuses --as-of where nothing is read as of a moment.
func (c *cli) checkAsOf(cmd *cobra.Command) error {
	switch {
	case c.globals.asOf == "", slices.Contains(pastVerbs, cmd.Name()):
		return nil
	case cmd.Flags().Lookup("dry-run") != nil:
		return refusal(commands.AsOfWrite, cmd.CommandPath()+" writes, and nothing is written into the past", "--as-of is for reads",
			again().But("--as-of"))
	}
	return usage(cmd.CommandPath()+" does not know --as-of", "it reads nothing as of a moment", helpOf(cmd.CommandPath()))
}

// momentOf reads T of a flag.
func (c *cli) momentOf(text string, fix commands.Fix) (service.AsOf, error) {
	q, err := logFrom(text, c.program.Clock(), fix)
	return service.AsOf{Seq: q.First, Time: q.Time, Event: q.Event}, err
}

// askPast puts one query as of --as-of, and says to people which moment that is.
func (c *cli) askPast(ctx context.Context, s *session, q commands.Query) (json.RawMessage, error) {
	at, err := c.momentOf(c.globals.asOf, do("status").With("--as-of", "2h"))
	if err != nil {
		return nil, err
	}
	data, err := s.client.AskAsOf(ctx, q, at)
	if err != nil {
		return nil, err
	}
	var of struct {
		AsOf service.Moment `json:"as_of"`
	}
	if err := json.Unmarshal(data, &of); err == nil && of.AsOf.Seq != 0 {
		c.sayAsOf(of.AsOf)
	}
	return data, nil
}

// sayAsOf says to people which moment an answer is of.
func (c *cli) sayAsOf(m service.Moment) {
	if !c.ui.machine() {
		c.ui.note("as of " + atSeq(m.Seq) + ", " + m.Time.UTC().Format(time.RFC3339))
	}
}

// momentsOf reads T1..T2; without T2 it is up to now.
func (c *cli) momentsOf(text string) (q service.DiffQuery, err error) {
	a, b, found := strings.Cut(text, "..")
	if !found || a == "" {
		return q, usage(strconv.Quote(clip(text))+" is no span of time", "it is T1..T2, or T1.. up to now", do("status").With("--diff", "2h.."))
	}
	fix := do("status").With("--diff", "2h..1h")
	if q.From, err = c.momentOf(a, fix); err != nil || b == "" {
		return q, err
	}
	q.To, err = c.momentOf(b, fix)
	return q, err
}

// difference is what became different for one binding.
type difference = projections.Difference

// printDiff prints what is different for each binding at two moments.
func (c *cli) printDiff(ctx context.Context, span string) error {
	q, err := c.momentsOf(span)
	if err != nil {
		return err
	}
	var data json.RawMessage
	err = c.with(ctx, func(s *session) (err error) {
		ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
		defer cancel()
		data, err = s.client.Diff(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	var of service.Diff
	if err := json.Unmarshal(data, &of); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if !c.ui.machine() {
		c.ui.note(fmt.Sprintf("from %s (%s) to %s (%s)", atSeq(of.From.Seq), of.From.Time.UTC().Format(time.RFC3339), atSeq(of.To.Seq), of.To.Time.UTC().Format(time.RFC3339)))
	}
	a, err := listAnswer(data, "nothing is different", func(d difference) string { return d.Slot }, []column[difference]{
		plain("BINDING", func(d difference) string { return d.Slot }),
		plain("BEFORE", func(d difference) string { return decidedOn(d.Before) }),
		plain("AFTER", func(d difference) string { return decidedOn(d.After) }),
		plain("WHAT", func(d difference) string { return strings.Join(d.What, "; ") }),
		idColumn(func(d difference) events.ID { return d.Binding }),
	})
	if err != nil {
		return err
	}
	return c.ui.print(a)
}

// decidedOn is what was decided for a binding, and what its consumer ran with where
// that was another.
func decidedOn(d *projections.BindingDocument) string {
	switch {
	case d == nil:
		return "–"
	case d.Released:
		return "released"
	case d.Embedded != nil:
		return "embedded"
	}
	text := d.Provider
	if text == "" {
		text = "pending"
	}
	if d.Use.Generation != 0 {
		text += fmt.Sprintf(" gen %d", d.Use.Generation)
	}
	return text
}

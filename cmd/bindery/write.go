package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"bindery/commands"
	"bindery/events"
)

// change runs a command and prints what it did. what is the thing it is about,
// as people call it: "provider pg-alpha"; its last word is what -o name prints.
func (c *cli) change(ctx context.Context, w *write, what string, cmd commands.Command) error {
	req, err := c.request(w, cmd)
	if err != nil {
		return err
	}
	var r commands.Result
	err = c.with(ctx, func(s *session) error {
		ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
		defer cancel()
		r, err = s.client.Do(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	return c.printResult(what, r)
}

// printResult prints the answer to a write.
func (c *cli) printResult(what string, r commands.Result) error {
	a, err := resultAnswer(what, r)
	if err != nil {
		return err
	}
	a.human = func(p *paper) { resultLines(p, what, r) }
	if err := c.ui.print(a); err != nil {
		return err
	}
	c.resultNotes(r)
	return nil
}

// resultAnswer is a result for machines.
func resultAnswer(what string, r commands.Result) (answer, error) {
	data, err := marshal(r)
	if err != nil {
		return answer{}, err
	}
	return answer{json: data, items: []json.RawMessage{data}, names: []string{what[strings.LastIndexByte(what, ' ')+1:]}}, nil
}

// resultNotes says what is to be known beside what was done.
func (c *cli) resultNotes(r commands.Result) {
	if c.ui.machine() {
		return
	}
	if r.Repeated {
		c.ui.note("this is the first answer to command " + r.CommandID.String() + " again; nothing was written now")
	}
	c.ui.warn(r.Warnings)
}

// resultLines prints a line for each thing that is now so.
func resultLines(p *paper, what string, r commands.Result) {
	if p.ui.quiet {
		return
	}
	if r.DryRun {
		p.line(p.paint(yellow, "dry run: nothing is written") + "; it would be:")
	}
	if !r.Changed {
		p.table([][]string{{what + " unchanged", fmt.Sprintf("seq %d", r.Seq)}})
		return
	}
	p.table(eventRows(r))
}

// eventRows are what happened, the tail of the id it happened to, and the
// sequence. Where a binding changes, what it had before is shown.
func eventRows(r commands.Result) [][]string {
	changes := r.Bindings
	var rows [][]string
	for i, e := range r.Events {
		text := e.Type
		if i < len(r.Lines) {
			text = r.Lines[i]
		}
		id := entityOf(e.Subject)
		if len(changes) > 0 && changes[0].ID.String() == id && isChange(e.Type) {
			text, changes = changeText(changes[0]), changes[1:]
		}
		seq := fmt.Sprintf("seq %d", e.Seq)
		if r.DryRun {
			seq = "" // another command may come first
		}
		rows = append(rows, []string{text, tail(id), seq})
	}
	return rows
}

// isChange reports whether an event of a type has its place in Effect.Bindings.
func isChange(eventType string) bool {
	for _, verb := range []string{"bound", "rebound", "released"} {
		if strings.HasPrefix(eventType, "bindery.binding."+verb+".") {
			return true
		}
	}
	return false
}

// changeText is a change of a binding in one line.
func changeText(b commands.BindingChange) string {
	from, to := b.From, b.To
	if from == "" {
		from = "nothing"
	}
	if to == "" {
		to = "nothing"
	}
	text := fmt.Sprintf("%s: %s → %s", b.Binding, from, to)
	if b.Rule != "" {
		text += fmt.Sprintf(" (%s)", b.Rule)
	}
	return text
}

// entityOf is the id in an event's subject: bindery.<mesh>.<entity>.<ulid>.<event>.
func entityOf(subject string) string {
	parts := strings.Split(subject, ".")
	if len(parts) < 4 {
		return ""
	}
	if _, err := events.ParseID(parts[3]); err != nil {
		return ""
	}
	return parts[3]
}

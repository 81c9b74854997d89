package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/projections"
)

type status struct{ check, strict bool }

func (*status) help() *cobra.Command {
	return &cobra.Command{
		Use: "status",
		Example: `  bindery status
  bindery status --check && deploy`,
		Short: "Show what there is and what wants attention",
		Long: `Shows how much there is, and everything that is not as somebody asked for: drift, unsatisfied,
stranded and pending slots, and what is left on retired nodes. With --check the exit code is 3 if
there is any; an optional slot that is pending counts only with --strict.`,
	}
}

func (v *status) flags(f *flags) {
	f.args()
	f.BoolVar(&v.check, "check", false, "exit with 3 if something wants attention")
	f.BoolVar(&v.strict, "strict", false, "--check, and optional slots count, too")
}

type statusView = projections.StatusView

func (v *status) run(ctx context.Context, c *cli, _ []string) error {
	data, err := c.ask(ctx, commands.Status{})
	if err != nil {
		return err
	}
	var view statusView
	a, err := showAnswer(data, func(s statusView) string { view = s; return s.Mesh }, statusPage)
	if err != nil {
		return err
	}
	var l struct {
		Attention []json.RawMessage `json:"attention"`
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	a.items, a.names = l.Attention, nil
	for _, at := range view.Attention {
		a.names = append(a.names, at.What)
	}
	if err := c.ui.print(a); err != nil {
		return err
	}
	if (v.check || v.strict) && slices.ContainsFunc(view.Attention, func(a projections.Attention) bool { return v.strict || !a.Optional }) {
		return differs{}
	}
	return nil
}

// statusCounts are the counts shown, in order; singular and plural.
var statusCounts = [][3]string{
	{"nodes", "node", "nodes"}, {"provisions", "provision", "provisions"}, {"providers", "provider", "providers"},
	{"modules", "module", "modules"}, {"assignments", "assignment", "assignments"}, {"bindings", "binding", "bindings"},
	{"embedded", "of them embedded", "of them embedded"}, {"pending", "pending", "pending"}, {"overrides", "override", "overrides"},
}

func statusPage(p *paper, v statusView) {
	p.linef("mesh %s at sequence %d, %s", p.paint(bold, v.Mesh), v.Seq, p.ago(v.Time))
	var counts []string
	for _, c := range statusCounts {
		if n := v.Counts[c[0]]; n > 0 {
			counts = append(counts, plural(n, c[1], c[2]))
		}
	}
	if counts != nil {
		p.line(strings.Join(counts, ", "))
	}
	p.line("")
	if len(v.Attention) == 0 {
		p.line(p.paint(green, "nothing wants attention"))
		return
	}
	itemTable(p, v.Attention, []column[projections.Attention]{
		painted("STATE", func(p *paper, a projections.Attention) string { return p.state(a.Code) }),
		plain("WHAT", func(a projections.Attention) string {
			if a.Optional {
				return a.What + " (optional)"
			}
			return a.What
		}),
		plain("WHY", func(a projections.Attention) string { return a.Why }),
		plain("FIX", func(a projections.Attention) string { return a.Fix }),
	})
}

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

type status struct {
	check, strict bool
	diff          string
}

func (*status) help() *cobra.Command {
	return &cobra.Command{
		Use: "status",
		Example: `  bindery status
  bindery status --check && deploy
  bindery status --diff 2026-11-01..2026-11-30`,
		Short: "Show what there is and what wants attention",
		Long: `Shows how much there is, and everything that is not as somebody asked for: drift, unsatisfied,
stranded, cut-off and pending slots, what is left on retired nodes, rotations that are overdue or stuck.
With --check the exit code is 3 if there is any. With --strict that takes consumers that are outdated or
switching, too, and an optional slot that is pending. What is only to be known (a credential that is asked
for, something that fails and is tried again) comes last and counts with neither.

With --diff it shows what is different for each binding at two moments: only what lasted, not what came
and went between.`,
	}
}

func (v *status) flags(f *flags) {
	f.args()
	f.BoolVar(&v.check, "check", false, "exit with 3 if something wants attention")
	f.StringVar(&v.diff, "diff", "", "show what is different at two moments, `T1..T2`; T1.. is up to now")
	f.values("diff")
	f.BoolVar(&v.strict, "strict", false, "--check, and outdated, switching and optional slots count, too")
	f.cmd.MarkFlagsMutuallyExclusive("diff", "check")
	f.cmd.MarkFlagsMutuallyExclusive("diff", "strict")
}

type statusView = projections.StatusView

func (v *status) run(ctx context.Context, c *cli, _ []string) error {
	if v.diff != "" {
		if c.globals.asOf != "" {
			return usage("--diff is given, and --as-of", "a difference is between two moments of its own: T1..T2", again().But("--as-of"))
		}
		return c.printDiff(ctx, v.diff)
	}
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
	if (v.check || v.strict) && slices.ContainsFunc(view.Attention, v.counts) {
		return differs{}
	}
	return nil
}

// counts reports whether something to attend to makes the check false.
func (v *status) counts(a projections.Attention) bool { return !a.Note && (v.strict || !a.Optional) }

// A statusCount is a count that is shown, in singular and plural.
type statusCount struct{ key, one, many string }

// statusCounts are the counts in order, a line each: what there is, and how far
// the consumers and their credentials are.
var statusCounts = [][]statusCount{
	{
		{"nodes", "node", "nodes"}, {"provisions", "provision", "provisions"}, {"providers", "provider", "providers"},
		{"modules", "module", "modules"}, {"assignments", "assignment", "assignments"}, {"bindings", "binding", "bindings"},
		{"embedded", "of them embedded", "of them embedded"}, {"pending", "pending", "pending"}, {"overrides", "override", "overrides"},
	},
	{
		{"switching", "switching", "switching"}, {"outdated", "outdated", "outdated"}, {"cut-off", "cut off", "cut off"},
		{"holders", "holder", "holders"}, {"asked", "credential asked for", "credentials asked for"},
		{"rotations", "open rotation", "open rotations"},
	},
}

func statusPage(p *paper, v statusView) {
	p.linef("mesh %s at sequence %d, %s", p.paint(bold, v.Mesh), v.Seq, p.ago(v.Time))
	for _, line := range statusCounts {
		var counts []string
		for _, c := range line {
			if n := v.Counts[c.key]; n > 0 {
				counts = append(counts, plural(n, c.one, c.many))
			}
		}
		if counts != nil {
			p.line(strings.Join(counts, ", "))
		}
	}
	p.line("")
	if len(v.Attention) == 0 {
		p.line(p.paint(green, "nothing wants attention"))
		return
	}
	itemTable(p, v.Attention, []column[projections.Attention]{
		painted("STATE", func(p *paper, a projections.Attention) string { return p.state(a.Code) }),
		plain("WHAT", func(a projections.Attention) string {
			if a.Optional && a.Code == string(projections.FlagPending) {
				return a.What + " (optional)"
			}
			return a.What
		}),
		plain("WHY", func(a projections.Attention) string { return a.Why }),
		below(func(a projections.Attention) string { return a.Fix.Text() }),
	})
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
)

type explain struct{ module, node string }

func (*explain) help() *cobra.Command {
	return &cobra.Command{
		Use: "explain (ASSIGNMENT/SLOT | --module MODULE --node NODE)",
		Example: `  bindery explain wiki/db
  bindery explain --module wiki --node beta`,
		Short: "Say why a slot is served by what it is",
		Long: `Shows the recorded decision on a slot, what the ladder would say now, each of its rungs, and every
provider with the reason for which it could serve the slot or not. With --module and --node: what
would be decided if the module were placed there.`,
		Args: cobra.MaximumNArgs(1),
	}
}

func (v *explain) flags(f *flags) {
	f.args(slotNames)
	f.StringVar(&v.module, "module", "", "a `module` that might be placed")
	f.StringVar(&v.node, "node", "", "the `node` it might be placed on")
	f.names("module", moduleNames)
	f.names("node", nodeNames)
	f.cmd.MarkFlagsRequiredTogether("module", "node")
}

type explanation = commands.Explanation

func (v *explain) run(ctx context.Context, c *cli, args []string) error {
	switch {
	case len(args) == 1 && v.module == "":
		return printItem(ctx, c, commands.Explain{Slot: args[0]}, explainedSlot, explainPage)
	case len(args) == 0 && v.module != "":
		return v.placed(ctx, c)
	}
	return usage("bindery explain needs either ASSIGNMENT/SLOT or --module and --node", "", do("explain").With("--help"))
}

func explainedSlot(v explanation) string { return v.Slot }

// placed explains every slot of a module that is not placed yet.
func (v *explain) placed(ctx context.Context, c *cli) error {
	data, err := c.ask(ctx, commands.Explain{Module: v.module, Node: v.node})
	if err != nil {
		return err
	}
	a, err := listAnswer[explanation](data, "no slots", explainedSlot, nil)
	if err != nil {
		return err
	}
	items := make([]explanation, len(a.items))
	for i, raw := range a.items {
		one, err := showAnswer(raw, func(e explanation) string { items[i] = e; return e.Slot }, explainPage)
		if err != nil {
			return err
		}
		a.names[i] = one.names[0]
	}
	a.human = func(p *paper) {
		for i, e := range items {
			if i > 0 {
				p.line("")
			}
			p.linef("%s on %s", p.paint(bold, e.Slot), v.node)
			explainNow(p, e)
		}
	}
	return c.ui.print(a)
}

func explainPage(p *paper, e explanation) {
	p.line(p.paint(bold, e.Slot))
	if e.Provider == "" {
		p.fields("bound to", p.state("pending"))
	} else {
		p.fields("bound to", e.Provider, "rule", string(e.Rule), "decided at", fmt.Sprintf("sequence %d", e.Seq),
			"resting on", restingOn(e), "flags", states(p, e.Flags))
	}
	if o := e.Override; o != nil {
		p.heading("override")
		p.fields("to", o.Provider, "set", fmt.Sprintf("by %s, %s, sequence %d", o.Actor, p.ago(o.Time), o.Seq), "reason", o.Reason,
			"underneath", orDash(under(*o)))
	}
	explainNow(p, e)
}

// restingOn is the fact that the rule rested on.
func restingOn(e explanation) string {
	if e.Basis == 0 {
		return ""
	}
	return fmt.Sprintf("sequence %d", e.Basis)
}

// explainNow shows what the ladder says now, and what it sees.
func explainNow(p *paper, e explanation) {
	p.heading("the ladder now")
	if e.Now.Provider == "" {
		p.line("no decision: " + strings.TrimSpace(e.Now.Why))
	} else {
		p.linef("%s, by %s: %s", e.Now.Provider, e.Now.Rule, e.Now.Why)
	}
	if len(e.Rungs) > 0 {
		p.heading("rungs")
		itemTable(p, e.Rungs, []column[commands.Rung]{
			plain("RULE", func(r commands.Rung) string { return string(r.Rule) }),
			painted("APPLIES", func(p *paper, r commands.Rung) string { return yesNo(p, r.Applies) }),
			plain("PROVIDER", func(r commands.Rung) string { return r.Provider }),
			plain("WHY", func(r commands.Rung) string { return r.Why }),
		})
	}
	if len(e.Candidates) > 0 {
		p.heading("providers")
		itemTable(p, e.Candidates, []column[commands.Verdict]{
			plain("PROVIDER", func(v commands.Verdict) string { return v.Provider }),
			plain("NODE", func(v commands.Verdict) string { return v.Node }),
			painted("ELIGIBLE", func(p *paper, v commands.Verdict) string { return yesNo(p, v.Eligible) }),
			plain("WHY", func(v commands.Verdict) string { return v.Why }),
			wide("ID", func(v commands.Verdict) string { return tail(v.ID.String()) }),
		})
	}
}

func yesNo(p *paper, yes bool) string {
	if yes {
		return p.state("yes")
	}
	return "no"
}

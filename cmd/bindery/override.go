package main

import (
	"context"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

func (c *cli) overrides() *cobra.Command {
	return c.group("override", "  bindery override set wiki/db --provider pg-beta --reason \"disk of alpha is being replaced\"",
		"An operator's decisions that beat all others", &overrideSet{}, &overrideClear{}, &overrideList{})
}

type overrideSet struct {
	write
	provider string
}

func (*overrideSet) help() *cobra.Command {
	return &cobra.Command{
		Use:     "set ASSIGNMENT/SLOT",
		Example: `  bindery override set wiki/db --provider pg-beta --reason "disk of alpha is being replaced"`,
		Short:   "Decide what serves a slot, over everything else",
		Long: `Binds a slot to a provider until the override is cleared, whatever else is asked for. What was
bound before is remembered, and clearing restores it. A second one keeps the memory of the first.`,
	}
}

func (v *overrideSet) flags(f *flags) {
	v.bind(f)
	f.args(slotNames)
	f.StringVar(&v.provider, "provider", "", "the `provider` that serves the slot")
	f.eligible("provider")
	f.must("provider")
}

func (v *overrideSet) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "override of "+args[0], commands.SetOverride{Slot: args[0], Provider: v.provider})
}

type overrideClear struct {
	write
	provider        string
	reResolve, keep bool
}

func (*overrideClear) help() *cobra.Command {
	return &cobra.Command{
		Use: "clear ASSIGNMENT/SLOT [--re-resolve | --provider PROVIDER | --keep]",
		Example: `  bindery override clear wiki/db
  bindery override clear wiki/db --keep`,
		Short: "Withdraw an override",
		Long: `Withdraws an override and restores what was bound before it; where that is not possible any more
it is refused with the candidates. Or: --re-resolve runs the ladder, --provider and --keep choose.`,
	}
}

func (v *overrideClear) flags(f *flags) {
	v.bind(f)
	f.args(overrideNames)
	f.BoolVar(&v.reResolve, "re-resolve", false, "decide anew instead of restoring")
	f.StringVar(&v.provider, "provider", "", "bind to this `provider` instead; it becomes the choice")
	f.BoolVar(&v.keep, "keep", false, "stay with what the override bound; it becomes the choice")
	f.eligible("provider")
	f.cmd.MarkFlagsMutuallyExclusive("re-resolve", "provider", "keep")
}

func (v *overrideClear) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "override of "+args[0], commands.ClearOverride{Slot: args[0], ReResolve: v.reResolve, Provider: v.provider, Keep: v.keep})
}

type overrideList struct{}

func (*overrideList) help() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  bindery override list",
		Short:   "List the overrides that stand",
		Long:    "Lists the overrides with what they would restore, who set them and why.",
	}
}

func (*overrideList) flags(*flags) {}

type overrideView = projections.OverrideView

func (*overrideList) run(ctx context.Context, c *cli, _ []string) error {
	return printList(ctx, c, commands.ListOverrides{}, "no overrides", func(v overrideView) string { return v.Slot }, []column[overrideView]{
		plain("SLOT", func(v overrideView) string { return v.Slot }),
		plain("PROVIDER", func(v overrideView) string { return v.Provider }),
		plain("UNDER", under),
		plain("BY", func(v overrideView) string { return v.Actor }),
		painted("SINCE", func(p *paper, v overrideView) string { return p.ago(v.Time) }),
		plain("REASON", func(v overrideView) string { return v.Reason }),
		idColumn(func(v overrideView) events.ID { return v.ID }),
		seqColumn(func(v overrideView) uint64 { return v.Seq }),
	})
}

// under is what clearing an override would restore.
func under(v overrideView) string {
	if v.Under.Embedded {
		return "embedded"
	}
	return v.Under.Provider
}

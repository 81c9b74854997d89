package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/projections"
)

func (c *cli) bindings() *cobra.Command {
	return c.group("binding", "  bindery binding list --provider pg-alpha", "What serves each slot",
		&bindingList{}, &bindingShow{}, &bindingRebind{})
}

type bindingView = projections.BindingView

func slotOf(v bindingView) string { return v.Assignment + "/" + v.Slot }

// target is what serves a slot, for people.
func target(v bindingView) string {
	switch {
	case v.Embedded != nil:
		return "embedded"
	case v.Provider == "":
		return "pending"
	}
	return v.Provider
}

func bindingColumns() []column[bindingView] {
	return []column[bindingView]{
		plain("SLOT", slotOf),
		plain("NODE", func(v bindingView) string { return v.Node }),
		plain("PROVISION", func(v bindingView) string { return v.Provision }),
		painted("PROVIDER", func(p *paper, v bindingView) string { return p.state(target(v)) }),
		plain("ON", func(v bindingView) string { return v.ProviderNode }),
		plain("ENDPOINT", func(v bindingView) string { return v.Endpoint }),
		plain("RULE", func(v bindingView) string { return string(v.Rule) }),
		painted("FLAGS", func(p *paper, v bindingView) string { return states(p, v.Flags) }),
		wide("ID", func(v bindingView) string {
			if v.ID == nil {
				return ""
			}
			return tail(v.ID.String())
		}),
		seqColumn(func(v bindingView) uint64 { return v.Seq }),
		wide("CHANGED", func(v bindingView) string { return fmt.Sprint(v.ChangedSeq) }),
	}
}

type bindingList struct{ provider, node, assignment string }

func (*bindingList) help() *cobra.Command {
	return &cobra.Command{
		Use: "list",
		Example: `  bindery binding list
  bindery binding list --provider pg-alpha --node beta`,
		Short: "List what serves each slot",
		Long:  "Lists the bindings of all consumers, or of those that are given.",
	}
}

func (v *bindingList) flags(f *flags) {
	f.StringVar(&v.provider, "provider", "", "only those bound to this `provider`")
	f.StringVar(&v.node, "node", "", "only of consumers on this `node`")
	f.StringVar(&v.assignment, "assignment", "", "only of this `assignment`")
	f.names("provider", providerNames)
	f.names("node", nodeNames)
	f.names("assignment", assignmentNames)
}

func (v *bindingList) run(ctx context.Context, c *cli, _ []string) error {
	q := commands.ListBindings{Provider: v.provider, Node: v.node, Assignment: v.assignment}
	return printList(ctx, c, q, "no bindings", slotOf, bindingColumns())
}

type bindingShow struct{}

func (*bindingShow) help() *cobra.Command {
	return &cobra.Command{
		Use:     "show ASSIGNMENT/SLOT",
		Example: "  bindery binding show wiki/db",
		Short:   "Show what serves a slot",
		Long:    "Shows what serves a slot, by which rule and since when. The reasons are in bindery explain.",
	}
}

func (*bindingShow) flags(f *flags) { f.args(slotNames) }

func (*bindingShow) run(ctx context.Context, c *cli, args []string) error {
	return printItem(ctx, c, commands.ShowBinding{Slot: args[0]}, slotOf, func(p *paper, v bindingView) {
		id, seq, changed := "-", "-", "-"
		if v.ID != nil {
			id, seq, changed = v.ID.String(), fmt.Sprint(v.Seq), fmt.Sprint(v.ChangedSeq)
		}
		pairs := []string{"slot", slotOf(v), "id", id, "node", v.Node, "provision", v.Provision, "provider", p.state(target(v)),
			"provider node", v.ProviderNode, "endpoint", v.Endpoint, "rule", string(v.Rule), "flags", orDash(states(p, v.Flags)),
			"seq", seq, "changed seq", changed}
		if e := v.Embedded; e != nil {
			pairs = append(pairs, "because of", string(e.Because), "version", e.Version, "features", strings.Join(e.Features, ", "))
		}
		p.fields(pairs...)
	})
}

type bindingRebind struct {
	write
	provider                string
	reResolve, forgetChoice bool
}

func (*bindingRebind) help() *cobra.Command {
	return &cobra.Command{
		Use: "rebind ASSIGNMENT/SLOT (--provider PROVIDER | --re-resolve | --forget-choice)",
		Example: `  bindery binding rebind wiki/db --provider pg-beta
  bindery binding rebind wiki/db --re-resolve`,
		Short: "Change what serves a slot",
		Long: `Changes what serves a slot: --provider chooses one, --re-resolve runs the ladder and keeps the
choice, --forget-choice clears the choice first. Data does not move by itself. While an override
stands on the slot this is refused.`,
	}
}

func (v *bindingRebind) flags(f *flags) {
	v.bind(f)
	f.args(slotNames)
	f.StringVar(&v.provider, "provider", "", "bind to this `provider`, which becomes the choice")
	f.BoolVar(&v.reResolve, "re-resolve", false, "decide anew")
	f.BoolVar(&v.forgetChoice, "forget-choice", false, "clear the choice, then decide anew")
	f.names("provider", providerNames)
	f.cmd.MarkFlagsMutuallyExclusive("provider", "re-resolve", "forget-choice")
	f.cmd.MarkFlagsOneRequired("provider", "re-resolve", "forget-choice")
}

func (v *bindingRebind) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "binding "+args[0], commands.RebindSlot{Slot: args[0], Provider: v.provider,
		ReResolve: v.reResolve, ForgetChoice: v.forgetChoice})
}

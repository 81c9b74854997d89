package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/projections"
)

func (c *cli) bindings() *cobra.Command {
	return c.group("binding", "  bindery binding list --provider pg-alpha", "What serves each slot",
		&bindingList{}, &bindingShow{}, &bindingRebind{}, &bindingApplied{}, &bindingFailed{}, &bindingWait{})
}

type bindingView = projections.BindingView

func slotOf(v bindingView) string { return v.Assignment + "/" + v.Slot }

// target is what serves a slot, for people.
func target(v bindingView) string {
	switch {
	case v.Embedded != nil:
		return "embedded"
	case v.Released:
		return "released"
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
		rarelyWide("RUNS WITH", func(v bindingView) string {
			if slices.Contains(v.Flags, projections.FlagSwitching) {
				return inUse(v.Use)
			}
			return ""
		}),
		rarelyWide("ERROR", func(v bindingView) string { return trouble(v.Error, v.Attempts) }),
		wide("ID", func(v bindingView) string {
			if v.ID == nil {
				return ""
			}
			return tail(v.ID.String())
		}),
		seqColumn(func(v bindingView) uint64 { return v.Seq }),
		wide("GENERATION", func(v bindingView) string { return number(v.Generation) }),
		wide("IN USE", func(v bindingView) string { return number(v.Use.Generation) }),
		wide("CHANGED", func(v bindingView) string { return number(v.ChangedSeq) }),
		wide("APPLIED", func(v bindingView) string { return number(v.AppliedSeq) }),
	}
}

// inUse is what a consumer runs with, for people; "" for nothing yet.
func inUse(u projections.UseView) string {
	if u.Embedded {
		return "embedded"
	}
	return u.Provider
}

// number is a sequence or a generation; 0 is none.
func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

type bindingList struct{ provider, node, assignment, flag string }

func (*bindingList) help() *cobra.Command {
	return &cobra.Command{
		Use: "list",
		Example: `  bindery binding list
  bindery binding list --provider pg-alpha --node beta
  bindery binding list --flag outdated`,
		Short: "List what serves each slot",
		Long: `Lists the bindings of all consumers, or of those that are given. FLAGS says what is the matter:
outdated is a consumer that has not said that it runs with the last change, switching one that runs with
another provider than is decided until a credential is issued, cut-off one whose credential is revoked.`,
	}
}

func (v *bindingList) flags(f *flags) {
	f.StringVar(&v.provider, "provider", "", "only those bound to this `provider`")
	f.StringVar(&v.node, "node", "", "only of consumers on this `node`")
	f.StringVar(&v.assignment, "assignment", "", "only of this `assignment`")
	f.names("provider", providerNames)
	f.names("node", nodeNames)
	f.names("assignment", assignmentNames)
	f.StringVar(&v.flag, "flag", "", "only those with this `flag`: "+strings.Join(flagNames(), ", "))
	f.values("flag", flagNames()...)
}

func flagNames() []string {
	var out []string
	for _, f := range projections.AllFlags() {
		out = append(out, string(f))
	}
	return out
}

func (v *bindingList) run(ctx context.Context, c *cli, _ []string) error {
	q := commands.ListBindings{Provider: v.provider, Node: v.node, Assignment: v.assignment, Flag: v.flag}
	return printList(ctx, c, q, "no bindings", slotOf, bindingColumns())
}

type bindingShow struct{}

func (*bindingShow) help() *cobra.Command {
	return &cobra.Command{
		Use:     "show ASSIGNMENT/SLOT",
		Example: "  bindery binding show wiki/db",
		Short:   "Show what serves a slot, and what its consumer runs with",
		Long: `Shows what is decided on a slot, by which rule and since when, and below it what its consumer is to
run with: the two differ until a credential is issued. The reasons are in bindery explain.`,
	}
}

func (*bindingShow) flags(f *flags) { f.args(slotNames) }

func (*bindingShow) run(ctx context.Context, c *cli, args []string) error {
	return printItem(ctx, c, commands.ShowBinding{Slot: args[0]}, slotOf, func(p *paper, v bindingView) {
		decidedFields(p, v)
		if v.ID != nil && (v.Rule != "" || inUse(v.Use) != "") {
			p.heading("runs with")
			useFields(p, v)
		}
	})
}

// decidedFields show what is decided on a slot.
func decidedFields(p *paper, v bindingView) {
	id, seq := "-", "-"
	if v.ID != nil {
		id, seq = v.ID.String(), fmt.Sprint(v.Seq)
	}
	pairs := []string{"slot", slotOf(v), "id", id, "node", v.Node, "provision", v.Provision, "provider", p.state(target(v)),
		"provider node", v.ProviderNode, "endpoint", v.Endpoint, "rule", string(v.Rule), "flags", orDash(states(p, v.Flags)),
		"seq", seq}
	if inUse(v.Use) == "" && !v.Released {
		pairs = append(pairs, "changed seq", number(v.ChangedSeq)) // there is nothing below that it could be of
	}
	if v.Generation != v.Use.Generation {
		pairs = append(pairs, "asked for", fmt.Sprintf("generation %d", v.Generation))
	}
	if e := v.Embedded; e != nil {
		pairs = append(pairs, "because of", string(e.Because), "version", e.Version, "features", strings.Join(e.Features, ", "))
	}
	p.fields(pairs...)
}

// useFields show what the consumer is to run with, and how far it has taken it
// up.
func useFields(p *paper, v bindingView) {
	u := v.Use
	if inUse(u) == "" {
		p.line("nothing yet: its credential is not issued")
	} else {
		p.fields("provider", inUse(u), "node", u.Node, "endpoint", u.Endpoint, "version", u.Version,
			"generation", number(u.Generation), "secret", u.SecretRef, "changed seq", number(v.ChangedSeq),
			"applied seq", cmp.Or(number(v.AppliedSeq), "never"))
	}
	p.fields("error", trouble(v.Error, v.Attempts))
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
	f.eligible("provider")
	f.cmd.MarkFlagsMutuallyExclusive("provider", "re-resolve", "forget-choice")
	f.cmd.MarkFlagsOneRequired("provider", "re-resolve", "forget-choice")
}

func (v *bindingRebind) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "binding "+args[0], commands.RebindSlot{Slot: args[0], Provider: v.provider,
		ReResolve: v.reResolve, ForgetChoice: v.forgetChoice})
}

type bindingApplied struct {
	write
	at    uint64
	chain string
}

func (*bindingApplied) help() *cobra.Command {
	return &cobra.Command{
		Use:     "applied ASSIGNMENT/SLOT",
		Example: "  bindery binding applied wiki/db --at 42",
		Short:   "Say that a consumer runs with what the ledger gives it",
		Long: `The consumer says that it runs with what "binding show" gave it at a sequence (its changed_seq, or any
later one it was read at). What it ran with before can be revoked then. With --chain it is refused where
the ledger was restored since, and has that sequence no longer.`,
	}
}

func (v *bindingApplied) flags(f *flags) {
	v.bind(f)
	f.args(slotNames)
	f.Uint64Var(&v.at, "at", 0, "the `sequence` at which it was read")
	f.StringVar(&v.chain, "chain", "", "the chain `value` at that sequence, where it was read, too")
	f.values("at")
	f.values("chain")
	f.must("at")
}

func (v *bindingApplied) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "binding "+args[0], commands.AcknowledgeBinding{Slot: args[0], At: v.at, Chain: v.chain})
}

type bindingFailed struct {
	write
	attempts uint64
}

func (*bindingFailed) help() *cobra.Command {
	return &cobra.Command{
		Use:     "failed ASSIGNMENT/SLOT",
		Example: `  bindery binding failed wiki/db --reason "login refused"`,
		Short:   "Say that a consumer could not take up what the ledger gives it",
		Long: `The consumer says why it could not take up what it is to run with. It is recorded when the reason
changes or the number of attempts has doubled, not every time. It needs --reason.`,
	}
}

func (v *bindingFailed) flags(f *flags) {
	v.bind(f)
	f.args(slotNames)
	bindAttempts(f, &v.attempts)
}

func (v *bindingFailed) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "binding "+args[0], commands.FailBinding{Slot: args[0], Attempts: v.attempts})
}

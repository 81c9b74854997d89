package main

import (
	"context"

	"github.com/spf13/cobra"

	"bindery/commands"
)

type providerHolders struct{ all bool }

func (*providerHolders) help() *cobra.Command {
	return &cobra.Command{
		Use: "holders PROVIDER",
		Example: `  bindery provider holders pg-alpha
  bindery provider holders pg-alpha --all`,
		Short: "List who can log in to a provider",
		Long: `Lists the credentials that log in to a provider, those among them that are to be revoked included;
with --all those that did, too. -o name prints what the verbs of credential take.`,
	}
}

func (v *providerHolders) flags(f *flags) {
	f.args(providerNames)
	f.BoolVar(&v.all, "all", false, "those that log in no longer, too")
}

func (v *providerHolders) run(ctx context.Context, c *cli, args []string) error {
	q := commands.ListHolders{Provider: args[0], All: v.all}
	return printList(ctx, c, q, "nobody can log in to "+args[0], credentialName, holderColumns())
}

// holderColumns are those of a list whose provider is known.
func holderColumns() []column[credentialView] {
	return append([]column[credentialView]{
		plain("SLOT", holderSlot),
		plain("NODE", func(v credentialView) string { return v.Node }),
	}, credentialStateColumns()...)
}

package main

import (
	"context"

	"github.com/spf13/cobra"

	"bindery/commands"
)

type auditSeal struct {
	write
	successor string
	yes       bool
}

func (*auditSeal) help() *cobra.Command {
	return &cobra.Command{
		Use: "seal",
		Example: `  bindery audit seal --reason 'moved to the cluster' --successor nats://ledger.home.arpa:4222 --dry-run
  bindery audit seal --reason 'moved to the cluster' --successor nats://ledger.home.arpa:4222 --yes`,
		Short: "End a ledger that has moved elsewhere",
		Long: `Writes the last event of a ledger: from then on every write is refused with ledger_sealed, and reads work
as before. It cannot be undone. Seal the old store once the new one, restored from its backup, serves: two
that can both be written would be two ledgers of one mesh.`,
	}
}

func (v *auditSeal) flags(f *flags) {
	v.bind(f)
	f.StringVar(&v.successor, "successor", "", "`text`: where the ledger lives now")
	f.BoolVar(&v.yes, "yes", false, "do it: it cannot be undone")
	f.values("successor")
}

func (v *auditSeal) run(ctx context.Context, c *cli, _ []string) error {
	if !v.yes && !v.dryRun {
		return usage("sealing cannot be undone", "nothing can be written to the ledger afterwards, by nobody", again().With("--yes"))
	}
	return c.change(ctx, &v.write, "mesh", commands.SealMesh{Successor: v.successor})
}

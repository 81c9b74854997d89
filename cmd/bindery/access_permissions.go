package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/projections"
)

type accessPermissions struct {
	account                string
	writers, answers, keys []string
	format                 string
}

func (*accessPermissions) help() *cobra.Command {
	return &cobra.Command{
		Use: "permissions [NAME]",
		Example: `  bindery access permissions on-beta
  bindery access permissions --mesh home --writer-nkey UWRITER --answers-nkey UANSWERS --nkey UANN > bindery.conf
  bindery access permissions --writer-nkey UWRITER --answers-nkey UANSWERS > bindery.conf
  bindery access permissions --writer-nkey UWRITER --answers-nkey UANSWERS --format nsc`,
		Short: "Print what a NATS server must be told about accounts",
		Long: `Prints the accounts for a NATS server that is not bindery's own: one for the ledger, which only the
processes that serve it enter, and one for each granted key, from which requests reach them and nothing
else. Include the output in the server's configuration and reload the server, before init and again after
each grant and revocation.

The granted keys are those of the ledger, and so are those of writers, beside --writer-nkey. With --nkey they are those that are given, and no ledger is
asked: so it is before there is one. With a NAME the pieces of that grant alone are printed, and where
they go.`,
		Args: cobra.MaximumNArgs(1),
	}
}

func (v *accessPermissions) flags(f *flags) {
	f.args(grantNames)
	f.StringVar(&v.account, "account", "bindery", "the `name` of the ledger's account")
	f.StringArrayVar(&v.writers, "writer-nkey", nil, "the public `key` of a process that serves (serve --creds); may be repeated")
	f.StringArrayVar(&v.answers, "answers-nkey", nil, "the public `key` of its connection that answers (serve --answer-creds); may be repeated")
	f.StringArrayVar(&v.keys, "nkey", nil, "a granted public `key`, instead of those of the ledger; may be repeated")
	f.StringVar(&v.format, "format", "config", "config: of a server; nsc: commands that make JWTs")
	f.values("account")
	f.values("writer-nkey")
	f.values("answers-nkey")
	f.values("nkey")
	f.values("format", "config", "nsc")
}

func (v *accessPermissions) run(ctx context.Context, c *cli, args []string) error {
	b := service.Boundary{Mesh: c.globals.mesh, Account: v.account, Writers: v.writers, Answers: v.answers, Keys: v.keys}
	for _, keys := range [][]string{v.writers, v.answers, v.keys} {
		for _, key := range keys {
			if !nkeys.IsValidPublicUserKey(key) {
				return refusal(commands.NKeyInvalid, fmt.Sprintf("%q is not the public nkey of a user", clip(key)), "", do("access keygen", "FILE"))
			}
		}
	}
	if err := events.CheckName(v.account); err != nil {
		return usage(fmt.Sprintf("%q is no name for an account", clip(v.account)), err.Error(), do("access permissions").With("--help"))
	}
	if len(args) > 0 {
		if err := v.granted(ctx, c, &b, args[0]); err != nil {
			return err
		}
		_, err := fmt.Fprint(c.streams.Out, b.Parts())
		return err
	}
	if len(v.keys) == 0 {
		if err := v.granted(ctx, c, &b, ""); err != nil {
			return err
		}
	} else if b.Mesh == "" {
		return usage("the mesh is not said", "with --nkey no ledger is asked", do("access permissions").With("--mesh", "NAME").With("--nkey", "KEY"))
	}
	if len(b.Writers) == 0 || len(b.Answers) == 0 {
		return usage("the keys of the serving processes are not said", "without them nobody could write the ledger",
			do("access permissions").With("--writer-nkey", "KEY").With("--answers-nkey", "KEY"))
	}
	text := b.Config()
	switch v.format {
	case "config":
	case "nsc":
		text = b.NSC()
	default:
		return usage(fmt.Sprintf("there is no format %q", clip(v.format)), "it is config or nsc", do("access permissions").With("--format", "config"))
	}
	_, err := fmt.Fprint(c.streams.Out, text)
	return err
}

// granted takes the keys that the ledger grants access; of one name where that is
// said.
func (v *accessPermissions) granted(ctx context.Context, c *cli, b *service.Boundary, name string) error {
	data, err := c.ask(ctx, commands.ListAccess{})
	if err != nil {
		return err
	}
	var all projections.List[grantView]
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	b.Mesh = all.Mesh
	names := make([]string, 0, len(all.Items))
	for _, g := range all.Items {
		switch {
		case g.Role == events.RoleWriter && !slices.Contains(b.Writers, g.NKey):
			b.Writers = append(b.Writers, g.NKey)
		case g.Role != events.RoleWriter && (name == "" || g.Name == name):
			b.Keys = append(b.Keys, g.NKey)
		}
		names = append(names, g.Name)
	}
	if name == "" || len(b.Keys) > 0 {
		return nil
	}
	r := refusal(commands.AccessNotFound, fmt.Sprintf("no access is called %q", clip(name)), "", do("access list"))
	for _, n := range commands.Nearest(name, names, 3) {
		r.Candidates = append(r.Candidates, commands.Candidate{Name: n, Why: "a similar name"})
	}
	return r
}

package main

import (
	"context"

	"github.com/spf13/cobra"

	"bindery/commands"
)

// login is the flags of those who say what a credential logs in as.
type login struct{ user, database string }

func (l *login) bind(f *flags) {
	f.StringVar(&l.user, "user", "", "the `name` it logs in as")
	f.StringVar(&l.database, "database", "", "the `database` it logs in to, where the service has several")
	f.values("user")
	f.values("database")
}

type credentialAdopt struct {
	write
	generation
	login
	secretRef string
}

func (*credentialAdopt) help() *cobra.Command {
	return &cobra.Command{
		Use: "adopt ASSIGNMENT/SLOT",
		Example: `  bindery credential adopt wiki/db --user wiki --database wiki
  bindery credential adopt wiki/db --user wiki --secret-ref file:/srv/wiki/.env`,
		Short: "Say which login a credential is that was made by hand",
		Long: `Says which login a slot's credential is that somebody made by hand: its user, and where the service has
several its database. From then on the agent of the provider's node can end it when it is replaced, and
the next login follows it, with its data and its rights. Without it no agent touches it: a hook that does
not know what to end has ended nothing. It is about what the consumer runs with, or the generation that is
given; where a credential is only asked for, --secret-ref says where the secret lies that answers it.
For a whole fleet, write them under logins: in a manifest.`,
	}
}

func (v *credentialAdopt) flags(f *flags) {
	v.write.bind(f)
	v.generation.bind(f)
	v.login.bind(f)
	f.args(slotNames)
	f.StringVar(&v.secretRef, secretRefFlag, "", "where its secret lies: `SCHEME:PATH`")
	f.values(secretRefFlag)
	f.must("user")
}

func (v *credentialAdopt) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "login of "+args[0], commands.AdoptCredential{Slot: args[0], Generation: v.n, User: v.user,
		Database: v.database, SecretRef: v.secretRef})
}

// loginText is what a credential logs in as, and who made that, for people.
func loginText(v credentialView) string {
	out := v.User
	if v.Database != "" {
		out += " to " + v.Database
	}
	switch {
	case v.ByHand && out == "":
		return "by hand, which is not known"
	case v.ByHand:
		return out + ", by hand"
	}
	return out
}

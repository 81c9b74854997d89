package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

func (c *cli) access() *cobra.Command {
	return c.group("access", "  bindery access grant agent-beta --role agent --node beta --nkey \"$(bindery access keygen beta.nk)\"",
		"Who may do what through a bindery serve", &accessGrant{}, &accessRevoke{}, &accessList{}, &accessKeygen{}, &accessPermissions{})
}

type accessGrant struct {
	write
	role, node, nkey, join string
}

func (*accessGrant) help() *cobra.Command {
	return &cobra.Command{
		Use: "grant NAME",
		Example: `  bindery access grant ann --role operator --nkey UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4
  bindery access grant agent-beta --role agent --node beta --nkey UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4`,
		Short: "Let the owner of a key do what a role may",
		Long: `Lets whoever has the secret half of a key ask a bindery serve: an operator anything; an agent, for what is
on its node: it acknowledges for consumers and providers there, and reads what concerns them; an auditor
reads. Who does what is recorded under NAME. Whoever can read the store's files needs no grant.`,
	}
}

func (v *accessGrant) flags(f *flags) {
	v.bind(f)
	f.args()
	f.StringVar(&v.role, "role", "", "`role`: operator, agent, auditor or writer")
	f.StringVar(&v.node, "node", "", "the `node` of an agent")
	f.StringVar(&v.nkey, "nkey", "", "the public `key`, U…; bindery access keygen makes one")
	f.StringVar(&v.join, "join", "", "write a `file` (….json) with what that machine needs to reach who serves")
	f.values("role", roleNames()...)
	f.names("node", nodeNames)
	f.values("nkey")
	f.must("role", "nkey")
}

func roleNames() []string {
	var out []string
	for _, r := range events.Roles() {
		out = append(out, string(r))
	}
	return out
}

func (v *accessGrant) run(ctx context.Context, c *cli, args []string) error {
	var join []byte
	if v.join != "" {
		var err error
		if join, err = c.joinFor(v.join); err != nil {
			return err
		}
	}
	err := c.change(ctx, &v.write, "access "+args[0],
		commands.GrantAccess{Name: args[0], Role: events.Role(v.role), Node: v.node, NKey: v.nkey})
	if err != nil || join == nil || v.dryRun {
		return err
	}
	err = ledger.NotLink(v.join)
	if err == nil {
		err = ledger.ReplaceFile(v.join, 0o644, ledger.Bytes(join))
	}
	if err != nil {
		return refusal(commands.StoreUnusable, "the join file cannot be written", err.Error(), program("ls", "-ld", v.join))
	}
	return nil
}

// joinFor tells how other machines reach who serves the store, and what vouches
// for it. There is no secret in it: whoever joins has a key of his own.
func (c *cli) joinFor(path string) ([]byte, error) {
	dir, err := c.storeDir()
	if err != nil {
		return nil, err
	}
	e, ok := findEndpoint(dir)
	switch {
	case !ok:
		return nil, refusal(commands.NeedsServe, "nobody serves the store", "how it is reached is not known", do("serve").With("--listen", "0.0.0.0:4222").With("--tls-own").With("--name", "HOST"))
	case e.Public == "":
		return nil, refusal(commands.NeedsServe, "other machines do not reach it", "it listens without TLS, on this machine", do("serve").With("--listen", "0.0.0.0:4222").With("--tls-own").With("--name", "HOST"))
	case !strings.HasSuffix(path, ".json"):
		return nil, usage("--join is the name of no .json file", "--context tells a join file from a NATS context by that", again().With("--join", path+".json"))
	}
	data, err := json.MarshalIndent(joinFile{URL: e.Public, Mesh: e.Mesh, Pinned: e.CA}, "", "  ")
	return append(data, '\n'), err
}

// joinFile is the part of a natsContext that one machine tells another.
type joinFile struct {
	URL    string `json:"url"`
	Mesh   string `json:"mesh"`
	Pinned string `json:"ca_pem,omitempty"`
}

type accessRevoke struct{ write }

func (*accessRevoke) help() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Example: `  bindery access revoke agent-beta --reason "the machine was stolen"`,
		Short:   "End a grant",
		Long: `Ends a grant: what its key asks from then on is refused, and its connections to a bindery serve are
closed. The last operator cannot be revoked.`,
	}
}

func (v *accessRevoke) flags(f *flags) {
	v.bind(f)
	f.args(grantNames)
}

func (v *accessRevoke) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "access "+args[0], commands.RevokeAccess{Name: args[0]})
}

type accessList struct{}

func (*accessList) help() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  bindery access list",
		Short:   "List the grants",
		Long:    "Lists who is granted what, by whom, and with which key.",
	}
}

func (*accessList) flags(*flags) {}

type grantView = projections.GrantView

func (*accessList) run(ctx context.Context, c *cli, _ []string) error {
	return printList(ctx, c, commands.ListAccess{}, "nobody is granted access; whoever can read the store's files needs no grant",
		func(v grantView) string { return v.Name }, []column[grantView]{
			plain("NAME", func(v grantView) string { return v.Name }),
			plain("ROLE", func(v grantView) string { return string(v.Role) }),
			plain("NODE", func(v grantView) string { return v.Node }),
			plain("BY", func(v grantView) string { return v.Actor }),
			painted("SINCE", func(p *paper, v grantView) string { return p.ago(v.Time) }),
			plain("KEY", func(v grantView) string { return v.NKey }),
			idColumn(func(v grantView) events.ID { return v.ID }),
			seqColumn(func(v grantView) uint64 { return v.Seq }),
		})
}

type accessKeygen struct{}

func (*accessKeygen) help() *cobra.Command {
	return &cobra.Command{
		Use:     "keygen FILE",
		Example: "  bindery access keygen beta.nk",
		Short:   "Make a key pair",
		Long: `Makes an nkey pair, writes the secret half to a new file that only its owner can read, and prints the
public half, for access grant. It needs no store: make it on the machine that will use it.`,
	}
}

func (*accessKeygen) flags(f *flags) {}

func (*accessKeygen) run(_ context.Context, c *cli, args []string) error {
	key, err := ledger.NewKey()
	if err != nil {
		return err
	}
	seed, err := key.Seed()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, seed)
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, os.ErrExist) {
		return usage("the file "+args[0]+" is there already", "a key that was lost cannot be made again", do("access keygen", "OTHER"))
	}
	if err != nil {
		return refusal(commands.StoreUnusable, "the key cannot be written", err.Error(), commands.Fix{})
	}
	_, err = fmt.Fprintln(c.streams.Out, key.Public)
	return err
}

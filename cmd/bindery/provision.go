package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

func (c *cli) provisions() *cobra.Command {
	return c.group("provision", "  bindery provision define postgres-database --scope node", "The kinds of service, and their defaults",
		&provisionDefine{}, &provisionRescope{}, &provisionRemove{}, &provisionDefault{}, &provisionList{}, &provisionShow{})
}

func scopes() []string { return []string{string(events.ScopeNode), string(events.ScopeMesh)} }

type provisionDefine struct {
	write
	scope, credentials string
}

func (*provisionDefine) help() *cobra.Command {
	return &cobra.Command{
		Use: "define PROVISION",
		Example: `  bindery provision define postgres-database --scope node
  bindery provision define mesh-ca --scope mesh --credentials none`,
		Short: "Name a kind of service",
		Long: `Names a kind of service. With scope node there may be any number of providers of it, with
scope mesh one that is active. Credentials are managed where it is not said otherwise.`,
	}
}

func (v *provisionDefine) flags(f *flags) {
	v.bind(f)
	f.args()
	f.StringVar(&v.scope, "scope", "", "`node` or mesh")
	f.StringVar(&v.credentials, "credentials", "", "`managed` or none; fixed from then on")
	f.values("scope", scopes()...)
	f.values("credentials", string(events.CredentialsManaged), string(events.CredentialsNone))
	f.must("scope")
}

func (v *provisionDefine) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provision "+args[0], commands.DefineProvision{Name: args[0],
		Scope: events.Scope(v.scope), Credentials: events.Credentials(v.credentials)})
}

type provisionRescope struct {
	write
	scope string
}

func (*provisionRescope) help() *cobra.Command {
	return &cobra.Command{
		Use:     "rescope PROVISION",
		Example: "  bindery provision rescope oidc --scope mesh",
		Short:   "Change how many providers a provision may have",
		Long: `Changes the scope. From node to mesh is refused while two providers are active or a node has a
default; from mesh to node always works. No binding changes.`,
	}
}

func (v *provisionRescope) flags(f *flags) {
	v.bind(f)
	f.args(provisionNames)
	f.StringVar(&v.scope, "scope", "", "`node` or mesh")
	f.values("scope", scopes()...)
	f.must("scope")
}

func (v *provisionRescope) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provision "+args[0], commands.RescopeProvision{Provision: args[0], Scope: events.Scope(v.scope)})
}

type provisionRemove struct{ write }

func (*provisionRemove) help() *cobra.Command {
	return &cobra.Command{
		Use:     "remove PROVISION",
		Example: "  bindery provision remove s3-bucket",
		Short:   "End a provision that nothing refers to",
		Long:    "Ends a provision. While providers, modules or defaults refer to it this is refused, and they are listed.",
	}
}

func (v *provisionRemove) flags(f *flags) { v.bind(f); f.args(provisionNames) }

func (v *provisionRemove) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provision "+args[0], commands.RemoveProvision{Provision: args[0]})
}

type provisionDefault struct {
	write
	provider, node string
	clear          bool
}

func (*provisionDefault) help() *cobra.Command {
	return &cobra.Command{
		Use: "default PROVISION (--provider PROVIDER | --clear)",
		Example: `  bindery provision default postgres-database --provider pg-alpha
  bindery provision default postgres-database --provider pg-beta --node beta
  bindery provision default postgres-database --clear --node beta`,
		Short: "Set or clear the provider of those who name none",
		Long: `Declares which provider serves consumers that name none: those on one node, or all of them. A
second default replaces the first. A default decides once, when a slot is bound: no binding changes.`,
	}
}

func (v *provisionDefault) flags(f *flags) {
	v.bind(f)
	f.args(provisionNames)
	f.StringVar(&v.provider, "provider", "", "the `provider`")
	f.StringVar(&v.node, "node", "", "only for consumers on this `node`")
	f.BoolVar(&v.clear, "clear", false, "have no default any more")
	f.names("provider", providerNames)
	f.names("node", nodeNames)
	f.cmd.MarkFlagsMutuallyExclusive("provider", "clear")
	f.cmd.MarkFlagsOneRequired("provider", "clear")
}

func (v *provisionDefault) run(ctx context.Context, c *cli, args []string) error {
	what := "default of " + args[0]
	if v.clear {
		return c.change(ctx, &v.write, what, commands.ClearDefault{Provision: args[0], Node: v.node})
	}
	return c.change(ctx, &v.write, what, commands.SetDefault{Provision: args[0], Provider: v.provider, Node: v.node})
}

type provisionList struct{}

func (*provisionList) help() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  bindery provision list",
		Short:   "List the provisions",
		Long:    "Lists the kinds of service with their scope, their providers and their defaults.",
	}
}

func (*provisionList) flags(*flags) {}

func (*provisionList) run(ctx context.Context, c *cli, _ []string) error {
	return printList(ctx, c, commands.ListProvisions{}, "no provisions", provisionName, []column[projections.ProvisionView]{
		plain("NAME", func(v projections.ProvisionView) string { return v.Name }),
		plain("SCOPE", func(v projections.ProvisionView) string { return string(v.Scope) }),
		plain("CREDENTIALS", func(v projections.ProvisionView) string { return string(v.Credentials) }),
		plain("PROVIDERS", func(v projections.ProvisionView) string { return strconv.Itoa(len(v.Providers)) }),
		plain("DEFAULTS", func(v projections.ProvisionView) string { return defaults(v.Defaults) }),
		wide("MODULES", func(v projections.ProvisionView) string { return strconv.Itoa(len(v.Modules)) }),
		idColumn(func(v projections.ProvisionView) events.ID { return v.ID }),
		seqColumn(func(v projections.ProvisionView) uint64 { return v.Seq }),
	})
}

func provisionName(v projections.ProvisionView) string { return v.Name }

// defaults is "pg-alpha, pg-beta on beta".
func defaults(ds []projections.DefaultView) string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.Provider
		if d.Node != "" {
			out[i] += " on " + d.Node
		}
	}
	return strings.Join(out, ", ")
}

type provisionShow struct{}

func (*provisionShow) help() *cobra.Command {
	return &cobra.Command{
		Use:     "show PROVISION",
		Example: "  bindery provision show postgres-database",
		Short:   "Show a provision and what refers to it",
		Long:    "Shows a provision with its providers, its defaults and the modules with a slot of it.",
	}
}

func (*provisionShow) flags(f *flags) { f.args(provisionNames) }

func (*provisionShow) run(ctx context.Context, c *cli, args []string) error {
	return printItem(ctx, c, commands.ShowProvision{Provision: args[0]}, provisionName, func(p *paper, v projections.ProvisionView) {
		p.fields("name", v.Name, "id", v.ID.String(), "scope", string(v.Scope), "credentials", string(v.Credentials),
			"providers", names(v.Providers), "defaults", orDash(defaults(v.Defaults)), "modules", names(v.Modules), "seq", fmt.Sprint(v.Seq))
	})
}

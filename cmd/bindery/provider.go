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

func (c *cli) providers() *cobra.Command {
	return c.group("provider", "  bindery provider register pg-alpha --provision postgres-database --node alpha --endpoint alpha.mesh:5432",
		"The servers that consumers are bound to",
		&providerRegister{}, &providerUpdate{}, &providerRename{}, &providerRelocate{}, &providerCordon{}, &providerUncordon{},
		&providerDrain{}, &providerRetire{}, &providerList{}, &providerShow{}, &providerHolders{}, &providerWait{})
}

type providerRegister struct {
	write
	provision, node, endpoint, version string
	features                           []string
	cordoned                           bool
}

func (*providerRegister) help() *cobra.Command {
	return &cobra.Command{
		Use: "register PROVIDER",
		Example: `  bindery provider register pg-alpha --provision postgres-database --node alpha \
    --endpoint alpha.mesh:5432 --version 16.4 --feature pgvector`,
		Short: "Add a running server",
		Long: `Adds a running server of a provision on a node. An endpoint is HOST:PORT or
SCHEME://HOST[:PORT][/PATH], without user, password or query. No binding changes.`,
	}
}

func (v *providerRegister) flags(f *flags) {
	v.bind(f)
	f.args()
	f.StringVar(&v.provision, "provision", "", "the `provision` it provides")
	f.StringVar(&v.node, "node", "", "the `node` it runs on")
	f.StringVar(&v.endpoint, "endpoint", "", "`where` it answers")
	f.StringVar(&v.version, "version", "", "its `version`, for slots that need one")
	f.StringArrayVar(&v.features, "feature", nil, "a `feature` it has; may be repeated")
	f.BoolVar(&v.cordoned, "cordoned", false, "give it no consumers yet")
	f.names("provision", provisionNames)
	f.names("node", nodeNames)
	f.must("provision", "node", "endpoint")
}

func (v *providerRegister) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provider "+args[0], commands.RegisterProvider{Name: args[0], Provision: v.provision,
		Node: v.node, Endpoint: v.endpoint, Version: v.version, Features: v.features, Cordoned: v.cordoned})
}

type providerUpdate struct {
	write
	endpoint, version string
	features          []string
	given             func(flag string) bool
}

func (*providerUpdate) help() *cobra.Command {
	return &cobra.Command{
		Use: "update PROVIDER",
		Example: `  bindery provider update pg-alpha --version 17.1
  bindery provider update pg-alpha --feature pgvector --feature postgis`,
		Short: "Change what a provider is like",
		Long: `Changes endpoint, version or features; what is not given stays. Features are given as the whole
set; --feature "" gives it none. No binding changes; who needs what is gone shows as unsatisfied.`,
	}
}

func (v *providerUpdate) flags(f *flags) {
	v.bind(f)
	f.args(providerNames)
	f.StringVar(&v.endpoint, "endpoint", "", "`where` it answers")
	f.StringVar(&v.version, "version", "", "its `version`; empty for unknown")
	f.StringArrayVar(&v.features, "feature", nil, "a `feature` it has; all of them are given")
	v.given = f.Changed
	f.cmd.MarkFlagsOneRequired("endpoint", "version", "feature")
}

func (v *providerUpdate) run(ctx context.Context, c *cli, args []string) error {
	cmd := commands.UpdateProvider{Provider: args[0]}
	if v.given("endpoint") {
		cmd.Endpoint = &v.endpoint
	}
	if v.given("version") {
		cmd.Version = &v.version
	}
	if v.given("feature") {
		features := []string{}
		if len(v.features) != 1 || v.features[0] != "" {
			features = v.features
		}
		cmd.Features = &features
	}
	return c.change(ctx, &v.write, "provider "+args[0], cmd)
}

type providerRename struct{ write }

func (*providerRename) help() *cobra.Command {
	return &cobra.Command{
		Use:     "rename PROVIDER NAME",
		Example: "  bindery provider rename pg-alpha pg-main",
		Short:   "Give a provider another name",
		Long:    "Gives a provider another name. Its id stays, and with it every binding.",
	}
}

func (v *providerRename) flags(f *flags) { v.bind(f); f.args(providerNames) }

func (v *providerRename) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provider "+args[1], commands.RenameProvider{Provider: args[0], To: args[1]})
}

type providerRelocate struct {
	write
	to, endpoint string
	keep         bool
}

func (*providerRelocate) help() *cobra.Command {
	return &cobra.Command{
		Use: "relocate PROVIDER",
		Example: `  bindery provider relocate pg-alpha --to beta --endpoint beta.mesh:5432
  bindery provider relocate pg-alpha --to beta --keep-endpoint`,
		Short: "Move a provider to another node",
		Long:  "Moves a provider to another node. It stays the same provider: every binding stays, and its data is yours to move.",
	}
}

func (v *providerRelocate) flags(f *flags) {
	v.bind(f)
	f.args(providerNames)
	f.StringVar(&v.to, "to", "", "the `node` it runs on from now on")
	f.StringVar(&v.endpoint, "endpoint", "", "`where` it answers there")
	f.BoolVar(&v.keep, "keep-endpoint", false, "it answers where it did")
	f.names("to", nodeNames)
	f.must("to")
	f.cmd.MarkFlagsMutuallyExclusive("endpoint", "keep-endpoint")
}

func (v *providerRelocate) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provider "+args[0], commands.RelocateProvider{Provider: args[0], To: v.to, Endpoint: v.endpoint, KeepEndpoint: v.keep})
}

type providerCordon struct{ write }

func (*providerCordon) help() *cobra.Command {
	return &cobra.Command{
		Use:     "cordon PROVIDER",
		Example: "  bindery provider cordon pg-alpha",
		Short:   "Give a provider no more consumers",
		Long:    "Keeps a provider from being given consumers. Those it has stay bound to it.",
	}
}

func (v *providerCordon) flags(f *flags) { v.bind(f); f.args(providerNames) }

func (v *providerCordon) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provider "+args[0], commands.CordonProvider{Provider: args[0]})
}

type providerUncordon struct{ write }

func (*providerUncordon) help() *cobra.Command {
	return &cobra.Command{
		Use:     "uncordon PROVIDER",
		Example: "  bindery provider uncordon pg-alpha",
		Short:   "Let a cordoned provider have consumers again",
		Long:    "Ends a cordon. No binding changes. Of a provision with mesh scope one provider may be active.",
	}
}

func (v *providerUncordon) flags(f *flags) { v.bind(f); f.args(providerNames) }

func (v *providerUncordon) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provider "+args[0], commands.UncordonProvider{Provider: args[0]})
}

type providerRetire struct {
	write
	force bool
}

func (*providerRetire) help() *cobra.Command {
	return &cobra.Command{
		Use: "retire PROVIDER",
		Example: `  bindery provider retire pg-alpha
  bindery provider retire pg-alpha --force --reason "its disk is lost"`,
		Short: "End a provider",
		Long: `Ends a provider. While bindings, choices, overrides, defaults or modules lead to it, or credentials log
in to it, this is refused, and each is listed. With --force they stay, stranded, and status lists them.`,
	}
}

func (v *providerRetire) flags(f *flags) {
	v.bind(f)
	f.args(providerNames)
	f.BoolVar(&v.force, "force", false, "although it is in use; needs --reason")
}

func (v *providerRetire) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "provider "+args[0], commands.RetireProvider{Provider: args[0], Force: v.force})
}

type providerList struct{}

func (*providerList) help() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  bindery provider list -o wide",
		Short:   "List the providers",
		Long: `Lists the live providers, and the retired ones that consumers are stranded on. HOLDERS counts the
credentials that log in; after a switch or in a rotation a consumer has more than one.`,
	}
}

func (*providerList) flags(*flags) {}

type providerView = projections.ProviderView

func (*providerList) run(ctx context.Context, c *cli, _ []string) error {
	return printList(ctx, c, commands.ListProviders{}, "no providers", func(v providerView) string { return v.Name }, []column[providerView]{
		plain("NAME", func(v providerView) string { return v.Name }),
		plain("PROVISION", func(v providerView) string { return v.Provision }),
		plain("NODE", func(v providerView) string { return v.Node }),
		plain("ENDPOINT", func(v providerView) string { return v.Endpoint }),
		plain("VERSION", func(v providerView) string { return v.Version }),
		painted("STATE", func(p *paper, v providerView) string { return p.state(string(v.State)) }),
		plain("BINDINGS", func(v providerView) string { return strconv.Itoa(v.Bindings) }),
		plain("HOLDERS", func(v providerView) string { return strconv.Itoa(v.Holders) }),
		wide("FEATURES", func(v providerView) string { return strings.Join(v.Features, ",") }),
		wide("SCOPE", func(v providerView) string { return string(v.Scope) }),
		idColumn(func(v providerView) events.ID { return v.ID }),
		seqColumn(func(v providerView) uint64 { return v.Seq }),
	})
}

// openRotation is the rotation under way, "" for none.
func openRotation(id *events.ID) string {
	if id == nil {
		return ""
	}
	return id.String() + " is open"
}

type providerShow struct{}

func (*providerShow) help() *cobra.Command {
	return &cobra.Command{
		Use:     "show PROVIDER",
		Example: "  bindery provider show pg-alpha",
		Short:   "Show a provider and what leads to it",
		Long:    "Shows a provider, the rotation of its holders that is open, and what retiring it would be refused with now.",
	}
}

func (*providerShow) flags(f *flags) { f.args(providerNames) }

func (*providerShow) run(ctx context.Context, c *cli, args []string) error {
	return printItem(ctx, c, commands.ShowProvider{Provider: args[0]}, func(v commands.ProviderShow) string { return v.Name },
		func(p *paper, v commands.ProviderShow) {
			p.fields("name", v.Name, "id", v.ID.String(), "state", p.state(string(v.State)), "provision", v.Provision,
				"scope", string(v.Scope), "node", v.Node, "endpoint", v.Endpoint, "version", orDash(v.Version),
				"features", names(v.Features), "bindings", strconv.Itoa(v.Bindings), "holders", strconv.Itoa(v.Holders),
				"rotation", openRotation(v.Rotation), "seq", fmt.Sprint(v.Seq))
			if v.Retire != nil {
				p.heading("retiring it would be refused: " + v.Retire.Why)
				p.printCandidates(v.Retire.Candidates)
			}
		})
}

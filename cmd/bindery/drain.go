package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"bindery/commands"
)

type providerDrain struct {
	write
	to string
}

func (*providerDrain) help() *cobra.Command {
	return &cobra.Command{
		Use: "drain PROVIDER",
		Example: `  bindery provider drain pg-alpha --to pg-beta
  bindery provider drain pg-alpha --to pg-beta --dry-run`,
		Short: "Move everything that leads to one provider to another",
		Long: `Cordons the provider, checks everything that leads to it against the other one, and moves it:
bindings, choices, overrides and what they remember, and defaults. Modules that name it are listed.
It may take several batches; interrupted, it goes on under the same --command-id.`,
	}
}

func (v *providerDrain) flags(f *flags) {
	v.bind(f)
	f.args(providerNames)
	f.StringVar(&v.to, "to", "", "the `provider` that takes over")
	f.names("to", providerNames)
	f.must("to")
}

func (v *providerDrain) run(ctx context.Context, c *cli, args []string) error {
	req, err := c.request(&v.write, commands.DrainProvider{Provider: args[0], To: v.to})
	if err != nil {
		return err
	}
	var done series
	err = c.with(ctx, func(s *session) error {
		progress := &bar{ui: c.ui, what: "draining " + args[0], total: v.bindings(ctx, s, args[0]),
			done: func(s series) int { return s.moved }}
		done, err = c.series(ctx, s, req, v.step(args[0]), progress)
		return err
	})
	if err != nil {
		return err
	}
	return c.printResult("provider "+args[0], done.result)
}

func (v *providerDrain) step(provider string) func(k int) commands.Command {
	return func(k int) commands.Command { return commands.DrainProvider{Provider: provider, To: v.to, Step: k} }
}

// bindings is how many bindings are to be moved, 0 where that cannot be told;
// the drain itself says why.
func (v *providerDrain) bindings(ctx context.Context, s *session, provider string) int {
	var view providerView
	data, err := s.client.Ask(ctx, commands.ShowProvider{Provider: provider})
	if err != nil || json.Unmarshal(data, &view) != nil {
		return 0
	}
	return view.Bindings
}

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
	f.successors("to")
	f.must("to")
}

func (v *providerDrain) run(ctx context.Context, c *cli, args []string) error {
	req, err := c.request(&v.write, commands.DrainProvider{Provider: args[0], To: v.to})
	if err != nil {
		return err
	}
	var done series
	err = c.with(ctx, func(s *session) error {
		from := v.shown(ctx, s, args[0])
		progress := &bar{ui: c.ui, what: "draining " + args[0], total: from.Bindings,
			done: func(s series) int { return s.moved }}
		done, err = c.series(ctx, s, req, v.steps(args[0], from, v.shown(ctx, s, v.to)), progress)
		return err
	})
	if err != nil {
		return err
	}
	return c.printResult("provider "+args[0], done.result)
}

// steps makes the commands of the series. They go by id: names may change their
// bearers in between, and before an interrupted series goes on.
func (v *providerDrain) steps(provider string, from, to providerView) func(k int) commands.Command {
	return func(k int) commands.Command {
		if from.ID.IsZero() || to.ID.IsZero() {
			return commands.DrainProvider{Provider: provider, To: v.to, Step: k}
		}
		return commands.DrainProvider{Provider: from.ID.String(), To: to.ID.String(), Step: k}
	}
}

// shown is a provider as it is now, the zero view where there is none: the drain
// itself says so.
func (v *providerDrain) shown(ctx context.Context, s *session, provider string) (view providerView) {
	data, err := s.client.Ask(ctx, commands.ShowProvider{Provider: provider})
	if err != nil || json.Unmarshal(data, &view) != nil {
		return providerView{}
	}
	return view
}

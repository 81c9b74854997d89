package main

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/ledger"
)

type completion struct{}

func (*completion) help() *cobra.Command {
	return &cobra.Command{
		Use: "completion (bash | zsh | fish | powershell)",
		Example: `  source <(bindery completion bash)
  bindery completion zsh > "${fpath[1]}/_bindery"`,
		Short:     "Write the script by which a shell completes commands, flags and names",
		Long:      "Writes a completion script for a shell. Names of what is in the store are completed, too.",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
	}
}

func (v *completion) flags(*flags) {}

func (v *completion) run(_ context.Context, c *cli, args []string) error {
	root, out := c.root(), c.streams.Out
	switch args[0] {
	case "bash":
		return root.GenBashCompletionV2(out, true)
	case "zsh":
		return root.GenZshCompletion(out)
	case "fish":
		return root.GenFishCompletion(out, true)
	}
	return root.GenPowerShellCompletionWithDesc(out)
}

// lister names the things of one kind: the query that lists them.
type lister func() commands.Query

func nodeNames() commands.Query       { return commands.ListNodes{} }
func provisionNames() commands.Query  { return commands.ListProvisions{} }
func providerNames() commands.Query   { return commands.ListProviders{} }
func moduleNames() commands.Query     { return commands.ListModules{} }
func assignmentNames() commands.Query { return commands.ListAssignments{} }
func slotNames() commands.Query       { return commands.ListBindings{} }
func rotationNames() commands.Query   { return commands.ListRotations{} }
func grantNames() commands.Query      { return commands.ListAccess{} }

// completing is how long a shell may be kept waiting.
const completing = 500 * time.Millisecond

// completeArgs completes the n-th argument to the names of the n-th kind.
func (c *cli) completeArgs(of []lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(of) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.completeTo(of[len(args)])(cmd, args, toComplete)
	}
}

// completeTo completes to the names of a kind. What goes wrong completes to
// nothing: a shell has no place for it.
func (c *cli) completeTo(of lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completing)
		defer cancel()
		names, err := c.namesOf(ctx, of())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func (c *cli) namesOf(ctx context.Context, q commands.Query) ([]string, error) {
	s, err := c.openWith(ctx, ledger.LockConfig{Wait: completing / 2})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.close() }() // the names are read, nothing was written
	data, err := s.client.Ask(ctx, q)
	if err != nil {
		return nil, err
	}
	var l struct{ Items []listed }
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, err
	}
	var out []string
	seen := map[string]bool{}
	for _, item := range l.Items {
		if name := item.name(); !seen[name] {
			seen[name], out = true, append(out, name)
		}
	}
	return out, nil
}

// listed is an item of a list, as far as its name is in it.
type listed struct{ ID, Name, Assignment, Slot, Provider string }

// name is how the thing is named on the command line: a slot by its assignment,
// a rotation by the provider it is or was last about.
func (i listed) name() string {
	switch {
	case i.Name != "":
		return i.Name
	case i.Assignment != "":
		return i.Assignment + "/" + i.Slot
	}
	return cmp.Or(i.Provider, i.ID)
}

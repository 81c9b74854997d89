package main

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/ledger"
	"bindery/projections"
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
		if _, err := io.WriteString(out, bashAlone); err != nil {
			return err
		}
		return root.GenBashCompletionV2(out, true)
	case "zsh":
		return root.GenZshCompletion(out)
	case "fish":
		return root.GenFishCompletion(out, true)
	}
	return root.GenPowerShellCompletionWithDesc(out)
}

// bashAlone stands in for the two functions of the package bash-completion that the
// script calls, where that is not installed.
const bashAlone = `if ! declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref() {
        cur=${COMP_WORDS[COMP_CWORD]}
        prev=
        if ((COMP_CWORD > 0)); then prev=${COMP_WORDS[COMP_CWORD-1]}; fi
        words=("${COMP_WORDS[@]}")
        cword=$COMP_CWORD
    }
fi
if ! declare -F _filedir >/dev/null; then
    _filedir() {
        local kind=-f
        if [[ ${1-} == -d ]]; then kind=-d; fi
        mapfile -t COMPREPLY < <(compgen "$kind" -- "$cur")
    }
fi
`

// lister names the things of one kind: the query that lists them.
type lister func() commands.Query

func nodeNames() commands.Query       { return commands.ListNodes{} }
func provisionNames() commands.Query  { return commands.ListProvisions{} }
func providerNames() commands.Query   { return commands.ListProviders{} }
func moduleNames() commands.Query     { return commands.ListModules{} }
func assignmentNames() commands.Query { return commands.ListAssignments{} }
func slotNames() commands.Query       { return commands.ListBindings{} }
func overrideNames() commands.Query   { return commands.ListOverrides{} }
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

func (c *cli) namesOf(ctx context.Context, q commands.Query) (out []string, err error) {
	l, err := completions[struct{ Items []listed }](ctx, c, q)
	seen := map[string]bool{}
	for _, item := range l.Items {
		if name := item.name(); !seen[name] {
			seen[name], out = true, append(out, name)
		}
	}
	return out, err
}

// completions asks for what a word can be completed to.
func completions[T any](ctx context.Context, c *cli, q commands.Query) (v T, err error) {
	s, err := c.openWith(ctx, ledger.LockConfig{Wait: completing / 2})
	if err != nil {
		return v, err
	}
	defer func() { _ = s.close() }() // the names are read, nothing was written
	data, err := s.client.Ask(ctx, q)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(data, &v)
}

// completeBy completes to what find finds for the arguments before.
func completeBy(find func(ctx context.Context, args []string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completing)
		defer cancel()
		names, err := find(ctx, args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// eligible lets a flag be completed to the providers that can serve the slot that is
// the first argument.
func (f *flags) eligible(flag string) {
	_ = f.cmd.RegisterFlagCompletionFunc(flag, completeBy(func(ctx context.Context, args []string) (out []string, err error) {
		if len(args) == 0 {
			return f.cli.namesOf(ctx, providerNames())
		}
		e, err := completions[commands.Explanation](ctx, f.cli, commands.Explain{Slot: args[0]})
		for _, v := range e.Candidates {
			if v.Eligible {
				out = append(out, v.Provider)
			}
		}
		return out, err
	}))
}

// successors lets a flag be completed to the providers that can take over from the one
// that is the first argument.
func (f *flags) successors(flag string) {
	_ = f.cmd.RegisterFlagCompletionFunc(flag, completeBy(func(ctx context.Context, args []string) (out []string, err error) {
		l, err := completions[struct{ Items []providerView }](ctx, f.cli, providerNames())
		provision := ""
		for _, p := range l.Items {
			if len(args) > 0 && p.Name == args[0] {
				provision = p.Provision
			}
		}
		for _, p := range l.Items {
			if len(args) == 0 || p.Name != args[0] && (provision == "" || p.Provision == provision) {
				out = append(out, p.Name)
			}
		}
		return out, err
	}))
}

// openRotations lets the argument be completed to the rotations that are open.
func (f *flags) openRotations() {
	f.cmd.ValidArgsFunction = completeBy(func(ctx context.Context, args []string) (out []string, err error) {
		if len(args) > 0 {
			return nil, nil
		}
		l, err := completions[struct{ Items []rotationView }](ctx, f.cli, rotationNames())
		for _, r := range l.Items {
			if r.State == string(projections.Open) {
				out = append(out, listed{ID: rotationID(r), Provider: r.Provider}.name())
			}
		}
		return out, err
	})
}

// listed is an item of a list, as far as its name is in it.
type listed struct{ ID, Name, Assignment, Slot, Provider string }

// name is how the thing is named on the command line: a slot by its assignment,
// a rotation by the provider it is or was last about.
func (i listed) name() string {
	switch {
	case i.Name != "":
		return i.Name
	case strings.Contains(i.Slot, "/"):
		return i.Slot
	case i.Assignment != "":
		return i.Assignment + "/" + i.Slot
	}
	return cmp.Or(i.Provider, i.ID)
}

package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Help opens with what can be typed, then says what it does, then lists the
// flags.
const (
	helpTemplate = `{{with .Example}}{{. | trimTrailingWhitespaces}}

{{end}}{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}
{{end}}
{{.UsageString}}`

	usageTemplate = `usage: {{if .HasParent}}{{.UseLine}}{{else}}bindery COMMAND [flags]{{end}}{{if .HasAvailableSubCommands}}
{{$cmds := .Commands}}{{if .Groups}}{{range $g := .Groups}}
{{.Title}}{{range $cmds}}{{if and (eq .GroupID $g.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{else}}
{{range $cmds}}{{if .IsAvailableCommand}}  {{rpad .Name .NamePadding}} {{.Short}}
{{end}}{{end}}{{end}}{{end}}{{with ownFlags .}}
{{.}}{{end}}{{with writeFlags .}}
Of every write:
{{.}}{{end}}{{with globalFlags .}}
Of every command:
{{.}}{{end}}`
)

// writeFlagNames are the flags that every write has.
var writeFlagNames = map[string]bool{"dry-run": true, "reason": true, "actor": true, "command-id": true, "expect-seq": true}

func setHelp(root *cobra.Command) {
	cobra.AddTemplateFuncs(map[string]any{
		"ownFlags":    func(cmd *cobra.Command) string { return flagText(cmd.LocalNonPersistentFlags(), false) },
		"writeFlags":  func(cmd *cobra.Command) string { return flagText(cmd.LocalNonPersistentFlags(), true) },
		"globalFlags": func(cmd *cobra.Command) string { return flagText(cmd.Root().PersistentFlags(), false) },
	})
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(&cobra.Command{
		Use:     "help [COMMAND]",
		Example: "  bindery help provider register",
		Short:   "Show the help of a command",
		Long:    "Shows the help of a command, as --help does.",
		GroupID: "tool",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknownCommand(target, rest[0])
			}
			return target.Help()
		},
	})
}

// flagText lists flags; of those of a command, the ones of every write or the
// others.
func flagText(all *pflag.FlagSet, ofWrites bool) string {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && writeFlagNames[f.Name] == ofWrites {
			some.AddFlag(f)
		}
	})
	return strings.TrimRight(some.FlagUsages(), "\n") + orNothing(some.HasFlags())
}

func orNothing(some bool) string {
	if some {
		return "\n"
	}
	return ""
}

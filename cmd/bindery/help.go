package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// setHelp makes help open with what can be typed, then say in a sentence or two
// what it does, then list commands and flags.
func (c *cli) setHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { writeHelp(cmd.OutOrStderr(), cmd); return nil })
	root.SetFlagErrorFunc(c.flagError)
	root.SetHelpCommand(&cobra.Command{
		Use:     "help [COMMAND]",
		Example: "  bindery help provider register",
		Short:   "Show the help of a command",
		Long:    "Shows the help of a command, as --help does.",
		GroupID: "tool",
		RunE:    help,
	})
}

func help(cmd *cobra.Command, args []string) error {
	target, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return unknownCommand(target, rest[0])
	}
	return target.Help()
}

func writeHelp(w io.Writer, cmd *cobra.Command) {
	var b strings.Builder
	part := func(s string) {
		if s = strings.TrimRight(s, "\n"); s != "" {
			if b.Len() > 0 {
				b.WriteString("\n")
			}
			b.WriteString(s + "\n")
		}
	}
	part(cmd.Example)
	if part(prose(cmd.Long)); cmd.Long == "" {
		part(cmd.Short + ".")
	}
	if cmd.HasAvailableSubCommands() {
		part("usage: " + cmd.CommandPath() + " COMMAND")
		commandList(cmd, part)
	} else {
		part("usage: " + cmd.UseLine())
	}
	part(flagList("Flags:", cmd.LocalNonPersistentFlags(), func(name string) bool { return !writeFlagNames[name] }))
	part(flagList("Flags of every write:", cmd.LocalNonPersistentFlags(), func(name string) bool { return writeFlagNames[name] }))
	part(flagList("Flags of every command:", cmd.Root().PersistentFlags(), func(string) bool { return true }))
	_, _ = io.WriteString(w, b.String()) // nobody is left to be told
}

// proseWidth is how wide sentences are: readable in any terminal.
const proseWidth = 88

// prose breaks a text anew: how it stands in the source is no matter.
func prose(s string) string {
	var lines []string
	for line := range strings.Lines(text.WrapSoft(strings.Join(strings.Fields(s), " "), proseWidth)) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(lines, "\n")
}

// commandList lists the commands below cmd, by group where it has groups.
func commandList(cmd *cobra.Command, part func(string)) {
	groups := cmd.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{Title: "Commands:"}}
	}
	for _, g := range groups {
		list := g.Title
		for _, sub := range cmd.Commands() {
			if sub.GroupID == g.ID && sub.IsAvailableCommand() {
				list += fmt.Sprintf("\n  %-11s %s", sub.Name(), sub.Short)
			}
		}
		part(list)
	}
}

// writeFlagNames are the flags that every write has.
var writeFlagNames = map[string]bool{"dry-run": true, "reason": true, "actor": true, "command-id": true, "expect-seq": true}

// flagList lists the flags that keep takes.
func flagList(title string, all *pflag.FlagSet, keep func(name string) bool) string {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && keep(f.Name) {
			some.AddFlag(f)
		}
	})
	if !some.HasFlags() {
		return ""
	}
	return title + "\n" + some.FlagUsages()
}

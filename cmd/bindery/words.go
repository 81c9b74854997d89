package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"bindery/commands"
)

// What people type who come from other tools. Where a word is plainly another name of
// ours it is an alias; else the right command is named. Nothing is guessed.

// aliases are other names of a verb, below every noun.
var aliases = map[string][]string{
	"list": {"ls"},
	"show": {"describe", "get"},
}

// endings are the verbs that end a thing; none is the same for all.
var endings = []string{"remove", "retire", "end", "revoke", "clear"}

// wordsOfEnding are what people type for them.
var wordsOfEnding = []string{"rm", "delete", "del", "destroy", "drop", "remove", "retire", "end", "unset"}

// elsewhere are words for what another command does.
var elsewhere = map[string]struct {
	why string
	fix commands.Fix
}{
	"get":      {"a noun comes first", do("provider list")},
	"ls":       {"a noun comes first", do("provider list")},
	"list":     {"a noun comes first", do("provider list")},
	"show":     {"a noun comes first", do("binding show", "A/S")},
	"describe": {"a noun comes first", do("binding show", "A/S")},
	"rm":       {"a noun comes first, and each is ended in its own way", do("").With("--help")},
	"delete":   {"a noun comes first, and each is ended in its own way", do("").With("--help")},
	"diff":     {"status compares two moments, and apply a manifest with the ledger", do("apply").With("--dry-run").With("-f", "FILE")},
	"plan":     {"apply says what it would do", do("apply").With("--dry-run").With("-f", "FILE")},
	"edit":     {"what there is is changed by commands, or in a manifest that is applied", do("apply").With("-f", "FILE")},
	"create":   {"a noun comes first", do("assignment create", "MODULE").With("--node", "NODE")},
	"why":      {"explain says it", do("explain", "A/S")},
	"logs":     {"the log of events is one", do("log")},
	"events":   {"the log is of events", do("log")},
	"rollback": {"nothing is taken back: another command says what shall be now", do("history", "A/S")},
}

// unknownCommand says that there is no such command, and which is meant or near.
func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	r := usage(fmt.Sprintf("%s has no command %q", parent.CommandPath(), clip(name)), "", helpOf(parent.CommandPath()))
	if other, known := elsewhere[name]; known && !parent.HasParent() {
		r.Why, r.Fix = other.why, other.fix
		return r
	}
	if parent.HasParent() && slices.Contains(wordsOfEnding, name) {
		for _, ending := range endings {
			if slices.Contains(names, ending) {
				r.Why = fmt.Sprintf("%s %s ends one", parent.Name(), ending)
				r.Fix = helpOf(parent.CommandPath() + " " + ending)
				return r
			}
		}
	}
	return didYouMean(r, name, names, parent.CommandPath()+" ")
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// repeatedError is a second value for a flag that has one.
type repeatedError struct{ was, is string }

func (e *repeatedError) Error() string { return fmt.Sprintf("%q and %q", e.was, e.is) }

// once is a flag's value that is given once.
type once struct {
	pflag.Value
	given bool
}

// Set implements pflag.Value.
func (o *once) Set(s string) error {
	if o.given {
		return &repeatedError{o.String(), s}
	}
	if err := o.Value.Set(s); err != nil {
		return err
	}
	o.given = true
	return nil
}

// takeOnce makes every flag that is no list refuse a second value: which one was meant
// is nothing to guess.
func takeOnce(f *pflag.FlagSet) {
	f.VisitAll(func(flag *pflag.Flag) {
		if _, isList := flag.Value.(pflag.SliceValue); isList {
			return
		}
		flag.Value = &once{Value: flag.Value}
	})
}

// flagError says what is wrong with a flag.
func (c *cli) flagError(cmd *cobra.Command, err error) error {
	if name := firstWord(cmd, c.args); cmd.HasSubCommands() && name != "" && !cmd.HasParent() {
		return unknownCommand(cmd, name) // what follows it are its flags, not ours
	}
	help := helpOf(cmd.CommandPath())
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var twice *repeatedError
	switch {
	case errors.As(err, &twice) && errors.As(err, &invalid):
		return usage("--"+invalid.GetFlag().Name+" is given twice", "it takes one value, and which of the two is meant is not guessed", help)
	case errors.As(err, &invalid):
		return badValue(invalid, help)
	case !errors.As(err, &unknown):
		return usage(err.Error(), "", help)
	}
	return unknownFlag(cmd, unknown, help)
}

// badValue says what a flag takes, in words instead of those of a parser.
func badValue(e *pflag.InvalidValueError, help commands.Fix) error {
	flag := "--" + e.GetFlag().Name
	what := map[string]string{
		"uint64": "a whole number", "uint": "a whole number", "int": "a whole number", "bool": "true or false",
		"duration": "a time with its unit, 90s, 5m or 1h30m",
	}[e.GetFlag().Value.Type()]
	if what == "" {
		why := e.Unwrap()
		if why == nil {
			why = e
		}
		return usage(fmt.Sprintf("%s cannot be %q", flag, clip(e.GetValue())), why.Error(), help)
	}
	r := usage(fmt.Sprintf("%s is %s, not %q", flag, what, clip(e.GetValue())), "", help)
	if e.GetFlag().Name == "at" {
		r.Why = "it is the sequence that was read, as binding show prints it; it is read, not assumed"
	}
	return r
}

// unknownFlag says that there is no such flag, and which are near.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError, help commands.Fix) error {
	name := unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() != "" {
		return usage(cmd.CommandPath()+" has no flag -"+name, "", help)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	r := usage(cmd.CommandPath()+" has no flag --"+clip(name), "", help)
	near := commands.Nearest(name, names, 3)
	for i, n := range near {
		near[i] = "--" + n
		r.Candidates = append(r.Candidates, commands.Candidate{Name: "--" + n, Why: "a similar name"})
	}
	if len(near) > 0 {
		r.Why = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return r
}

// firstWord is the first argument that is neither a flag nor the value of one; "" where
// there is none.
func firstWord(cmd *cobra.Command, args []string) string {
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			return args[i]
		}
		if f := flagOf(cmd, args[i]); f != nil && f.NoOptDefVal == "" {
			i++
		}
	}
	return ""
}

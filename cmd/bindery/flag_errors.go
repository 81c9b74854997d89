package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bindery/commands"
)

// What is wrong with a flag is said in words, not in those of a parser.

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

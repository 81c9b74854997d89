package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/commands/service"
	"bindery/events"
)

func refusal(code commands.Code, message, why string, fix commands.Fix) *commands.Refusal {
	return &commands.Refusal{Code: code, Message: message, Why: why, Fix: fix, Candidates: []commands.Candidate{}}
}

// usage refuses a command line.
func usage(message, why string, fix commands.Fix) *commands.Refusal {
	return refusal(commands.Usage, message, why, fix)
}

// refusalOf gives any error of a run the shape in which it is shown.
func (c *cli) refusalOf(cmd *cobra.Command, err error) *commands.Refusal {
	var ran failed
	var r *commands.Refusal
	var bad manifest.Errors
	var unwritten *fs.PathError
	switch {
	case errors.As(err, &bad):
		r = manifestRefusal(bad)
	case errors.As(err, &r):
	case errors.As(err, &unwritten) && unwritten.Op == "write" && unwritten.Path == os.Stdout.Name():
		r = refusal(commands.StoreUnusable, "the output cannot be written", err.Error(), program("df", "-h", "."))
	case errors.As(err, &ran):
		r = service.AsRefusal(err)
	default: // cobra's own
		r = usage(err.Error(), "", helpOf(cmd.CommandPath()))
	}
	if c.interrupted.Err() != nil && (r.Code == commands.OutcomeUnknown || r.Code == commands.Unreachable || errors.Is(err, context.Canceled)) {
		out := *r
		r = &out
		r.Code = commands.Interrupted
	}
	if r.Code == commands.Interrupted {
		r.Message, r.Why = "interrupted", r.Message+withColon(r.Why)
	}
	return c.shownRefusal(r)
}

// shownRefusal is a refusal as people read it: what helps is text.
func (c *cli) shownRefusal(r *commands.Refusal) *commands.Refusal {
	out := *r
	out.Fix = c.textual(r.Fix)
	out.Candidates = slices.Clone(r.Candidates)
	for i := range out.Candidates {
		if f := &out.Candidates[i].Fix; !f.IsZero() {
			*f = c.textual(*f)
		}
	}
	return &out
}

func withColon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// manifestRefusal shows everything that is wrong with a manifest.
func manifestRefusal(errs manifest.Errors) *commands.Refusal {
	first := errs[0]
	r := refusal(commands.Code(first.Code), first.Error(), first.Why, first.Fix)
	if r.Fix.IsZero() && first.Write != "" {
		r.Fix = advise(first.Write)
	}
	if len(errs) > 1 {
		r.Why = strings.TrimPrefix(r.Why+fmt.Sprintf("; %d more are wrong", len(errs)-1), "; ")
	}
	for _, s := range first.Suggest {
		if len(errs) > 1 {
			break // the message names them, and the list is that of the other errors
		}
		r.Candidates = append(r.Candidates, commands.Candidate{Name: s, Why: "the nearest that would be right"})
	}
	for _, e := range errs[1:] {
		r.Candidates = append(r.Candidates, commands.Candidate{Name: strings.TrimSuffix(strings.TrimSuffix(e.Error(), e.Message), ": "), Why: e.Message})
	}
	return r
}

// otherwise puts another argument in the place of one, the last that is it.
func otherwise(args []string, was, is string) []string {
	out := slices.Clone(args)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] == was {
			out[i] = is
			break
		}
	}
	return out
}

// didYouMean adds the nearest names; nothing is ever corrected by itself.
func didYouMean(r *commands.Refusal, text string, names []string, before string) *commands.Refusal {
	slices.Sort(names)
	near := commands.Nearest(text, names, 3)
	if len(near) == 0 {
		r.Why = "there are " + strings.Join(names, ", ")
		return r
	}
	r.Why = "did you mean " + strings.Join(near, " or ") + "?"
	for _, n := range near {
		r.Candidates = append(r.Candidates, commands.Candidate{Name: n, Why: "a similar name"})
	}
	r.Fix = helpOf(before + near[0])
	return r
}

// argsOf checks that a command has the arguments that its Use names in capitals.
func argsOf(cmd *cobra.Command) cobra.PositionalArgs {
	want := needed(cmd)
	return func(cmd *cobra.Command, args []string) error { return checkArgs(cmd, want, args) }
}

// needed are the arguments that a command must have, as its Use names them.
func needed(cmd *cobra.Command) (want []string) {
	for _, w := range strings.Fields(cmd.Use)[1:] {
		if strings.ToUpper(w) != w || strings.ContainsAny(w, "[(|-") {
			break
		}
		want = append(want, w)
	}
	return want
}

func checkArgs(cmd *cobra.Command, want, args []string) error {
	switch {
	case len(args) < len(want):
		return usage(cmd.CommandPath()+" needs "+strings.Join(want[len(args):], " and "), "usage: "+cmd.UseLine(), helpOf(cmd.CommandPath()))
	case len(args) > len(want):
		return usage(fmt.Sprintf("%s takes no argument %q", cmd.CommandPath(), clip(args[len(want)])), "usage: "+cmd.UseLine(), helpOf(cmd.CommandPath()))
	}
	return nil
}

// clip shortens what somebody typed for a message.
func clip(s string) string {
	if events.CheckNoSecret(s) != nil {
		return notShown // what is cut off would not be known for one
	}
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

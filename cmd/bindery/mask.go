package main

import (
	"regexp"
	"slices"
	"strings"

	"bindery/commands"
	"bindery/events"
)

// notShown stands where a message would repeat a secret.
const notShown = "(not shown)"

// aWord is what stands between blanks and quotes.
var aWord = regexp.MustCompile(`[^\s"'` + "`" + `]+`)

// masked is a refusal that repeats no secret of the command line: whoever said
// what was wrong, or what to type instead, did not know that one was in it.
func (c *cli) masked(r *commands.Refusal) *commands.Refusal {
	out := *r
	out.Message, out.Why = c.mask(r.Message), c.mask(r.Why)
	out.Candidates = slices.Clone(r.Candidates)
	for i := range out.Candidates {
		o := &out.Candidates[i]
		o.Name, o.Why, o.Flag = c.mask(o.Name), c.mask(o.Why), c.mask(o.Flag)
	}
	return &out
}

func (c *cli) mask(text string) string {
	text = c.withoutLogins(text)
	for _, a := range c.args {
		if events.CheckNoSecret(a) != nil {
			text = strings.ReplaceAll(strings.ReplaceAll(text, quote(a), notShown), a, notShown)
		}
	}
	return aWord.ReplaceAllStringFunc(text, func(w string) string {
		if events.CheckNoSecret(w) != nil {
			return notShown
		}
		return w
	})
}

// secretRefFlag takes where a secret lies, and is given the secret itself by
// mistake.
const secretRefFlag = "secret-ref"

// shown are the arguments as a fix may repeat them: what is no reference to a
// secret may be the secret, whatever it looks like.
func shown(args []string) []string {
	out := publicArgs(args)
	for i, a := range out {
		ref, joined := strings.CutPrefix(a, "--"+secretRefFlag+"=")
		switch {
		case joined && events.CheckSecretRef(ref) != nil:
			out[i] = "--" + secretRefFlag + "=SCHEME:PATH"
		case i > 0 && args[i-1] == "--"+secretRefFlag && events.CheckSecretRef(a) != nil:
			out[i] = "SCHEME:PATH"
		}
	}
	return out
}

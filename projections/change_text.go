package projections

import "fmt"

// Text says in a line what a change is, for people. What it is about, slot and
// sequence, stands beside it.
func (c *Change) Text() string {
	switch c.Kind {
	case ChangeBound:
		return c.To + c.rule()
	case ChangeRebound, ChangeMoved, ChangeDecided:
		if c.From == "" {
			return c.To
		}
		return c.From + " → " + c.To + c.rule()
	case ChangePresent:
		return c.present()
	case ChangePending:
		return "nothing serves it"
	case ChangeReleased:
		return orNone(c.From)
	case ChangeRenamed:
		return c.Of + " " + c.From + " → " + c.To
	case ChangeRelocated:
		return c.Provider + ": " + c.From + " → " + c.To + c.at()
	case ChangeEndpoint:
		return c.Provider + ": " + c.From + " → " + c.To
	case ChangeUpdated:
		return c.server() + ": " + orUnknown(c.From) + " → " + orUnknown(c.To)
	case ChangeSwitched:
		return c.switched()
	case ChangeApplied:
		if c.Document == nil {
			return "the consumer took note"
		}
		return c.with(fmt.Sprintf(", as of %d", c.Document.AppliedSeq))
	case ChangeFailed:
		return c.To
	case ChangeFlagged:
		return orNone(c.From) + " → " + orNone(c.To)
	case ChangeRequested, ChangeWithdrawn, ChangeIssued, ChangeRevoked, ChangeWrittenOff:
		return c.with("")
	case ChangeIssueFailed:
		return c.with(": " + c.Reason)
	}
	return orNone(c.server())
}

// server is whom the change is about.
func (c *Change) server() string {
	return site{id: c.ProviderID, embedded: c.Embedded, name: c.Provider}.called()
}

// with is the server and the generation.
func (c *Change) with(more string) string {
	text := c.server()
	if c.Generation != 0 {
		text += fmt.Sprintf(", gen %d", c.Generation)
	}
	return text + more
}

// present is what is decided, and what is run with where that is another thing.
func (c *Change) present() string {
	text := orNone(c.server())
	if d := c.Document; d != nil && d.Use != (UseView{}) {
		use := d.Use.site().called()
		if d.Use.Generation != 0 {
			use += fmt.Sprintf(", gen %d", d.Use.Generation)
		}
		text += "; runs with " + use
	}
	return text
}

func (c *Change) switched() string {
	from, to := orNone(c.From), orNone(c.To)
	if c.FromGeneration != 0 {
		from += fmt.Sprintf(" gen %d", c.FromGeneration)
	}
	if c.Generation != 0 {
		to += fmt.Sprintf(" gen %d", c.Generation)
	}
	return from + " → " + to
}

// rule is the rule that decided, in brackets.
func (c *Change) rule() string {
	if c.Document == nil || c.Document.Rule == "" || c.Kind != ChangeBound && c.Kind != ChangeRebound {
		return ""
	}
	return " (" + string(c.Document.Rule) + ")"
}

// at is where the provider answers now.
func (c *Change) at() string {
	if d := c.Document; d != nil {
		for _, s := range []site{d.Use.site(), d.decidedSite()} {
			if s.id != nil && c.ProviderID != nil && *s.id == *c.ProviderID {
				return ", now at " + s.endpoint
			}
		}
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

package projections

import (
	"fmt"
	"time"
)

// A grouping gathers what many bindings have in common into a line each: a page
// of one sentence hides the others.
type grouping struct {
	lines  map[groupKey][]string
	cutOff []BindingRef
}

// groupKey is what is the matter, and with whose consumers; 0: nobody's.
type groupKey struct {
	code     string
	provider ProviderRef
}

func (g *grouping) add(k groupKey, path string) { g.lines[k] = append(g.lines[k], path) }

// mostCutOff is how many consumers that are cut off have a line of their own.
const mostCutOff = 10

func (s *State) grouped(g *grouping) []Attention {
	var out []Attention
	for k, paths := range g.lines {
		out = append(out, s.groupLine(k, paths))
	}
	if n := len(g.cutOff); n > mostCutOff {
		return append(out, Attention{Code: string(FlagCutOff), What: fmt.Sprintf("%d slots", n),
			Why: "their credentials in use are revoked or written off", Fix: Do("binding list").With("--flag", "cut-off")})
	}
	for _, r := range g.cutOff {
		out = append(out, s.attention(r, FlagCutOff))
	}
	return out
}

// groupLine says what is the matter with one binding by name, with more by
// number.
func (s *State) groupLine(k groupKey, paths []string) Attention {
	a := Attention{Code: k.code, What: paths[0]}
	verb, name := "has", ""
	list := func(flag string) Fix { return Do("binding list").With("--flag", flag) }
	if k.provider != 0 {
		p := s.Provider(k.provider)
		name = p.Name
		list = func(flag string) Fix {
			return Do("binding list").With("--flag", flag).With("--provider", s.handle(k.provider))
		}
	}
	if len(paths) > 1 {
		a.What, verb = fmt.Sprintf("%d slots", len(paths)), "have"
		if name != "" {
			a.What += " of " + name
		}
	}
	switch k.code {
	case string(FlagOutdated):
		a.Why, a.Optional = verb+" not been acknowledged since what there is to run with changed", true
		a.Fix = list("outdated")
	case string(FlagSwitching):
		a.Why, a.Optional = verb+" no credential for what is decided yet", true
		a.Fix = list("switching")
	case "asked":
		a.Why, a.Note = "a credential is asked for, and nobody has issued one yet", true
		a.Fix = Do("credential list").With("--state", "asked")
	}
	return a
}

// handle is what finds a provider: its name, or its id when it is retired.
func (s *State) handle(r ProviderRef) string {
	if p := s.Provider(r); p.State == Retired {
		return p.ID.String()
	}
	return s.Provider(r).Name
}

// attendHolders adds who can log in to retired providers, and what fails.
func (s *State) attendHolders(v *StatusView) {
	for i := 1; i <= s.providers.len(); i++ {
		p := s.providers.at(uint32(i))
		n := len(p.Holders.Live)
		v.Counts["holders"] += n
		if p.State == Retired && n > 0 {
			v.Attention = append(v.Attention, Attention{Code: string(FlagStranded), What: "holders of " + p.Name,
				Why: fmt.Sprintf("it is retired, and credentials that were never revoked there: %d", n),
				Fix: s.FixRetired(p)})
		}
	}
	for _, h := range s.instances {
		v.Counts["holders"] += len(h.Live)
	}
	s.attendFailures(v)
}

// FixRetired is what helps first where consumers can log in to a provider that is
// retired: they must run with another before their credentials are written off.
func (s *State) FixRetired(p *Provider) Fix {
	if len(p.Bindings) > 0 {
		return Do("provider drain", p.ID.String()).With("--to", "OTHER")
	}
	return Do("credential write-off").With("--provider", p.ID.String()).With("--all").With("--reason", "TEXT")
}

// attendFailures adds what the sides last said they could not do, a line a side
// and the sentence it failed with.
func (s *State) attendFailures(v *StatusView) {
	type key struct{ who, flag, of, reason string }
	failing := map[key][]string{}
	for ref, f := range s.failures {
		c := s.Credential(ref)
		if _, open := s.Ask(c.Binding); c.State.Live() || open && c.State == Asked {
			k := key{s.targetOf(c), "--assignment", s.Assignment(s.Binding(c.Binding).Assignment).Name, f.Reason}
			if c.Provider != 0 {
				k.flag, k.of = "--provider", s.handle(c.Provider)
			}
			failing[k] = append(failing[k], s.SlotPath(s.Binding(c.Binding)))
		}
	}
	for r, f := range s.troubles {
		b := s.Binding(r)
		name := s.Assignment(b.Assignment).Name
		k := key{name, "--assignment", name, f.Reason}
		failing[k] = append(failing[k], s.SlotPath(b))
	}
	for k, paths := range failing {
		a := Attention{Code: "failing", What: paths[0], Why: k.who + " says: " + k.reason, Note: true, Fix: Do("credential list").With(k.flag, k.of)}
		if len(paths) > 1 {
			a.What = fmt.Sprintf("%d slots", len(paths))
		}
		v.Attention = append(v.Attention, a)
	}
}

// targetOf is what a credential logs in to, for people.
func (s *State) targetOf(c *Credential) string {
	if c.Provider == 0 {
		return "its own instance"
	}
	return s.Provider(c.Provider).Name
}

// attendRotations adds the rotations that are late, and their members that wait
// for nobody.
func (s *State) attendRotations(v *StatusView, now time.Time) {
	s.eachOpen(func(o *Rotation) {
		v.Counts["rotations"]++
		if o.Overdue(now) {
			v.Attention = append(v.Attention, Attention{Code: "overdue", What: s.rotationName(o),
				Why: fmt.Sprintf("its deadline was %s; credentials left: %d of %d", o.Deadline.Format(time.RFC3339), o.Total-o.Done, o.Total),
				Fix: Do("rotation show", o.ID.String())})
		}
		s.members(o, func(c *Credential) {
			if m := s.member(c); m.Step == StepStuck {
				v.Attention = append(v.Attention, Attention{Code: string(StepStuck), What: m.Assignment + "/" + m.Slot,
					Why: fmt.Sprintf("%s waits for generation %d to be replaced, and nobody is asked to", s.rotationName(o), m.From), Fix: m.Fix})
			}
		})
	})
}

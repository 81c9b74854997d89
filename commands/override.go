package commands

import (
	"fmt"

	"bindery/events"
	"bindery/projections"
)

// SetOverride is an operator's decision on one slot.
type SetOverride struct {
	Slot     string `json:"slot"` // assignment/slot
	Provider string `json:"provider"`
}

// ClearOverride withdraws it. Without a flag what was bound before the first
// override is restored.
type ClearOverride struct {
	Slot      string `json:"slot"`
	ReResolve bool   `json:"re_resolve,omitempty"` // run the ladder instead
	Provider  string `json:"provider,omitempty"`   // bind this one instead; it becomes the choice
	Keep      bool   `json:"keep,omitempty"`       // stay as it is; what is bound becomes the choice
}

// Verb implements Command.
func (SetOverride) Verb() string { return "override.set" }

// Verb implements Command.
func (ClearOverride) Verb() string { return "override.clear" }

// Decide implements Command.
func (c SetOverride) Decide(t *Tx) error {
	f, err := t.liveSlot(c.Slot)
	if err != nil {
		return err
	}
	a := t.Assignment(f.Assignment)
	path := a.Name + "/" + f.Name
	f.Fix = do("override set", path).With("--reason", "TEXT")
	if err := t.needReason("an override"); err != nil {
		return err
	}
	if f.Decl.Kind == projections.Embeds && !f.Decl.Embed.Replaceable {
		return refuse(EmbedNotReplaceable, path+" cannot be overridden",
			fmt.Sprintf("module %s ships its own instance because of its %s, and declares it not replaceable",
				t.Module(a.Module).Name, f.Decl.Embed.Because), do("module show", t.Module(a.Module).Name))
	}
	r, err := t.eligibleFor(f, c.Provider, path)
	if err != nil {
		return err
	}
	e := &events.OverrideSet{Assignment: a.ID, Slot: f.Name, Provider: t.Provider(r).ID}
	id := events.ID{}
	if f.Binding != 0 {
		b := t.Binding(f.Binding)
		if b.Override != 0 {
			o := t.Override(b.Override)
			if o.Provider == r && b.Provider == r {
				return nil
			}
			id, e.Under = o.ID, o.Under
		} else if !b.Pending() {
			e.Under = events.Memory{Target: t.Target(b), Rule: b.Rule(), Basis: b.Basis}
		}
	}
	if id.IsZero() {
		id = t.NewID()
	}
	e.Binding = t.bindingID(f.Binding)
	if err := t.emit(id, e); err != nil {
		return err
	}
	return t.serve(f, outcome{r, events.RuleOverride, t.Seq})
}

// Decide implements Command.
func (c ClearOverride) Decide(t *Tx) error {
	f, err := t.liveSlot(c.Slot)
	if err != nil {
		return err
	}
	path := t.Assignment(f.Assignment).Name + "/" + f.Name
	f.Fix = do("override clear", path)
	if boolCount(c.ReResolve, c.Provider != "", c.Keep) > 1 {
		return refuse(Usage, "what "+path+" shall have is said twice", "one of --re-resolve, --provider and --keep goes", Fix{})
	}
	if f.Binding == 0 || t.Binding(f.Binding).Override == 0 {
		return nil
	}
	b := t.Binding(f.Binding)
	under := t.Override(b.Override).Under
	if err := t.emit(t.Override(b.Override).ID, &events.OverrideCleared{Binding: b.ID}); err != nil {
		return err
	}
	switch {
	case c.ReResolve:
		return t.reResolve(f)
	case c.Provider != "":
		return t.chooseAndServe(f, c.Provider, path)
	case c.Keep:
		return t.keep(f, path)
	}
	return t.restore(f, under, path)
}

// keep makes what is bound the choice.
func (t *Tx) keep(f FoundSlot, path string) error {
	if f.Decl.Kind == projections.Embeds {
		return refuse(EmbedNotReplaceable, path+" cannot keep what it has without an override",
			"the module ships its own instance, and only an override takes its place", f.Fix)
	}
	b := t.Binding(f.Binding)
	if b.Provider == 0 {
		return refuse(NoProvider, path+" cannot keep what it has", "no provider serves it", do("override clear", path).With("--re-resolve"))
	}
	return t.chooseAndServe(f, t.Provider(b.Provider).ID.String(), path)
}

// restore brings back what lay under the override.
func (t *Tx) restore(f FoundSlot, under events.Memory, path string) error {
	l := ladder{s: t.State, n: needOf(t.State, f), provision: t.Provision(f.Decl.Provision)}
	switch {
	case under.Target.IsZero():
		fix := f.Fix.With("--keep")
		if f.Decl.Kind == projections.Embeds {
			fix = f.Fix.With("--re-resolve")
		}
		return l.choose(refuse(NoProvider, "there is nothing to restore for "+path,
			"nothing served it before the override; say what shall now: --re-resolve, --keep or --provider", fix))
	case under.Target.Embedded:
		if f.Decl.Kind != projections.Embeds {
			return l.choose(refuse(SlotNotDeclared, "what served "+path+" before cannot be restored",
				"it was an instance of its own, and the module ships none any more", Fix{}))
		}
		return t.serve(f, outcome{rule: under.Rule, basis: under.Basis})
	}
	r := projections.ProviderRef(t.ByID(events.EntityProvider, under.Target.Provider))
	if f.Decl.Kind == projections.Embeds {
		out := refuse(SlotInUse, "what served "+path+" before cannot be restored",
			"it was "+t.Provider(r).Name+", and the module ships its own instance now", f.Fix.With("--re-resolve"))
		out.Candidates = append(out.Candidates, Candidate{Name: "embedded", Why: "the module's own instance", Flag: "--re-resolve"})
		return out
	}
	if t.Binding(f.Binding).Provider != r {
		if code, fault := ineligible(t.State, f.Decl, r); fault != "" {
			return l.choose(refuse(code, "what served "+path+" before cannot be restored",
				"it was "+t.Provider(r).Name+": "+fault, Fix{}))
		}
	}
	return t.serve(f, outcome{r, under.Rule, under.Basis})
}

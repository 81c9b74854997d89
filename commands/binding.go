package commands

import (
	"fmt"

	"bindery/events"
	"bindery/projections"
)

// RebindSlot changes what serves a slot: to a named provider (which becomes the
// choice), by running the ladder again, or by that without the choice.
type RebindSlot struct {
	Slot         string `json:"slot"` // assignment/slot
	Provider     string `json:"provider,omitempty"`
	ReResolve    bool   `json:"re_resolve,omitempty"`
	ForgetChoice bool   `json:"forget_choice,omitempty"`
}

// Verb implements Command.
func (RebindSlot) Verb() string { return "binding.rebind" }

// Decide implements Command.
func (c RebindSlot) Decide(t *Tx) error {
	f, err := t.liveSlot(c.Slot)
	if err != nil {
		return err
	}
	path := t.Assignment(f.Assignment).Name + "/" + f.Name
	if n := boolCount(c.Provider != "", c.ReResolve, c.ForgetChoice); n != 1 {
		return refuse(Usage, "how "+path+" shall be rebound is not said, or said twice",
			"one of --provider, --re-resolve and --forget-choice is needed", do("binding rebind", path).With("--provider", "PROVIDER"))
	}
	if f.Binding != 0 && t.Binding(f.Binding).Override != 0 {
		o := t.Override(t.Binding(f.Binding).Override)
		return refuse(OverrideInForce, path+" cannot be rebound", fmt.Sprintf("an override of %s to %s stands since sequence %d",
			o.Actor, t.Provider(o.Provider).Name, o.Seq), do("override clear", path))
	}
	if c.Provider == "" {
		if c.ForgetChoice {
			if err := t.clearChoice(f); err != nil {
				return err
			}
		}
		return t.reResolve(f)
	}
	return t.chooseAndServe(f, c.Provider, path)
}

// liveSlot finds a slot that is declared, of an assignment that has not ended.
func (t *Tx) liveSlot(text string) (FoundSlot, error) {
	f, err := Finder{t.State}.Slot(text)
	if err != nil {
		return f, err
	}
	a := t.Assignment(f.Assignment)
	if a.Ended {
		return f, refuse(AssignmentNotFound, "assignment "+a.Name+" has ended", fmt.Sprintf("at sequence %d", a.Seq), do("assignment list"))
	}
	if f.Decl == nil {
		return f, refuse(SlotNotDeclared, fmt.Sprintf("module %s declares slot %s no longer", t.Module(a.Module).Name, f.Name),
			"its binding stays until it is pruned", do("assignment resolve", a.Name).With("--prune"))
	}
	return f, nil
}

// chooseAndServe makes a provider the slot's choice and binds it.
func (t *Tx) chooseAndServe(f FoundSlot, provider, path string) error {
	if err := t.canChoose(path, f.Decl); err != nil {
		return err
	}
	r, err := t.eligibleFor(f, provider, path)
	if err != nil {
		return err
	}
	if err := t.choose(f, r); err != nil {
		return err
	}
	seq := t.Seq
	if b := t.BindingOf(t.Assignment(f.Assignment), f.Name); b != 0 {
		seq = t.Binding(b).ChoiceSeq
	}
	return t.serve(f, outcome{r, events.RuleAssignment, seq})
}

// eligibleFor finds the named provider and refuses one that cannot serve f. The
// one that is bound already may be cordoned or unsatisfying: naming it accepts
// what is.
func (t *Tx) eligibleFor(f FoundSlot, provider, path string) (projections.ProviderRef, error) {
	r, err := Finder{t.State}.Provider(provider)
	if err != nil {
		return 0, err
	}
	if f.Binding != 0 && t.Binding(f.Binding).Provider == r && t.Provider(r).State != projections.Retired {
		return r, nil
	}
	code, fault := ineligible(t.State, f.Decl, r)
	if fault == "" {
		return r, nil
	}
	n := needOf(t.State, f)
	l := ladder{s: t.State, n: n, provision: t.Provision(f.Decl.Provision)}
	return 0, l.choose(refuse(code, fmt.Sprintf("%s cannot be bound to %s", path, t.Provider(r).Name), fault, Fix{}))
}

// choose records the intent, where it is a new one.
func (t *Tx) choose(f FoundSlot, r projections.ProviderRef) error {
	e := &events.ChoiceSet{Slot: f.Name, Provider: t.Provider(r).ID}
	if f.Binding != 0 {
		b := t.Binding(f.Binding)
		if b.Choice == r {
			return nil
		}
		if b.Choice != 0 {
			e.Replaces = t.Provider(b.Choice).ID
		}
	}
	e.Binding = t.bindingID(f.Binding)
	return t.emit(t.Assignment(f.Assignment).ID, e)
}

func (t *Tx) clearChoice(f FoundSlot) error {
	if f.Binding == 0 || t.Binding(f.Binding).Choice == 0 {
		return nil
	}
	b := t.Binding(f.Binding)
	return t.emit(t.Assignment(f.Assignment).ID,
		&events.ChoiceCleared{Slot: f.Name, Binding: b.ID, Provider: t.Provider(b.Choice).ID})
}

func boolCount(v ...bool) int {
	n := 0
	for _, b := range v {
		if b {
			n++
		}
	}
	return n
}

package commands

import (
	"fmt"

	"bindery/events"
	"bindery/projections"
)

// DrainProvider moves everything that leads to one provider to another: a
// series of commands, each whole. Step 0 checks all of it against the new
// provider, cordons the old, uncordons the new and re-points defaults; each
// later step moves as much as fits one batch and checks again that the two
// stand as step 0 left them. Effect.More says that another step is due.
type DrainProvider struct {
	Provider string `json:"provider"`
	To       string `json:"to"`
	Step     int    `json:"step,omitempty"`
}

// Verb implements Command.
func (DrainProvider) Verb() string { return "provider.drain" }

// Decide implements Command.
func (c DrainProvider) Decide(t *Tx) error {
	f := Finder{t.State}
	from, err := f.Provider(c.Provider)
	if err != nil {
		return err
	}
	to, p, err := t.liveProvider(c.To)
	if err != nil {
		return err
	}
	d := drain{t, from, to}
	if from == to {
		return refuse(Usage, "provider "+p.Name+" cannot be drained to itself", "", do("provider list"))
	}
	if t.Provider(from).Provision != p.Provision {
		return refuse(WrongProvision, fmt.Sprintf("%s cannot take over from %s", p.Name, t.Provider(from).Name),
			fmt.Sprintf("it provides %s, not %s", t.Provision(p.Provision).Name, t.Provision(t.Provider(from).Provision).Name),
			do("provider list"))
	}
	if c.Step == 0 {
		return d.begin()
	}
	return d.step()
}

type drain struct {
	*Tx
	from, to projections.ProviderRef
}

// begin is step 0.
func (d drain) begin() error {
	if err := d.check(); err != nil {
		return err
	}
	from, to := d.Provider(d.from), d.Provider(d.to)
	if from.State == projections.Active {
		if err := d.emit(from.ID, &events.ProviderCordoned{}); err != nil {
			return err
		}
	}
	if to.State == projections.Cordoned {
		if err := d.roomFor(to.Provision, d.to, to.Name, do("provider drain", "THE-ACTIVE-ONE").With("--to", to.Name)); err != nil {
			return err
		}
		if err := d.emit(to.ID, &events.ProviderUncordoned{}); err != nil {
			return err
		}
	}
	if err := d.defaults(); err != nil {
		return err
	}
	if n := len(from.Bindings); n > 0 {
		d.warn("%s to %s; the data of %s does not move by itself", goes(n, "slot"), to.Name, from.Name)
	}
	for _, m := range d.ModuleNames(from.Modules) {
		d.warn("module %s names %s itself and is not changed", m, from.Name)
	}
	d.more = d.left() > 0
	if d.Whole && d.more {
		return d.step()
	}
	d.remain()
	return nil
}

// check holds every slot that would move against the new provider.
func (d drain) check() error {
	from, to := d.Provider(d.from), d.Provider(d.to)
	r := refuse(VersionUnsatisfied, fmt.Sprintf("%s cannot take over from %s", to.Name, from.Name), "",
		do("provider show", to.Name))
	seen := map[projections.BindingRef]bool{}
	for _, refs := range [][]projections.BindingRef{from.Bindings, from.Choices, from.Overrides, from.Memories} {
		for _, b := range refs {
			slot := d.Declared(d.Binding(b))
			if slot == nil || seen[b] {
				continue // nothing is declared that it would have to meet
			}
			seen[b] = true
			if code, fault := unmet(slot, to); fault != "" {
				r.Code, r.Why = code, "it does not meet what every slot needs"
				r.of(fault, []string{d.SlotPath(d.Binding(b))})
			}
		}
	}
	if len(r.Candidates) > 0 {
		return r
	}
	if n := len(from.Overrides); n > 0 && d.Reason == "" {
		return refuse(ReasonRequired, "draining "+from.Name+" needs a reason",
			"it is named by "+count(n, "override")+", which would be changed",
			do("provider drain", from.Name).With("--to", to.Name).With("--reason", "TEXT")).
			of("an override names it", d.SlotNames(from.Overrides))
	}
	return nil
}

func (d drain) defaults() error {
	from, to := d.Provider(d.from), d.Provider(d.to)
	v := d.Provision(from.Provision)
	if v.Default.Provider == d.from {
		if err := d.emit(v.ID, &events.DefaultSet{Provider: to.ID, Replaces: from.ID}); err != nil {
			return err
		}
	}
	for _, name := range d.defaultNodes(from.Provision) {
		n := d.NodeNamed(name)
		if v.NodeDefaults[n].Provider != d.from {
			continue
		}
		if err := d.emit(v.ID, &events.DefaultSet{Node: d.Node(n).ID, Provider: to.ID, Replaces: from.ID}); err != nil {
			return err
		}
	}
	return nil
}

// left is how many references are still to be moved.
func (d drain) left() int {
	p := d.Provider(d.from)
	return len(p.Bindings) + len(p.Choices) + len(p.Overrides) + len(p.Memories)
}

// perSlot is the greatest number of events one slot takes.
const perSlot = 3

// step moves slots until the batch is full or none is left.
func (d drain) step() error {
	from, to := d.Provider(d.from), d.Provider(d.to)
	if from.State == projections.Active || to.State != projections.Active {
		return refuse(LedgerMoved, fmt.Sprintf("draining %s to %s has stopped", from.Name, to.Name),
			fmt.Sprintf("%s is %s and %s is %s; it takes a cordoned or retired one and an active one",
				from.Name, from.State, to.Name, to.State),
			do("provider drain", from.Name).With("--to", to.Name))
	}
	for d.left() > 0 && len(d.events)+perSlot <= d.limit {
		if err := d.meets(d.next()); err != nil {
			return err
		}
		if err := d.slot(d.next()); err != nil {
			return err
		}
	}
	d.more = d.left() > 0
	d.remain()
	return nil
}

// remain says who can still log in to the old provider when all is moved.
func (d drain) remain() {
	from := d.Provider(d.from)
	if n := len(from.Holders.Live); n > 0 && !d.more {
		d.warn("%s live at %s until the consumers run with the new ones and the old ones are revoked",
			stays(n, "credential"), from.Name)
	}
}

// meets checks again, as step 0 did, that a slot may move: it may have changed
// since.
func (d drain) meets(r projections.BindingRef) error {
	b := d.Binding(r)
	if slot := d.Declared(b); slot != nil {
		if code, fault := unmet(slot, d.Provider(d.to)); fault != "" {
			return refuse(code, fmt.Sprintf("%s cannot move to %s", d.SlotPath(b), d.Provider(d.to).Name), fault,
				do("explain", d.SlotPath(b)))
		}
	}
	if b.Override != 0 && d.Override(b.Override).Provider == d.from {
		return d.needReason("changing the override of " + d.SlotPath(b))
	}
	return nil
}

// next is a slot that leads to the old provider. The last of a list costs
// nothing to take out.
func (d drain) next() projections.BindingRef {
	p := d.Provider(d.from)
	for _, refs := range [][]projections.BindingRef{p.Bindings, p.Overrides, p.Choices, p.Memories} {
		if n := len(refs); n > 0 {
			return refs[n-1]
		}
	}
	return 0
}

// slot moves all of one slot: its override and what that remembers, its choice,
// and the binding.
func (d drain) slot(r projections.BindingRef) error {
	b, from, to := d.Binding(r), d.Provider(d.from), d.Provider(d.to)
	a := d.Assignment(b.Assignment)
	rule, basis := events.RuleDrain, uint64(0)
	if b.Override != 0 {
		o := d.Override(b.Override)
		e := &events.OverrideSet{Binding: b.ID, Assignment: a.ID, Slot: d.SlotName(b), Provider: d.Provider(o.Provider).ID, Under: o.Under}
		changed := false
		if o.Provider == d.from {
			e.Provider, changed = to.ID, true
		}
		if e.Under.Target.Provider == from.ID {
			e.Under.Target.Provider, changed = to.ID, true
		}
		if changed {
			if err := d.emit(o.ID, e); err != nil {
				return err
			}
		}
		if e.Provider == to.ID {
			rule, basis = events.RuleOverride, d.Seq
		}
	}
	if b.Choice == d.from {
		if err := d.emit(a.ID, &events.ChoiceSet{Slot: d.SlotName(b), Binding: b.ID, Provider: to.ID, Replaces: from.ID}); err != nil {
			return err
		}
		if rule == events.RuleDrain {
			rule, basis = events.RuleAssignment, d.Seq
		}
	}
	if b.Provider != d.from {
		return nil
	}
	return d.emit(b.ID, &events.BindingRebound{Assignment: a.ID, Slot: d.SlotName(b),
		From: events.Target{Provider: from.ID}, To: events.Target{Provider: to.ID}, Rule: rule, Basis: basis})
}

package commands

import (
	"fmt"
	"slices"
	"strings"

	"bindery/events"
	"bindery/projections"
)

// need is one slot of one consumer, as the ladder sees it.
type need struct {
	node        projections.NodeRef // the consumer's
	slot        *projections.Slot
	override    projections.ProviderRef
	overrideSeq uint64
	choice      projections.ProviderRef
	choiceSeq   uint64
	declSeq     uint64                    // of the module's declaration
	path        string                    // assignment/slot, or what stands for it
	flag        string                    // what to put before a provider's name to choose it
	choosing    func(provider string) Fix // the command that chooses one
}

// needOf is the need of an existing assignment's slot.
func needOf(s *projections.State, f FoundSlot) need {
	a := s.Assignment(f.Assignment)
	n := need{node: a.Node, slot: f.Decl, declSeq: s.Module(a.Module).Seq, path: a.Name + "/" + f.Name, flag: "--provider "}
	command := f.Fix
	if command.IsZero() {
		command = do("binding rebind", n.path)
	}
	n.choosing = func(provider string) Fix { return command.With("--provider", provider) }
	if f.Binding != 0 {
		b := s.Binding(f.Binding)
		n.choice, n.choiceSeq = b.Choice, b.ChoiceSeq
		if b.Override != 0 {
			o := s.Override(b.Override)
			n.override, n.overrideSeq = o.Provider, o.Seq
		}
	}
	return n
}

// Rung is one step of the ladder and what it came to.
type Rung struct {
	Rule     events.Rule `json:"rule"`
	Applies  bool        `json:"applies"`
	Provider string      `json:"provider"`
	Why      string      `json:"why"`
}

// outcome is what the ladder decided.
type outcome struct {
	provider projections.ProviderRef // 0 when embedded
	rule     events.Rule
	basis    uint64
}

func (o outcome) target(s *projections.State) events.Target {
	if o.provider == 0 {
		return events.Target{Embedded: true}
	}
	return events.Target{Provider: s.Provider(o.provider).ID}
}

// resolve runs the ladder for n: the first rung that applies decides. It reads
// the providers of n's node, and all of the provision's only for a refusal. A
// nil trace costs nothing; otherwise it is told of every rung.
//
// A provider that is named (rungs 1 to 3) or declared as a default, and not
// eligible, is a refusal: never a fall-through to the next rung.
func resolve(s *projections.State, n need, trace func(Rung)) (outcome, *Refusal) {
	l := ladder{s: s, n: n, provision: s.Provision(n.slot.Provision), trace: trace}
	return l.run()
}

type ladder struct {
	s         *projections.State
	n         need
	provision *projections.Provision
	trace     func(Rung)

	decided bool
	out     outcome
	refusal *Refusal
}

func (l *ladder) run() (outcome, *Refusal) {
	s, n := l.s, l.n
	l.named(events.RuleOverride, n.override, n.overrideSeq, "no override stands", "an override names it")
	if n.slot.Kind == projections.Embeds {
		l.rung(events.RuleEmbedded, 0, true, "the module ships its own instance", func() {
			l.decide(outcome{rule: events.RuleEmbedded, basis: n.declSeq}, nil)
		})
		return l.out, l.refusal
	}
	l.named(events.RuleAssignment, n.choice, n.choiceSeq, "the assignment chooses none", "the assignment chooses it")
	l.named(events.RuleModule, n.slot.Provider, n.declSeq, "the module names none", "the module's requirement names it")
	if l.provision.Scope == events.ScopeMesh {
		l.meshScope()
		for _, r := range []events.Rule{events.RuleNodeDefault, events.RuleCoLocated, events.RuleMeshDefault} {
			l.rung(r, 0, false, "does not apply to mesh scope", nil)
		}
	} else {
		l.rung(events.RuleMeshScope, 0, false, "provision "+l.provision.Name+" has node scope", nil)
		node := s.Node(n.node).Name
		d := l.provision.NodeDefaults[n.node]
		l.named(events.RuleNodeDefault, d.Provider, d.Seq, "no default is declared on "+node, "the default on "+node)
		l.coLocated(node)
		d = l.provision.Default
		l.named(events.RuleMeshDefault, d.Provider, d.Seq, "the mesh declares no default", "the mesh's default")
	}
	if !l.decided {
		l.refusal = l.noProvider()
	}
	return l.out, l.refusal
}

// rung runs a step that applies, unless an earlier one has decided; the trace
// hears of it either way.
func (l *ladder) rung(rule events.Rule, p projections.ProviderRef, applies bool, why string, then func()) {
	if l.trace != nil {
		r := Rung{Rule: rule, Applies: applies, Why: why}
		if p != 0 {
			r.Provider = l.s.Provider(p).Name
		}
		if applies && l.decided {
			r.Why += "; an earlier rung decided"
		}
		l.trace(r)
	}
	if applies && !l.decided {
		then()
	}
}

func (l *ladder) decide(o outcome, r *Refusal) { l.decided, l.out, l.refusal = true, o, r }

// named is a rung where somebody names a provider.
func (l *ladder) named(rule events.Rule, p projections.ProviderRef, seq uint64, none, because string) {
	if p == 0 {
		l.rung(rule, 0, false, none, nil)
		return
	}
	why := fmt.Sprintf("%s since sequence %d", because, seq)
	code, fault := ineligible(l.s, l.n.slot, p)
	if fault != "" {
		why += ", but it is not eligible: " + fault
	}
	l.rung(rule, p, true, why, func() {
		if fault == "" {
			l.decide(outcome{p, rule, seq}, nil)
			return
		}
		name := l.s.Provider(p).Name
		r := refuse(code, fmt.Sprintf("%s cannot be bound to %s", l.n.path, name),
			fmt.Sprintf("rung %s names it (sequence %d), and it is not eligible: %s", rule, seq, fault), Fix{})
		l.decide(outcome{}, l.choose(r))
	})
}

func (l *ladder) meshScope() {
	for _, p := range l.provision.Providers {
		if l.s.Provider(p).State != projections.Active {
			continue
		}
		_, fault := ineligible(l.s, l.n.slot, p)
		if fault != "" {
			l.rung(events.RuleMeshScope, p, false, "the mesh's one active provider is not eligible: "+fault, nil)
			return
		}
		l.rung(events.RuleMeshScope, p, true, "the mesh's one active provider", func() {
			l.decide(outcome{p, events.RuleMeshScope, l.s.Provider(p).StateSeq}, nil)
		})
		return
	}
	l.rung(events.RuleMeshScope, 0, false, "the mesh has no active provider of "+l.provision.Name, nil)
}

func (l *ladder) coLocated(node string) {
	var eligible []projections.ProviderRef
	for _, p := range l.s.Node(l.n.node).Providers {
		if l.s.Provider(p).Provision != l.n.slot.Provision {
			continue
		}
		if _, fault := ineligible(l.s, l.n.slot, p); fault == "" {
			eligible = append(eligible, p)
		}
	}
	switch len(eligible) {
	case 0:
		l.rung(events.RuleCoLocated, 0, false, "no eligible provider on "+node, nil)
	case 1:
		p := eligible[0]
		l.rung(events.RuleCoLocated, p, true, "the only eligible provider on "+node, func() {
			l.decide(outcome{p, events.RuleCoLocated, l.s.Provider(p).Seq}, nil)
		})
	default:
		names := quoteList(l.s.ProviderNames(eligible))
		l.rung(events.RuleCoLocated, 0, true, "more than one is eligible on "+node+": "+names, func() {
			r := refuse(AmbiguousProvider, fmt.Sprintf("%s could be bound to any of %s", l.n.path, names),
				"each is eligible on "+node+", and no default is declared there", Fix{})
			l.decide(outcome{}, l.choose(r))
		})
	}
}

func (l *ladder) noProvider() *Refusal {
	r := refuse(NoProvider, fmt.Sprintf("no provider for %s", l.n.path),
		fmt.Sprintf("it needs %s, and no rung of the ladder names an eligible one", l.provision.Name), Fix{})
	return l.choose(r)
}

// choose lists every provider of the provision with the rule that excludes it
// or the flag that chooses it, and a fix that chooses the first on the
// consumer's node, or the first.
func (l *ladder) choose(r *Refusal) *Refusal {
	near := !r.Fix.IsZero() // what the fix names is on the consumer's node
	for i, c := range candidates(l.s, l.n) {
		if i == MaxCandidates {
			r.Candidates = append(r.Candidates, Candidate{Name: "…", Why: "and more"})
			break
		}
		local := c.Node == l.s.Node(l.n.node).Name
		if c.Eligible {
			r.Candidates = append(r.Candidates, Candidate{Name: c.Provider, ID: &c.ID, Node: c.Node,
				Why: c.Why, Flag: l.n.flag + c.Provider})
			if l.n.choosing != nil && (r.Fix.IsZero() || local && !near) {
				r.Fix, near = l.n.choosing(c.Provider), local
			}
			continue
		}
		r.Candidates = append(r.Candidates, Candidate{Name: c.Provider, ID: &c.ID, Node: c.Node, Why: c.Why})
	}
	if r.Fix.IsZero() {
		r.Fix = do("provider register", "NAME").With("--provision", l.provision.Name).With("--node", l.s.Node(l.n.node).Name).With("--endpoint", "HOST:PORT")
	}
	return r
}

// Verdict is one provider of the provision and whether it could serve.
type Verdict struct {
	Provider string    `json:"provider"`
	ID       events.ID `json:"id"`
	Node     string    `json:"node"`
	Eligible bool      `json:"eligible"`
	Why      string    `json:"why"`
}

// candidates gives the verdict on every live provider of the need's provision,
// by name.
func candidates(s *projections.State, n need) []Verdict {
	out := []Verdict{}
	for _, r := range s.Provision(n.slot.Provision).Providers {
		p := s.Provider(r)
		v := Verdict{Provider: p.Name, ID: p.ID, Node: s.Node(p.Node).Name, Eligible: true}
		if _, fault := ineligible(s, n.slot, r); fault != "" {
			v.Eligible, v.Why = false, fault
		} else if p.Node == n.node {
			v.Why = "eligible, on the consumer's node"
		} else {
			v.Why = "eligible, on another node"
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Verdict) int { return strings.Compare(a.Provider, b.Provider) })
	return out
}

// ineligible says why a provider cannot serve a slot; "" when it can.
func ineligible(s *projections.State, slot *projections.Slot, r projections.ProviderRef) (Code, string) {
	p := s.Provider(r)
	switch {
	case p.Provision != slot.Provision:
		return WrongProvision, fmt.Sprintf("it provides %s, the slot needs %s",
			s.Provision(p.Provision).Name, s.Provision(slot.Provision).Name)
	case p.State == projections.Retired:
		return ProviderRetired, "it is retired"
	case p.State == projections.Cordoned:
		return ProviderCordoned, "it is cordoned"
	}
	return unmet(slot, p)
}

// unmet is the part of ineligible that cordoning has no say in.
func unmet(slot *projections.Slot, p *projections.Provider) (Code, string) {
	u := slot.Unmet(p)
	switch {
	case u == nil:
		return "", ""
	case u.Feature != "":
		return FeatureMissing, u.Error()
	}
	return VersionUnsatisfied, u.Error()
}

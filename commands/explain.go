package commands

import (
	"time"

	"bindery/events"
	"bindery/projections"
)

// Explain asks why a slot is bound as it is and what the ladder would say now:
// of an existing slot, or of every slot of a module if it were placed on a node.
type Explain struct {
	Slot   string `json:"slot,omitempty"`
	Module string `json:"module,omitempty"`
	Node   string `json:"node,omitempty"`
}

// Name implements Query.
func (Explain) Name() string { return "explain" }

// Now is what the ladder would decide now.
type Now struct {
	Rule     events.Rule `json:"rule"`
	Provider string      `json:"provider"` // "embedded" for the slot's own instance, "" for none
	Why      string      `json:"why"`
}

// Explanation is the recorded decision on one slot and the ladder's of now.
type Explanation struct {
	Slot       string                    `json:"slot"`
	Seq        uint64                    `json:"seq"`      // of the recorded decision, 0 where there is none
	Rule       events.Rule               `json:"rule"`     // that decided it
	Basis      uint64                    `json:"basis"`    // sequence of the fact the rule rested on
	Provider   string                    `json:"provider"` // bound now
	Flags      []projections.Flag        `json:"flags"`
	Override   *projections.OverrideView `json:"override,omitempty"`
	Now        Now                       `json:"now"`
	Rungs      []Rung                    `json:"rungs"`
	Candidates []Verdict                 `json:"candidates"`
	At         uint64                    `json:"at"` // the sequence this was read at
}

// Answer implements Query.
func (q Explain) Answer(s *projections.State, _ time.Time) (any, error) {
	if q.Slot != "" {
		f, err := Finder{s}.Slot(q.Slot)
		if err != nil {
			return nil, err
		}
		return explainSlot(s, f), nil
	}
	f := Finder{s}
	mr, err := f.Module(q.Module)
	if err != nil {
		return nil, err
	}
	node, err := f.Node(q.Node)
	if err != nil {
		return nil, err
	}
	m := s.Module(mr)
	out := make([]Explanation, 0, len(m.Slots))
	for i := range m.Slots {
		n := need{node: node, slot: &m.Slots[i], declSeq: m.Seq, path: m.Name + "/" + m.Slots[i].Name,
			flag: "--bind " + m.Slots[i].Name + "="}
		n.choosing = func(provider string) Fix {
			return do("assignment create", m.Name).With("--node", s.Node(node).Name).With("--bind", m.Slots[i].Name+"="+provider)
		}
		out = append(out, explain(s, n))
	}
	return projections.List[Explanation]{Mesh: s.Mesh.Name, Seq: s.Seq, Time: s.Time, Items: out}, nil
}

func explainSlot(s *projections.State, f FoundSlot) Explanation {
	path := s.Assignment(f.Assignment).Name + "/" + f.Name
	out := Explanation{Slot: path, Rungs: []Rung{}, Candidates: []Verdict{}}
	if f.Decl != nil {
		out = explain(s, needOf(s, f))
	} else {
		out.Now.Why = "its module declares the slot no longer"
	}
	out.At, out.Flags = s.Seq, []projections.Flag{projections.FlagPending}
	if f.Binding == 0 {
		return out
	}
	b := s.Binding(f.Binding)
	out.Seq, out.Rule, out.Basis, out.Provider = b.Seq, b.Rule(), b.Basis, s.TargetName(s.Target(b))
	if out.Flags = s.Flags(f.Binding); out.Flags == nil {
		out.Flags = []projections.Flag{}
	}
	if b.Override != 0 {
		v := s.OverrideView(b.Override)
		out.Override = &v
	}
	return out
}

// explain runs the ladder with its trace.
func explain(s *projections.State, n need) Explanation {
	out := Explanation{Slot: n.path, At: s.Seq, Rungs: []Rung{}, Candidates: candidates(s, n), Flags: []projections.Flag{}}
	o, refusal := resolve(s, n, func(r Rung) { out.Rungs = append(out.Rungs, r) })
	if refusal != nil {
		out.Now = Now{Why: refusal.Message + ": " + refusal.Why}
		return out
	}
	out.Now = Now{Rule: o.rule, Provider: s.TargetName(o.target(s))}
	for _, r := range out.Rungs {
		if r.Rule == o.rule {
			out.Now.Why = r.Why
		}
	}
	return out
}

package projections

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Attention is one thing an operator should look at.
type Attention struct {
	Code string `json:"code"`
	What string `json:"what"`
	Why  string `json:"why"`
	Fix  Fix    `json:"fix"`
	// Optional: it does not make "status --check" false, but --strict.
	Optional bool `json:"optional,omitempty"`
	// Note: it makes neither false.
	Note bool `json:"note,omitempty"`
}

// StatusView is the mesh at a glance.
type StatusView struct {
	Mesh      string         `json:"mesh"`
	MeshID    string         `json:"mesh_id"`
	Seq       uint64         `json:"seq"`
	Time      time.Time      `json:"time"`
	Counts    map[string]int `json:"counts"`
	Attention []Attention    `json:"attention"`
}

// Status tells what there is and what wants attention now. It reads every
// binding.
func (s *State) Status(now time.Time) StatusView {
	v := StatusView{Mesh: s.Mesh.Name, MeshID: s.Mesh.ID.String(), Seq: s.Seq, Time: s.Time, Attention: []Attention{}}
	v.Counts = map[string]int{
		"nodes": len(s.names[kNode].live), "provisions": len(s.names[kProvision].live),
		"providers": len(s.names[kProvider].live), "modules": len(s.names[kModule].live),
		"assignments": len(s.names[kAssignment].live), "bindings": s.live - s.pendingLive,
		"pending": 0, "embedded": 0, "overrides": 0,
		"asked": 0, "holders": 0, "rotations": 0,
	}
	for _, f := range boundFlags {
		v.Counts[string(f)] = 0
	}
	s.attendMesh(&v)
	groups := &grouping{lines: map[groupKey][]string{}}
	for _, i := range s.names[kAssignment].live {
		s.attend(&v, AssignmentRef(i), groups)
	}
	s.attendNodes(&v)
	s.attendDefaults(&v)
	s.attendHolders(&v)
	s.attendRotations(&v, now)
	v.Attention = append(v.Attention, s.grouped(groups)...)
	slices.SortFunc(v.Attention, func(a, b Attention) int {
		if a.Note != b.Note {
			if a.Note {
				return 1
			}
			return -1
		}
		if c := strings.Compare(a.Code, b.Code); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(a.What, b.What), strings.Compare(a.Why, b.Why), strings.Compare(a.Fix.String(), b.Fix.String()))
	})
	return v
}

// attendMesh adds what is to be known of the ledger as a whole.
func (s *State) attendMesh(v *StatusView) {
	if !s.Mesh.Sealed {
		return
	}
	a := Attention{Code: "sealed", What: "mesh " + s.Mesh.Name, Why: "nothing more is written to this ledger: it is sealed", Note: true}
	if s.Mesh.Successor != "" {
		a.Why += ", and has moved to " + s.Mesh.Successor
	}
	v.Attention = append(v.Attention, a)
}

// attend adds what is the matter with one assignment.
func (s *State) attend(v *StatusView, r AssignmentRef, g *grouping) {
	a := s.Assignment(r)
	for b := a.first; b != 0; b = s.Binding(b).next {
		if !s.Binding(b).Released || s.Lingers(s.Binding(b)) {
			s.attendBinding(v, b, g)
		}
	}
	for i := range s.Module(a.Module).Slots {
		if d := &s.Module(a.Module).Slots[i]; s.BindingOf(a, d.Name) == 0 {
			s.attendPending(v, a, d)
		}
	}
}

func (s *State) attendBinding(v *StatusView, r BindingRef, g *grouping) {
	b := s.Binding(r)
	if b.Embedded {
		v.Counts["embedded"]++
	}
	if b.Override != 0 {
		v.Counts["overrides"]++
	}
	if _, asked := s.Ask(r); asked {
		v.Counts["asked"]++
		if b.use == 0 {
			g.add(groupKey{"asked", 0}, s.SlotPath(b))
		}
	}
	for _, f := range s.Flags(r) {
		switch f {
		case FlagPending:
			s.attendPending(v, s.Assignment(b.Assignment), s.Declared(b))
			continue
		case FlagOutdated, FlagSwitching:
			g.add(groupKey{string(f), b.Provider}, s.SlotPath(b))
		case FlagCutOff:
			g.cutOff = append(g.cutOff, r)
		default:
			v.Attention = append(v.Attention, s.attention(r, f))
		}
		v.Counts[string(f)]++
	}
}

func (s *State) attendPending(v *StatusView, a *Assignment, d *Slot) {
	v.Counts["pending"]++
	v.Attention = append(v.Attention, Attention{Code: string(FlagPending), What: a.Name + "/" + d.Name,
		Why: "nothing serves it; it needs " + s.Provision(d.Provision).Name, Fix: Do("assignment resolve", a.Name), Optional: d.Optional})
}

// attention says why a bound slot has a flag, and what to type.
func (s *State) attention(r BindingRef, f Flag) Attention {
	b := s.Binding(r)
	path := s.SlotPath(b)
	out := Attention{Code: string(f), What: path}
	switch f {
	case FlagUnsatisfied:
		p := s.Provider(b.Provider)
		out.Why = fmt.Sprintf("it is bound to %s: %s", p.Name, s.Declared(b).Unmet(p))
		out.Fix = Do("explain", path)
	case FlagStranded:
		out.Why = "it is bound to " + s.Provider(b.Provider).Name + ", which is retired"
		out.Fix = Do("provider drain", s.Provider(b.Provider).ID.String()).With("--to", "OTHER")
	case FlagDrift:
		out.Why, out.Fix = s.whyDrift(b, path)
	case FlagCutOff:
		c := s.Credential(b.use)
		out.Why = fmt.Sprintf("its credential in use, generation %d at %s, is %s", c.Generation, s.targetOf(c), c.State)
		out.Fix = s.unstick(b)
		if _, asked := s.Ask(r); asked {
			out.Why += "; another is asked for"
			out.Fix = Do("credential list").With("--assignment", s.Assignment(b.Assignment).Name)
		}
	}
	return out
}

func (s *State) whyDrift(b *Binding, path string) (why string, fix Fix) {
	a, d := s.Assignment(b.Assignment), s.Declared(b)
	resolve := Do("assignment resolve", a.Name)
	asked, rule := s.Asked(b, d)
	switch {
	case d == nil:
		return "its module declares the slot no longer", resolve.With("--prune")
	case d.Kind == Requires && b.Embedded:
		return "it is served by its own instance, and its module requires a provider now", resolve.With("--rebind")
	case d.Kind == Embeds && b.Provider != 0 && b.Override == 0:
		return "it is bound to " + s.Provider(b.Provider).Name + ", and its module ships its own instance now", resolve.With("--rebind")
	}
	why = fmt.Sprintf("it is bound to %s, and the %s asks for %s", s.TargetName(s.Target(b)), rule, s.Provider(asked).Name)
	to := asked
	if p := s.Provider(asked); (p.State != Active || d.Unmet(p) != nil) && b.Provider != 0 && s.Provider(b.Provider).State == Active {
		why += ", which cannot serve it"
		to = b.Provider // what is can be accepted
	}
	return why, Do("binding rebind", path).With("--provider", s.Provider(to).Name)
}

// attendNodes adds the providers and consumers left on retired nodes.
func (s *State) attendNodes(v *StatusView) {
	for i := 1; i <= s.nodes.len(); i++ {
		n := s.nodes.at(uint32(i))
		if !n.Retired {
			continue
		}
		for _, name := range s.ProviderNames(n.Providers) {
			p := s.Provider(s.ProviderNamed(name))
			v.Attention = append(v.Attention, Attention{Code: "node_retired", What: "provider " + name,
				Why: fmt.Sprintf("it is on node %s, which is retired; bindings that lead to it: %d", n.Name, len(p.Bindings)),
				Fix: Do("provider relocate", name).With("--to", "NODE").With("--endpoint", "HOST:PORT")})
		}
		for _, name := range s.AssignmentNames(n.Assignments) {
			v.Attention = append(v.Attention, Attention{Code: "node_retired", What: "assignment " + name,
				Why: "it is on node " + n.Name + ", which is retired", Fix: Do("assignment move", name).With("--to", "NODE")})
		}
	}
}

// attendDefaults adds the defaults that name a provider that is retired: what they would
// decide next is refused.
func (s *State) attendDefaults(v *StatusView) {
	for _, i := range s.names[kProvision].live {
		p := s.provisions.at(i)
		clear := Do("provision default", p.Name).With("--clear")
		s.attendDefault(v, p.Default, "default for "+p.Name, clear)
		for n, d := range p.NodeDefaults {
			node := s.Node(n).Name
			s.attendDefault(v, d, "default for "+p.Name+" on "+node, clear.With("--node", node))
		}
	}
}

func (s *State) attendDefault(v *StatusView, d Default, what string, clear Fix) {
	if d.Provider == 0 || s.Provider(d.Provider).State != Retired {
		return
	}
	v.Attention = append(v.Attention, Attention{Code: "default_retired", What: what,
		Why: "it is " + s.Provider(d.Provider).Name + ", which is retired: what it would decide is refused", Fix: clear})
}

package projections

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"bindery/events"
)

// EmbeddedView is the instance a slot ships itself.
type EmbeddedView struct {
	Version     string         `json:"version,omitempty"`
	Features    []string       `json:"features,omitempty"`
	Because     events.Because `json:"because"`
	Replaceable bool           `json:"replaceable"`
}

// BindingView is what serves one slot, as readers see it.
type BindingView struct {
	ID           *events.ID    `json:"id"` // null for a slot no event has spoken of
	Assignment   string        `json:"assignment"`
	AssignmentID events.ID     `json:"assignment_id"`
	Slot         string        `json:"slot"`
	Node         string        `json:"node"`
	Provision    string        `json:"provision"`
	Provider     string        `json:"provider,omitempty"`
	ProviderID   *events.ID    `json:"provider_id,omitempty"`
	ProviderNode string        `json:"provider_node,omitempty"`
	Endpoint     string        `json:"endpoint,omitempty"`
	Embedded     *EmbeddedView `json:"embedded,omitempty"`
	Rule         events.Rule   `json:"rule"`
	Seq          uint64        `json:"seq"`
	ChangedSeq   uint64        `json:"changed_seq"` // of the last change of Use; before there is any, of what is decided
	AppliedSeq   uint64        `json:"applied_seq"` // the consumer runs with Use as of here
	Generation   uint64        `json:"generation"`  // the open ask, or the last one issued; 0 for none
	SecretRef    string        `json:"secret_ref"`  // of Generation, "" while it is asked
	Use          UseView       `json:"use"`
	Released     bool          `json:"released,omitempty"` // its slot is pruned, and its consumer has not taken note
	Attempts     uint64        `json:"attempts,omitempty"` // of the consumer to take up Use, failed
	Error        string        `json:"error,omitempty"`
	Optional     bool          `json:"optional,omitempty"`
	Flags        []Flag        `json:"flags"`
}

// BindingView makes the view of a binding.
func (s *State) BindingView(r BindingRef) BindingView {
	b := s.Binding(r)
	a := s.Assignment(b.Assignment)
	d := s.Declared(b)
	v := BindingView{ID: &b.ID, Assignment: a.Name, AssignmentID: a.ID, Slot: s.SlotName(b), Node: s.Node(a.Node).Name,
		Rule: b.Rule(), Seq: b.Seq, ChangedSeq: s.ChangedSeq(b), AppliedSeq: b.Applied, Use: s.useView(b), Released: b.Released,
		Flags: s.Flags(r)}
	id := b.ID
	v.ID = &id
	if b.Provision != 0 {
		v.Provision = s.Provision(b.Provision).Name
	}
	if d != nil {
		v.Optional = d.Optional
		if b.Pending() {
			v.Provision = s.Provision(d.Provision).Name
		}
	}
	if b.Provider != 0 {
		p := s.Provider(b.Provider)
		pid := p.ID
		v.Provider, v.ProviderID, v.ProviderNode, v.Endpoint = p.Name, &pid, s.Node(p.Node).Name, p.Endpoint
	}
	if b.Embedded {
		v.Embedded = &EmbeddedView{}
		if d != nil && d.Embed != nil {
			v.Embedded = &EmbeddedView{d.Embed.Version, d.Embed.Features, d.Embed.Because, d.Embed.Replaceable}
		}
	}
	if c, ok := s.Ask(r); ok {
		v.Generation = c.Generation
	} else if b.use != 0 {
		v.Generation, v.SecretRef = v.Use.Generation, v.Use.SecretRef
	}
	if f, ok := s.Trouble(r); ok {
		v.Attempts, v.Error = f.Attempts, f.Reason
	}
	if v.Flags == nil {
		v.Flags = []Flag{}
	}
	return v
}

// PendingView is a slot that was declared after its assignment was created and
// that no event has spoken of: it has no id yet.
func (s *State) PendingView(a *Assignment, d *Slot) BindingView {
	return BindingView{Assignment: a.Name, AssignmentID: a.ID, Slot: d.Name, Node: s.Node(a.Node).Name,
		Provision: s.Provision(d.Provision).Name, Optional: d.Optional, Flags: []Flag{FlagPending}}
}

// BindingViews makes the views of all slots of an assignment, by slot; a pruned
// one is among them until its consumer has taken note.
func (s *State) BindingViews(a *Assignment) []BindingView {
	refs := s.listed(a, func(r BindingRef) bool { return !s.Binding(r).Released || s.Lingers(s.Binding(r)) })
	out := make([]BindingView, 0, len(refs))
	for _, r := range refs {
		out = append(out, s.BindingView(r))
	}
	if a.Ended {
		return out
	}
	for i := range s.Module(a.Module).Slots {
		if d := &s.Module(a.Module).Slots[i]; s.BindingOf(a, d.Name) == 0 {
			out = append(out, s.PendingView(a, d))
		}
	}
	slices.SortFunc(out, compareBindings)
	return out
}

// BindingFilter narrows a list of bindings; the zero one does not.
type BindingFilter struct {
	Provider   ProviderRef
	Node       NodeRef // the consumer's
	Assignment AssignmentRef
	Flag       Flag // that the binding must have
}

// ListBindings lists bindings by assignment and slot. It reads what the filter
// leads to and nothing else.
func (s *State) ListBindings(f BindingFilter) List[BindingView] {
	var items []BindingView
	add := func(v BindingView) {
		if f.Flag == "" || slices.Contains(v.Flags, f.Flag) {
			items = append(items, v)
		}
	}
	keep := func(r AssignmentRef) bool { return f.Node == 0 || s.Assignment(r).Node == f.Node }
	assignment := func(r AssignmentRef) {
		for _, v := range s.BindingViews(s.Assignment(r)) {
			if f.Provider == 0 || v.ProviderID != nil && *v.ProviderID == s.Provider(f.Provider).ID {
				add(v)
			}
		}
	}
	switch {
	case f.Assignment != 0:
		if keep(f.Assignment) {
			assignment(f.Assignment)
		}
		return list(s, items)
	case f.Provider != 0:
		for _, r := range s.Provider(f.Provider).Bindings {
			if keep(s.Binding(r).Assignment) {
				add(s.BindingView(r))
			}
		}
	case f.Node != 0:
		for _, r := range s.Node(f.Node).Assignments {
			assignment(r)
		}
	default:
		for _, i := range s.names[kAssignment].live {
			assignment(AssignmentRef(i))
		}
	}
	slices.SortFunc(items, compareBindings)
	return list(s, items)
}

// compareBindings orders by assignment and slot; what serves a slot before what
// is left of an earlier one of the name.
func compareBindings(x, y BindingView) int {
	id := func(v BindingView) string {
		if v.ID == nil {
			return ""
		}
		return v.ID.String()
	}
	released := func(v BindingView) int {
		if v.Released {
			return 1
		}
		return 0
	}
	return cmp.Or(strings.Compare(x.Assignment, y.Assignment), strings.Compare(x.Slot, y.Slot), released(x)-released(y),
		strings.Compare(id(x), id(y)))
}

// AssignmentView is an assignment as readers see it.
type AssignmentView struct {
	Seq      uint64            `json:"seq"`
	ID       events.ID         `json:"id"`
	Name     string            `json:"name"`
	Module   string            `json:"module"`
	Node     string            `json:"node"`
	State    string            `json:"state"` // active, ended
	Choices  map[string]string `json:"choices"`
	Bindings []BindingView     `json:"bindings"`
}

// AssignmentView makes the view of an assignment.
func (s *State) AssignmentView(r AssignmentRef) AssignmentView {
	a := s.Assignment(r)
	v := AssignmentView{Seq: a.Seq, ID: a.ID, Name: a.Name, Module: s.Module(a.Module).Name, Node: s.Node(a.Node).Name,
		State: "active", Choices: map[string]string{}, Bindings: s.BindingViews(a)}
	if a.Ended {
		v.State = "ended"
	}
	for _, b := range s.Bindings(a) {
		if c := s.Binding(b).Choice; c != 0 {
			v.Choices[s.SlotName(s.Binding(b))] = s.Provider(c).Name
		}
	}
	return v
}

// ListAssignments lists the live assignments by name.
func (s *State) ListAssignments() List[AssignmentView] {
	return list(s, views(s, events.EntityAssignment, func(i uint32) AssignmentView { return s.AssignmentView(AssignmentRef(i)) }))
}

// UnderView is what lay under an override.
type UnderView struct {
	Provider   string      `json:"provider,omitempty"`
	ProviderID *events.ID  `json:"provider_id,omitempty"`
	Embedded   bool        `json:"embedded,omitempty"`
	Rule       events.Rule `json:"rule,omitempty"`
}

// OverrideView is an override as readers see it.
type OverrideView struct {
	Seq        uint64    `json:"seq"`
	ID         events.ID `json:"id"`
	Slot       string    `json:"slot"` // assignment/slot
	Binding    events.ID `json:"binding"`
	Provider   string    `json:"provider"`
	ProviderID events.ID `json:"provider_id"`
	Under      UnderView `json:"under"`
	Reason     string    `json:"reason"`
	Actor      string    `json:"actor"`
	Time       time.Time `json:"time"`
}

// OverrideView makes the view of an override.
func (s *State) OverrideView(r OverrideRef) OverrideView {
	o := s.Override(r)
	b := s.Binding(o.Binding)
	v := OverrideView{Seq: o.Seq, ID: o.ID, Slot: s.SlotPath(b), Binding: b.ID, Provider: s.Provider(o.Provider).Name,
		ProviderID: s.Provider(o.Provider).ID, Under: UnderView{Embedded: o.Under.Target.Embedded, Rule: o.Under.Rule},
		Reason: o.Reason, Actor: o.Actor, Time: o.Time}
	if o.under != 0 {
		id := s.Provider(o.under).ID
		v.Under.Provider, v.Under.ProviderID = s.Provider(o.under).Name, &id
	}
	return v
}

// ListOverrides lists the overrides that stand, by slot.
func (s *State) ListOverrides() List[OverrideView] {
	var items []OverrideView
	for i := 1; i <= s.overrides.len(); i++ {
		if !s.overrides.at(uint32(i)).Cleared {
			items = append(items, s.OverrideView(OverrideRef(i)))
		}
	}
	slices.SortFunc(items, func(a, b OverrideView) int { return strings.Compare(a.Slot, b.Slot) })
	return list(s, items)
}

package commands

import (
	"fmt"
	"slices"
	"strings"

	"bindery/events"
	"bindery/projections"

	"github.com/agnivade/levenshtein"
)

// refKind is one type of entity that people refer to by name or id.
type refKind struct {
	entity events.Entity
	code   Code // when it is not found
}

var (
	refNode       = refKind{events.EntityNode, NodeNotFound}
	refProvision  = refKind{events.EntityProvision, ProvisionNotFound}
	refProvider   = refKind{events.EntityProvider, ProviderNotFound}
	refModule     = refKind{events.EntityModule, ModuleNotFound}
	refAssignment = refKind{events.EntityAssignment, AssignmentNotFound}
)

// A Finder turns what people write into references: a name of a live entity, a
// whole id, or a unique beginning or end of one (upper case, six characters or
// more).
type Finder struct{ *projections.State }

// Node finds a node.
func (f Finder) Node(text string) (projections.NodeRef, error) {
	if r := f.NodeNamed(text); r != 0 {
		return r, nil
	}
	i, err := f.byID(refNode, text)
	return projections.NodeRef(i), err
}

// Provision finds a provision.
func (f Finder) Provision(text string) (projections.ProvisionRef, error) {
	if r := f.ProvisionNamed(text); r != 0 {
		return r, nil
	}
	i, err := f.byID(refProvision, text)
	return projections.ProvisionRef(i), err
}

// Provider finds a provider. Naming another consumer's embedded instance
// (assignment/slot) is embedded_private.
func (f Finder) Provider(text string) (projections.ProviderRef, error) {
	if r := f.ProviderNamed(text); r != 0 {
		return r, nil
	}
	if strings.Contains(text, "/") {
		if sl, err := f.Slot(text); err == nil && sl.Decl != nil && sl.Decl.Kind == projections.Embeds {
			return 0, refuse(EmbeddedPrivate, text+" is no provider",
				"it is the instance that "+text+" ships itself: private, never bound by anything else",
				do("provider list"))
		}
	}
	i, err := f.byID(refProvider, text)
	return projections.ProviderRef(i), err
}

// Module finds a module.
func (f Finder) Module(text string) (projections.ModuleRef, error) {
	if r := f.ModuleNamed(text); r != 0 {
		return r, nil
	}
	i, err := f.byID(refModule, text)
	return projections.ModuleRef(i), err
}

// Assignment finds an assignment; by id also one that has ended.
func (f Finder) Assignment(text string) (projections.AssignmentRef, error) {
	if r := f.AssignmentNamed(text); r != 0 {
		return r, nil
	}
	i, err := f.byID(refAssignment, text)
	return projections.AssignmentRef(i), err
}

// FoundSlot is a slot of an assignment: its declaration, its binding, or both.
type FoundSlot struct {
	Assignment projections.AssignmentRef
	Name       string
	Binding    projections.BindingRef // 0 where no event has spoken of the slot
	Decl       *projections.Slot      // nil where it is no longer declared
	// Fix is the command a refusal about the slot offers with --provider; none:
	// binding rebind.
	Fix Fix
}

// Slot finds assignment/slot, or a binding by id.
func (f Finder) Slot(text string) (FoundSlot, error) {
	name, slot, ok := strings.Cut(text, "/")
	if !ok {
		if looksLikeID(text) {
			return f.slotByID(text)
		}
		return FoundSlot{}, f.noSlot(text)
	}
	r, err := f.Assignment(name)
	if err != nil {
		return FoundSlot{}, err
	}
	a := f.State.Assignment(r)
	m := f.State.Module(a.Module)
	out := FoundSlot{Assignment: r, Name: slot, Binding: f.BindingOf(a, slot)}
	if !a.Ended {
		out.Decl = m.Slot(slot)
	}
	if out.Decl == nil && out.Binding == 0 {
		names := make([]string, len(m.Slots))
		for i := range m.Slots {
			names[i] = m.Slots[i].Name
		}
		return out, refuse(SlotNotDeclared, fmt.Sprintf("assignment %s has no slot %q", a.Name, clip(slot)),
			"module "+m.Name+" declares "+orNone(names), do("module show", m.Name)).of("a slot of "+m.Name, names)
	}
	return out, nil
}

// noSlot says that a slot is written assignment/slot.
func (f Finder) noSlot(text string) error {
	r := refuse(BindingNotFound, fmt.Sprintf("%q is no slot", clip(text)), "a slot is written ASSIGNMENT/SLOT", do("binding list"))
	if a := f.AssignmentNamed(text); a != 0 {
		for _, v := range f.BindingViews(f.State.Assignment(a)) {
			r.Candidates = append(r.Candidates, Candidate{Name: text + "/" + v.Slot, Why: "a slot of it"})
		}
		r.Fix = do("assignment show", text)
	}
	return r
}

func (f Finder) slotByID(text string) (FoundSlot, error) {
	i, err := f.byID(refKind{events.EntityBinding, BindingNotFound}, text)
	if err != nil {
		return FoundSlot{}, err
	}
	b := f.State.Binding(projections.BindingRef(i))
	if b.Released {
		return FoundSlot{}, refuse(BindingNotFound, "the binding of "+f.SlotPath(b)+" is released",
			fmt.Sprintf("at sequence %d", b.Seq), do("assignment show", f.State.Assignment(b.Assignment).Name))
	}
	return FoundSlot{Assignment: b.Assignment, Name: f.SlotName(b), Binding: projections.BindingRef(i), Decl: f.Declared(b)}, nil
}

func (f Finder) byID(k refKind, text string) (uint32, error) {
	text = strings.TrimPrefix(text, "…") // as a table shows the tail of an id
	if id, err := events.ParseID(text); err == nil {
		if i := f.ByID(k.entity, id); i != 0 {
			return i, nil
		}
		return 0, f.notFound(k, text, nil)
	}
	if !looksLikeID(text) {
		return 0, f.notFound(k, text, f.names(k))
	}
	ids := f.ByPartialID(k.entity, text)
	if len(ids) == 1 {
		return f.ByID(k.entity, ids[0]), nil
	}
	if len(ids) == 0 {
		return 0, f.notFound(k, text, f.names(k))
	}
	r := refuse(k.code, fmt.Sprintf("%q is part of %d %s ids", text, len(ids), k.entity), "it must fit one alone", Fix{})
	for _, id := range ids[:min(len(ids), MaxCandidates)] {
		r.Candidates = append(r.Candidates, Candidate{Name: id.String(), Why: "fits"})
	}
	return 0, r
}

func (f Finder) names(k refKind) []string {
	if k.entity == events.EntityBinding {
		return nil
	}
	return f.Names(k.entity)
}

// looksLikeID is true of upper-case base32: names are lower case.
func looksLikeID(s string) bool {
	s = strings.TrimPrefix(s, "…")
	if len(s) < projections.MinPartialID || len(s) > events.IDLen {
		return false
	}
	for _, r := range s {
		if !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z') {
			return false
		}
	}
	return true
}

// notFound says that nothing is called text, with the nearest names.
func (f Finder) notFound(k refKind, text string, names []string) error {
	r := refuse(k.code, fmt.Sprintf("no %s is called %q", k.entity, clip(text)), "", do(string(k.entity)+" list"))
	if k.entity != events.EntityBinding {
		if b := f.FormerBearer(k.entity, text); b.Name != "" {
			r.Why = fmt.Sprintf("the %s that bore this name is called %s now", k.entity, b.Name)
			id := b.ID
			r.Candidates = append(r.Candidates, Candidate{Name: b.Name, ID: &id, Why: "bore the name before"})
			return r
		}
	}
	if k.entity == events.EntityProvider {
		if gone := f.RetiredProviders(text); len(gone) > 0 {
			r.Why = "the provider of that name is retired; its id still finds it"
			r.Fix = do("provider show", f.State.Provider(gone[0]).ID.String())
			for _, p := range gone {
				id := f.State.Provider(p).ID
				r.Candidates = append(r.Candidates, Candidate{Name: text, ID: &id, Why: fmt.Sprintf("retired at sequence %d", f.State.Provider(p).StateSeq), Flag: id.String()})
			}
			return r
		}
	}
	switch near := Nearest(text, names, 3); {
	case len(near) > 0:
		r.Why = "did you mean " + strings.Join(near, " or ") + "?"
		for _, n := range near {
			r.Candidates = append(r.Candidates, Candidate{Name: n, Why: "a similar name"})
		}
	case names == nil: // by id: who bears what name does not matter
	case len(names) == 0:
		r.Why = "the mesh has none"
	default:
		r.Why = "the mesh has " + quoteList(names)
	}
	return r
}

// Nearest lists up to most of the names that somebody who wrote text may have
// meant, the nearest first.
func Nearest(text string, names []string, most int) []string {
	text = strings.ToLower(clip(text))
	type scored struct {
		name string
		d    int
	}
	var near []scored
	for _, n := range names {
		d := levenshtein.ComputeDistance(text, n)
		if d <= 1+len(n)/4 || len(text) >= 3 && strings.Contains(n, text) {
			near = append(near, scored{n, d})
		}
	}
	slices.SortStableFunc(near, func(a, b scored) int {
		if a.d != b.d {
			return a.d - b.d
		}
		return strings.Compare(a.name, b.name)
	})
	out := make([]string, 0, most)
	for i := 0; i < len(near) && i < most; i++ {
		out = append(out, near[i].name)
	}
	return out
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return quoteList(names)
}

// clip shortens what somebody wrote for a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

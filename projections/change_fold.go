package projections

import (
	"bytes"
	"slices"

	"bindery/events"
)

// ChangeFold folds commands and says what each changed. It has one owner at a
// time, and keeps one state: to see the documents as they were, it takes a command
// back and folds it once more.
type ChangeFold struct {
	s      *State
	filter DocumentFilter
	// Bindings that what their documents tell of may not lead to (State.Aside);
	// nil until somebody wants changes.
	aside map[BindingRef]bool
}

// NewChangeFold is the fold before the first event. It says what is of interest to
// the filter.
func NewChangeFold(filter DocumentFilter) *ChangeFold {
	return &ChangeFold{s: New(), filter: filter}
}

// State is the state now; only the fold changes it.
func (f *ChangeFold) State() *State { return f.s }

// Skip folds a command whose changes nobody wants.
func (f *ChangeFold) Skip(group []events.Event) error {
	f.aside = nil
	return f.s.ApplyCommand(group)
}

// Documents makes the documents there are, by id of their bindings.
func (f *ChangeFold) Documents() []BindingDocument {
	var out []BindingDocument
	for i := 1; i <= f.s.BindingCount(); i++ {
		if d := f.document(BindingRef(i)); f.filter.Keeps(d) {
			out = append(out, *d)
		}
	}
	slices.SortFunc(out, func(x, y BindingDocument) int { return bytes.Compare(x.ID[:], y.ID[:]) })
	return out
}

func (f *ChangeFold) document(r BindingRef) *BindingDocument {
	if !f.s.HasDocument(r) {
		return nil
	}
	d := f.s.BindingDocument(r)
	return &d
}

// touched is a binding that a command may have changed.
type touched struct {
	id            events.ID
	ref           BindingRef
	cause         int   // the event that led to it; one about the binding itself where there is any
	own           []int // the events about it
	before, after *BindingDocument
}

// Apply folds a command, whole, and returns what it changed: by id of the binding,
// and for each in the order of ChangeKinds. The error is a *FoldError.
func (f *ChangeFold) Apply(group []events.Event) ([]Change, error) {
	f.findAside()
	m := f.s.Begin()
	if err := f.s.ApplyCommand(group); err != nil {
		f.s.Rollback(m)
		f.s.Commit()
		return nil, err
	}
	all := f.touched(group)
	if len(all) == 0 {
		f.s.Commit()
		return nil, nil
	}
	for _, t := range all {
		t.after = f.document(t.ref)
	}
	f.s.Rollback(m)
	for _, t := range all {
		if int(t.ref) <= f.s.BindingCount() {
			t.before = f.document(t.ref)
		}
	}
	f.s.Commit()
	if err := f.s.ApplyCommand(group); err != nil {
		return nil, err // it was folded a moment ago
	}
	var out []Change
	for _, t := range all {
		if f.s.Aside(t.ref) {
			f.aside[t.ref] = true
		} else {
			delete(f.aside, t.ref)
		}
		out = append(out, f.changes(t, group)...)
	}
	return out, nil
}

// findAside begins to keep whom nothing leads to.
func (f *ChangeFold) findAside() {
	if f.aside != nil {
		return
	}
	f.aside = map[BindingRef]bool{}
	for i := 1; i <= f.s.BindingCount(); i++ {
		if r := BindingRef(i); f.s.Aside(r) {
			f.aside[r] = true
		}
	}
}

// touched lists whom a command that is folded may have changed, by id.
func (f *ChangeFold) touched(group []events.Event) []*touched {
	found := map[BindingRef]*touched{}
	for i := range group {
		e := &group[i]
		add := func(r BindingRef) {
			t := found[r]
			if t == nil {
				t = &touched{id: f.s.Binding(r).ID, ref: r, cause: i}
				found[r] = t
			}
			switch {
			case e.Entity == t.id:
				t.cause, t.own = i, append(t.own, i)
			case len(t.own) == 0:
				t.cause = i
			}
		}
		if f.s.Affected(e, add) {
			for r := range f.aside {
				add(r)
			}
		}
	}
	out := make([]*touched, 0, len(found))
	for _, t := range found {
		out = append(out, t)
	}
	slices.SortFunc(out, func(x, y *touched) int { return bytes.Compare(x.id[:], y.id[:]) })
	return out
}

// changes says what a command that is folded did to one binding.
func (f *ChangeFold) changes(t *touched, group []events.Event) []Change {
	last := &group[len(group)-1]
	o := Occasion{Stamp: f.s.Stamp(), Time: last.Time.UTC()}
	o.by(&group[t.cause])
	out := Changes(t.before, t.after, &o)
	for _, i := range t.own {
		if c, ok := f.event(t, &group[i], &o); ok && !told(out, &c) {
			out = append(out, c)
		}
	}
	out = ordered(out)
	if f.filter.Keeps(t.before) || f.filter.Keeps(t.after) {
		return out
	}
	return slices.DeleteFunc(out, func(c Change) bool { return !f.filter.keepsChange(&c) })
}

func (o *Occasion) by(e *events.Event) {
	o.Cause, o.Actor, o.Reason, o.Command = e.Type, e.Actor, e.Reason, e.Command
}

// told reports whether changes tell of one already.
func told(all []Change, c *Change) bool {
	return slices.ContainsFunc(all, func(o Change) bool {
		return o.Kind == c.Kind && (c.Generation == 0 || o.Generation == c.Generation)
	})
}

// event is the change that an event about a binding says by itself. Documents do
// not show all of them: a credential that is not in use is in none.
func (f *ChangeFold) event(t *touched, e *events.Event, o *Occasion) (Change, bool) {
	own := *o
	own.by(e)
	c := f.change(t, &own)
	switch p := e.Data.(type) {
	case *events.BindingBound:
		c.Kind, c.To = ChangeBound, f.s.TargetName(p.Target)
	case *events.BindingRebound:
		c.Kind, c.From, c.To = ChangeRebound, f.s.TargetName(p.From), f.s.TargetName(p.To)
	case *events.BindingReleased:
		c.Kind, c.From = ChangeReleased, f.s.TargetName(p.From)
	case *events.BindingApplied:
		c.Kind = ChangeApplied
	case *events.BindingFailed:
		c.Kind, c.To = ChangeFailed, e.Reason
	case *events.CredentialRequested:
		f.credential(&c, ChangeRequested, t.ref, e.Seq)
	case *events.CredentialIssued:
		f.credential(&c, ChangeIssued, t.ref, p.Generation)
	case *events.CredentialFailed:
		f.credential(&c, ChangeIssueFailed, t.ref, p.Generation)
	case *events.CredentialRevoked:
		f.credential(&c, ChangeRevoked, t.ref, p.Generation)
	case *events.CredentialWrittenOff:
		f.credential(&c, ChangeWrittenOff, t.ref, p.Generation)
	default:
		return c, false
	}
	return c, true
}

// change is a change of a binding, which may have no document.
func (f *ChangeFold) change(t *touched, o *Occasion) Change {
	b := f.s.Binding(t.ref)
	a := f.s.Assignment(b.Assignment)
	node := f.s.Node(a.Node)
	c := Change{Seq: o.At, Time: o.Time, Chain: o.Chain, Mesh: o.Mesh, MeshID: o.MeshID,
		Binding: b.ID, Assignment: a.Name, AssignmentID: a.ID, Slot: f.s.SlotName(b), Node: node.Name, NodeID: node.ID, Document: t.after}
	c.because(o)
	c.Embedded = b.Embedded
	if b.Provider != 0 {
		f.server(&c, b.Provider)
	}
	return c
}

func (f *ChangeFold) server(c *Change, r ProviderRef) {
	p := f.s.Provider(r)
	id := p.ID
	c.Provider, c.ProviderID = p.Name, &id
}

// credential makes c about a credential of a binding.
func (f *ChangeFold) credential(c *Change, kind ChangeKind, r BindingRef, generation uint64) {
	c.Kind, c.Generation = kind, generation
	ref := f.s.CredentialOf(r, generation)
	if ref == 0 {
		return // the fold has refused the event
	}
	p := f.s.Credential(ref).Provider
	c.Provider, c.ProviderID, c.Embedded = "", nil, p == 0
	if p != 0 {
		f.server(c, p)
	}
}

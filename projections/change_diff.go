package projections

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"bindery/events"
)

// Changes says what became different for a binding between two of its documents,
// at least one thing where anything but their stamps differs. nil is no document.
func Changes(before, after *BindingDocument, o *Occasion) []Change {
	d := comparison{before: before, after: after, o: o}
	switch {
	case before == nil && after == nil:
		return nil
	case before == nil:
		d.appeared()
	case after == nil && o.Narrow:
		d.decided(ChangeGone)
	case after == nil:
		d.decided(ChangeEnded)
	default:
		d.compare()
	}
	return ordered(d.out)
}

// ordered puts the changes of one binding in the order in which they are told.
func ordered(cs []Change) []Change {
	slices.SortStableFunc(cs, func(x, y Change) int { return cmp.Compare(x.Kind.rank(), y.Kind.rank()) })
	return cs
}

// comparison is one run of Changes.
type comparison struct {
	before, after *BindingDocument
	o             *Occasion
	out           []Change
}

// site is something that serves a slot, as one of the two parts of a document has
// it.
type site struct {
	id                            *events.ID
	embedded                      bool
	name, node, endpoint, version string
}

func (d *BindingDocument) decidedSite() site {
	return site{id: d.ProviderID, embedded: d.Embedded != nil, name: d.Provider, node: d.ProviderNode, endpoint: d.Endpoint}
}

func (u *UseView) site() site {
	return site{id: u.ProviderID, embedded: u.Embedded, name: u.Provider, node: u.Node, endpoint: u.Endpoint, version: u.Version}
}

// is reports whether two are the same server.
func (s site) is(o site) bool {
	if s.id == nil || o.id == nil {
		return s.id == o.id && s.embedded == o.embedded
	}
	return *s.id == *o.id
}

// none reports whether nothing serves.
func (s site) none() bool { return s.id == nil && !s.embedded }

// called is its name for people.
func (s site) called() string {
	if s.embedded {
		return "embedded"
	}
	return s.name
}

// newChange is a change of the binding that a document is of, without its kind.
func newChange(d *BindingDocument, o *Occasion) Change {
	c := Change{Seq: o.At, Time: o.Time, Chain: o.Chain, Mesh: o.Mesh, MeshID: o.MeshID,
		Binding: *d.ID, Assignment: d.Assignment, AssignmentID: d.AssignmentID, Slot: d.Slot, Node: d.Node, NodeID: d.NodeID}
	c.because(o)
	return c
}

// because notes what caused a change.
func (c *Change) because(o *Occasion) {
	c.Actor, c.Reason = o.Actor, o.Reason
	if o.Cause != (events.Type{}) {
		command := o.Command
		c.Cause, c.Command = o.Cause.Short(), &command
	}
}

// about makes a change about a server. What is added may be completed.
func (d *comparison) about(kind ChangeKind, s site) *Change {
	doc := d.after
	if doc == nil {
		doc = d.before
	}
	c := newChange(doc, d.o)
	c.Kind, c.Provider, c.ProviderID, c.Embedded, c.Document = kind, s.name, s.id, s.embedded, d.after
	d.out = append(d.out, c)
	return &d.out[len(d.out)-1]
}

// decided makes a change about what is decided.
func (d *comparison) decided(kind ChangeKind) *Change {
	if d.after == nil {
		return d.about(kind, d.before.decidedSite())
	}
	return d.about(kind, d.after.decidedSite())
}

// appeared tells of a document where none was.
func (d *comparison) appeared() {
	a := d.after
	switch {
	case d.o.Narrow && a.Rule != "" && a.ChangedSeq > a.Seq:
		// What is new is as it was decided. This was somewhere before.
		d.decided(ChangeMoved).To = a.Node
		return
	case a.Released:
		d.decided(ChangeReleased)
		return
	case a.Rule == "":
		d.decided(ChangePending)
		return
	}
	d.decided(ChangeBound).To = a.decidedSite().called()
	d.before = &BindingDocument{}
	d.credentials()
}

func (d *comparison) compare() {
	b, a := d.before, d.after
	from, to := b.decidedSite(), a.decidedSite()
	switch {
	case a.Released:
		if !b.Released {
			d.about(ChangeReleased, from).From = from.called()
		}
	case from.none() && !to.none():
		d.decided(ChangeBound).To = to.called()
	case to.none() && !from.none():
		d.decided(ChangePending).From = from.called()
	case !from.is(to):
		c := d.decided(ChangeRebound)
		c.From, c.To = from.called(), to.called()
	case a.Rule != b.Rule:
		c := d.decided(ChangeDecided)
		c.From, c.To = string(b.Rule), string(a.Rule)
	}
	if a.NodeID != b.NodeID {
		c := d.decided(ChangeMoved)
		c.From, c.To = b.Node, a.Node
	} else if a.Node != b.Node {
		d.renamed(OfNode, to, b.Node, a.Node)
	}
	if a.Assignment != b.Assignment {
		d.renamed(OfAssignment, to, b.Assignment, a.Assignment)
	}
	if a.Module != b.Module || a.Optional != b.Optional || from.is(to) && (a.Provision != b.Provision || !a.Embedded.same(b.Embedded)) {
		d.decided(ChangeRedeclared)
	}
	d.site(b.Use.site(), a.Use.site())
	from.version, to.version = "", "" // of what is decided the document does not say it
	d.site(from, to)
	d.credentials()
	if a.AppliedSeq != b.AppliedSeq {
		d.about(ChangeApplied, a.Use.site()).Generation = a.Use.Generation
	}
	if a.Error != "" && (a.Error != b.Error || a.Attempts != b.Attempts) {
		c := d.about(ChangeFailed, a.Use.site())
		c.Generation, c.To = a.Use.Generation, a.Error
	}
	if was, is := trouble(b.Flags), trouble(a.Flags); was != is {
		c := d.decided(ChangeFlagged)
		c.From, c.To = was, is
	}
	if len(d.out) == 0 && differ(b, a) {
		d.decided(ChangeOther)
	}
}

// differ reports whether two documents differ in more than their stamps.
func differ(b, a *BindingDocument) bool {
	x, y := *b, *a
	x.Stamp, y.Stamp = Stamp{}, Stamp{}
	x.Embedded, y.Embedded = nil, nil
	return !a.Embedded.same(b.Embedded) || !reflect.DeepEqual(x, y)
}

// same reports whether two say the same; nil is no instance.
func (v *EmbeddedView) same(o *EmbeddedView) bool {
	if v == nil || o == nil {
		return v == o
	}
	return v.Version == o.Version && v.Because == o.Because && v.Replaceable == o.Replaceable && slices.Equal(v.Features, o.Features)
}

// trouble lists the flags that no other kind of change tells of.
func trouble(flags []Flag) string {
	var out []string
	for _, f := range flags {
		switch f {
		case FlagDrift, FlagUnsatisfied, FlagStranded, FlagCutOff:
			out = append(out, string(f))
		}
	}
	return strings.Join(out, ",")
}

func (d *comparison) renamed(of string, s site, from, to string) {
	for i := range d.out {
		if o := &d.out[i]; o.Kind == ChangeRenamed && o.Of == of && o.From == from {
			return // what is decided and what it runs with are the same
		}
	}
	c := d.about(ChangeRenamed, s)
	c.Of, c.From, c.To = of, from, to
}

// site tells what became different of a server that is the same one.
func (d *comparison) site(b, a site) {
	if a.none() || !a.is(b) {
		return
	}
	if a.name != b.name {
		d.renamed(OfProvider, a, b.name, a.name)
	}
	switch {
	case a.embedded || a.node == b.node && a.endpoint == b.endpoint:
	case a.node == b.node:
		d.once(ChangeEndpoint, a, b.endpoint, a.endpoint)
	case d.relocated(b, a):
		d.once(ChangeRelocated, a, b.node, a.node)
	default:
		d.renamed(OfNode, a, b.node, a.node)
	}
	if a.version != b.version {
		d.once(ChangeUpdated, a, b.version, a.version)
	}
}

// relocated tells a provider on another node from one whose node has another
// name: a document has only the name. Only what moves is to be followed.
func (d *comparison) relocated(b, a site) bool {
	switch {
	case d.o.Cause == (&events.ProviderRelocated{}).EventType(), a.endpoint != b.endpoint:
		return true
	case d.o.Cause != (events.Type{}) && d.o.Cause.Entity == events.EntityNode:
		return false
	}
	return d.after.ChangedSeq != d.before.ChangedSeq
}

// once adds a change of a server that may be both decided and run with.
func (d *comparison) once(kind ChangeKind, s site, from, to string) {
	for i := range d.out {
		if o := &d.out[i]; o.Kind == kind && o.ProviderID != nil && s.id != nil && *o.ProviderID == *s.id {
			return
		}
	}
	c := d.about(kind, s)
	c.From, c.To = from, to
}

// open is the generation that is asked for, 0 for none.
func (d *BindingDocument) open() uint64 {
	if d.Generation == d.Use.Generation {
		return 0
	}
	return d.Generation
}

// credentials tells what became of asks, and of what the consumer is to run with.
func (d *comparison) credentials() {
	b, a := d.before, d.after
	was, is := b.open(), a.open()
	if is != 0 && is != was {
		c := d.decided(ChangeRequested)
		c.Generation, c.FromGeneration = is, was
	}
	if was != 0 && is == 0 && a.Use.Generation != was {
		d.about(ChangeWithdrawn, b.decidedSite()).Generation = was
	}
	use, used := a.Use.site(), b.Use.site()
	if g := a.Use.Generation; g != 0 && g != b.Use.Generation {
		d.about(ChangeIssued, use).Generation = g
	}
	if !use.is(used) || a.Use.Generation != b.Use.Generation {
		c := d.about(ChangeSwitched, use)
		c.From, c.To, c.Generation, c.FromGeneration = used.called(), use.called(), a.Use.Generation, b.Use.Generation
	}
}

// ChangedSince is the change of a document that is there, where nobody knows what
// it was before.
func ChangedSince(d *BindingDocument, o *Occasion) Change {
	c := comparison{after: d, o: o}
	return *c.decided(ChangeOther)
}

// Present tells of a document that is there, as a change is told.
func Present(d *BindingDocument) Change {
	c := comparison{after: d, o: &Occasion{Stamp: d.Stamp}}
	return *c.decided(ChangePresent)
}

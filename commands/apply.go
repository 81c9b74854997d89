package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

// ApplyManifest makes the mesh what a manifest says, as far as nobody has said
// otherwise since the last one. It compares three values of each field: the
// manifest's, the ledger's, and the last that came from a manifest. It never
// rebinds a slot unless Rebind is set, and removes nothing.
//
// What does not fit one batch is a series: each part is a legal state, and
// Effect.More says that another is due.
type ApplyManifest struct {
	Manifest *manifest.Manifest `json:"manifest"`
	Rebind   bool               `json:"rebind,omitempty"`
	TakeOver bool               `json:"take_over,omitempty"` // where both changed, the manifest wins
	Atomic   bool               `json:"atomic,omitempty"`    // one batch or nothing
	Part     int                `json:"part,omitempty"`
}

// Verb implements Command.
func (ApplyManifest) Verb() string { return "apply" }

// What apply did with an object.
const (
	Created     = "created"
	Changed     = "changed"
	Unchanged   = "unchanged"
	Kept        = "kept"
	NeedsRebind = "needs --rebind"
	NeedsPrune  = "needs --prune"
)

// results orders the outcomes of an object's fields: the last one names it.
var results = []string{Unchanged, Kept, Changed, Created, NeedsPrune, NeedsRebind}

// Decide implements Command.
func (c ApplyManifest) Decide(t *Tx) error {
	if c.Manifest == nil {
		return refuse(Usage, "there is no manifest to apply", "", "bindery apply -f FILE")
	}
	if m := c.Manifest.Mesh; m != "" && m != t.Mesh.Name {
		return refuse(WrongMesh, "the manifest is of mesh "+clip(m), "this is the ledger of mesh "+t.Mesh.Name, "bindery status")
	}
	t.origin = events.OriginManifest
	if c.Part == 0 {
		// All of it is decided first, so that what would be refused in a later
		// part is refused before the first is written.
		mark, whole := t.Mark(), &applier{Tx: t, c: c, limit: maxWhole}
		if err := whole.run(); err != nil {
			return err
		}
		if len(t.events) <= t.limit {
			return whole.end()
		}
		if c.Atomic {
			return refuse(TooLarge, "the manifest does not fit one batch",
				fmt.Sprintf("it would write %d events, and %d fit", len(t.events), t.limit), "bindery apply -f FILE without --atomic")
		}
		t.Rollback(mark)
		t.events, t.objects, t.warnings = nil, nil, nil
	}
	part := &applier{Tx: t, c: c, limit: t.limit}
	if err := part.run(); err != nil {
		return err
	}
	return part.end()
}

// maxWhole bounds what one manifest may write in all.
const maxWhole = 10_000_000

type applier struct {
	*Tx
	c         ApplyManifest
	limit     int
	full      bool // this part takes no more
	conflicts []Candidate
}

// section is the objects of one kind, in the order in which they depend on
// each other.
type section struct {
	names []string
	apply func(name string) error
}

func (a *applier) run() error {
	m := a.c.Manifest
	if err := a.moved(); err != nil {
		return err
	}
	defaults := make([]string, len(m.Defaults))
	for i := range defaults {
		defaults[i] = strconv.Itoa(i)
	}
	nodes := slices.Clone(m.Nodes)
	slices.Sort(nodes)
	for _, s := range []section{
		{sortedKeys(m.Provisions), a.provision},
		{nodes, a.node},
		{sortedKeys(m.Providers), a.provider},
		{defaults, a.defaultOf},
		{sortedKeys(m.Modules), a.module},
		{sortedKeys(m.Assignments), a.assignment},
		{overrideSlots(m), a.override},
	} {
		for _, name := range s.names {
			if a.full {
				return nil
			}
			if err := a.object(name, s.apply); err != nil {
				return err
			}
		}
	}
	return nil
}

// object applies one object whole, or leaves it to the next part.
func (a *applier) object(name string, apply func(string) error) error {
	mark, n, o, w := a.Mark(), len(a.events), len(a.objects), len(a.warnings)
	if err := apply(name); err != nil {
		return err
	}
	if len(a.events) > a.limit && n > 0 {
		a.Rollback(mark)
		a.events, a.objects, a.warnings = a.events[:n], a.objects[:o], a.warnings[:w]
		a.full = true
	}
	return nil
}

func (a *applier) end() error {
	if len(a.conflicts) > 0 {
		r := refuse(ManifestConflict, count(len(a.conflicts), "field")+" changed both in the manifest and in the ledger",
			"since the last manifest; --take-over lets the manifest win", "bindery apply -f FILE --take-over")
		r.Candidates = a.conflicts
		return r
	}
	a.more = a.full
	return nil
}

// moved refuses names that a live entity bore before: an old manifest must not
// make a twin of what was renamed.
func (a *applier) moved() error {
	if a.c.TakeOver {
		return nil
	}
	m := a.c.Manifest
	r := refuse(NameMoved, "the manifest uses names that moved", "what bore them was renamed; write the new names, or --take-over to use the names anew", "")
	check := func(entity events.Entity, name string) {
		if name == "" {
			return
		}
		if b := a.FormerBearer(entity, name); b.Name != "" {
			id := b.ID
			c := Candidate{Name: name, ID: &id, Why: fmt.Sprintf("the %s is called %s now", entity, b.Name)}
			if !slices.ContainsFunc(r.Candidates, func(o Candidate) bool { return o.Name == c.Name && o.Why == c.Why }) {
				r.Candidates = append(r.Candidates, c)
			}
		}
	}
	for _, n := range m.Nodes {
		check(events.EntityNode, n)
	}
	for _, name := range sortedKeys(m.Providers) {
		check(events.EntityProvider, name)
		check(events.EntityNode, m.Providers[name].Node)
	}
	for _, d := range m.Defaults {
		check(events.EntityProvider, d.Provider)
		check(events.EntityNode, d.Node)
	}
	for _, name := range sortedKeys(m.Modules) {
		for _, slot := range sortedKeys(m.Modules[name].Requires) {
			check(events.EntityProvider, m.Modules[name].Requires[slot].Provider)
		}
	}
	for _, name := range sortedKeys(m.Assignments) {
		check(events.EntityAssignment, name)
		check(events.EntityNode, m.Assignments[name].Node)
		for _, slot := range sortedKeys(m.Assignments[name].Bind) {
			check(events.EntityProvider, m.Assignments[name].Bind[slot])
		}
	}
	for _, o := range m.Overrides {
		name, _, _ := strings.Cut(o.Slot, "/")
		check(events.EntityAssignment, name)
		check(events.EntityProvider, o.Provider)
	}
	if len(r.Candidates) == 0 {
		return nil
	}
	first := r.Candidates[0]
	r.Fix = "write " + strings.TrimPrefix(first.Why[strings.Index(first.Why, "called "):], "called ") + " for " + first.Name + " in the manifest"
	return r
}

// fields collects what became of an object's fields.
type fields struct {
	a      *applier
	object string
	result int
	detail []string
}

func (a *applier) fields(object string) *fields { return &fields{a: a, object: object} }

func (f *fields) note(result, format string, args ...any) {
	f.result = max(f.result, slices.Index(results, result))
	if format != "" {
		f.detail = append(f.detail, fmt.Sprintf(format, args...))
	}
}

func (f *fields) done() {
	f.a.objects = append(f.a.objects, Object{f.object, results[f.result], strings.Join(f.detail, "; ")})
}

// differs compares the three values of a field and reports whether the
// manifest's is to be written. show turns a value into what people read.
func (f *fields) differs(field, want, have string, base projections.Base, show func(string) string) bool {
	if want == have {
		return false
	}
	if show == nil {
		show = orEmpty
	}
	switch {
	case f.a.c.TakeOver || base.Known && base.Value == have:
		f.note(Changed, "%s %s → %s", field, show(have), show(want))
		return true
	case base.Known && base.Value == want:
		f.note(Kept, "%s %s (by %s, sequence %d)", field, show(have), base.By, base.Seq)
		return false
	}
	why := fmt.Sprintf("%s: manifest %s, ledger %s", field, show(want), show(have))
	if base.Known {
		why += fmt.Sprintf(" (by %s, sequence %d; last manifest %s)", base.By, base.Seq, show(base.Value))
	} else {
		why += " (never from a manifest)"
	}
	f.a.conflicts = append(f.a.conflicts, Candidate{Name: f.object, Why: why})
	return false
}

func orEmpty(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// nameOf shows an id as a name.
func (a *applier) nameOf(text string) string {
	id, err := events.ParseID(text)
	if err != nil {
		return orEmpty(text)
	}
	return a.NameOf(id)
}

func (a *applier) provision(name string) error {
	f, want := a.fields("provision "+name), a.c.Manifest.Provisions[name]
	r := a.ProvisionNamed(name)
	if r == 0 {
		f.note(Created, "")
		f.done()
		return DefineProvision{Name: name, Scope: events.Scope(want.Scope), Credentials: events.Credentials(want.Credentials)}.Decide(a.Tx)
	}
	p := a.Provision(r)
	if want.Credentials != "" && events.Credentials(want.Credentials) != p.Credentials {
		return DefineProvision{Name: name, Scope: p.Scope, Credentials: events.Credentials(want.Credentials)}.Decide(a.Tx)
	}
	if f.differs("scope", want.Scope, string(p.Scope), a.BaseOfProvision(p, projections.FieldScope, string(p.Scope)), nil) {
		if err := (RescopeProvision{Provision: name, Scope: events.Scope(want.Scope)}).Decide(a.Tx); err != nil {
			return err
		}
	}
	f.done()
	return nil
}

func (a *applier) node(name string) error {
	f := a.fields("node " + name)
	defer f.done()
	if a.NodeNamed(name) != 0 {
		return nil
	}
	f.note(Created, "")
	return RegisterNode{Name: name}.Decide(a.Tx)
}

func (a *applier) provider(name string) error {
	f, want := a.fields("provider "+name), a.c.Manifest.Providers[name]
	defer f.done()
	r := a.ProviderNamed(name)
	if r == 0 {
		f.note(Created, "%s on %s", want.Provision, want.Node)
		return RegisterProvider{Name: name, Provision: want.Provision, Node: want.Node, Endpoint: want.Endpoint,
			Version: want.Version, Features: want.Features, Cordoned: want.Cordoned}.Decide(a.Tx)
	}
	p := a.Provider(r)
	provision, err := Finder{a.State}.Provision(want.Provision)
	if err != nil {
		return err
	}
	if provision != p.Provision {
		return refuse(WrongProvision, "provider "+name+" cannot change its provision",
			fmt.Sprintf("it provides %s, the manifest says %s", a.Provision(p.Provision).Name, want.Provision),
			"bindery provider register NEW-NAME --provision "+want.Provision+" --node "+want.Node+" --endpoint "+want.Endpoint)
	}
	return a.providerFields(f, p, want)
}

func (a *applier) providerFields(f *fields, p *projections.Provider, want manifest.Provider) error {
	node, err := a.liveNode(want.Node)
	if err != nil {
		return err
	}
	has := func(field, present string) projections.Base { return a.BaseOfProvider(p, field, present) }
	nodeID, here := a.Node(node).ID.String(), a.Node(p.Node).ID.String()
	moves := f.differs("node", nodeID, here, has(projections.FieldNode, here), a.nameOf)
	u := UpdateProvider{Provider: p.Name}
	endpoint := p.Endpoint
	if f.differs("endpoint", want.Endpoint, p.Endpoint, has(projections.FieldEndpoint, p.Endpoint), nil) {
		endpoint = want.Endpoint
		u.Endpoint = &endpoint
	}
	if moves {
		u.Endpoint = nil
		if err := (RelocateProvider{Provider: p.Name, To: want.Node, Endpoint: endpoint}).Decide(a.Tx); err != nil {
			return err
		}
	}
	if want.Version != "" && f.differs("version", want.Version, p.Version, has(projections.FieldVersion, p.Version), nil) {
		u.Version = &want.Version
	}
	features := events.SortFeatures(want.Features)
	if want.Features != nil && f.differs("features", projections.FeaturesText(features), projections.FeaturesText(p.Features),
		has(projections.FieldFeatures, projections.FeaturesText(p.Features)), nil) {
		u.Features = &features
	}
	if u.Endpoint != nil || u.Version != nil || u.Features != nil {
		if err := u.Decide(a.Tx); err != nil {
			return err
		}
	}
	return a.providerState(f, p, want.Cordoned)
}

// providerState compares whether a provider is cordoned. A manifest that never
// said so does not uncordon what an operator has cordoned.
func (a *applier) providerState(f *fields, p *projections.Provider, want bool) error {
	have := p.State == projections.Cordoned
	base := a.BaseOfProvider(p, projections.FieldCordoned, strconv.FormatBool(have))
	if !want && !base.Known {
		return nil
	}
	if !f.differs("cordoned", strconv.FormatBool(want), strconv.FormatBool(have), base, nil) {
		return nil
	}
	if want {
		return CordonProvider{Provider: p.Name}.Decide(a.Tx)
	}
	return UncordonProvider{Provider: p.Name}.Decide(a.Tx)
}

func (a *applier) defaultOf(index string) error {
	i, err := strconv.Atoi(index)
	if err != nil {
		return err
	}
	want := a.c.Manifest.Defaults[i]
	object := "default of " + want.Provision
	if want.Node != "" {
		object += " on " + want.Node
	}
	f := a.fields(object)
	defer f.done()
	find := Finder{a.State}
	pr, err := find.Provision(want.Provision)
	if err != nil {
		return err
	}
	provider, err := find.Provider(want.Provider)
	if err != nil {
		return err
	}
	var node projections.NodeRef
	p := a.Provision(pr)
	have := p.Default
	if want.Node != "" {
		if node, err = a.liveNode(want.Node); err != nil {
			return err
		}
		have = p.NodeDefaults[node]
	}
	base := a.BaseOfDefault(p, node)
	id, now := a.Provider(provider).ID.String(), ""
	if have.Provider != 0 {
		now = a.Provider(have.Provider).ID.String()
	}
	if now == "" && !base.Known {
		f.note(Created, "%s", want.Provider)
	} else if !f.differs("provider", id, now, base, a.nameOf) {
		return nil
	}
	return SetDefault{Provision: want.Provision, Provider: want.Provider, Node: want.Node}.Decide(a.Tx)
}

func (a *applier) module(name string) error {
	f := a.fields("module " + name)
	defer f.done()
	c := DeclareModule{Name: name, Module: a.c.Manifest.Modules[name]}
	r := a.ModuleNamed(name)
	if r == 0 {
		f.note(Created, "%s", count(len(c.Requires)+len(c.Embeds), "slot"))
		return c.Decide(a.Tx)
	}
	p, err := c.payload(a.Tx)
	if err != nil {
		return err
	}
	m := a.Module(r)
	show := func(text string) string {
		return "declaration of " + strconv.Itoa(len(text)) + " bytes"
	}
	have, want := projections.DeclText(m.Decl), projections.DeclText(p)
	if !f.differs("declaration", want, have, a.BaseOfModule(m), show) {
		return nil
	}
	f.detail = []string{"declared anew"}
	return c.Decide(a.Tx)
}

func (a *applier) assignment(name string) error {
	f, want := a.fields("assignment "+name), a.c.Manifest.Assignments[name]
	defer f.done()
	if want.Module == "" {
		want.Module = name
	}
	r := a.AssignmentNamed(name)
	if r == 0 {
		f.note(Created, "%s on %s", want.Module, want.Node)
		if err := (CreateAssignment{Module: want.Module, Node: want.Node, Name: name, Bind: want.Bind}).Decide(a.Tx); err != nil {
			return err
		}
		return a.overridesOf(name)
	}
	as := a.Assignment(r)
	if m := a.Module(as.Module); m.Name != want.Module {
		return refuse(NameTaken, "assignment "+name+" cannot change its module",
			fmt.Sprintf("it is of %s, the manifest says %s", m.Name, want.Module), "bindery assignment end "+name)
	}
	return a.assignmentFields(f, r, want)
}

func (a *applier) assignmentFields(f *fields, r projections.AssignmentRef, want manifest.Assignment) error {
	as := a.Assignment(r)
	node, err := a.liveNode(want.Node)
	if err != nil {
		return err
	}
	to, here := a.Node(node).ID.String(), a.Node(as.Node).ID.String()
	if f.differs("node", to, here, a.BaseOfAssignment(as, projections.FieldNode, here), a.nameOf) {
		if err := (MoveAssignment{Assignment: as.Name, To: want.Node}).Decide(a.Tx); err != nil {
			return err
		}
	}
	for _, slot := range sortedKeys(want.Bind) {
		if err := a.choice(f, r, slot, want.Bind[slot]); err != nil {
			return err
		}
	}
	if a.c.Rebind {
		n := len(a.events)
		if err := (ResolveAssignment{Assignment: as.Name, Rebind: true}).Decide(a.Tx); err != nil {
			return err
		}
		if len(a.events) > n {
			f.note(Changed, "%s rebound", count(len(a.events)-n, "slot"))
		}
	}
	for _, v := range a.BindingViews(as) {
		if hasFlag(v.Flags, projections.FlagDrift) {
			if a.Module(as.Module).Slot(v.Slot) == nil {
				f.note(NeedsPrune, "%s is declared no longer", v.Slot)
			} else {
				f.note(NeedsRebind, "%s is bound to %s", v.Slot, orEmpty(v.Provider))
			}
		}
	}
	return nil
}

// choice compares one slot's choice; it does not rebind.
func (a *applier) choice(f *fields, r projections.AssignmentRef, slot, provider string) error {
	as := a.Assignment(r)
	found, err := a.liveSlot(as.Name + "/" + slot)
	if err != nil {
		return err
	}
	if err := a.canChoose(as.Name+"/"+slot, found.Decl); err != nil {
		return err
	}
	p, err := Finder{a.State}.Provider(provider)
	if err != nil {
		return err
	}
	have, base := "", projections.Base{}
	if found.Binding != 0 {
		b := a.Binding(found.Binding)
		if base = a.BaseOfChoice(b); b.Choice != 0 {
			have = a.Provider(b.Choice).ID.String()
		}
	}
	if have == "" && !base.Known {
		f.note(Changed, "%s chooses %s", slot, a.Provider(p).Name)
	} else if !f.differs("choice of "+slot, a.Provider(p).ID.String(), have, base, a.nameOf) {
		return nil
	}
	if found.Binding == 0 || a.Binding(found.Binding).Provider != p {
		if code, fault := ineligible(a.State, found.Decl, p); fault != "" {
			l := ladder{s: a.State, n: needOf(a.State, found), provision: a.Provision(found.Decl.Provision)}
			return l.choose(refuse(code, fmt.Sprintf("%s/%s cannot choose %s", as.Name, slot, a.Provider(p).Name), fault, ""))
		}
	}
	return a.choose(found, p)
}

// overrideSlots lists the slots with an override in the manifest.
func overrideSlots(m *manifest.Manifest) []string {
	out := make([]string, len(m.Overrides))
	for i, o := range m.Overrides {
		out[i] = o.Slot
	}
	slices.Sort(out)
	return out
}

// overridesOf sets the overrides of an assignment that is being created: they
// move nothing that anybody runs with.
func (a *applier) overridesOf(assignment string) error {
	for _, slot := range overrideSlots(a.c.Manifest) {
		if name, _, _ := strings.Cut(slot, "/"); name == assignment {
			if err := a.setOverride(a.overrideNamed(slot)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *applier) overrideNamed(slot string) manifest.Override {
	i := slices.IndexFunc(a.c.Manifest.Overrides, func(o manifest.Override) bool { return o.Slot == slot })
	return a.c.Manifest.Overrides[i]
}

func (a *applier) setOverride(o manifest.Override) error {
	if err := a.checkReason(o.Reason); err != nil {
		return err
	}
	reason := a.Reason
	a.Reason = o.Reason
	err := SetOverride{Slot: o.Slot, Provider: o.Provider}.Decide(a.Tx)
	a.Reason = reason
	return err
}

func (a *applier) override(slot string) error {
	f, want := a.fields("override of "+slot), a.overrideNamed(slot)
	defer f.done()
	found, err := a.liveSlot(slot)
	if err != nil {
		return err
	}
	p, err := Finder{a.State}.Provider(want.Provider)
	if err != nil {
		return err
	}
	have, base, bound := "", projections.Base{}, projections.ProviderRef(0)
	if found.Binding != 0 {
		b := a.Binding(found.Binding)
		if base = a.BaseOfOverride(b); b.Override != 0 {
			have = a.Provider(a.Override(b.Override).Provider).ID.String()
		}
		bound = b.Provider
	}
	id := a.Provider(p).ID.String()
	switch {
	case have == id && a.setHere(found.Binding):
		f.note(Created, "%s", want.Provider)
		return nil
	case have == "" && !base.Known:
		f.note(Created, "%s", want.Provider)
	case !f.differs("provider", id, have, base, a.nameOf):
		return nil
	}
	if bound != p && found.Binding != 0 && !a.Binding(found.Binding).Pending() && !a.c.Rebind {
		f.result, f.detail = 0, nil
		f.note(NeedsRebind, "it would move the slot from %s to %s", a.TargetName(a.Target(a.Binding(found.Binding))), want.Provider)
		return nil
	}
	return a.setOverride(want)
}

// setHere reports whether the slot's override was set by this very command.
func (a *applier) setHere(r projections.BindingRef) bool {
	return len(a.events) > 0 && a.Override(a.Binding(r).Override).Seq >= a.events[0].Seq
}

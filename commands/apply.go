package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bindery/commands/manifest"
	"bindery/events"
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
		return refuse(Usage, "there is no manifest to apply", "", do("apply").With("-f", "FILE"))
	}
	if m := c.Manifest.Mesh; m != "" && m != t.Mesh.Name {
		return refuse(WrongMesh, "the manifest is of mesh "+clip(m), "this is the ledger of mesh "+t.Mesh.Name, do("status"))
	}
	t.origin = events.OriginManifest
	if c.Part == 0 {
		// All of it is decided first, so that what would be refused in a later
		// part is refused before the first is written.
		mark, whole := t.Mark(), &applier{Tx: t, c: c, limit: maxWhole}
		if err := whole.run(); err != nil {
			return err
		}
		if err := whole.conflict(); err != nil {
			return err
		}
		if c.Atomic && len(t.events) > MaxEvents { // t.limit is wider in a dry run
			return refuse(TooLarge, "the manifest does not fit one batch",
				fmt.Sprintf("it would write %d events, and %d fit", len(t.events), MaxEvents), again().But("--atomic"))
		}
		if len(t.events) <= t.limit {
			return nil
		}
		t.Rollback(mark)
		t.events, t.objects, t.warnings = nil, nil, nil
	}
	part := &applier{Tx: t, c: c, limit: t.limit}
	if err := part.run(); err != nil {
		return err
	}
	t.more = part.full
	return part.conflict()
}

type applier struct {
	*Tx
	c         ApplyManifest
	limit     int
	full      bool // this part takes no more
	narrowing bool // giving provisions mesh scope
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
	if err := oneDefaultEach(m); err != nil {
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
		{a.cordonedFirst(), a.provider},
		{sortedKeys(m.Provisions), a.narrow},
		{defaults, a.defaultOf},
		{sortedKeys(m.Modules), a.module},
		{sortedKeys(m.Assignments), a.assignment},
		{overrideSlots(m), a.override},
		{loginSlots(m), a.login},
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

// bothNamed reports whether the manifest knows of a rename: it names the former
// bearer by its new name, and the name has another bearer.
func (a *applier) bothNamed(entity events.Entity, name string) bool {
	b, m := a.FormerBearer(entity, name), a.c.Manifest
	switch entity {
	case events.EntityNode:
		return a.NodeNamed(name) != 0 && slices.Contains(m.Nodes, b.Name)
	case events.EntityProvider:
		_, ok := m.Providers[b.Name]
		return ok && a.ProviderNamed(name) != 0
	case events.EntityAssignment:
		_, ok := m.Assignments[b.Name]
		return ok && a.AssignmentNamed(name) != 0
	}
	return false
}

// oneDefaultEach refuses two defaults for one provision and node: none would be
// the one that was meant.
func oneDefaultEach(m *manifest.Manifest) error {
	seen := map[string]string{}
	for _, d := range m.Defaults {
		if other, twice := seen[d.Name()]; twice {
			return refuse(DuplicateDefault, "the manifest has two defaults for "+d.Name(), other+" and "+d.Provider,
				advise("leave one of them")).of("a default for it", []string{other, d.Provider})
		}
		seen[d.Name()] = d.Provider
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

// conflict refuses what changed on both sides.
func (a *applier) conflict() error {
	if len(a.conflicts) == 0 {
		return nil
	}
	r := refuse(ManifestConflict, count(len(a.conflicts), "field")+" changed both in the manifest and in the ledger",
		"since the last manifest; --take-over lets the manifest win", again().With("--take-over"))
	r.Candidates = a.conflicts
	return r
}

// moved refuses names that a live entity bore before: an old manifest must not
// make a twin of what was renamed.
func (a *applier) moved() error {
	m := a.c.Manifest
	r := refuse(NameMoved, "the manifest uses names that moved", "what bore them was renamed; write the new names", Fix{})
	check := func(entity events.Entity, name string) {
		if name == "" || a.bothNamed(entity, name) {
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
	_, now, _ := strings.Cut(strings.TrimSuffix(first.Why, " now"), " is called ")
	r.Fix = advise("write " + now + " for " + first.Name + " in the manifest")
	return r
}

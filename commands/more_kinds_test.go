package commands

import (
	"fmt"
	"strings"
	"testing"

	"bindery/commands/manifest"
	"bindery/events"
)

// Kind: an id that outlives what it meant. What is released, removed or retired
// can be looked at by its id, and nothing can be done to it or with it.
func TestOverByID(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	id := w.view("wiki/db").ID.String()
	w.must(DeclareModule{"wiki", manifest.Module{}}, ResolveAssignment{Assignment: "wiki", Prune: true},
		DeclareModule{"wiki", requires("db", "postgres-database")})
	w.refused(BindingNotFound, RebindSlot{Slot: id, Provider: "pg-beta"})

	w.must(DefineProvision{Name: "amqp", Scope: events.ScopeNode})
	amqp := w.s.Provision(w.s.ProvisionNamed("amqp")).ID.String()
	w.must(RemoveProvision{"amqp"})
	w.refused(ProvisionNotFound, RegisterProvider{Name: "mq", Provision: amqp, Node: "alpha", Endpoint: "mq:1"})
	w.refused(ProvisionNotFound, DeclareModule{"m", requires("q", amqp)})
	w.refused(ProvisionNotFound, RescopeProvision{amqp, events.ScopeMesh})

	beta := w.s.Provider(w.s.ProviderNamed("pg-beta")).ID.String()
	w.must(RetireProvider{Provider: "pg-beta"})
	m := manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database", Provider: beta}}}
	w.refused(ProviderRetired, DeclareModule{"naming", m})
	r := w.refused(ProviderNotFound, CordonProvider{"pg-beta"})
	if r.Candidates[0].ID == nil || r.Candidates[0].ID.String() != beta {
		t.Errorf("the retired one of that name is not cited: %+v", r)
	}
}

// Kind: a rule kept in one step and broken in two. A slot that is bound cannot
// come back as something else.
func TestProvisionChangeInTwoSteps(t *testing.T) {
	w := twoNodes(t)
	w.must(DefineProvision{Name: "s3", Scope: events.ScopeNode}, CreateAssignment{Module: "wiki", Node: "alpha"},
		DeclareModule{"wiki", manifest.Module{}})
	w.refused(SlotInUse, DeclareModule{"wiki", requires("db", "s3")})
	w.must(DeclareModule{"wiki", requires("db", "postgres-database")})
	w.bound("wiki/db", "pg-alpha", events.RuleCoLocated)
	w.must(DeclareModule{"wiki", manifest.Module{}})
	w.because("burnt", RetireProvider{Provider: "pg-alpha", Force: true})
	w.must(RetireProvider{Provider: "pg-beta"})
	w.refused(ProvisionInUse, RemoveProvision{"postgres-database"})
}

// Kind: the message that was to protect a secret repeats it.
func TestNoMessageRepeatsASecret(t *testing.T) {
	const secret = "hunter2222"
	url, assign := "postgres://u:"+secret+"@db.mesh:5432/x", "password="+secret
	seed := "1.0.0-S" + "UA" + strings.Repeat("B7", 27) + "C"
	w := twoNodes(t)
	for _, c := range []Command{
		RegisterNode{assign}, RegisterNode{url}, CordonProvider{url}, RenameNode{"alpha", assign},
		RegisterProvider{Name: "p", Provision: "postgres-database", Node: "alpha", Endpoint: url},
		RegisterProvider{Name: "p", Provision: "postgres-database", Node: "alpha", Endpoint: "a:1", Version: assign},
		RegisterProvider{Name: "p", Provision: url, Node: "alpha", Endpoint: "a:1"},
		RegisterProvider{Name: "p", Provision: "postgres-database", Node: "alpha", Endpoint: "a:1", Features: []string{assign}},
		RegisterProvider{Name: "p", Provision: "postgres-database", Node: "alpha", Endpoint: "a:1", Version: seed},
		DeclareModule{"m", manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database", Version: assign}}}},
		CreateAssignment{Module: url, Node: "alpha"}, CreateAssignment{Module: "wiki", Node: "alpha", Bind: map[string]string{"db": url}},
		CreateAssignment{Module: "wiki", Node: "alpha", Bind: map[string]string{assign: "pg-alpha"}},
		RebindSlot{Slot: "wiki/" + assign, ReResolve: true}, DefineProvision{Name: "x", Scope: events.Scope(assign)},
		ApplyManifest{Manifest: &manifest.Manifest{Mesh: url}},
	} {
		r := w.refused(SecretInLedger, c)
		if text := fmt.Sprintf("%+v", *r); strings.Contains(text, secret) || strings.Contains(text, seed) {
			t.Errorf("%s repeats the secret: %s", c.Verb(), text)
		}
	}
	if _, err := Answer(w.s, ShowProvider{url}, w.now); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a query repeats the secret: %v", err)
	}
}

// Kind: a long work's later step trusts that the first one looked.
func TestDrainStepsLookAgain(t *testing.T) {
	w := twoNodes(t)
	w.must(RegisterProvider{Name: "pg-old", Provision: "postgres-database", Node: "gamma", Endpoint: "gamma.mesh:5432", Version: "13.0"},
		DeclareModule{"modern", manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database", Version: ">=16"}}}},
		CreateAssignment{Module: "modern", Node: "alpha"}, CreateAssignment{Module: "wiki", Node: "beta"})
	// What an override remembers is held against the new provider, too.
	w.because("x", SetOverride{Slot: "modern/db", Provider: "pg-beta"})
	w.refused(VersionUnsatisfied, DrainProvider{Provider: "pg-alpha", To: "pg-old"})
	w.must(ClearOverride{Slot: "modern/db"}, CordonProvider{"pg-alpha"})
	w.refused(VersionUnsatisfied, DrainProvider{Provider: "pg-alpha", To: "pg-old", Step: 1})
	w.must(UncordonProvider{"pg-alpha"})
	w.because("x", SetOverride{Slot: "wiki/db", Provider: "pg-alpha"})
	w.must(CordonProvider{"pg-alpha"})
	w.refused(ReasonRequired, DrainProvider{Provider: "pg-alpha", To: "pg-beta", Step: 1})
}

// A dry run of a series decides all of it.
func TestDryDrain(t *testing.T) {
	w := twoNodes(t)
	for i := range 1200 {
		w.must(CreateAssignment{Module: "wiki", Node: "alpha", Name: fmt.Sprintf("w-%d", i)})
	}
	mark := w.s.Begin()
	env := w.env()
	env.Whole = true
	d, err := Decide(w.s, DrainProvider{Provider: "pg-alpha", To: "pg-beta"}, env)
	if err != nil || len(d.Bindings) != 1200 || d.More {
		t.Fatalf("dry: %d bindings, more %t, %v", len(d.Bindings), d.More, err)
	}
	w.s.Rollback(mark)
	w.s.Commit()
	w.replay()
}

// Kind: a fix that asks for something else than was asked for.
func TestFixKeepsWhatWasAsked(t *testing.T) {
	w := twoNodes(t)
	w.must(DefineProvision{Name: "s3", Scope: events.ScopeNode})
	for _, n := range []string{"s3-a", "s3-b"} {
		w.must(RegisterProvider{Name: n, Provision: "s3", Node: "alpha", Endpoint: n + ":1"})
	}
	w.must(DeclareModule{"two", manifest.Module{Requires: map[string]manifest.Requirement{
		"db": {Provision: "postgres-database"}, "files": {Provision: "s3"}}}})
	r := w.refused(AmbiguousProvider, CreateAssignment{Module: "two", Node: "alpha", Bind: map[string]string{"db": "pg-beta"}})
	if want := "assignment create two --node alpha --name two --bind db=pg-beta --bind files=s3-a"; r.Fix.String() != want {
		t.Errorf("fix: %s, want %s", r.Fix, want)
	}
	w.must(DeclareModule{"pad", manifest.Module{Embeds: map[string]manifest.Embed{"db": {Provision: "postgres-database",
		Because: "fork", Replaceable: true, Needs: &manifest.Needs{Version: ">=17"}}}}}, CreateAssignment{Module: "pad", Node: "alpha"},
		RegisterProvider{Name: "pg-17", Provision: "postgres-database", Node: "gamma", Endpoint: "g:1", Version: "17.0"})
	w.reason = "why"
	r = w.refused(VersionUnsatisfied, SetOverride{Slot: "pad/db", Provider: "pg-alpha"})
	if !strings.HasPrefix(r.Fix.String(), "override set pad/db") || !strings.HasSuffix(r.Fix.String(), "--provider pg-17") {
		t.Errorf("fix: %s", r.Fix)
	}
}

// Kind: an old file brings back what was taken away.
func TestApplyDoesNotResurrect(t *testing.T) {
	w := newWorld(t)
	m := small()
	m.Assignments["chosen"] = manifest.Assignment{Module: "wiki", Node: "beta", Bind: map[string]string{"db": "pg-alpha"}}
	w.must(ApplyManifest{Manifest: m})
	w.drain("pg-alpha", "pg-beta", "")
	w.must(RetireProvider{Provider: "pg-alpha"}, EndAssignment{"wiki"})
	w.applied(ApplyManifest{Manifest: m}, map[string]string{"provider pg-alpha": Kept, "assignment wiki": Kept,
		"default of pg": Kept, "assignment chosen": Kept})
	d := w.must(ApplyManifest{Manifest: m, TakeOver: true})
	if got := outcomes(d); got["provider pg-alpha"] != Created || got["assignment wiki"] != Created {
		t.Errorf("take-over: %v", got)
	}
	w.replay()
}

// --take-over decides what changed on both sides, and only that.
func TestTakeOverLeavesKept(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()}, UpdateProvider{Provider: "pg-alpha", Endpoint: str("alpha.mesh:6432")}, CordonProvider{"pg-beta"})
	d := w.applied(ApplyManifest{Manifest: small(), TakeOver: true}, map[string]string{"provider pg-alpha": Kept, "provider pg-beta": Kept})
	if len(d.Events) != 0 {
		t.Errorf("wrote %d events", len(d.Events))
	}
}

// A rename that the manifest knows of is no trap for ever.
func TestRenamedAndReused(t *testing.T) {
	w := newWorld(t)
	m := small()
	w.must(ApplyManifest{Manifest: m}, RenameProvider{"pg-beta", "pg-two"},
		RegisterProvider{Name: "pg-beta", Provision: "pg", Node: "beta", Endpoint: "beta.mesh:7777", Version: "16.4"})
	w.refused(NameMoved, ApplyManifest{Manifest: m})
	m.Providers["pg-two"] = m.Providers["pg-beta"]
	m.Providers["pg-beta"] = manifest.Provider{Provision: "pg", Node: "beta", Endpoint: "beta.mesh:7777", Version: "16.4"}
	w.applied(ApplyManifest{Manifest: m}, nothing)
}

// Kind: legal or not by the order of names.
func TestApplySwapsMeshScope(t *testing.T) {
	for _, names := range [][2]string{{"ca-a", "ca-b"}, {"ca-b", "ca-a"}} {
		w := newWorld(t)
		m := &manifest.Manifest{Provisions: map[string]manifest.Provision{"ca": {Scope: "mesh"}}, Nodes: []string{"alpha"},
			Providers: map[string]manifest.Provider{names[0]: {Provision: "ca", Node: "alpha", Endpoint: "a:1"},
				names[1]: {Provision: "ca", Node: "alpha", Endpoint: "b:1", Cordoned: true}}}
		w.must(ApplyManifest{Manifest: m})
		swap := func(name string, cordoned bool) {
			p := m.Providers[name]
			p.Cordoned = cordoned
			m.Providers[name] = p
		}
		swap(names[0], true)
		swap(names[1], false)
		w.applied(ApplyManifest{Manifest: m}, map[string]string{"provider ca-a": Changed, "provider ca-b": Changed})
		m.Provisions["ca"] = manifest.Provision{Scope: "node"}
		w.applied(ApplyManifest{Manifest: m}, map[string]string{"provision ca": Changed})
		swap(names[0], false)
		w.must(ApplyManifest{Manifest: m})
		m.Provisions["ca"] = manifest.Provision{Scope: "mesh"}
		swap(names[0], true)
		w.must(ApplyManifest{Manifest: m})
		w.applied(ApplyManifest{Manifest: m}, nothing)
	}
}

// A conflict that a later part would meet is refused before the first is
// written.
func TestConflictInALaterPart(t *testing.T) {
	w := newWorld(t)
	m := small()
	w.must(ApplyManifest{Manifest: m}, SetDefault{Provision: "pg", Provider: "pg-beta"},
		RenameAssignment{"wiki", "zz"}, MoveAssignment{Assignment: "zz", To: "beta"}, RegisterNode{"gamma"})
	delete(m.Assignments, "wiki")
	m.Assignments["zz"] = manifest.Assignment{Module: "wiki", Node: "gamma"}
	m.Nodes = append(m.Nodes, "gamma")
	for i := range 1000 {
		m.Assignments[fmt.Sprintf("a-%d", i)] = manifest.Assignment{Module: "wiki", Node: "beta"}
	}
	w.refused(ManifestConflict, ApplyManifest{Manifest: m})
}

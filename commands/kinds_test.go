package commands

import (
	"strings"
	"testing"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

// twoNodes is the least fleet with a choice to make: each node with its own
// Postgres, one module that needs one.
func twoNodes(t testing.TB) *world {
	w := newWorld(t)
	w.must(
		DefineProvision{Name: "postgres-database", Scope: events.ScopeNode},
		RegisterNode{"alpha"}, RegisterNode{"beta"}, RegisterNode{"gamma"},
		RegisterProvider{Name: "pg-alpha", Provision: "postgres-database", Node: "alpha", Endpoint: "alpha.mesh:5432", Version: "16.4"},
		RegisterProvider{Name: "pg-beta", Provision: "postgres-database", Node: "beta", Endpoint: "beta.mesh:5432", Version: "16.4"},
		DeclareModule{"wiki", requires("db", "postgres-database")},
	)
	return w
}

func requires(slot, provision string) manifest.Module {
	return manifest.Module{Requires: map[string]manifest.Requirement{slot: {Provision: provision}}}
}

// Kind: the consumer says which one serves it, and the ladder's rungs decide in
// their order.
func TestLadder(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	w.bound("wiki/db", "pg-alpha", events.RuleCoLocated)

	w.must(CreateAssignment{Module: "wiki", Node: "alpha", Name: "chosen", Bind: map[string]string{"db": "pg-beta"}})
	w.bound("chosen/db", "pg-beta", events.RuleAssignment)

	w.must(SetDefault{Provision: "postgres-database", Provider: "pg-beta"})
	w.must(CreateAssignment{Module: "wiki", Node: "gamma", Name: "far"})
	w.bound("far/db", "pg-beta", events.RuleMeshDefault)

	w.must(SetDefault{Provision: "postgres-database", Provider: "pg-alpha", Node: "beta"})
	w.must(CreateAssignment{Module: "wiki", Node: "beta", Name: "by-node"})
	w.bound("by-node/db", "pg-alpha", events.RuleNodeDefault)

	m := requires("db", "postgres-database")
	m.Requires["db"] = manifest.Requirement{Provision: "postgres-database", Provider: "pg-beta"}
	w.must(DeclareModule{"named", m})
	w.must(CreateAssignment{Module: "named", Node: "alpha"})
	w.bound("named/db", "pg-beta", events.RuleModule)

	w.must(DefineProvision{Name: "mesh-ca", Scope: events.ScopeMesh, Credentials: events.CredentialsNone},
		RegisterProvider{Name: "ca", Provision: "mesh-ca", Node: "alpha", Endpoint: "ca.mesh:9000"},
		DeclareModule{"signed", requires("ca", "mesh-ca")},
		CreateAssignment{Module: "signed", Node: "beta"})
	w.bound("signed/ca", "ca", events.RuleMeshScope)

	w.because("disk", SetOverride{Slot: "wiki/db", Provider: "pg-beta"})
	w.bound("wiki/db", "pg-beta", events.RuleOverride)
	w.replay()
}

// Kind: a random choice among matches. Two eligible, none local, no default:
// refused, both listed with the flag to pass, a hundred times the same.
func TestNoGuess(t *testing.T) {
	w := twoNodes(t)
	first := w.refused(NoProvider, CreateAssignment{Module: "wiki", Node: "gamma"})
	if len(first.Candidates) != 2 || first.Candidates[0].Flag != "--bind db=pg-alpha" || first.Candidates[1].Flag != "--bind db=pg-beta" {
		t.Fatalf("candidates: %+v", first.Candidates)
	}
	for range 100 {
		if again := w.refused(NoProvider, CreateAssignment{Module: "wiki", Node: "gamma"}); again.Error() != first.Error() {
			t.Fatalf("another answer: %v", again)
		}
	}
	w.must(RegisterProvider{Name: "pg-alpha-2", Provision: "postgres-database", Node: "alpha", Endpoint: "alpha.mesh:5433"})
	w.refused(AmbiguousProvider, CreateAssignment{Module: "wiki", Node: "alpha"})
}

// Kind: a preference for something that is not eligible falls through.
func TestNamedIsNeverPassedOver(t *testing.T) {
	w := twoNodes(t)
	w.must(CordonProvider{"pg-beta"})
	w.refused(ProviderCordoned, CreateAssignment{Module: "wiki", Node: "alpha", Bind: map[string]string{"db": "pg-beta"}})
	m := requires("db", "postgres-database")
	m.Requires["db"] = manifest.Requirement{Provision: "postgres-database", Version: ">=17"}
	w.must(DeclareModule{"modern", m})
	w.refused(VersionUnsatisfied, CreateAssignment{Module: "modern", Node: "alpha", Bind: map[string]string{"db": "pg-alpha"}})
	w.refused(NoProvider, CreateAssignment{Module: "modern", Node: "alpha"})
	m.Requires["db"] = manifest.Requirement{Provision: "postgres-database", Features: []string{"pgvector"}}
	w.must(DeclareModule{"vectors", m})
	w.refused(FeatureMissing, CreateAssignment{Module: "vectors", Node: "alpha", Bind: map[string]string{"db": "pg-alpha"}})
	w.must(UpdateProvider{Provider: "pg-alpha", Features: &[]string{"pgvector"}})
	w.must(CreateAssignment{Module: "vectors", Node: "alpha"})
	w.refused(ProviderNotFound, CreateAssignment{Module: "wiki", Node: "alpha", Name: "x", Bind: map[string]string{"db": "pg-alhpa"}})
}

// Kind: an unknown version satisfies no constraint.
func TestUnknownVersion(t *testing.T) {
	w := twoNodes(t)
	w.must(UpdateProvider{Provider: "pg-alpha", Version: str("")})
	m := requires("db", "postgres-database")
	m.Requires["db"] = manifest.Requirement{Provision: "postgres-database", Version: ">=14"}
	w.must(DeclareModule{"modern", m})
	w.refused(NoProvider, CreateAssignment{Module: "modern", Node: "alpha"})
}

// Kind: something other than a command about the binding moved it.
func TestNothingRebindsSilently(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	id := *w.view("wiki/db").ID
	w.must(
		RegisterProvider{Name: "pg-alpha-2", Provision: "postgres-database", Node: "alpha", Endpoint: "alpha.mesh:5433"},
		SetDefault{Provision: "postgres-database", Provider: "pg-beta"},
		SetDefault{Provision: "postgres-database", Provider: "pg-beta", Node: "alpha"},
		RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:5433"},
		RenameProvider{Provider: "pg-alpha", To: "pg-old"},
		CordonProvider{"pg-old"},
		RenameNode{Node: "alpha", To: "first"},
		MoveAssignment{Assignment: "wiki", To: "gamma"},
		RenameAssignment{Assignment: "wiki", To: "docs"},
		DeclareModule{"wiki", manifest.Module{Requires: map[string]manifest.Requirement{
			"db": {Provision: "postgres-database", Provider: "pg-beta"}}}},
	)
	v := w.view("docs/db")
	if *v.ID != id || v.Provider != "pg-old" || v.ProviderNode != "beta" || v.Rule != events.RuleCoLocated {
		t.Fatalf("binding changed: %+v", v)
	}
	w.flags("docs/db", projections.FlagDrift)
	w.replay()
}

// Kind: provider migrated, consumer kept calling the old place. The binding's
// last change tells its consumer to follow.
func TestRelocationIsAChange(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	before := w.view("wiki/db")
	w.refused(Usage, RelocateProvider{Provider: "pg-alpha", To: "beta"})
	d := w.must(RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:5433"})
	w.wrote(d, "provider.relocated")
	after := w.view("wiki/db")
	if after.Seq != before.Seq || after.ChangedSeq != w.s.Seq || after.Endpoint != "beta.mesh:5433" {
		t.Fatalf("after the relocation: %+v", after)
	}
	w.unchanged(RelocateProvider{Provider: "pg-alpha", To: "beta", KeepEndpoint: true})
}

// Kind: moving the consumer lost its provider.
func TestMoveKeepsProvider(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	w.wrote(w.must(MoveAssignment{Assignment: "wiki", To: "beta"}), "assignment.moved")
	w.bound("wiki/db", "pg-alpha", events.RuleCoLocated)
	w.wrote(w.must(MoveAssignment{Assignment: "wiki", To: "beta", ReResolve: true}), "binding.rebound")
	w.bound("wiki/db", "pg-beta", events.RuleCoLocated)
}

// Kind: override cleared, and what lay under it did not come back.
func TestOverrideMemory(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	w.refused(ReasonRequired, SetOverride{Slot: "wiki/db", Provider: "pg-beta"})
	w.wrote(w.because("disk", SetOverride{Slot: "wiki/db", Provider: "pg-beta"}), "override.set", "binding.rebound")
	w.refused(OverrideInForce, RebindSlot{Slot: "wiki/db", Provider: "pg-alpha"})
	w.must(RegisterProvider{Name: "pg-gamma", Provision: "postgres-database", Node: "gamma", Endpoint: "gamma.mesh:5432"})
	w.wrote(w.because("more disk", SetOverride{Slot: "wiki/db", Provider: "pg-gamma"}), "override.set", "binding.rebound")
	w.wrote(w.must(ClearOverride{Slot: "wiki/db"}), "override.cleared", "binding.rebound")
	w.bound("wiki/db", "pg-alpha", events.RuleCoLocated)
	w.unchanged(ClearOverride{Slot: "wiki/db"})

	// What lay under it cannot come back: refused with candidates, and the
	// override stands.
	w.because("disk", SetOverride{Slot: "wiki/db", Provider: "pg-beta"})
	w.must(CordonProvider{"pg-alpha"})
	r := w.refused(ProviderCordoned, ClearOverride{Slot: "wiki/db"})
	if len(r.Candidates) != 3 {
		t.Fatalf("candidates: %+v", r.Candidates)
	}
	w.wrote(w.must(ClearOverride{Slot: "wiki/db", Keep: true}), "override.cleared", "assignment.choice-set")
	w.bound("wiki/db", "pg-beta", events.RuleAssignment)
	w.replay()
}

// Kind: drift nobody speaks of. A choice is intent, apart from the outcome.
func TestDriftAndAccepting(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	w.must(DeclareModule{"wiki", manifest.Module{Requires: map[string]manifest.Requirement{
		"db": {Provision: "postgres-database", Provider: "pg-beta"}}}})
	w.flags("wiki/db", projections.FlagDrift)
	w.wrote(w.must(RebindSlot{Slot: "wiki/db", Provider: "pg-alpha"}), "assignment.choice-set")
	w.flags("wiki/db")
	w.unchanged(RebindSlot{Slot: "wiki/db", ReResolve: true})
	w.wrote(w.must(RebindSlot{Slot: "wiki/db", ForgetChoice: true}), "assignment.choice-cleared", "binding.rebound")
	w.bound("wiki/db", "pg-beta", events.RuleModule)
	w.wrote(w.must(RebindSlot{Slot: "wiki/db", Provider: "pg-alpha"}), "assignment.choice-set", "binding.rebound")
}

// Kind: a provider that stopped meeting the need.
func TestUnsatisfied(t *testing.T) {
	w := twoNodes(t)
	m := manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database", Version: "16.x"}}}
	w.must(DeclareModule{"pinned", m}, CreateAssignment{Module: "pinned", Node: "alpha"},
		UpdateProvider{Provider: "pg-alpha", Version: str("17.0")})
	w.flags("pinned/db", projections.FlagUnsatisfied)
	w.bound("pinned/db", "pg-alpha", events.RuleCoLocated)
}

// Kind: two defaults. One per provision and node; a second replaces, one event.
func TestOneDefault(t *testing.T) {
	w := twoNodes(t)
	w.must(SetDefault{Provision: "postgres-database", Provider: "pg-alpha"})
	w.unchanged(SetDefault{Provision: "postgres-database", Provider: "pg-alpha"})
	d := w.must(SetDefault{Provision: "postgres-database", Provider: "pg-beta"})
	w.wrote(d, "provision.default-set")
	if !strings.Contains(d.Lines[0], "pg-beta (was pg-alpha)") {
		t.Fatalf("line: %q", d.Lines[0])
	}
	if v := w.s.ProvisionView(w.s.ProvisionNamed("postgres-database")); len(v.Defaults) != 1 {
		t.Fatalf("defaults: %+v", v.Defaults)
	}
	w.wrote(w.must(ClearDefault{Provision: "postgres-database"}), "provision.default-cleared")
	w.unchanged(ClearDefault{Provision: "postgres-database"})
}

// Kind: a second provider of what there is one of, by race or accident.
func TestMeshScope(t *testing.T) {
	w := twoNodes(t)
	w.must(DefineProvision{Name: "mesh-ca", Scope: events.ScopeMesh},
		RegisterProvider{Name: "ca-1", Provision: "mesh-ca", Node: "alpha", Endpoint: "ca1.mesh:9000"})
	r := w.refused(MeshScopeTaken, RegisterProvider{Name: "ca-2", Provision: "mesh-ca", Node: "beta", Endpoint: "ca2.mesh:9000"})
	if r.Candidates[0].Name != "ca-1" || !strings.HasSuffix(r.Fix.String(), "--cordoned") {
		t.Fatalf("refusal: %+v", r)
	}
	w.must(RegisterProvider{Name: "ca-2", Provision: "mesh-ca", Node: "beta", Endpoint: "ca2.mesh:9000", Cordoned: true})
	w.refused(MeshScopeTaken, UncordonProvider{"ca-2"})
	w.must(DeclareModule{"tls", requires("ca", "mesh-ca")}, CreateAssignment{Module: "tls", Node: "beta"})
	w.drain("ca-1", "ca-2", "")
	w.bound("tls/ca", "ca-2", events.RuleDrain)
	w.must(RetireProvider{Provider: "ca-1"})

	w.refused(MeshScopeTaken, RescopeProvision{"postgres-database", events.ScopeMesh})
	w.must(CordonProvider{"pg-beta"}, SetDefault{Provision: "postgres-database", Provider: "pg-alpha", Node: "beta"})
	w.refused(ProvisionInUse, RescopeProvision{"postgres-database", events.ScopeMesh})
	w.must(ClearDefault{"postgres-database", "beta"}, RescopeProvision{"postgres-database", events.ScopeMesh})
	w.must(RescopeProvision{"mesh-ca", events.ScopeNode})
	w.replay()
}

// drain runs a drain's series to its end.
func (w *world) drain(from, to, reason string) {
	w.t.Helper()
	w.reason = reason
	defer func() { w.reason = "" }()
	for step := 0; ; step++ {
		if d := w.must(DrainProvider{Provider: from, To: to, Step: step}); !d.More {
			return
		}
	}
}

// Kind: leaving a provider takes all that leads to it along, or says so first.
func TestDrain(t *testing.T) {
	w := twoNodes(t)
	w.must(SetDefault{Provision: "postgres-database", Provider: "pg-alpha"},
		CreateAssignment{Module: "wiki", Node: "alpha"},
		CreateAssignment{Module: "wiki", Node: "alpha", Name: "chosen", Bind: map[string]string{"db": "pg-alpha"}},
		CreateAssignment{Module: "wiki", Node: "beta", Name: "over", Bind: map[string]string{"db": "pg-beta"}},
		CreateAssignment{Module: "wiki", Node: "alpha", Name: "under"},
		RegisterProvider{Name: "pg-gamma", Provision: "postgres-database", Node: "gamma", Endpoint: "gamma.mesh:5432"})
	w.because("x", SetOverride{Slot: "over/db", Provider: "pg-alpha"})
	w.because("x", SetOverride{Slot: "under/db", Provider: "pg-beta"})
	w.refused(ReasonRequired, DrainProvider{Provider: "pg-alpha", To: "pg-gamma"})
	w.drain("pg-alpha", "pg-gamma", "the disk")
	w.bound("wiki/db", "pg-gamma", events.RuleDrain)
	w.bound("chosen/db", "pg-gamma", events.RuleAssignment)
	w.bound("over/db", "pg-gamma", events.RuleOverride)
	w.bound("under/db", "pg-beta", events.RuleOverride)
	for _, a := range []string{"wiki", "chosen", "over", "under"} {
		w.flags(a + "/db")
	}
	w.must(ClearOverride{Slot: "under/db"})
	w.bound("under/db", "pg-gamma", events.RuleCoLocated)
	if v := w.s.ProvisionView(w.s.ProvisionNamed("postgres-database")); v.Defaults[0].Provider != "pg-gamma" {
		t.Fatalf("default: %+v", v.Defaults)
	}
	w.must(RetireProvider{Provider: "pg-alpha"})
	w.refused(LedgerMoved, DrainProvider{Provider: "pg-gamma", To: "pg-beta", Step: 1})
	w.replay()
}

// Kind: the new provider cannot do what the old one did, and that is seen
// halfway.
func TestDrainChecksFirst(t *testing.T) {
	w := twoNodes(t)
	m := manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database", Features: []string{"pgvector"}}}}
	w.must(UpdateProvider{Provider: "pg-alpha", Features: &[]string{"pgvector"}},
		DeclareModule{"vectors", m}, CreateAssignment{Module: "vectors", Node: "alpha"})
	w.refused(FeatureMissing, DrainProvider{Provider: "pg-alpha", To: "pg-beta"})
}

// Kind: removed while something leads to it; removed, and nobody said what is
// left.
func TestRetire(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	r := w.refused(ProviderInUse, RetireProvider{Provider: "pg-alpha"})
	if len(r.Candidates) != 1 || r.Candidates[0].Name != "wiki/db" {
		t.Fatalf("candidates: %+v", r.Candidates)
	}
	w.refused(ReasonRequired, RetireProvider{Provider: "pg-alpha", Force: true})
	w.because("burnt", RetireProvider{Provider: "pg-alpha", Force: true})
	w.flags("wiki/db", projections.FlagStranded)
	w.unchanged(RetireProvider{Provider: w.s.ListProviders().Items[1].ID.String()})
	w.must(RegisterProvider{Name: "pg-alpha", Provision: "postgres-database", Node: "alpha", Endpoint: "alpha.mesh:5432"})
	w.flags("wiki/db", projections.FlagStranded)
	w.drain(w.view("wiki/db").ProviderID.String(), "pg-beta", "")
	w.flags("wiki/db")

	for name, c := range map[string]Command{
		"default":  SetDefault{Provision: "postgres-database", Provider: "pg-alpha"},
		"override": SetOverride{Slot: "wiki/db", Provider: "pg-alpha"},
		"module": DeclareModule{"naming", manifest.Module{Requires: map[string]manifest.Requirement{
			"db": {Provision: "postgres-database", Provider: "pg-alpha"}}}},
	} {
		w := twoNodes(t)
		w.must(CreateAssignment{Module: "wiki", Node: "beta"})
		w.because("why", c)
		if r := w.refused(ProviderInUse, RetireProvider{Provider: "pg-alpha"}); len(r.Candidates) == 0 {
			t.Errorf("%s: no reference named", name)
		}
	}
}

// Kind: tearing a node down deadlocks. What lives there is listed in an order
// that works.
func TestRetireNode(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"}, SetDefault{Provision: "postgres-database", Provider: "pg-beta", Node: "alpha"})
	r := w.refused(NodeInUse, RetireNode{Node: "alpha"})
	var order []string
	for _, c := range r.Candidates {
		order = append(order, c.Fix.String())
	}
	want := "assignment end wiki,provision default postgres-database --clear --node alpha,provider retire pg-alpha"
	if got := strings.Join(order, ","); got != want {
		t.Fatalf("order: %s", got)
	}
	w.must(EndAssignment{"wiki"}, ClearDefault{"postgres-database", "alpha"}, RetireProvider{Provider: "pg-alpha"}, RetireNode{Node: "alpha"})
	w.refused(NodeNotFound, RegisterProvider{Name: "x", Provision: "postgres-database", Node: "alpha", Endpoint: "a:1"})
	w.replay()
}

// Kind: the printed order stops at what leads there from other nodes.
func TestRetireNodeServingOthers(t *testing.T) {
	order := func(w *world) string {
		var out []string
		for _, c := range w.refused(NodeInUse, RetireNode{Node: "alpha"}).Candidates {
			out = append(out, c.Fix.String())
		}
		return strings.Join(out, ",")
	}
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"}, SetDefault{Provision: "postgres-database", Provider: "pg-alpha"},
		SetDefault{Provision: "postgres-database", Provider: "pg-alpha", Node: "beta"})
	if got, want := order(w), "assignment end wiki,provision default postgres-database --clear,"+
		"provision default postgres-database --clear --node beta,provider retire pg-alpha"; got != want {
		t.Fatalf("order: %s", got)
	}
	w.must(CreateAssignment{Module: "wiki", Node: "beta", Name: "far", Bind: map[string]string{"db": "pg-alpha"}})
	if got, want := order(w), "assignment end wiki,provider drain pg-alpha --to OTHER,provider retire pg-alpha"; got != want {
		t.Fatalf("order: %s", got)
	}
	w.must(EndAssignment{"wiki"})
	w.drain("pg-alpha", "pg-beta", "")
	w.must(RetireProvider{Provider: "pg-alpha"}, RetireNode{Node: "alpha"})
	w.replay()
}

// Kind: consumer gone, provider still counts it.
func TestEndFrees(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	w.because("x", SetOverride{Slot: "wiki/db", Provider: "pg-beta"})
	id := w.s.ListAssignments().Items[0].ID.String()
	w.wrote(w.must(EndAssignment{"wiki"}), "override.cleared", "binding.released", "assignment.ended")
	w.unchanged(EndAssignment{id})
	w.must(RetireProvider{Provider: "pg-alpha"}, RetireProvider{Provider: "pg-beta"}, RemoveModule{"wiki"})
	w.replay()
}

// Kind: a name used twice, silently.
func TestNames(t *testing.T) {
	w := twoNodes(t)
	w.refused(NameTaken, RegisterProvider{Name: "pg-alpha", Provision: "postgres-database", Node: "beta", Endpoint: "x:1"})
	r := w.refused(NameInvalid, RegisterProvider{Name: "PG-A", Provision: "postgres-database", Node: "beta", Endpoint: "x:1"})
	if r.Candidates[0].Name != "pg-a" {
		t.Fatalf("suggestion: %+v", r.Candidates)
	}
	for _, bad := range []string{"a.b", "a*", "a>", "a b", "a\r\nb", "a\x00", "ä", strings.Repeat("a", 64), "a-", ""} {
		w.refused(NameInvalid, RegisterNode{bad})
	}
	w.refused(NameReserved, RegisterNode{"all"})
	w.refused(EndpointTaken, RegisterProvider{Name: "twin", Provision: "postgres-database", Node: "beta", Endpoint: "alpha.mesh:5432"})
	r = w.refused(SecretInLedger, RegisterProvider{Name: "p", Provision: "postgres-database", Node: "beta", Endpoint: "postgres://u:hunter22@x:1/db"})
	if strings.Contains(r.Error()+r.Fix.String(), "hunter22") {
		t.Fatalf("the secret is repeated: %v", r)
	}
	w.must(RenameProvider{"pg-alpha", "pg-one"})
	r = w.refused(ProviderNotFound, CordonProvider{"pg-alpha"})
	if r.Candidates[0].Name != "pg-one" {
		t.Fatalf("the renamed one is not named: %+v", r)
	}
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	w.refused(NameTaken, CreateAssignment{Module: "wiki", Node: "beta"})
}

// Kind: re-declaring rebinds, adds or drops behind the consumer's back.
func TestRedeclare(t *testing.T) {
	w := twoNodes(t)
	w.must(DefineProvision{Name: "amqp", Scope: events.ScopeNode}, CreateAssignment{Module: "wiki", Node: "alpha"})
	w.refused(SlotInUse, DeclareModule{"wiki", requires("db", "amqp")})
	two := manifest.Module{Requires: map[string]manifest.Requirement{
		"db": {Provision: "postgres-database"}, "second": {Provision: "postgres-database"}, "queue": {Provision: "amqp", Optional: true}}}
	w.wrote(w.must(DeclareModule{"wiki", two}), "module.declared")
	w.unchanged(DeclareModule{"wiki", two})
	w.flags("wiki/second", projections.FlagPending)
	if w.view("wiki/second").ID != nil {
		t.Fatal("a slot no event has spoken of has an id")
	}
	w.wrote(w.must(ResolveAssignment{Assignment: "wiki"}), "binding.bound")
	w.bound("wiki/second", "pg-alpha", events.RuleCoLocated)
	w.flags("wiki/queue", projections.FlagPending)
	w.must(DeclareModule{"wiki", requires("second", "postgres-database")})
	w.flags("wiki/db", projections.FlagDrift)
	w.unchanged(ResolveAssignment{Assignment: "wiki", Rebind: true})
	w.wrote(w.must(ResolveAssignment{Assignment: "wiki", Prune: true}), "binding.released")
	w.refused(SlotNotDeclared, RebindSlot{Slot: "wiki/db", ReResolve: true})
	w.replay()
}

// Kind: somebody bound to another's private instance; a private one that is
// replaced, or forced, without anybody's say.
func TestEmbedded(t *testing.T) {
	w := twoNodes(t)
	embed := func(replaceable bool, needs *manifest.Needs) manifest.Module {
		return manifest.Module{Embeds: map[string]manifest.Embed{"vectors": {Provision: "postgres-database", Version: "14",
			Because: "extension", Replaceable: replaceable, Needs: needs}}}
	}
	w.must(DeclareModule{"immich", embed(false, nil)}, CreateAssignment{Module: "immich", Node: "alpha"})
	w.bound("immich/vectors", "embedded", events.RuleEmbedded)
	w.refused(EmbeddedPrivate, CreateAssignment{Module: "wiki", Node: "alpha", Bind: map[string]string{"db": "immich/vectors"}})
	w.reason = "why"
	w.refused(EmbedNotReplaceable, SetOverride{Slot: "immich/vectors", Provider: "pg-alpha"})
	w.refused(EmbedNotReplaceable, RebindSlot{Slot: "immich/vectors", Provider: "pg-alpha"})
	w.must(DeclareModule{"immich", embed(true, &manifest.Needs{Version: ">=17"})})
	w.refused(VersionUnsatisfied, SetOverride{Slot: "immich/vectors", Provider: "pg-alpha"})
	w.must(DeclareModule{"immich", embed(true, &manifest.Needs{Version: ">=14"})})
	w.must(SetOverride{Slot: "immich/vectors", Provider: "pg-alpha"})
	w.bound("immich/vectors", "pg-alpha", events.RuleOverride)
	w.flags("immich/vectors")
	w.must(ClearOverride{Slot: "immich/vectors"})
	w.bound("immich/vectors", "embedded", events.RuleEmbedded)
	if n := len(w.s.ListProviders().Items); n != 2 {
		t.Fatalf("%d providers, want the two that were registered", n)
	}
	w.must(DeclareModule{"immich", requires("vectors", "postgres-database")})
	w.flags("immich/vectors", projections.FlagDrift)
	w.must(ResolveAssignment{Assignment: "immich", Rebind: true})
	w.bound("immich/vectors", "pg-alpha", events.RuleCoLocated)
	w.replay()
}

// Kind: references to what is not there.
func TestInUse(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
	w.refused(ModuleInUse, RemoveModule{"wiki"})
	w.refused(ProvisionInUse, RemoveProvision{"postgres-database"})
	w.refused(ModuleNotFound, CreateAssignment{Module: "wikii", Node: "alpha"})
	w.refused(SlotNotDeclared, CreateAssignment{Module: "wiki", Node: "alpha", Name: "y", Bind: map[string]string{"database": "pg-alpha"}})
}

// Kind: the chooser nobody can see into.
func TestExplain(t *testing.T) {
	w := twoNodes(t)
	w.must(CreateAssignment{Module: "wiki", Node: "alpha"}, SetDefault{Provision: "postgres-database", Provider: "pg-beta", Node: "alpha"})
	v, err := Explain{Slot: "wiki/db"}.Answer(w.s, w.now)
	if err != nil {
		t.Fatal(err)
	}
	e := v.(Explanation)
	if e.Rule != events.RuleCoLocated || e.Provider != "pg-alpha" || e.Now.Rule != events.RuleNodeDefault || e.Now.Provider != "pg-beta" {
		t.Fatalf("explanation: %+v", e)
	}
	if len(e.Rungs) != 7 || len(e.Candidates) != 2 {
		t.Fatalf("rungs %d, candidates %d", len(e.Rungs), len(e.Candidates))
	}
	w.flags("wiki/db") // a default decides once: no drift
	w.must(CordonProvider{"pg-beta"})
	v, _ = Explain{Module: "wiki", Node: "alpha"}.Answer(w.s, w.now)
	list := v.(projections.List[Explanation])
	if len(list.Items) != 1 || list.Items[0].Now.Provider != "" || !strings.Contains(list.Items[0].Now.Why, "cordoned") {
		t.Fatalf("hypothetical: %+v", list.Items)
	}
}

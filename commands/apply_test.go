package commands

import (
	"fmt"
	"strings"
	"testing"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

// small is a manifest to vary: two nodes with a Postgres each, one consumer.
func small() *manifest.Manifest {
	return &manifest.Manifest{
		Mesh:       "home",
		Provisions: map[string]manifest.Provision{"pg": {Scope: "node"}},
		Nodes:      []string{"alpha", "beta"},
		Providers: map[string]manifest.Provider{
			"pg-alpha": {Provision: "pg", Node: "alpha", Endpoint: "alpha.mesh:5432", Version: "16.4"},
			"pg-beta":  {Provision: "pg", Node: "beta", Endpoint: "beta.mesh:5432", Version: "16.4"},
		},
		Defaults:    []manifest.Default{{Provision: "pg", Provider: "pg-alpha"}},
		Modules:     map[string]manifest.Module{"wiki": requires("db", "pg")},
		Assignments: map[string]manifest.Assignment{"wiki": {Node: "alpha"}},
	}
}

// results maps each object that is not unchanged to what apply did with it.
func outcomes(d *Decision) map[string]string {
	out := map[string]string{}
	for _, o := range d.Objects {
		if o.Result != Unchanged {
			out[o.Object] = o.Result
		}
	}
	return out
}

func (w *world) applied(c ApplyManifest, want map[string]string) *Decision {
	w.t.Helper()
	d := w.must(c)
	if got := outcomes(d); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Fatalf("apply: %v, want %v", got, want)
	}
	return d
}

var nothing = map[string]string{}

// Kind: an upgrade re-marks the shipped default; a policy overwrites what the
// operator decided. A manifest that says nothing new changes nothing.
func TestApplyKeepsWhatAnOperatorDecided(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()})
	w.must(SetDefault{Provision: "pg", Provider: "pg-beta"},
		UpdateProvider{Provider: "pg-alpha", Endpoint: str("alpha.mesh:6432")},
		RebindSlot{Slot: "wiki/db", Provider: "pg-beta"})
	d := w.applied(ApplyManifest{Manifest: small()}, map[string]string{"default of pg": Kept, "provider pg-alpha": Kept})
	if len(d.Events) != 0 {
		t.Fatalf("kept, and wrote %d events", len(d.Events))
	}
	for _, o := range d.Objects {
		if o.Result == Kept && !strings.Contains(o.Detail, "by ann, sequence") {
			t.Errorf("kept without saying by whom and where: %+v", o)
		}
	}
	w.bound("wiki/db", "pg-beta", events.RuleAssignment)
}

// Both changed: refused, both shown, nothing written; --take-over decides.
func TestApplyConflict(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()}, UpdateProvider{Provider: "pg-alpha", Endpoint: str("alpha.mesh:6432")})
	m := small()
	p := m.Providers["pg-alpha"]
	p.Endpoint = "alpha.mesh:7432"
	m.Providers["pg-alpha"] = p
	r := w.refused(ManifestConflict, ApplyManifest{Manifest: m})
	if why := r.Candidates[0].Why; !strings.Contains(why, "manifest alpha.mesh:7432") || !strings.Contains(why, "ledger alpha.mesh:6432") ||
		!strings.Contains(why, "last manifest alpha.mesh:5432") {
		t.Errorf("both are not shown: %s", why)
	}
	w.applied(ApplyManifest{Manifest: m, TakeOver: true}, map[string]string{"provider pg-alpha": Changed})
	w.applied(ApplyManifest{Manifest: m}, nothing)
}

// Manifest changed, ledger not: changed, and only that.
func TestApplyChanges(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()})
	id := *w.view("wiki/db").ID
	m := small()
	m.Providers["pg-alpha"] = manifest.Provider{Provision: "pg", Node: "beta", Endpoint: "beta.mesh:5433", Version: "17.0", Features: []string{"pgvector"}}
	m.Assignments["wiki"] = manifest.Assignment{Node: "beta"}
	d := w.applied(ApplyManifest{Manifest: m}, map[string]string{"provider pg-alpha": Changed, "assignment wiki": Changed})
	w.wrote(d, "provider.relocated", "provider.updated", "assignment.moved")
	if v := w.view("wiki/db"); *v.ID != id || v.Provider != "pg-alpha" || v.ProviderNode != "beta" {
		t.Fatalf("the binding changed: %+v", v)
	}
	w.applied(ApplyManifest{Manifest: m}, nothing)
	w.replay()
}

// Kind: changing the request has no effect, and nobody says so.
func TestApplyNeedsRebind(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()})
	m := small()
	m.Assignments["wiki"] = manifest.Assignment{Node: "alpha", Bind: map[string]string{"db": "pg-beta"}}
	d := w.applied(ApplyManifest{Manifest: m}, map[string]string{"assignment wiki": NeedsRebind})
	w.wrote(d, "assignment.choice-set")
	w.flags("wiki/db", projections.FlagDrift)
	w.applied(ApplyManifest{Manifest: m}, map[string]string{"assignment wiki": NeedsRebind})
	d = w.applied(ApplyManifest{Manifest: m, Rebind: true}, map[string]string{"assignment wiki": Changed})
	w.wrote(d, "binding.rebound")
	w.applied(ApplyManifest{Manifest: m}, nothing)
	w.bound("wiki/db", "pg-beta", events.RuleAssignment)
}

// An override in the manifest moves nothing that is bound, unless told so; one
// that comes with its assignment moves nothing that anybody runs with.
func TestApplyOverride(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()})
	m := small()
	m.Overrides = []manifest.Override{{Slot: "wiki/db", Provider: "pg-beta", Reason: "disk"}}
	if d := w.applied(ApplyManifest{Manifest: m}, map[string]string{"override of wiki/db": NeedsRebind}); len(d.Events) != 0 {
		t.Fatal("wrote an override that would move a bound slot")
	}
	w.applied(ApplyManifest{Manifest: m, Rebind: true}, map[string]string{"override of wiki/db": Created})
	w.bound("wiki/db", "pg-beta", events.RuleOverride)
	w.applied(ApplyManifest{Manifest: m}, nothing)
	w.must(ClearOverride{Slot: "wiki/db"})
	w.applied(ApplyManifest{Manifest: m}, map[string]string{"override of wiki/db": Kept})

	fresh := newWorld(t)
	d := fresh.must(ApplyManifest{Manifest: m})
	fresh.bound("wiki/db", "pg-beta", events.RuleOverride)
	if got := outcomes(d)["override of wiki/db"]; got != Created {
		t.Errorf("override: %s", got)
	}
	if e := d.Events[len(d.Events)-1]; e.Reason != "disk" {
		t.Errorf("the override's reason: %q", e.Reason)
	}
}

// Kind: an upgrade reset the database to the bundled, empty one.
func TestApplyKeepsConsolidation(t *testing.T) {
	w := newWorld(t)
	m := small()
	m.Modules["pad"] = manifest.Module{Embeds: map[string]manifest.Embed{"db": {Provision: "pg", Because: "version", Replaceable: true}}}
	m.Assignments["pad"] = manifest.Assignment{Node: "alpha"}
	w.must(ApplyManifest{Manifest: m})
	w.because("consolidate", SetOverride{Slot: "pad/db", Provider: "pg-alpha"})
	w.applied(ApplyManifest{Manifest: m}, nothing)
	w.applied(ApplyManifest{Manifest: m, Rebind: true}, nothing)
	w.bound("pad/db", "pg-alpha", events.RuleOverride)
}

// Kind: an old manifest after a rename makes a twin.
func TestApplyNameMoved(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()}, RenameProvider{"pg-alpha", "pg-one"})
	r := w.refused(NameMoved, ApplyManifest{Manifest: small()})
	if r.Candidates[0].Name != "pg-alpha" || !strings.Contains(r.Candidates[0].Why, "pg-one") {
		t.Errorf("candidates: %+v", r.Candidates)
	}
	m := small()
	m.Providers["pg-one"] = m.Providers["pg-alpha"]
	delete(m.Providers, "pg-alpha")
	m.Defaults[0].Provider = "pg-one"
	w.applied(ApplyManifest{Manifest: m}, nothing)
}

// What an operator made and a manifest writes down later: the same is
// unchanged, anything else is a conflict.
func TestApplyAdopts(t *testing.T) {
	w := newWorld(t)
	m := small()
	w.must(DefineProvision{Name: "pg", Scope: events.ScopeNode}, RegisterNode{"alpha"},
		RegisterProvider{Name: "pg-alpha", Provision: "pg", Node: "alpha", Endpoint: "alpha.mesh:5432", Version: "15.0"})
	w.refused(ManifestConflict, ApplyManifest{Manifest: m})
	w.must(UpdateProvider{Provider: "pg-alpha", Version: str("16.4")})
	d := w.must(ApplyManifest{Manifest: m})
	if got := outcomes(d); got["provider pg-alpha"] != "" || got["provider pg-beta"] != Created {
		t.Errorf("results: %v", got)
	}
}

// Absent and empty never remove.
func TestApplyRemovesNothing(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()})
	before := w.s.Seq
	w.applied(ApplyManifest{Manifest: &manifest.Manifest{}}, nothing)
	w.applied(ApplyManifest{Manifest: &manifest.Manifest{Providers: map[string]manifest.Provider{}, Nodes: []string{}}}, nothing)
	if w.s.Seq != before {
		t.Error("an empty manifest wrote")
	}
	w.refused(WrongMesh, ApplyManifest{Manifest: &manifest.Manifest{Mesh: "other"}})
}

// A slot that is no longer declared is said, and stays.
func TestApplyNeedsPrune(t *testing.T) {
	w := newWorld(t)
	w.must(ApplyManifest{Manifest: small()})
	m := small()
	m.Modules["wiki"] = manifest.Module{Requires: map[string]manifest.Requirement{"store": {Provision: "pg"}}}
	w.applied(ApplyManifest{Manifest: m}, map[string]string{"module wiki": Changed, "assignment wiki": NeedsRebind})
	w.must(ResolveAssignment{Assignment: "wiki"})
	w.applied(ApplyManifest{Manifest: m}, map[string]string{"assignment wiki": NeedsPrune})
	w.bound("wiki/db", "pg-alpha", events.RuleCoLocated)
}

// More than one batch: refused when it must be atomic, else a series of legal
// states that a second run finds unchanged.
func TestApplyLarge(t *testing.T) {
	w := newWorld(t)
	m := small()
	for i := range 700 {
		m.Assignments[fmt.Sprintf("wiki-%d", i)] = manifest.Assignment{Module: "wiki", Node: "beta"}
	}
	w.refused(TooLarge, ApplyManifest{Manifest: m, Atomic: true})
	parts := 0
	for more := true; more; parts++ {
		d := w.must(ApplyManifest{Manifest: m, Part: parts})
		if len(d.Events) == 0 || len(d.Events) > MaxEvents {
			t.Fatalf("part %d wrote %d events", parts, len(d.Events))
		}
		more = d.More
	}
	if parts != 2 {
		t.Errorf("%d parts", parts)
	}
	w.applied(ApplyManifest{Manifest: m}, nothing)
	w.replay()
	// What a later part would refuse is refused before the first is written.
	m.Assignments["zzz"] = manifest.Assignment{Module: "no-such", Node: "beta"}
	for i := range 700 {
		m.Assignments[fmt.Sprintf("more-%d", i)] = manifest.Assignment{Module: "wiki", Node: "beta"}
	}
	w.refused(ModuleNotFound, ApplyManifest{Manifest: m})
}

package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

// holders is n consumers of pg-alpha, one to n, each with an adopted credential.
func holders(t *testing.T, n int) *world {
	w := home(t)
	w.must(DeclareModule{"app", manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database", Provider: "pg-alpha"}}}},
		EndAssignment{"wiki"})
	for i := range n {
		name := string(rune('a'+i)) + "-app"
		w.must(CreateAssignment{Module: "app", Node: []string{"alpha", "beta"}[i%2], Name: name})
		w.holds(name + "/db")
	}
	return w
}

func of(provider string) RotationTarget { return RotationTarget{Provider: provider} }

// The whole of it: while it goes on one consumer is rebound, one ends, one is
// new; it is complete when the last of the old credentials is revoked, and not
// before, and only then may the provider go.
func TestRotation(t *testing.T) {
	w := holders(t, 3)
	old := map[string]uint64{}
	for _, c := range w.s.ListHolders(w.s.ProviderNamed("pg-alpha"), false).Items {
		old[c.Assignment] = c.Generation
	}
	a, b, c := old["a-app"], old["b-app"], old["c-app"]
	w.wrote(w.must(StartRotation{RotationTarget: of("pg-alpha"), Deadline: "3d"}), "rotation.started")
	g := w.s.Seq
	w.fanout(fmt.Sprintf("a-app/db %d>%d issue alpha", a, g), fmt.Sprintf("b-app/db %d>%d issue alpha", b, g), fmt.Sprintf("c-app/db %d>%d issue alpha", c, g))

	w.must(CreateAssignment{Module: "app", Node: "beta", Name: "new"}) // is no part of it
	fresh := w.holds("new/db")
	w.must(RebindSlot{Slot: "b-app/db", Provider: "pg-beta"})
	leaving := w.asked("b-app/db")
	w.must(EndAssignment{"c-app"})
	w.fanout(fmt.Sprintf("a-app/db %d>%d issue alpha", a, g), fmt.Sprintf("b-app/db %d>%d leaving beta", b, leaving),
		fmt.Sprintf("c-app/db %d>%d revoke alpha", c, 0))
	w.states("pg-alpha", fmt.Sprintf("a-app/db %d adopted", a), fmt.Sprintf("a-app/db %d asked", g), fmt.Sprintf("b-app/db %d adopted", b),
		fmt.Sprintf("b-app/db %d withdrawn", g), fmt.Sprintf("c-app/db %d to-revoke", c), fmt.Sprintf("c-app/db %d withdrawn", g),
		fmt.Sprintf("new/db %d adopted", fresh), w.gone("wiki/db"))

	w.must(RevokeCredential{Slot: "c-app/db", Generation: c})
	w.issue("a-app/db")
	w.issue("b-app/db")
	w.fanout(fmt.Sprintf("a-app/db %d>%d adopt alpha", a, g), fmt.Sprintf("b-app/db %d>%d adopt beta", b, leaving), fmt.Sprintf("c-app/db %d>0 done ", c))
	w.refused(NotAdopted, RevokeCredential{Slot: "a-app/db", Generation: a})
	w.adopt("a-app/db")
	w.adopt("b-app/db")
	w.wrote(w.must(RevokeCredential{Slot: "b-app/db", Generation: b}), "credential.revoked")
	w.refused(ProviderInUse, RetireProvider{Provider: "pg-alpha"})
	w.wrote(w.must(RevokeCredential{Slot: "a-app/db", Generation: a}), "credential.revoked", "rotation.completed")
	if r := w.rotation(); r.State != "completed" || r.Total != 3 || r.Done != 3 || r.Closed == nil {
		t.Fatalf("%+v", r)
	}
	w.reason = "late"
	w.refused(RotationClosed, AbortRotation{"pg-alpha"})
	w.refused(RotationClosed, UrgeRotation{"pg-alpha"})
	w.reason = ""
	w.replay()
}

// gone is the line of the wiki's withdrawn ask, which every world of holders has.
func (w *world) gone(path string) string {
	for _, c := range w.s.ListCredentials(projections.CredentialFilter{All: true}).Items {
		if c.Assignment+"/"+c.Slot == path {
			return fmt.Sprintf("%s %d %s", path, c.Generation, c.State)
		}
	}
	w.t.Fatal("no credential of " + path)
	return ""
}

// Kind: a pair meant to alternate rotated within seconds. One is open at a time;
// another supersedes it, and its asks are withdrawn.
func TestOneRotationATime(t *testing.T) {
	w := holders(t, 2)
	w.must(StartRotation{RotationTarget: of("pg-alpha")})
	first := w.rotation().ID
	r := w.refused(RotationOpen, StartRotation{RotationTarget: of("pg-alpha")})
	if len(r.Candidates) != 1 || *r.Candidates[0].ID != first || r.Candidates[0].Flag != "--supersede" {
		t.Errorf("%+v", r)
	}
	w.refused(RotationOpen, StartRotation{RotationTarget: RotationTarget{Binding: "a-app/db"}})
	g1 := w.asked("a-app/db")
	w.issue("b-app/db")
	w.wrote(w.must(StartRotation{RotationTarget: of("pg-alpha"), Supersede: true}), "rotation.aborted", "rotation.started")
	g2 := w.asked("a-app/db")
	if g2 <= g1 || g2 != w.s.Seq || w.asked("b-app/db") != g2 {
		t.Errorf("asked %d, then %d", g1, g2)
	}
	if v := w.rotation(); v.Total != 3 { // two of b, one of a
		t.Errorf("%+v", v)
	}
	w.must(IssueCredential{Slot: "a-app/db", Generation: g1, SecretRef: "file:/late"})
	w.because("no time", AbortRotation{first.String()[20:]}) // unchanged: it is aborted already
	w.because("no time", AbortRotation{"pg-alpha"})
	if _, ok := w.s.Ask(projections.BindingRef(1)); ok {
		t.Error("an ask of the aborted rotation is open")
	}
	w.states("pg-beta")
	w.replay()
}

// Kind: one key for everybody. A rotation of one binding, or of old credentials,
// leaves the others alone.
func TestRotationOfSome(t *testing.T) {
	w := holders(t, 3)
	w.must(StartRotation{RotationTarget: RotationTarget{Binding: "b-app/db"}})
	if v := w.rotation(); v.Total != 1 || v.Members[0].Assignment != "b-app" || v.Slot != "b-app/db" {
		t.Errorf("%+v", v)
	}
	w.refused(RotationOpen, StartRotation{RotationTarget: of("pg-alpha")})
	old := w.s.ListHolders(w.s.ProviderNamed("pg-alpha"), false).Items[1].Generation
	w.issue("b-app/db")
	w.adopt("b-app/db")
	w.must(RevokeCredential{Slot: "b-app/db", Generation: old})
	next := w.s.ListHolders(w.s.ProviderNamed("pg-alpha"), false).Items[1].IssuedSeq

	w.must(StartRotation{RotationTarget: RotationTarget{Provider: "pg-alpha", IssuedBefore: next}})
	if v := w.rotation(); v.Total != 2 || v.Members[0].Assignment != "a-app" || v.Members[1].Assignment != "c-app" {
		t.Errorf("%+v", v)
	}
	w.refused(RotationOpen, StartRotation{RotationTarget: RotationTarget{Provision: "postgres-database", Node: "alpha"}})
	w.wrote(w.must(StartRotation{RotationTarget: RotationTarget{Provision: "postgres-database", Node: "beta"}}),
		"rotation.started", "rotation.completed") // nobody holds one there
	w.wrote(w.must(StartRotation{RotationTarget: RotationTarget{Provider: "pg-beta", IssuedBefore: 1}}), "rotation.started", "rotation.completed")
	for _, c := range []StartRotation{{}, {RotationTarget: RotationTarget{Provision: "postgres-database"}}, {RotationTarget: RotationTarget{Node: "alpha"}},
		{RotationTarget: RotationTarget{Provider: "pg-beta", Binding: "a-app/db"}}, {RotationTarget: of("pg-beta"), Deadline: "soon"},
		{RotationTarget: of("pg-beta"), Deadline: "-1h"}, {RotationTarget: of("pg-beta"), Deadline: "99999999d"}} {
		w.refused(Usage, c)
	}
	w.replay()
}

// An urgent one lets the old credential be revoked as soon as the next is
// issued; the mark outlives an abort.
func TestUrgentRotation(t *testing.T) {
	w := holders(t, 2)
	w.must(StartRotation{RotationTarget: of("pg-alpha")})
	v := w.rotation()
	a, b := v.Members[0].From, v.Members[1].From
	w.issue("a-app/db")
	w.refused(NotAdopted, RevokeCredential{Slot: "a-app/db", Generation: a})
	w.refused(ReasonRequired, UrgeRotation{"pg-alpha"})
	w.wrote(w.because("it leaked", UrgeRotation{"pg-alpha"}), "rotation.urged")
	w.fanout(fmt.Sprintf("b-app/db %d>%d issue alpha", b, w.asked("b-app/db")), fmt.Sprintf("a-app/db %d>%d revoke alpha", a, w.asked("b-app/db")))
	w.refused(NotAdopted, RevokeCredential{Slot: "b-app/db", Generation: b}) // its next is not issued
	w.because("a mistake", AbortRotation{"pg-alpha"})
	w.must(RevokeCredential{Slot: "a-app/db", Generation: a})
	w.flags("a-app/db", projections.FlagOutdated)
	w.replay()
}

// Kind: rotation stops silently. Past its deadline it is shown.
func TestOverdueRotation(t *testing.T) {
	w := holders(t, 2)
	w.must(StartRotation{RotationTarget: of("pg-alpha"), Deadline: "2h"})
	list := func(at time.Duration) int {
		return len(w.s.ListRotations(projections.RotationFilter{Overdue: true}, w.now.Add(at)).Items)
	}
	if list(time.Hour) != 0 || list(3*time.Hour) != 1 {
		t.Error("overdue at the wrong time")
	}
	found := false
	for _, a := range w.s.Status(w.now.Add(3 * time.Hour)).Attention {
		found = found || a.Code == "overdue" && !a.Optional && !a.Note
	}
	if !found {
		t.Error("status does not say so")
	}
}

// A provider that is retired by force takes its rotation along and leaves its
// holders in sight, until they are written off.
func TestRetireWithHolders(t *testing.T) {
	w := holders(t, 2)
	w.must(StartRotation{RotationTarget: of("pg-alpha")})
	r := w.refused(ProviderInUse, RetireProvider{Provider: "pg-alpha"})
	if len(r.Candidates) < 5 {
		t.Errorf("%+v", r.Candidates)
	}
	w.wrote(w.because("it burned", RetireProvider{Provider: "pg-alpha", Force: true}), "rotation.aborted", "provider.retired")
	id := w.s.ListProviders().Items[len(w.s.ListProviders().Items)-1].ID.String()
	if v := w.s.ListProviders().Items; v[len(v)-1].Holders != 2 || v[len(v)-1].State != projections.Retired {
		t.Errorf("%+v", v)
	}
	w.reason = "again"
	w.refused(ProviderRetired, RequestCredential{"a-app/db"})
	w.refused(ProviderRetired, StartRotation{RotationTarget: of(id)})
	w.reason = ""
	w.must(RebindSlot{Slot: "a-app/db", Provider: "pg-beta"})
	w.flags("a-app/db", projections.FlagSwitching)
	w.refused(ReasonRequired, WriteOffCredentials{Provider: id})
	w.wrote(w.because("it burned", WriteOffCredentials{Provider: id}), "credential.written-off", "credential.written-off")
	w.flags("a-app/db", projections.FlagSwitching, projections.FlagCutOff)
	w.flags("b-app/db", projections.FlagStranded, projections.FlagCutOff)
	if n := len(w.s.ListHolders(projections.ProviderRef(1), true).Items); n != 2 {
		t.Errorf("%d written off", n)
	}
	w.replay()
}

// Draining moves the consumers; who can log in to the old provider stays in
// sight until the last one is revoked.
func TestDrainLeavesHolders(t *testing.T) {
	w := holders(t, 2)
	w.must(StartRotation{RotationTarget: of("pg-alpha")})
	v := w.rotation()
	a, b := v.Members[0].From, v.Members[1].From
	w.must(DrainProvider{Provider: "pg-alpha", To: "pg-beta"}, DrainProvider{Provider: "pg-alpha", To: "pg-beta", Step: 1},
		DeclareModule{"app", manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database"}}}})
	w.refused(ProviderInUse, RetireProvider{Provider: "pg-alpha"})
	for _, path := range []string{"a-app/db", "b-app/db"} {
		w.issue(path)
		w.adopt(path)
	}
	w.must(RevokeCredential{Slot: "a-app/db", Generation: a})
	r := w.refused(ProviderInUse, RetireProvider{Provider: "pg-alpha"})
	if r.Fix.String() != "provider holders pg-alpha" {
		t.Error(r.Fix)
	}
	w.wrote(w.must(RevokeCredential{Slot: "b-app/db", Generation: b}), "credential.revoked", "rotation.completed")
	w.wrote(w.must(RetireProvider{Provider: "pg-alpha"}), "provider.retired")
	w.replay()
}

// A write-off of more than one batch takes is a series.
func TestWriteOffSeries(t *testing.T) {
	w := holders(t, 0)
	const n = 700
	for i := range n {
		name := fmt.Sprintf("app-%d", i)
		w.must(CreateAssignment{Module: "app", Node: "alpha", Name: name})
		w.issue(name + "/db")
	}
	d := w.because("test", WriteOffCredentials{Provider: "pg-alpha"})
	if len(d.Events) != 0 {
		t.Fatal("what is in use was written off")
	}
	d = w.because("test", WriteOffCredentials{Provider: "pg-alpha", Force: true})
	if !d.More || len(d.Events) > MaxEvents {
		t.Fatalf("more %v, %d events", d.More, len(d.Events))
	}
	d = w.because("test", WriteOffCredentials{Provider: "pg-alpha", Force: true})
	if d.More || len(w.s.ListHolders(w.s.ProviderNamed("pg-alpha"), false).Items) != 0 {
		t.Fatalf("more %v", d.More)
	}
}

// Kind: a name means something else by now. A generation that a rotation asked of
// several bindings, whose assignments bore one name in turn, is refused by that
// name.
func TestAmbiguousGeneration(t *testing.T) {
	w := holders(t, 2)
	w.must(StartRotation{RotationTarget: of("pg-alpha")})
	g := w.s.Seq
	w.must(EndAssignment{"a-app"}, RenameAssignment{"b-app", "a-app"})
	r := w.refused(AmbiguousSlot, IssueCredential{Slot: "a-app/db", Generation: g, SecretRef: "file:/meant-for-the-other"})
	if len(r.Candidates) != 2 || r.Candidates[0].ID == nil {
		t.Fatalf("%+v", r)
	}
	for _, c := range r.Candidates {
		w.must(IssueCredential{Slot: c.ID.String(), Generation: g, SecretRef: "file:/" + c.ID.String()})
	}
	w.replay()
}

// A slot that was pruned and is declared again has two bindings of one name for
// a while: the consumer's word by that name is for both.
func TestAcknowledgeReleasedByName(t *testing.T) {
	w := holders(t, 1)
	requires := func(slot string) DeclareModule {
		return DeclareModule{"app", manifest.Module{Requires: map[string]manifest.Requirement{slot: {Provision: "postgres-database", Provider: "pg-alpha"}}}}
	}
	w.must(StartRotation{RotationTarget: of("pg-alpha")}, requires("other"), ResolveAssignment{Assignment: "a-app", Prune: true})
	released := w.s.Seq // the next slot was bound after the release
	w.must(requires("db"))
	w.fanout(fmt.Sprintf("a-app/db %d>0 adopt alpha", w.rotation().Members[0].From))
	w.must(ResolveAssignment{Assignment: "a-app"})
	w.issue("a-app/db")
	w.must(AcknowledgeBinding{Slot: "a-app/db", At: released - 2})
	if w.rotation().Members[0].Step != projections.StepAdopt {
		t.Fatalf("a word of before the release is taken for one about it: %+v", w.rotation().Members)
	}
	w.wrote(w.must(AcknowledgeBinding{Slot: "a-app/db", At: w.s.Seq}), "binding.applied", "binding.applied")
	w.fanout(fmt.Sprintf("a-app/db %d>0 revoke alpha", w.rotation().Members[0].From))
	w.replay()
}

// What leaked is what a consumer runs with, also while it is on its way elsewhere.
func TestRotateWhileSwitching(t *testing.T) {
	w := holders(t, 1)
	old := w.view("a-app/db").Generation
	w.must(RebindSlot{Slot: "a-app/db", Provider: "pg-beta"})
	w.must(StartRotation{RotationTarget: RotationTarget{Binding: "a-app/db"}, Urgent: true})
	w.fanout(fmt.Sprintf("a-app/db %d>%d leaving beta", old, w.asked("a-app/db")))
	w.issue("a-app/db")
	w.wrote(w.must(RevokeCredential{Slot: "a-app/db", Generation: old}), "credential.revoked", "rotation.completed")
	w.replay()
}

// A rotation is found by its id, by whose holders it is about, or by the slot it
// is about alone.
func TestFindRotation(t *testing.T) {
	w := holders(t, 1)
	w.refused(RotationNotFound, abort(w, "pg-alpha"))
	w.must(StartRotation{RotationTarget: RotationTarget{Binding: "a-app/db"}})
	id := w.rotation().ID
	provider := w.s.Provider(w.s.ProviderNamed("pg-alpha")).ID
	for _, text := range []string{id.String(), id.String()[16:], "pg-alpha", provider.String(), "a-app/db"} {
		if r, err := (Finder{w.s}).Rotation(text); err != nil || w.s.Rotation(r).ID != id {
			t.Errorf("%s: %v", text, err)
		}
	}
	w.must(RenameProvider{"pg-alpha", "pg-one"})
	r := w.refused(RotationNotFound, abort(w, "pg-alpha"))
	if len(r.Candidates) != 1 || r.Candidates[0].Name != "pg-one" {
		t.Errorf("%+v", r)
	}
	w.because("it burned", RetireProvider{Provider: "pg-one", Force: true})
	if r, err := (Finder{w.s}).Rotation("pg-one"); err != nil || w.s.Rotation(r).ID != id {
		t.Errorf("of the retired one: %v", err)
	}
}

func abort(w *world, rotation string) AbortRotation {
	w.reason = "because"
	return AbortRotation{rotation}
}

// A consumer that failed and says again what it said before has recovered.
func TestRecovered(t *testing.T) {
	w := holders(t, 1)
	at := w.view("a-app/db").AppliedSeq
	w.because("login refused", FailBinding{Slot: "a-app/db"})
	w.wrote(w.must(AcknowledgeBinding{Slot: "a-app/db", At: at}), "binding.applied")
	w.unchanged(AcknowledgeBinding{Slot: "a-app/db", At: at})
	if v := w.view("a-app/db"); v.Error != "" {
		t.Errorf("%+v", v)
	}
	w.reason = "x"
	w.refused(Usage, FailBinding{"a-app/db", 1 << 63})
}

// Kind: a series that goes on later does to what came in between what was meant
// for what was there when it began.
func TestWriteOffSeriesLeavesWhatIsNewer(t *testing.T) {
	w := holders(t, 2)
	w.reason = "disk lost"
	w.now = w.now.Add(time.Second)
	env := w.env()
	d, err := Decide(w.s, WriteOffCredentials{Provider: "pg-alpha", Force: true}, env)
	if err != nil {
		t.Fatal(err)
	}
	w.s.Commit()
	w.log = append(w.log, d.Events...)
	w.reason = ""
	fresh := w.holds("a-app/db")
	d = w.because("disk lost", WriteOffCredentials{Provider: "pg-alpha", Force: true, Series: env.Command})
	if len(d.Events) != 0 {
		t.Fatalf("%d events", len(d.Events))
	}
	if v := w.view("a-app/db"); v.Use.Generation != fresh || len(v.Flags) != 0 {
		t.Errorf("%+v", v)
	}
}

// The history of a binding has the rotations that are about its credentials, also where
// its documents do not tell of them: another one was asked for before. What comes after
// is not taken for what they have changed.
func TestTraceHasRotations(t *testing.T) {
	w := holders(t, 2)
	w.reason = "because"
	from := w.s.Seq
	abort := func() {
		for _, v := range w.s.ListRotations(projections.RotationFilter{}, w.now).Items {
			if v.State == string(projections.Open) {
				w.must(AbortRotation{Rotation: v.ID.String()})
			}
		}
	}
	w.must(RequestCredential{"a-app/db"}, StartRotation{RotationTarget: of("pg-alpha")})
	w.must(UrgeRotation{Rotation: w.s.ListRotations(projections.RotationFilter{}, w.now).Items[0].ID.String()})
	w.must(CordonProvider{Provider: "pg-alpha"}) // it changes nothing for those who are bound
	abort()
	w.must(StartRotation{RotationTarget: RotationTarget{Binding: "b-app/db"}})
	for slot, want := range map[string]string{
		"a-app/db": "credential.requested rotation.started rotation.urged rotation.aborted",
		"b-app/db": "rotation.started rotation.urged rotation.aborted rotation.started",
	} {
		trace := projections.NewTrace([]events.ID{*w.view(slot).ID}, false)
		var got []string
		for i := 0; i < len(w.log); i += w.log[i].N {
			group := w.log[i : i+w.log[i].N]
			found, err := trace.Apply(group)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range found {
				if group[n].Seq > from {
					got = append(got, group[n].Type.Short())
				}
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %v, want %s", slot, got, want)
		}
	}
}

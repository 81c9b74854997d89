package commands

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"

	"github.com/google/go-cmp/cmp"
)

// home is two nodes with a Postgres each, and wiki on alpha bound to pg-alpha.
func home(t *testing.T) *world {
	w := newWorld(t)
	w.must(
		RegisterNode{"alpha"}, RegisterNode{"beta"},
		DefineProvision{Name: "postgres-database", Scope: events.ScopeNode},
		DefineProvision{Name: "mesh-ca", Scope: events.ScopeMesh, Credentials: events.CredentialsNone},
		RegisterProvider{Name: "pg-alpha", Provision: "postgres-database", Node: "alpha", Endpoint: "alpha:5432"},
		RegisterProvider{Name: "pg-beta", Provision: "postgres-database", Node: "beta", Endpoint: "beta:5432"},
		RegisterProvider{Name: "step-ca", Provision: "mesh-ca", Node: "alpha", Endpoint: "https://ca:8443"},
		DeclareModule{"wiki", manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database"}}}},
		DeclareModule{"photos", manifest.Module{Embeds: map[string]manifest.Embed{
			"db": {Provision: "postgres-database", Because: "version", Replaceable: true}}}},
		DeclareModule{"proxy", manifest.Module{Requires: map[string]manifest.Requirement{"ca": {Provision: "mesh-ca"}}}},
		CreateAssignment{Module: "wiki", Node: "alpha"},
	)
	return w
}

// asked is the generation of a slot's open ask.
func (w *world) asked(path string) uint64 {
	w.t.Helper()
	f, err := Finder{w.s}.Slot(path)
	if err != nil {
		w.t.Fatal(err)
	}
	c, ok := w.s.Ask(f.Binding)
	if !ok {
		w.t.Fatalf("%s has no open ask", path)
	}
	return c.Generation
}

// issue answers the open ask of a slot, as an agent does, and returns its generation.
func (w *world) issue(path string) uint64 {
	w.t.Helper()
	g := w.asked(path)
	w.must(IssueCredential{Slot: path, Generation: g, SecretRef: fmt.Sprintf("file:/secrets/%s-%d", path, g), User: fmt.Sprintf("u%d", g), Hook: "provider/default"})
	return g
}

// adopt acknowledges a slot at the head.
func (w *world) adopt(path string) {
	w.t.Helper()
	w.must(AcknowledgeBinding{Slot: path, At: w.s.Seq})
}

// holds gives a slot a credential in use and adopted.
func (w *world) holds(path string) uint64 {
	w.t.Helper()
	g := w.issue(path)
	w.adopt(path)
	return g
}

// states checks the credentials of the mesh at a provider ("" for instances):
// "slot generation state", in order.
func (w *world) states(provider string, want ...string) {
	w.t.Helper()
	var got []string
	for _, c := range w.s.ListCredentials(projections.CredentialFilter{All: true}).Items {
		if c.Provider == provider {
			got = append(got, fmt.Sprintf("%s/%s %d %s", c.Assignment, c.Slot, c.Generation, c.State))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Fatalf("credentials at %q (-want +got):\n%s", provider, diff)
	}
}

// rotation is the last rotation.
func (w *world) rotation() projections.RotationView {
	w.t.Helper()
	all := rotationsOf(w.s)
	if len(all) == 0 {
		w.t.Fatal("no rotation")
	}
	return all[0]
}

// fanout checks the last rotation: "slot from>to step who", in order.
func (w *world) fanout(want ...string) {
	w.t.Helper()
	var got []string
	for _, m := range w.rotation().Members {
		got = append(got, fmt.Sprintf("%s/%s %d>%d %s %s", m.Assignment, m.Slot, m.From, m.To, m.Step, m.Who))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Fatalf("fan-out (-want +got):\n%s", diff)
	}
}

// One credential from its ask to its end.
func TestLifeOfACredential(t *testing.T) {
	w := home(t)
	g1 := w.asked("wiki/db")
	if v := w.view("wiki/db"); v.Generation != g1 || v.SecretRef != "" || v.Use != (projections.UseView{}) || v.ChangedSeq != v.Seq {
		t.Fatalf("asked: %+v", v)
	}
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d asked", g1))
	w.flags("wiki/db")
	w.unchanged(RevokeCredential{Slot: "wiki/db", Generation: g1})

	w.wrote(w.must(IssueCredential{Slot: "wiki/db", Generation: g1, SecretRef: "file:/s/1"}), "credential.issued")
	w.unchanged(IssueCredential{Slot: "wiki/db", Generation: g1, SecretRef: "file:/s/1"})
	w.refused(AlreadyIssued, IssueCredential{Slot: "wiki/db", Generation: g1, SecretRef: "file:/s/2"})
	w.flags("wiki/db", projections.FlagOutdated)
	issued := w.s.Seq
	v := w.view("wiki/db")
	if v.Use.Provider != "pg-alpha" || v.Use.Endpoint != "alpha:5432" || v.Use.Generation != g1 || v.Use.SecretRef != "file:/s/1" ||
		v.SecretRef != "file:/s/1" || v.ChangedSeq != issued || v.AppliedSeq != 0 {
		t.Fatalf("issued: %+v", v)
	}

	w.refused(AtBeyondHead, AcknowledgeBinding{Slot: "wiki/db", At: w.s.Seq + 1})
	w.must(AcknowledgeBinding{Slot: "wiki/db", At: issued - 1}) // of before: adopts nothing
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d issued", g1))
	w.flags("wiki/db", projections.FlagOutdated)
	w.wrote(w.must(AcknowledgeBinding{Slot: "wiki/db", At: issued}), "binding.applied")
	w.unchanged(AcknowledgeBinding{Slot: "wiki/db", At: issued})
	w.refused(AtRegressed, AcknowledgeBinding{Slot: "wiki/db", At: issued - 1})
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d adopted", g1))
	w.flags("wiki/db")

	r := w.refused(NotAdopted, RevokeCredential{Slot: "wiki/db", Generation: g1})
	if !strings.Contains(r.Fix.String(), "rotation start --binding wiki/db") {
		t.Error(r.Fix)
	}
	w.refused(ReasonRequired, RevokeCredential{Slot: "wiki/db", Generation: g1, Force: true})
	w.refused(ReasonRequired, RequestCredential{"wiki/db"})
	w.refused(GenerationUnknown, RevokeCredential{Slot: "wiki/db", Generation: g1 + 1})

	w.because("the old one leaked", RequestCredential{"wiki/db"})
	g2 := w.issue("wiki/db")
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d adopted", g1), fmt.Sprintf("wiki/db %d issued", g2))
	w.refused(NotAdopted, RevokeCredential{Slot: "wiki/db", Generation: g1})
	w.adopt("wiki/db")
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d to-revoke", g1), fmt.Sprintf("wiki/db %d adopted", g2))
	w.wrote(w.must(RevokeCredential{Slot: "wiki/db", Generation: g1}), "credential.revoked")
	w.unchanged(RevokeCredential{Slot: "wiki/db", Generation: g1})
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d revoked", g1), fmt.Sprintf("wiki/db %d adopted", g2))
	w.replay()
}

// A rebound consumer runs with the old set until the new one is issued.
func TestSwitchAtIssue(t *testing.T) {
	w := home(t)
	g1 := w.holds("wiki/db")
	w.must(RebindSlot{Slot: "wiki/db", Provider: "pg-beta"})
	g2 := w.asked("wiki/db")
	v := w.view("wiki/db")
	if v.Provider != "pg-beta" || v.Generation != g2 || v.Use.Provider != "pg-alpha" || v.Use.Generation != g1 {
		t.Fatalf("between: %+v", v)
	}
	w.flags("wiki/db", projections.FlagSwitching)
	w.must(RebindSlot{Slot: "wiki/db", Provider: "pg-alpha"}) // and back
	g3 := w.asked("wiki/db")
	w.states("pg-beta", fmt.Sprintf("wiki/db %d withdrawn", g2))
	w.flags("wiki/db")

	w.must(IssueCredential{Slot: "wiki/db", Generation: g2, SecretRef: "file:/late"}) // an agent that had not heard
	w.states("pg-beta", fmt.Sprintf("wiki/db %d to-revoke", g2))
	if v := w.view("wiki/db"); v.Use.Generation != g1 {
		t.Fatalf("a late credential is in use: %+v", v)
	}
	w.issue("wiki/db")
	w.adopt("wiki/db")
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d to-revoke", g1), fmt.Sprintf("wiki/db %d adopted", g3))
	w.must(RevokeCredential{Slot: "wiki/db", Generation: g2}, RevokeCredential{Slot: "wiki/db", Generation: g1})
	w.replay()
}

// What is forced has a way on: the consumer is cut off, and another is asked for.
func TestForcedRevocation(t *testing.T) {
	w := home(t)
	g1 := w.holds("wiki/db")
	d := w.because("it leaked", RevokeCredential{Slot: "wiki/db", Generation: g1, Force: true})
	w.wrote(d, "credential.revoked", "credential.requested")
	w.flags("wiki/db", projections.FlagCutOff)
	w.issue("wiki/db")
	w.adopt("wiki/db")
	w.flags("wiki/db")
	w.replay()
}

// Kinds: a slot pruned keeps what its consumer runs with until that took note;
// an assignment that ends leaves holders, found by its name.
func TestWhatIsOverIsRevoked(t *testing.T) {
	w := home(t)
	g := w.holds("wiki/db")
	w.must(DeclareModule{"wiki", manifest.Module{}}, ResolveAssignment{Assignment: "wiki", Prune: true})
	v := w.s.BindingViews(w.s.Assignment(w.s.AssignmentNamed("wiki")))
	if len(v) != 1 || !v[0].Released || v[0].Use.Generation != g || !slices.Equal(v[0].Flags, []projections.Flag{projections.FlagOutdated}) {
		t.Fatalf("pruned: %+v", v)
	}
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d adopted", g))
	w.adopt("wiki/db")
	if v := w.s.BindingViews(w.s.Assignment(w.s.AssignmentNamed("wiki"))); len(v) != 0 {
		t.Fatalf("acknowledged: %+v", v)
	}
	w.refused(BindingNotFound, AcknowledgeBinding{Slot: "wiki/db", At: w.s.Seq})
	w.states("pg-alpha", fmt.Sprintf("wiki/db %d to-revoke", g))
	w.must(EndAssignment{"wiki"}, RevokeCredential{Slot: "wiki/db", Generation: g})

	w.must(DeclareModule{"wiki", manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "postgres-database"}}}})
	for range 2 { // the name is borne again
		w.must(CreateAssignment{Module: "wiki", Node: "alpha"})
		g := w.holds("wiki/db")
		w.must(EndAssignment{"wiki"})
		w.must(RevokeCredential{Slot: "wiki/db", Generation: g})
	}
	w.refused(GenerationUnknown, RevokeCredential{Slot: "wiki/db", Generation: 1})
	w.replay()
}

// An embedded instance has a credential, too; it goes with its assignment.
func TestEmbeddedCredentials(t *testing.T) {
	w := home(t)
	w.must(CreateAssignment{Module: "photos", Node: "beta"})
	g1 := w.holds("photos/db")
	w.must(StartRotation{RotationTarget: RotationTarget{Binding: "photos/db"}})
	w.fanout(fmt.Sprintf("photos/db %d>%d issue beta", g1, w.s.Seq))
	w.refused(RotationOpen, StartRotation{RotationTarget: RotationTarget{Binding: "photos/db"}})
	w.because("disk", SetOverride{"photos/db", "pg-alpha"})
	w.fanout(fmt.Sprintf("photos/db %d>%d leaving alpha", g1, w.s.Seq))
	w.must(ClearOverride{Slot: "photos/db"})
	g2 := w.issue("photos/db")
	w.fanout(fmt.Sprintf("photos/db %d>%d adopt beta", g1, g2))
	w.wrote(w.must(EndAssignment{"photos"}), "binding.released", "assignment.ended", "rotation.completed")
	w.fanout(fmt.Sprintf("photos/db %d>%d done ", g1, g2))
	for _, c := range w.s.ListCredentials(projections.CredentialFilter{All: true}).Items {
		if c.Embedded && c.State != "gone" && c.State != "withdrawn" {
			t.Errorf("%+v", c)
		}
	}
	w.replay()
}

// Where credentials are not managed, nothing is asked, and a switch is at once.
func TestNoCredentials(t *testing.T) {
	w := home(t)
	w.must(CreateAssignment{Module: "proxy", Node: "beta"})
	v := w.view("proxy/ca")
	if v.Use.Provider != "step-ca" || v.Generation != 0 || v.ChangedSeq != v.Seq {
		t.Fatalf("%+v", v)
	}
	w.flags("proxy/ca", projections.FlagOutdated)
	w.adopt("proxy/ca")
	w.flags("proxy/ca")
	w.reason = "why not"
	w.refused(NoCredentials, RequestCredential{"proxy/ca"})
	w.refused(NoCredentials, StartRotation{RotationTarget: RotationTarget{Provider: "step-ca"}})
	w.refused(NoCredentials, StartRotation{RotationTarget: RotationTarget{Binding: "proxy/ca"}})
	w.must(UpdateProvider{Provider: "step-ca", Endpoint: str("https://ca:9443")})
	w.flags("proxy/ca", projections.FlagOutdated)
}

// A failure is appended when it says something new.
func TestFailures(t *testing.T) {
	w := home(t)
	g := w.asked("wiki/db")
	w.refused(ReasonRequired, FailCredential{Slot: "wiki/db", Generation: g})
	for i, c := range []struct {
		reason   string
		attempts uint64
		written  bool
	}{{"refused", 1, true}, {"refused", 2, true}, {"refused", 3, false}, {"refused", 4, true}, {"refused", 7, false},
		{"disk full", 8, true}, {"disk full", 0, false}, {"disk full", 16, true}} {
		d := w.because(c.reason, FailCredential{Slot: "wiki/db", Generation: g, Attempts: c.attempts})
		if (len(d.Events) == 1) != c.written {
			t.Errorf("failure %d: %d events", i, len(d.Events))
		}
	}
	v := w.s.ListCredentials(projections.CredentialFilter{}).Items[0]
	if v.State != "asked" || v.Attempts != 16 || v.Error != "disk full" {
		t.Errorf("%+v", v)
	}
	w.issue("wiki/db")
	if v := w.s.ListCredentials(projections.CredentialFilter{}).Items[0]; v.Attempts != 0 || v.Error != "" {
		t.Errorf("after its issue: %+v", v)
	}
	w.because("no route", FailBinding{Slot: "wiki/db"})
	if v := w.view("wiki/db"); v.Error != "no route" || v.Attempts != 1 {
		t.Errorf("%+v", v)
	}
	if !slices.ContainsFunc(w.s.Status(w.now).Attention, func(a projections.Attention) bool { return a.Code == "failing" && a.Note }) {
		t.Error("status does not say that it fails")
	}
	w.adopt("wiki/db")
	if v := w.view("wiki/db"); v.Error != "" {
		t.Errorf("%+v", v)
	}
	w.replay()
}

// No secret gets in by way of a credential, and none out by way of a refusal.
func TestCredentialsCarryNoSecret(t *testing.T) {
	w := home(t)
	g := w.asked("wiki/db")
	for _, secret := range []string{"hunter2hunter2", "postgres://u:hunter22@h/db", "file:/a?password=hunter22",
		"-----BEGIN PRIVATE KEY-----", "vault:kv#hunter22", "unknown:hunter22"} {
		r := w.refused(SecretInLedger, IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: secret})
		if b, _ := json.Marshal(r); strings.Contains(string(b), "hunter2") {
			t.Errorf("the refusal repeats it: %s", b)
		}
		w.reason = "it is password=hunter22"
		for _, c := range []Command{FailCredential{Slot: "wiki/db", Generation: g}, RequestCredential{"wiki/db"}, FailBinding{Slot: "wiki/db"}} {
			if r := w.refused(SecretInLedger, c); strings.Contains(r.Error()+r.Fix.String(), "hunter2") {
				t.Errorf("the refusal repeats it: %+v", r)
			}
		}
		w.reason = ""
	}
}

// A ledger written before there were credentials reads as: each managed binding
// asked, nothing issued, no holder.
func TestLedgerBeforeCredentials(t *testing.T) {
	data, err := os.ReadFile("testdata/before-credentials.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s := projections.New()
	for line := range strings.Lines(string(data)) {
		var r struct {
			Seq     uint64
			Subject string
			Header  map[string][]string
			Data    json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		e, err := events.Decode(&events.Record{Seq: r.Seq, Subject: r.Subject, Header: r.Header, Data: r.Data})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(&e); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, b := range s.ListBindings(projections.BindingFilter{}).Items {
		got = append(got, fmt.Sprintf("%s/%s generation %d seq %d use %q %v", b.Assignment, b.Slot, b.Generation, b.Seq, b.Use.Provider, b.Flags))
	}
	want := []string{
		"photos/db generation 27 seq 27 use \"\" []",
		"wiki/ca generation 0 seq 12 use \"step-ca\" [outdated]",
		"wiki/db generation 13 seq 13 use \"\" []",
		"wiki-beta/ca generation 0 seq 15 use \"step-ca\" [outdated]",
		"wiki-beta/db generation 23 seq 23 use \"\" []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	for _, p := range s.ListProviders().Items {
		if p.Holders != 0 {
			t.Errorf("%s has %d holders", p.Name, p.Holders)
		}
	}
	st := s.Status(s.Time)
	if st.Counts["asked"] != 3 || st.Counts["holders"] != 0 {
		t.Errorf("%+v", st.Counts)
	}
	lines := 0
	for _, a := range st.Attention {
		if a.Code == "asked" {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines say that credentials are asked for", lines)
	}
}

// Whoever says which ask he has answered by its tag is refused where the ledger
// has lost that ask and given its generation out again.
func TestTagOfTheAsk(t *testing.T) {
	w := holders(t, 1)
	w.must(StartRotation{RotationTarget: of("pg-alpha")})
	v := w.view("a-app/db")
	var tag string
	for _, d := range w.s.HolderDocuments(w.s.BindingWithID(*v.ID)) {
		if d.Generation == v.Generation {
			tag = d.Tag
		}
	}
	if len(tag) != 8 {
		t.Fatalf("the tag is %q", tag)
	}
	w.reason = "the disk is full"
	for _, c := range []Command{IssueCredential{Slot: "a-app/db", Generation: v.Generation, SecretRef: "bao:a", Tag: "00000000"},
		FailCredential{Slot: "a-app/db", Generation: v.Generation, Tag: "00000000"},
		RevokeCredential{Slot: "a-app/db", Generation: v.Generation, Tag: "00000000"}} {
		w.refused(LedgerRestored, c)
	}
	w.must(FailCredential{Slot: "a-app/db", Generation: v.Generation, Tag: tag},
		IssueCredential{Slot: "a-app/db", Generation: v.Generation, SecretRef: "bao:a", Tag: tag})
	w.replay()
}

// What was done for a credential where its provider is not any more is not taken;
// what is said again, of what was taken before it moved, is no news.
func TestProviderMovedMeanwhile(t *testing.T) {
	w := holders(t, 1)
	w.must(StartRotation{RotationTarget: of("pg-alpha")})
	v := w.view("a-app/db")
	issued := IssueCredential{Slot: "a-app/db", Generation: v.Generation, SecretRef: "bao:a", Node: "alpha"}
	w.must(RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "b:1"})
	w.reason = "the disk is full"
	for _, c := range []Command{issued, FailCredential{Slot: "a-app/db", Generation: v.Generation, Node: "alpha"}} {
		if r := w.refused(ProviderMoved, c); !strings.Contains(r.Why, "beta") || r.Code.Exit() != ExitConflict {
			t.Errorf("%+v", r)
		}
	}
	w.refused(NodeNotFound, IssueCredential{Slot: "a-app/db", Generation: v.Generation, SecretRef: "bao:a", Node: "gamma"})
	issued.Node = w.s.Node(w.s.NodeNamed("beta")).ID.String()
	w.must(issued)
	w.must(RelocateProvider{Provider: "pg-alpha", To: "alpha", Endpoint: "a:1"})
	at := w.s.Seq
	w.must(issued) // its answer was lost
	if w.s.Seq != at {
		t.Errorf("it was issued twice")
	}
	w.must(AcknowledgeBinding{Slot: "a-app/db", At: w.s.Seq})
	old := w.s.ListCredentials(projections.CredentialFilter{}).Items
	i := slices.IndexFunc(old, func(c projections.CredentialView) bool { return c.Generation != v.Generation })
	gone := RevokeCredential{Slot: "a-app/db", Generation: old[i].Generation, Node: "beta"}
	w.refused(ProviderMoved, gone)
	gone.Node = "alpha"
	w.must(gone)
	at, gone.Node = w.s.Seq, "beta"
	w.must(gone)
	if w.s.Seq != at {
		t.Errorf("it was revoked twice")
	}
	w.replay()
}

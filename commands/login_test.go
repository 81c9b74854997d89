package commands

import (
	"slices"
	"strings"
	"testing"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"
)

const agentHook = "provider/postgres-database"

// byHand gives wiki/db a login that somebody made, which is in use.
func byHand(t *testing.T) (*world, uint64) {
	w := home(t)
	g := w.asked("wiki/db")
	w.must(IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: "file:/srv/wiki/.env"})
	w.adopt("wiki/db")
	return w, g
}

// replaced has the next login issued by an agent, and taken up.
func (w *world) replaced(path string) {
	w.t.Helper()
	w.must(StartRotation{RotationTarget: RotationTarget{Binding: path}})
	w.issue(path)
	w.adopt(path)
}

func (w *world) row(path string, generation uint64) projections.CredentialView {
	w.t.Helper()
	for _, c := range w.s.ListCredentials(projections.CredentialFilter{All: true}).Items {
		if c.Assignment+"/"+c.Slot == path && c.Generation == generation {
			return c
		}
	}
	w.t.Fatalf("%s has no generation %d", path, generation)
	return projections.CredentialView{}
}

// Kind: a login that nobody but a person made is revoked by a hook that does not know it.
func TestHandMadeLoginIsNoAgentsToEnd(t *testing.T) {
	w, g := byHand(t)
	w.replaced("wiki/db")
	for _, did := range []events.Did{"", events.DidDrop, events.DidAbsent} {
		r := w.refused(RevocationUnproven, RevokeCredential{Slot: "wiki/db", Generation: g, Did: did, Hook: agentHook})
		if !strings.Contains(r.Why, "made by hand") {
			t.Errorf("%q: %s", did, r.Why)
		}
	}
	ref := w.s.ListRotations(projections.RotationFilter{}, w.now).Items[0]
	found := projections.RotationRef(w.s.ByID(events.EntityRotation, ref.ID))
	m := w.s.RotationMembers(found, w.now, 0).Members[0]
	if m.Step != projections.StepRevoke || m.Turn != projections.TurnOperator || m.Fix.Verb != "credential adopt" {
		t.Errorf("the step is %s, the turn %s, the fix %s", m.Step, m.Turn, m.Fix)
	}

	w.must(AdoptCredential{Slot: "wiki/db", Generation: g, User: "wiki", Database: "wiki_prod"})
	if v := w.row("wiki/db", g); v.User != "wiki" || v.Database != "wiki_prod" || !v.ByHand || v.Operator {
		t.Errorf("adopted: %+v", v)
	}
	w.refused(RevocationUnproven, RevokeCredential{Slot: "wiki/db", Generation: g, Did: events.DidAbsent, Hook: agentHook})
	w.must(RevokeCredential{Slot: "wiki/db", Generation: g, Did: events.DidDrop, Hook: agentHook})
	w.replay()
}

// An operator answers for his own word.
func TestOperatorNeedsNoProof(t *testing.T) {
	w, g := byHand(t)
	w.replaced("wiki/db")
	w.must(RevokeCredential{Slot: "wiki/db", Generation: g})
	w.replay()
}

// Kind: who made a login is not who is asked to drop it.
func TestAnotherHookEndsNothing(t *testing.T) {
	w := home(t)
	g := w.asked("wiki/db")
	w.must(IssueCredential{Slot: "wiki/db", Generation: g, SecretRef: "file:/a", User: "u1", Hook: "provider/pg-alpha"})
	w.adopt("wiki/db")
	v := w.row("wiki/db", g)
	if v.Maker == nil || v.Maker.Hook != "provider/pg-alpha" || v.Maker.Node != "alpha" || v.ByHand {
		t.Fatalf("made by %+v", v)
	}
	w.must(RenameProvider{"pg-alpha", "pg-main"})
	w.replaced("wiki/db")
	r := w.refused(RevocationUnproven, RevokeCredential{Slot: "wiki/db", Generation: g, Did: events.DidDrop, Hook: "provider/default"})
	if !strings.Contains(r.Why, "provider/pg-alpha") || !strings.Contains(r.Why, "provider/default") {
		t.Errorf("it names not both: %s", r.Why)
	}
	w.must(RevokeCredential{Slot: "wiki/db", Generation: g, Did: events.DidDrop, Hook: "provider/pg-alpha"})
	w.replay()
}

// Whoever is granted as an agent says what was done, also where it names no hook.
func TestAgentByGrantMustProve(t *testing.T) {
	w, g := byHand(t)
	w.must(AdoptCredential{Slot: "wiki/db", User: "wiki"})
	w.replaced("wiki/db")
	w.must(GrantAccess{Name: "on-alpha", Role: events.RoleAgent, Node: "alpha", NKey: "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"})
	env := w.env()
	env.Actor = "on-alpha"
	mark := w.s.Begin()
	if _, err := Decide(w.s, RevokeCredential{Slot: "wiki/db", Generation: g}, env); codeOf(err) != RevocationUnproven {
		t.Errorf("got %v", err)
	}
	w.s.Rollback(mark)
}

// Adoption is said once; it is about what an agent did not make.
func TestAdopt(t *testing.T) {
	w, g := byHand(t)
	w.wrote(w.must(AdoptCredential{Slot: "wiki/db", User: "wiki"}), "credential.login-told")
	w.wrote(w.must(AdoptCredential{Slot: "wiki/db", User: "wiki"}))
	w.wrote(w.must(AdoptCredential{Slot: "wiki/db", Generation: g, User: "wiki", Database: "w"}), "credential.login-told")
	w.refused(AlreadyIssued, AdoptCredential{Slot: "wiki/db", Generation: g, User: "wiki", SecretRef: "file:/other"})
	w.refused(Usage, AdoptCredential{Slot: "wiki/db"})
	w.refused(Usage, AdoptCredential{Slot: "wiki/db", User: "wi\nki"})
	w.refused(SecretInLedger, AdoptCredential{Slot: "wiki/db", User: "password=hunter22"})
	w.refused(GenerationUnknown, AdoptCredential{Slot: "wiki/db", Generation: 999, User: "wiki"})
	w.replaced("wiki/db")
	w.refused(MadeByAgent, AdoptCredential{Slot: "wiki/db", User: "wiki"})
	w.replay()
}

// An ask is answered by a login that is there, once it is said where its secret lies.
func TestAdoptAnswersAnAsk(t *testing.T) {
	w := home(t)
	g := w.asked("wiki/db")
	w.refused(Usage, AdoptCredential{Slot: "wiki/db", User: "wiki"})
	w.wrote(w.must(AdoptCredential{Slot: "wiki/db", User: "wiki", Database: "wiki", SecretRef: "file:/srv/wiki/.env"}), "credential.issued")
	if v := w.row("wiki/db", g); v.User != "wiki" || !v.ByHand || v.State != "issued" {
		t.Errorf("got %+v", v)
	}
	w.replay()
}

// The next login is told which one it follows.
func TestAskFollowsALogin(t *testing.T) {
	w, g := byHand(t)
	w.must(AdoptCredential{Slot: "wiki/db", User: "wiki", Database: "wiki_prod"})
	w.must(StartRotation{RotationTarget: RotationTarget{Binding: "wiki/db"}})
	f, err := Finder{w.s}.Slot("wiki/db")
	if err != nil {
		t.Fatal(err)
	}
	var asked *projections.HolderDocument
	for _, d := range w.s.HolderDocuments(f.Binding) {
		if d.Do == projections.DutyIssue {
			asked = &d
		}
	}
	if asked == nil || asked.Follows == nil || asked.Follows.User != "wiki" || asked.Follows.Database != "wiki_prod" || !asked.Follows.ByHand || asked.Follows.Generation != g {
		t.Fatalf("the ask is %+v", asked)
	}
	w.must(RebindSlot{Slot: "wiki/db", Provider: "pg-beta"})
	for _, d := range w.s.HolderDocuments(f.Binding) {
		if d.Do == projections.DutyIssue && d.Follows != nil {
			t.Errorf("at another provider it follows %+v", d.Follows)
		}
	}
}

// A fleet's logins stand in a manifest; a second apply changes nothing, also when agents
// have replaced them.
func TestLoginsOfAFleet(t *testing.T) {
	w := home(t)
	logins := &manifest.Manifest{Logins: []manifest.Login{{Slot: "wiki/db", User: "wiki", Database: "w", SecretRef: "file:/srv/wiki/.env"}}}
	w.wrote(w.must(ApplyManifest{Manifest: logins}), "credential.issued")
	w.wrote(w.must(ApplyManifest{Manifest: logins}))
	w.adopt("wiki/db")
	logins.Logins[0].Database = "w2"
	w.wrote(w.must(ApplyManifest{Manifest: logins}), "credential.login-told")
	w.replaced("wiki/db")
	w.wrote(w.must(ApplyManifest{Manifest: logins}))
	w.refused(AssignmentNotFound, ApplyManifest{Manifest: &manifest.Manifest{Logins: []manifest.Login{{Slot: "nobody/db", User: "x"}}}})
	w.replay()
}

// Kind: a decision that writes nothing leaves a mark on the state, and a snapshot of it is
// not what a replay gives. A rotation that is aborted leaves a withdrawn ask; whoever
// speaks of that changes nothing.
func TestNothingWrittenLeavesNoMark(t *testing.T) {
	w, _ := byHand(t)
	w.must(StartRotation{RotationTarget: RotationTarget{Binding: "wiki/db"}})
	asked := w.asked("wiki/db")
	w.because("enough", AbortRotation{Rotation: "wiki/db"})
	before := saved(t, w.s)
	w.wrote(w.must(RevokeCredential{Slot: "wiki/db", Generation: asked}))
	w.wrote(w.because("why", FailCredential{Slot: "wiki/db", Generation: asked}))
	w.wrote(w.must(AcknowledgeBinding{Slot: "wiki/db", At: w.s.Binding(w.bindingOf("wiki/db")).Applied}))
	if !slices.Equal(before, saved(t, w.s)) {
		t.Error("a mark is left")
	}
	w.replay()
}

func (w *world) bindingOf(path string) projections.BindingRef {
	w.t.Helper()
	f, err := Finder{w.s}.Slot(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return f.Binding
}

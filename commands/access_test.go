package commands

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nkeys"

	"bindery/events"
)

func publicKey(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// broken is a key with another character in its middle: its checksum is wrong.
func broken(key string) string {
	other := "A"
	if key[20:21] == other {
		other = "B"
	}
	return key[:20] + other + key[21:]
}

// guarded is a mesh with an operator, an agent on each node and an auditor.
func guarded(t *testing.T) (w *world, keys map[string]string) {
	w = holders(t, 2) // a-app on alpha, b-app on beta, both at pg-alpha
	keys = map[string]string{}
	for _, g := range []GrantAccess{{Name: "ann", Role: events.RoleOperator}, {Name: "on-alpha", Role: events.RoleAgent, Node: "alpha"},
		{Name: "on-beta", Role: events.RoleAgent, Node: "beta"}, {Name: "eve", Role: events.RoleAuditor}} {
		g.NKey = publicKey(t)
		keys[g.Name] = g.NKey
		w.must(g)
	}
	return w, keys
}

func TestGrants(t *testing.T) {
	w, keys := guarded(t)
	w.unchanged(GrantAccess{Name: "eve", Role: events.RoleAuditor, NKey: keys["eve"]})
	w.refused(NameTaken, GrantAccess{Name: "eve", Role: events.RoleOperator, NKey: keys["eve"]})
	w.refused(NKeyTaken, GrantAccess{Name: "mallory", Role: events.RoleOperator, NKey: keys["eve"]})
	w.refused(NKeyInvalid, GrantAccess{Name: "mallory", Role: events.RoleOperator, NKey: "UAAA"})
	w.refused(NKeyInvalid, GrantAccess{Name: "mallory", Role: events.RoleOperator, NKey: broken(keys["eve"])})
	w.refused(Usage, GrantAccess{Name: "mallory", Role: events.RoleOperator, Node: "alpha", NKey: publicKey(t)})
	w.refused(Usage, GrantAccess{Name: "mallory", Role: events.RoleAgent, NKey: publicKey(t)})
	w.refused(NodeNotFound, GrantAccess{Name: "mallory", Role: events.RoleAgent, Node: "gamma", NKey: publicKey(t)})
	w.refused(LastOperator, RevokeAccess{"ann"})
	w.refused(AccessNotFound, RevokeAccess{"bob"})
	w.must(GrantAccess{Name: "bob", Role: events.RoleOperator, NKey: publicKey(t)}, RevokeAccess{"ann"})
	w.refused(LastOperator, RevokeAccess{"bob"})
	if n := len(w.s.ListGrants().Items); n != 4 {
		t.Errorf("%d grants", n)
	}
	w.must(GrantAccess{Name: "ann", Role: events.RoleAuditor, NKey: keys["ann"]}) // name and key are free again
	w.replay()
}

// Who may do what: by role, by node, at the moment it is asked.
func TestAuthorize(t *testing.T) {
	w, keys := guarded(t)
	a := w.view("a-app/db").Generation // issued at pg-alpha, which is on alpha
	b := w.view("b-app/db").Generation
	all := "ann on-alpha on-beta eve"
	for _, c := range []struct {
		what any
		who  string
	}{
		{RegisterNode{"gamma"}, "ann"},
		{StartRotation{RotationTarget: of("pg-alpha")}, "ann"},
		{GrantAccess{}, "ann"},
		{AcknowledgeBinding{Slot: "a-app/db", At: 1}, "ann on-alpha"},
		{AcknowledgeBinding{Slot: "b-app/db", At: 1}, "ann on-beta"},
		{FailBinding{Slot: "b-app/db"}, "ann on-beta"},
		{AcknowledgeBinding{Slot: "nothing/db", At: 1}, "ann"},
		{IssueCredential{Slot: "b-app/db", Generation: b, SecretRef: "file:/x"}, "ann on-alpha"}, // the provider's node, not the consumer's
		{FailCredential{Slot: "b-app/db", Generation: b}, "ann on-alpha"},
		{RevokeCredential{Slot: "a-app/db", Generation: a}, "ann on-alpha"},
		{RevokeCredential{Slot: "a-app/db", Generation: a, Force: true}, "ann"},
		{RevokeCredential{Slot: "a-app/db", Generation: 1}, "ann"},
		// Who says that it did so on its own node may, and is told that the provider is not there.
		{RevokeCredential{Slot: "a-app/db", Generation: a, Node: "beta"}, "ann on-alpha on-beta"},
		{IssueCredential{Slot: "b-app/db", Generation: b, SecretRef: "file:/x", Node: "beta"}, "ann on-alpha on-beta"},
		{IssueCredential{Slot: "b-app/db", Generation: 1, SecretRef: "file:/x", Node: "beta"}, "ann"},
		{RevokeCredential{Slot: "a-app/db", Generation: a, Force: true, Node: "beta"}, "ann"},
		{WriteOffCredentials{Slot: "a-app/db", Generation: a}, "ann"},
		{RequestCredential{"a-app/db"}, "ann"},
		{Status{}, "ann eve"},
		{ListAccess{}, "ann eve"},
		{ListBindings{}, "ann eve"},
		{ListBindings{Node: "alpha"}, "ann on-alpha eve"},
		{ListBindings{Provider: "pg-beta"}, "ann on-beta eve"},
		{ShowBinding{"b-app/db"}, "ann on-beta eve"},
		{ListHolders{Provider: "pg-alpha"}, "ann on-alpha eve"},
		{ListCredentials{}, "ann eve"},
		{ListCredentials{Assignment: "b-app"}, "ann on-beta eve"},
		{ShowNode{"beta"}, "ann on-beta eve"},
		{Explain{Slot: "b-app/db"}, "ann on-beta eve"},
		{Explain{Module: "app", Node: "beta"}, "ann eve"},
		{WhoAmI{}, all},
		{"the log", "ann eve"},
	} {
		got := ""
		for _, name := range []string{"ann", "on-alpha", "on-beta", "eve"} {
			actor, err := Authorize(w.s, keys[name], c.what)
			var r *Refusal
			switch {
			case err == nil && actor == name:
				got += " " + name
			case !errors.As(err, &r) || r.Code != NotPermitted:
				t.Errorf("%T for %s: %q, %v", c.what, name, actor, err)
			}
		}
		if got != " "+c.who {
			t.Errorf("%T %+v: may%s, want %s", c.what, c.what, got, c.who)
		}
		if _, err := Authorize(w.s, publicKey(t), c.what); err == nil {
			t.Errorf("%T: a key that nobody granted may", c.what)
		}
	}

	// A provider that moves takes its acknowledgements along, and a revocation bites.
	w.must(RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta:5433"})
	revoke := RevokeCredential{Slot: "a-app/db", Generation: a}
	if _, err := Authorize(w.s, keys["on-alpha"], revoke); err == nil {
		t.Error("the agent of the old node still may")
	}
	if _, err := Authorize(w.s, keys["on-beta"], revoke); err != nil {
		t.Errorf("the agent of the new node may not: %v", err)
	}
	w.must(RevokeAccess{"on-beta"})
	if _, err := Authorize(w.s, keys["on-beta"], revoke); err == nil {
		t.Error("a revoked key still may")
	}
	w.must(RenameNode{"alpha", "attic"})
	if _, err := Authorize(w.s, keys["on-alpha"], ShowNode{"attic"}); err != nil {
		t.Errorf("a grant is of the node, whatever that is called: %v", err)
	}
}

// The first operator comes with the mesh.
func TestInitWithOperator(t *testing.T) {
	w := freshWorld(t)
	key := publicKey(t)
	d := w.must(CreateMesh{Name: "home", Operator: "ann", NKey: key})
	w.wrote(d, "mesh.created", "access.granted")
	if actor, err := Authorize(w.s, key, RegisterNode{"alpha"}); actor != "ann" || err != nil {
		t.Error(actor, err)
	}
	w = freshWorld(t)
	for i, c := range []CreateMesh{{Name: "home", Operator: "ann"}, {Name: "home", NKey: key}} {
		if _, err := Decide(w.s, c, w.env()); err == nil {
			t.Errorf("%d was taken", i)
		}
	}
	if w.s.Seq != 0 {
		t.Error(fmt.Sprint("the ledger is at ", w.s.Seq))
	}
}

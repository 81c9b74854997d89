package events

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

// go generate ./events passes it; see generate_test.go.
var update = flag.Bool("update", false, "write the golden files, the schemas and the table in docs/events.md anew")

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

// testID gives the n-th of a row of fixed ids, from 1.
func testID(n uint64) ID {
	var u ulid.ULID
	if err := u.SetTime(uint64(testTime.UnixMilli())); err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint64(u[8:], n)
	return ID(u)
}

const testMesh = "demo"

var (
	meshID       = testID(1)
	nodeID       = testID(2)
	provisionID  = testID(3)
	providerID   = testID(4)
	moduleID     = testID(5)
	assignmentID = testID(6)
	bindingID    = testID(7)
	overrideID   = testID(8)
	rotationID   = testID(10)
	accessID     = testID(11)
)

func ptr[T any](v T) *T { return &v }

// samples has one payload of every registered type, with each of its fields.
func samples() []Payload {
	return []Payload{
		&MeshCreated{Name: testMesh},
		&MeshClockStepped{From: testTime.Add(2 * time.Minute), To: testTime},
		&MeshRecovered{AnchorSeq: 4711, AnchorChain: strings.Repeat("0123456789abcdef", 4), FoundSeq: 4699, Skipped: 3},
		&MeshSealed{Successor: "nats://ledger.example.net:4222"},

		&NodeRegistered{Name: "node-a"},
		&NodeRenamed{From: "node-a", To: "rack1-a"},
		&NodeRetired{Forced: true},

		&ProvisionDefined{Name: "postgres-database", Scope: ScopeNode, Credentials: CredentialsManaged},
		&ProvisionRescoped{From: ScopeNode, To: ScopeMesh},
		&ProvisionRemoved{},
		&DefaultSet{Node: nodeID, Provider: providerID, Replaces: testID(14)},
		&DefaultCleared{Node: nodeID, Provider: providerID},

		&ProviderRegistered{Name: "pg-a", Provision: provisionID, Node: nodeID, Endpoint: "pg-a.example.net:5432",
			Version: "16.4", Features: []string{"pgvector", "postgis"}, Cordoned: true},
		&ProviderUpdated{Endpoint: ptr("[2001:db8::7]:5432"), Version: ptr("17"), Features: ptr([]string{})},
		&ProviderRenamed{From: "pg-a", To: "pg-main"},
		&ProviderRelocated{From: nodeID, To: testID(12), FromEndpoint: "pg-a.example.net:5432", Endpoint: "https://pg-b.example.net/db"},
		&ProviderCordoned{},
		&ProviderUncordoned{},
		&ProviderRetired{Forced: true},

		&ModuleDeclared{Name: "wiki",
			Requires: map[string]Requirement{
				"db":    {Provision: provisionID, Version: ">=14 <17", Features: []string{"pgvector"}, Provider: providerID},
				"files": {Provision: testID(13), Optional: true},
			},
			Embeds: map[string]Embed{"search": {Provision: testID(23), Version: "7.10.2", Features: []string{"plugins"},
				Because: BecauseFork, Needs: &Needs{Version: "7.x", Features: []string{"plugins"}}, Replaceable: true,
				Composition: &Composition{File: "compose.yaml", Service: "search"}}}},
		&ModuleRemoved{},

		&AssignmentCreated{Name: "wiki-a", Module: moduleID, Node: nodeID,
			Slots:   map[string]ID{"db": bindingID, "files": testID(17), "search": testID(27)},
			Choices: map[string]ID{"db": providerID}},
		&AssignmentRenamed{From: "wiki-a", To: "wiki-main"},
		&AssignmentMoved{From: nodeID, To: testID(12)},
		&ChoiceSet{Slot: "db", Binding: bindingID, Provider: providerID, Replaces: testID(14)},
		&ChoiceCleared{Slot: "db", Binding: bindingID, Provider: providerID},
		&AssignmentEnded{},

		&BindingBound{Assignment: assignmentID, Slot: "db", Target: Target{Provider: providerID}, Rule: RuleNodeDefault, Basis: 7},
		&BindingRebound{Assignment: assignmentID, Slot: "search", From: Target{Embedded: true}, To: Target{Provider: testID(24)},
			Rule: RuleOverride, Basis: 9},
		&BindingReleased{From: Target{Provider: providerID}, Cause: ReleasePruned},

		&BindingApplied{At: 41},
		&BindingFailed{Attempts: 2},

		&OverrideSet{Binding: bindingID, Assignment: assignmentID, Slot: "db", Provider: testID(14),
			Under: Memory{Target: Target{Provider: providerID}, Rule: RuleCoLocated, Basis: 7}},
		&OverrideCleared{Binding: bindingID},

		&CredentialRequested{Target: Target{Provider: providerID}},
		&CredentialIssued{Generation: 33, SecretRef: "sealed:pg-a/wiki-33", Login: &Login{"b0123456789_33_0badcafe", "wiki"},
			Maker: &Maker{nodeID, "provider/postgres-database"}},
		&CredentialLoginTold{Generation: 33, Login: Login{"wiki", "wiki_db"}},
		&CredentialFailed{Generation: 33, Attempts: 4, Operator: true},
		&CredentialRevoked{Generation: 33, Forced: true, Did: DidDrop},
		&CredentialWrittenOff{Generation: 33, Forced: true},

		&RotationStarted{Target: Target{Provider: providerID}, Binding: bindingID, IssuedBefore: 40,
			Deadline: Moment(testTime.Add(48 * time.Hour)), Urgent: true, Members: 2},
		&RotationUrged{},
		&RotationCompleted{},
		&RotationAborted{},

		&AccessGranted{Name: "agent-a", Role: RoleAgent, Node: nodeID, NKey: "U" + strings.Repeat("A", 55)},
		&AccessRevoked{},
	}
}

// sample wraps p in an envelope: mesh.created at sequence 1, all else at 2.
func sample(p Payload) Event {
	t := p.EventType()
	e := Event{
		Envelope: Envelope{ID: testID(101), Mesh: meshID, Time: testTime, Actor: "alice", Command: testID(100),
			CommandHash: CommandHash{0xc0, 0xff, 0xee, 15: 0x01}, Origin: OriginCommand, K: 1, N: 1},
		Seq: 2, MeshName: testMesh, Type: t, Data: p,
	}
	switch t.Entity {
	case EntityMesh:
		e.Entity = meshID
	case EntityNode:
		e.Entity = nodeID
	case EntityProvision:
		e.Entity = provisionID
	case EntityProvider:
		e.Entity = providerID
	case EntityModule:
		e.Entity, e.Origin = moduleID, OriginManifest
	case EntityAssignment:
		e.Entity = assignmentID
	case EntityBinding:
		e.Entity, e.K, e.N = bindingID, 2, 3
	case EntityCredential:
		e.Entity = bindingID
		switch p.(type) {
		case *CredentialFailed, *CredentialWrittenOff:
			e.Reason = "connection refused"
		}
	case EntityRotation:
		e.Entity = rotationID
	case EntityAccess:
		e.Entity = accessID
	case EntityOverride:
		e.Entity, e.Reason, e.Actor = overrideID, "pg-a wird ersetzt: 100 % \"voll\" – Ticket 4711", "Zoë"
	default: // an entity this switch does not know yet
		e.Entity = testID(9)
	}
	if _, ok := p.(*MeshCreated); ok {
		e.Seq = 1
	}
	return e
}

// encoded is the sample of p as a record, and what it was made of. All but the
// first event follow the sample of mesh.created.
func encoded(t testing.TB, p Payload) (Event, Record) {
	t.Helper()
	var prev Chain
	if _, first := p.(*MeshCreated); !first {
		root, _ := encoded(t, &MeshCreated{Name: testMesh})
		prev = root.Chain
	}
	e := sample(p)
	r, err := e.Encode(prev)
	if err != nil {
		t.Fatal(err)
	}
	return e, r
}

// golden compares got with a file below the package, or writes it.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go generate ./events writes it", err)
	}
	if string(got) != string(want) {
		t.Errorf("%s has changed.\n got: %s\nwant: %s\nWhat is stored stays as it is: a changed event needs a new version of its type.", file, got, want)
	}
}

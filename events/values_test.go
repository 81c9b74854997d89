package events

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCheckVersion(t *testing.T) {
	for _, s := range []string{"16", "16.4", "16.4.1", "0.0.0", "7.10.2-fork.1", "1.2.3+build.5", "v16.4"} {
		if err := CheckVersion(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", "x", "latest", "16.x", ">=16", "16.4.1.2", "16 ", " 16", "16\n", "-1", "1..2", "16-ä", strings.Repeat("1", MaxVersion+1)} {
		if CheckVersion(s) == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestCheckConstraint(t *testing.T) {
	for _, s := range []string{">=14", "14.x", ">=14 <17", "^8.0 || ^9.0", "~1.2", "!=15", "14", "*", ">=14, <17", "1.2 - 1.4"} {
		if err := CheckConstraint(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", "  ", "new", ">=", "14 or 15", ">=14 &&", ">=ä", ">=14\x00", "||", strings.Repeat("1", MaxVersion+1)} {
		if CheckConstraint(s) == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestCheckFeatures(t *testing.T) {
	many := make([]string, MaxFeatures)
	for i := range many {
		many[i] = "f" + string(rune('a'+i/26)) + string(rune('a'+i%26))
	}
	for _, f := range [][]string{nil, {}, {"a"}, {"0"}, {"a.b_c-d", "b"}, many, {strings.Repeat("a", 63)}} {
		if err := CheckFeatures(f); err != nil {
			t.Errorf("%q: %v", f, err)
		}
	}
	for _, f := range [][]string{{""}, {"A"}, {"b", "a"}, {"a", "a"}, {"a b"}, {"-a"}, {"ä"}, {"a\n"}, {strings.Repeat("a", 64)}, append(slices.Clone(many), "z")} {
		if CheckFeatures(f) == nil {
			t.Errorf("%q is taken", f)
		}
	}
	in := []string{"b", "a", "b"}
	if got := SortFeatures(in); !slices.Equal(got, []string{"a", "b"}) || in[0] != "b" {
		t.Errorf("sorted %q, in %q", got, in)
	}
	if SortFeatures(nil) == nil {
		t.Error("no features are nil")
	}
}

func TestTarget(t *testing.T) {
	if !(Target{}).IsZero() || (Target{Embedded: true}).IsZero() || (Target{Provider: providerID}).IsZero() {
		t.Error("IsZero")
	}
	if (Target{Provider: providerID, Embedded: true}).check() == nil {
		t.Error("both at once are taken")
	}
}

func TestChecks(t *testing.T) {
	sealed := func(s string) Payload { return &MeshSealed{Successor: s} }
	for what, p := range map[string]Payload{
		"a step forward":          &MeshClockStepped{From: testTime, To: testTime.Add(time.Minute)},
		"no step":                 &MeshClockStepped{From: testTime, To: testTime},
		"a step of microseconds":  &MeshClockStepped{From: testTime, To: testTime.Add(-time.Microsecond)},
		"a successor's password":  sealed("nats://u:p@x"),
		"a successor's control":   sealed("x\ny"),
		"a successor too long":    sealed(strings.Repeat("x", MaxReason+1)),
		"no chain value":          &MeshRecovered{AnchorChain: "x"},
		"bound to nothing":        &BindingBound{Assignment: assignmentID, Slot: "db", Rule: RuleDrain},
		"rebound to the same":     &BindingRebound{Assignment: assignmentID, Slot: "db", Rule: RuleDrain, From: Target{Embedded: true}, To: Target{Embedded: true}},
		"no such rule":            &BindingBound{Assignment: assignmentID, Slot: "db", Rule: "guess", Target: Target{Embedded: true}},
		"no such scope":           &ProvisionRescoped{From: ScopeNode, To: "global"},
		"a target without rule":   &OverrideSet{Binding: bindingID, Assignment: assignmentID, Slot: "db", Provider: providerID, Under: Memory{Target: Target{Embedded: true}}},
		"a rule without target":   &OverrideSet{Binding: bindingID, Assignment: assignmentID, Slot: "db", Provider: providerID, Under: Memory{Rule: RuleModule}},
		"a choice for no slot":    &AssignmentCreated{Name: "a", Module: moduleID, Node: nodeID, Choices: map[string]ID{"db": providerID}},
		"a slot without binding":  &AssignmentCreated{Name: "a", Module: moduleID, Node: nodeID, Slots: map[string]ID{"db": {}}},
		"required and embedded":   &ModuleDeclared{Name: "m", Requires: map[string]Requirement{"db": {Provision: provisionID}}, Embeds: map[string]Embed{"db": {Provision: provisionID, Because: BecauseFork}}},
		"no reason to embed":      &ModuleDeclared{Name: "m", Embeds: map[string]Embed{"db": {Provision: provisionID}}},
		"a composition of spaces": &ModuleDeclared{Name: "m", Embeds: map[string]Embed{"db": {Provision: provisionID, Because: BecauseFork, Composition: &Composition{File: "a\x7f", Service: "b"}}}},
		"relocated from a secret": &ProviderRelocated{From: nodeID, To: testID(12), FromEndpoint: "https://u:p@x", Endpoint: "x:1"},
	} {
		if err := p.Check(); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	slots := map[string]ID{}
	for i := range MaxSlots + 1 {
		slots["s"+strings.Repeat("x", i%50)+string(rune('a'+i/50))] = testID(uint64(i + 1))
	}
	if (&AssignmentCreated{Name: "a", Module: moduleID, Node: nodeID, Slots: slots}).Check() == nil {
		t.Error("more slots than a module has are taken")
	}
}

func TestInstant(t *testing.T) {
	in := time.Date(2026, 1, 2, 4, 4, 5, 678_999_999, time.FixedZone("", 3600))
	if got := Instant(in); got != testTime {
		t.Errorf("%v, want %v", got, testTime)
	}
	if got := Instant(time.Now()); strings.Contains(got.String(), "m=") {
		t.Errorf("%v has a monotonic reading", got)
	}
}

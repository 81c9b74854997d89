package commands

import (
	"testing"

	"bindery/projections"
)

// Kind: a default names what is gone, and nobody says so until it decides. It is listed,
// with the command that clears it, mesh-wide and of a node.
func TestDefaultOfARetiredProvider(t *testing.T) {
	w := home(t)
	w.must(SetDefault{Provision: "postgres-database", Provider: "pg-beta"}, SetDefault{Provision: "postgres-database", Provider: "pg-beta", Node: "beta"})
	gone := func() (out []projections.Attention) {
		for _, a := range w.s.Status(w.s.Time).Attention {
			if a.Code == "default_retired" {
				out = append(out, a)
			}
		}
		return out
	}
	if got := gone(); got != nil {
		t.Fatalf("before: %+v", got)
	}
	w.because("its disk is lost", RetireProvider{Provider: "pg-beta", Force: true})
	got := gone()
	if len(got) != 2 {
		t.Fatalf("listed: %+v", got)
	}
	w.must(ClearDefault{Provision: "postgres-database"}, ClearDefault{Provision: "postgres-database", Node: "beta"})
	if got := gone(); got != nil {
		t.Errorf("after they were cleared: %+v", got)
	}
	w.replay()
}

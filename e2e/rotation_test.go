package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// credentialJSON is what the tests read of a credential.
type credentialJSON struct {
	Assignment string `json:"assignment"`
	Slot       string `json:"slot"`
	Provider   string `json:"provider"`
	Generation uint64 `json:"generation"`
	SecretRef  string `json:"secret_ref"`
	State      string `json:"state"`
	InUse      bool   `json:"in_use"`
}

func (c credentialJSON) path() string { return c.Assignment + "/" + c.Slot }

// rotationJSON is what they read of a rotation.
type rotationJSON struct {
	ID      string `json:"id"`
	Seq     uint64 `json:"seq"`
	State   string `json:"state"`
	Total   int    `json:"total"`
	Done    int    `json:"done"`
	Members []struct {
		Assignment string `json:"assignment"`
		Slot       string `json:"slot"`
		From       uint64 `json:"from"`
		To         uint64 `json:"to"`
		Step       string `json:"step"`
		Turn       string `json:"turn"`
		Who        string `json:"who"`
	} `json:"members"`
}

// keeper plays all sides of a fleet: the providers', the consumers', the
// operator's.
type keeper struct {
	*cli
	t *testing.T
}

// ask is the generation of a slot's open ask.
func (k keeper) ask(path string) uint64 {
	k.t.Helper()
	name, _, _ := strings.Cut(path, "/")
	for _, c := range read[listJSON[credentialJSON]](k.t, k.cli, "credential", "list", "--assignment", name, "--state", "asked").Items {
		if c.path() == path {
			return c.Generation
		}
	}
	k.t.Fatalf("%s has no open ask", path)
	return 0
}

// issue is the provider side's answer.
func (k keeper) issue(path string) uint64 {
	k.t.Helper()
	g := k.ask(path)
	k.must(k.t, "credential", "issued", path, "--generation", number(g), "--secret-ref", fmt.Sprintf("file:/run/secrets/%s-%d", path, g))
	return g
}

// apply is the consumer's.
func (k keeper) apply(path string) {
	k.t.Helper()
	seq := read[struct {
		Seq uint64 `json:"changed_seq"`
	}](k.t, k.cli, "binding", "show", path).Seq
	k.must(k.t, "binding", "applied", path, "--at", number(seq))
}

func (k keeper) revoke(path string, generation uint64) {
	k.t.Helper()
	k.must(k.t, "credential", "revoked", path, "--generation", number(generation))
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// holders checks who can log in to a provider: "slot generation state".
func (k keeper) holders(provider string, want ...string) {
	k.t.Helper()
	var got []string
	for _, c := range read[listJSON[credentialJSON]](k.t, k.cli, "provider", "holders", provider).Items {
		got = append(got, fmt.Sprintf("%s %d %s", c.path(), c.Generation, c.State))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		k.t.Fatalf("holders of %s (-want +got):\n%s", provider, diff)
	}
}

// steps checks a rotation: its state, and "slot from>to step who" for each member.
func (k keeper) steps(id, state string, want ...string) {
	k.t.Helper()
	r := read[rotationJSON](k.t, k.cli, "rotation", "show", id)
	var got []string
	done := 0
	for _, m := range r.Members {
		got = append(got, fmt.Sprintf("%s/%s %d>%d %s %s", m.Assignment, m.Slot, m.From, m.To, m.Step, m.Who))
		if m.Step == "done" {
			done++
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		k.t.Fatalf("members (-want +got):\n%s", diff)
	}
	if r.State != state || r.Total != len(want) || r.Done != done {
		k.t.Fatalf("%s, %d of %d done; want %s, %d of %d", r.State, r.Done, r.Total, state, done, len(want))
	}
}

// What NEED asks about rotate, on the example fleet: the holders of pg-alpha are
// rotated while one consumer is rebound, one is ended and one is new. Each list
// is exact at each step; at the end the old credentials are all gone, and only
// then the provider can be retired.
func TestRotateHolders(t *testing.T) {
	t.Parallel()
	k := keeper{newCLI(t), t}
	k.must(t, "apply", "--init", "-f", fleet)

	// Today's roles were made by hand: they are adopted as they are.
	old := map[string]uint64{}
	for _, b := range read[listJSON[bindingJSON]](t, k.cli, "binding", "list", "--provider", "pg-alpha").Items {
		path := b.Assignment + "/" + b.Slot
		old[path] = k.issue(path)
		k.apply(path)
	}
	const rebound, ended, fresh = "forgejo/db", "outline/db", "late/db"
	var rest []string // those that just follow
	for path := range old {
		if path != rebound && path != ended {
			rest = append(rest, path)
		}
	}
	slices.Sort(rest)
	if len(rest) < 3 {
		t.Fatalf("the example fleet has too few consumers of pg-alpha: %v", old)
	}
	lines := func(f func(string) string, paths ...string) (out []string) {
		for _, p := range paths {
			out = append(out, f(p))
		}
		return out
	}
	adopted := func(p string) string { return fmt.Sprintf("%s %d adopted", p, old[p]) }
	all := append(slices.Clone(rest), rebound, ended)
	k.holders("pg-alpha", lines(adopted, all...)...)

	// Whom it will touch is said before anything is written.
	before := k.seq(t)
	dry := k.must(t, "rotation", "start", "--provider", "pg-alpha", "--dry-run")
	for _, p := range all {
		if !strings.Contains(dry, p) {
			t.Errorf("the preview does not name %s:\n%s", p, dry)
		}
	}
	if k.seq(t) != before {
		t.Fatal("a dry run wrote")
	}
	k.must(t, "rotation", "start", "--provider", "pg-alpha", "--deadline", "72h", "--reason", "quarterly")
	id := read[listJSON[rotationJSON]](t, k.cli, "rotation", "list").Items[0].ID
	g := k.seq(t)
	if e := k.refused(t, "rotation_open", 4, "rotation", "start", "--provider", "pg-alpha"); !strings.Contains(fmt.Sprint(e), id) {
		t.Errorf("the refusal does not name the open one: %+v", e)
	}
	issue := func(p string) string { return fmt.Sprintf("%s %d>%d issue alpha", p, old[p], g) }
	k.steps(id, "open", lines(issue, all...)...)
	k.holders("pg-alpha", lines(adopted, all...)...)

	// In the middle of it: one goes elsewhere, one ends, one comes.
	k.must(t, "binding", "rebind", rebound, "--provider", "pg-beta")
	leaving := k.ask(rebound)
	k.must(t, "assignment", "end", "outline")
	k.must(t, "assignment", "create", "miniflux", "--node", "alpha", "--name", "late", "--bind", "db=pg-alpha")
	late := k.issue(fresh)
	k.apply(fresh)
	k.steps(id, "open", append(lines(issue, rest...),
		fmt.Sprintf("%s %d>%d leaving beta", rebound, old[rebound], leaving), fmt.Sprintf("%s %d>0 revoke operator", ended, old[ended]))...)
	k.holders("pg-alpha", append(lines(adopted, append(slices.Clone(rest), rebound)...),
		fmt.Sprintf("%s %d to-revoke", ended, old[ended]), fmt.Sprintf("%s %d adopted", fresh, late))...)
	k.holders("pg-beta")

	// The provider side issues: both are live, and nothing of the old may go.
	for _, p := range rest {
		k.issue(p)
	}
	k.issue(rebound)
	k.revoke(ended, old[ended]) // found by its name, though it is over
	for _, p := range append(slices.Clone(rest), rebound) {
		k.refused(t, "not_adopted", 4, "credential", "revoked", p, "--generation", number(old[p]))
	}
	consumers := map[string]string{} // a slot to its node
	for _, b := range read[listJSON[struct {
		Assignment, Slot, Node string
	}]](t, k.cli, "binding", "list").Items {
		consumers[b.Assignment+"/"+b.Slot] = b.Node
	}
	adopt := func(p string) string { return fmt.Sprintf("%s %d>%d adopt %s", p, old[p], g, consumers[p]) }
	k.steps(id, "open", append(lines(adopt, rest...),
		fmt.Sprintf("%s %d>%d adopt alpha", rebound, old[rebound], leaving), fmt.Sprintf("%s %d>0 done ", ended, old[ended]))...)
	both := append(lines(adopted, append(slices.Clone(rest), rebound)...), fmt.Sprintf("%s %d adopted", fresh, late))
	k.holders("pg-alpha", append(both, lines(func(p string) string { return fmt.Sprintf("%s %d issued", p, g) }, rest...)...)...)
	k.holders("pg-beta", fmt.Sprintf("%s %d issued", rebound, leaving))

	// The consumers take it up, each in its time; then the old ones go, one by one.
	for i, p := range append(slices.Clone(rest), rebound) {
		k.apply(p)
		k.refused(t, "provider_in_use", 4, "provider", "retire", "pg-alpha")
		if r := read[rotationJSON](t, k.cli, "rotation", "show", id); r.State != "open" || r.Done != i+1 {
			t.Fatalf("after %d of them: %s, %d done", i, r.State, r.Done)
		}
		k.revoke(p, old[p])
	}
	var done []string
	for _, p := range rest {
		done = append(done, fmt.Sprintf("%s %d>%d done ", p, old[p], g))
	}
	k.steps(id, "completed", append(done, fmt.Sprintf("%s %d>%d done ", rebound, old[rebound], leaving),
		fmt.Sprintf("%s %d>0 done ", ended, old[ended]))...)
	k.must(t, "rotation", "wait", id)
	k.holders("pg-alpha", append(lines(func(p string) string { return fmt.Sprintf("%s %d adopted", p, g) }, rest...),
		fmt.Sprintf("%s %d adopted", fresh, late))...)
	for _, c := range read[listJSON[credentialJSON]](t, k.cli, "credential", "list", "--all").Items {
		if c.Generation == old[c.path()] && c.State != "revoked" {
			t.Errorf("an old credential is not gone: %+v", c)
		}
	}

	// The provider may go when nobody can log in to it: not before. One of its
	// consumers needs what the other has not, and ends.
	k.must(t, "assignment", "end", "open-webui")
	k.must(t, "provider", "drain", "pg-alpha", "--to", "pg-beta")
	held := read[listJSON[credentialJSON]](t, k.cli, "provider", "holders", "pg-alpha").Items
	for i, c := range held {
		e := k.refused(t, "provider_in_use", 4, "provider", "retire", "pg-alpha")
		if e.Fix != "bindery provider holders pg-alpha" || len(e.Candidates) != len(held)-i {
			t.Fatalf("%d are left: %+v", len(held)-i, e)
		}
		if c.State != "to-revoke" {
			k.issue(c.path())
			k.apply(c.path())
		}
		k.revoke(c.path(), c.Generation)
	}
	k.holders("pg-alpha")
	k.must(t, "provider", "retire", "pg-alpha")
}

package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bindery/commands/manifest"
	"bindery/events"
	"bindery/projections"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Names are few, so that random commands meet.
var (
	someNodes       = []string{"alpha", "beta", "gamma"}
	someProvisions  = []string{"pg", "s3", "ca"}
	mostlyPG        = []string{"pg", "pg", "pg", "s3", "ca"}
	someProviders   = []string{"p-a", "p-b", "p-c", "p-d", "p-e"}
	someModules     = []string{"wiki", "shop"}
	someAssignments = []string{"wiki", "shop", "one", "two", "three"}
	someSlots       = []string{"db", "files", "own"}
	someVersions    = []string{"", "14", "16.4", "17.0"}
	someConstraints = []string{"", "", ">=16", "14.x"}
)

func pick(t *rapid.T, what string, from []string) string {
	return rapid.SampledFrom(from).Draw(t, what)
}

func features(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"vector", "gis"}), 0, 2, rapid.ID[string]).Draw(t, "features")
}

func maybe(t *rapid.T, what string, from []string) string {
	if rapid.Bool().Draw(t, "has "+what) {
		return pick(t, what, from)
	}
	return ""
}

func randomModule(t *rapid.T) manifest.Module {
	m := manifest.Module{Requires: map[string]manifest.Requirement{}, Embeds: map[string]manifest.Embed{}}
	for _, slot := range someSlots {
		switch rapid.IntRange(0, 4).Draw(t, "slot "+slot) {
		case 0:
		case 1:
			m.Embeds[slot] = manifest.Embed{Provision: pick(t, "provision", mostlyPG), Because: "fork",
				Replaceable: rapid.Bool().Draw(t, "replaceable")}
		default:
			m.Requires[slot] = manifest.Requirement{Provision: pick(t, "provision", mostlyPG),
				Version: pick(t, "constraint", someConstraints), Provider: maybe(t, "provider", someProviders),
				Optional: rapid.Bool().Draw(t, "optional")}
		}
	}
	return m
}

func randomSlot(t *rapid.T) string {
	return pick(t, "assignment", []string{"wiki", "wiki", "one", "one", "two"}) + "/" + pick(t, "slot", []string{"db", "db", "own", "own", "files"})
}

func randomBind(t *rapid.T) map[string]string {
	if !rapid.Bool().Draw(t, "binds") {
		return nil
	}
	return map[string]string{pick(t, "slot", someSlots): pick(t, "provider", someProviders)}
}

func endpoint(t *rapid.T) string {
	return fmt.Sprintf("host:%d", rapid.IntRange(1, 9).Draw(t, "port"))
}

// randomCommand draws any command; most are legal at some time.
func randomCommand(t *rapid.T) Command {
	provider := func() string { return pick(t, "provider", someProviders) }
	switch rapid.IntRange(0, 32).Draw(t, "verb") {
	case 0:
		return RegisterNode{pick(t, "node", someNodes)}
	case 1:
		return RetireNode{pick(t, "node", someNodes), rapid.Bool().Draw(t, "force")}
	case 2:
		return RenameNode{pick(t, "node", someNodes), pick(t, "to", someNodes)}
	case 3:
		return DefineProvision{Name: pick(t, "provision", mostlyPG), Scope: events.ScopeNode}
	case 4:
		return RescopeProvision{pick(t, "provision", mostlyPG), rapid.SampledFrom([]events.Scope{events.ScopeNode, events.ScopeMesh}).Draw(t, "scope")}
	case 5:
		return SetDefault{pick(t, "provision", mostlyPG), provider(), maybe(t, "node", someNodes)}
	case 6:
		return ClearDefault{pick(t, "provision", mostlyPG), maybe(t, "node", someNodes)}
	case 7, 8, 9:
		return RegisterProvider{Name: provider(), Provision: pick(t, "provision", mostlyPG), Node: pick(t, "node", someNodes),
			Endpoint: endpoint(t), Version: pick(t, "version", someVersions), Features: features(t), Cordoned: rapid.Bool().Draw(t, "cordoned")}
	case 10:
		version := pick(t, "version", someVersions)
		return UpdateProvider{Provider: provider(), Version: &version}
	case 11:
		return RenameProvider{provider(), provider()}
	case 12:
		return RelocateProvider{Provider: provider(), To: pick(t, "node", someNodes), Endpoint: endpoint(t)}
	case 13:
		return CordonProvider{provider()}
	case 14:
		return UncordonProvider{provider()}
	case 15:
		return RetireProvider{provider(), rapid.Bool().Draw(t, "force")}
	case 16:
		return DrainProvider{Provider: provider(), To: provider(), Step: rapid.IntRange(0, 1).Draw(t, "step")}
	case 17, 18:
		return DeclareModule{pick(t, "module", someModules), randomModule(t)}
	case 19, 20:
		return CreateAssignment{Module: pick(t, "module", someModules), Node: pick(t, "node", someNodes),
			Name: pick(t, "assignment", someAssignments), Bind: randomBind(t)}
	case 21:
		return MoveAssignment{pick(t, "assignment", someAssignments), pick(t, "node", someNodes), rapid.Bool().Draw(t, "re-resolve")}
	case 22:
		if rapid.Bool().Draw(t, "end") {
			return EndAssignment{pick(t, "assignment", someAssignments)}
		}
		return ResolveAssignment{pick(t, "assignment", someAssignments), rapid.Bool().Draw(t, "rebind"), rapid.Bool().Draw(t, "prune")}
	case 23:
		if rapid.Bool().Draw(t, "remove") {
			return RemoveModule{pick(t, "module", someModules)}
		}
		return RemoveProvision{pick(t, "provision", someProvisions)}
	case 24:
		return RenameAssignment{pick(t, "assignment", someAssignments), pick(t, "to", someAssignments)}
	case 25, 26, 27:
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			return RebindSlot{Slot: randomSlot(t), ReResolve: true}
		case 1:
			return RebindSlot{Slot: randomSlot(t), ForgetChoice: true}
		default:
			return RebindSlot{Slot: randomSlot(t), Provider: provider()}
		}
	case 28, 29:
		return SetOverride{randomSlot(t), provider()}
	default:
		switch rapid.IntRange(0, 4).Draw(t, "how") {
		case 0:
			return ClearOverride{Slot: randomSlot(t), ReResolve: true}
		case 1:
			return ClearOverride{Slot: randomSlot(t), Keep: true}
		case 2:
			return ClearOverride{Slot: randomSlot(t), Provider: provider()}
		default:
			return ClearOverride{Slot: randomSlot(t)}
		}
	}
}

// mayRebind are the commands law 3 names: about the binding, its override, its
// assignment's resolution or its provider's drain.
func mayRebind(c Command) bool {
	switch c := c.(type) {
	case RebindSlot, SetOverride, ClearOverride, DrainProvider, EndAssignment:
		return true
	case MoveAssignment:
		return c.ReResolve
	case ResolveAssignment:
		return true
	case ApplyManifest:
		return c.Rebind
	}
	return false
}

// served is what serves each binding, by id; released ones are absent.
func served(s *projections.State) map[events.ID]string {
	out := map[events.ID]string{}
	for _, v := range s.ListBindings(projections.BindingFilter{}).Items {
		if v.ID == nil {
			continue
		}
		target := ""
		if v.ProviderID != nil {
			target = v.ProviderID.String()
		} else if v.Embedded != nil {
			target = "embedded"
		}
		out[*v.ID] = target
	}
	return out
}

// twice decides c two times from the same state, ids and time, and checks that
// the first time left no trace when it was taken back: what a dry run says is
// what the command writes.
func (w *world) twice(t *rapid.T, c Command) (*Decision, error) {
	t.Helper()
	w.now = w.now.Add(1e9)
	before, ids := w.dump(), w.ids
	mark := w.s.Begin()
	dry, dryErr := Decide(w.s, c, w.env())
	w.s.Rollback(mark)
	w.s.Commit()
	if after := w.dump(); !reflect.DeepEqual(before, after) {
		t.Fatalf("deciding %s %+v and taking it back changed the state:\n%s", c.Verb(), c, cmp.Diff(before, after))
	}
	w.ids = ids
	d, err := Decide(w.s, c, w.env())
	if fmt.Sprint(err) != fmt.Sprint(dryErr) {
		t.Fatalf("%s: %v, and dry %v", c.Verb(), err, dryErr)
	}
	if err != nil {
		if after := w.dump(); !reflect.DeepEqual(before, after) {
			t.Fatalf("%s was refused (%v) and changed the state:\n%s", c.Verb(), err, cmp.Diff(before, after))
		}
		return nil, err
	}
	if !reflect.DeepEqual(d.Records, dry.Records) || !reflect.DeepEqual(d.Effect, dry.Effect) {
		t.Fatalf("%s decided otherwise the second time:\n%s", c.Verb(), cmp.Diff(dry.Records, d.Records))
	}
	w.s.Commit()
	w.log = append(w.log, d.Events...)
	return d, nil
}

// legal checks what must hold in every state.
func legal(t *rapid.T, s *projections.State) {
	for _, p := range s.ListProvisions().Items {
		active := 0
		for _, name := range p.Providers {
			if s.Provider(s.ProviderNamed(name)).State == projections.Active {
				active++
			}
		}
		if p.Scope == events.ScopeMesh && active > 1 {
			t.Fatalf("%d active providers of mesh-scoped %s", active, p.Name)
		}
	}
	var names []string
	for _, l := range [][]string{
		collect(s.ListNodes().Items, func(v projections.NodeView) string { return "node " + v.Name }),
		collect(s.ListAssignments().Items, func(v projections.AssignmentView) string { return "assignment " + v.Name }),
		collect(s.ListModules().Items, func(v projections.ModuleView) string { return "module " + v.Name }),
	} {
		names = append(names, l...)
	}
	for _, p := range s.ListProviders().Items {
		if p.State != projections.Retired {
			names = append(names, "provider "+p.Name)
		}
	}
	slices.Sort(names)
	if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
		t.Fatalf("a name is borne twice: %v", names)
	}
	counted := map[string]int{}
	for _, v := range s.ListBindings(projections.BindingFilter{}).Items {
		if v.Provider != "" && v.Embedded != nil {
			t.Fatalf("%s/%s has two targets", v.Assignment, v.Slot)
		}
		if v.ProviderID != nil {
			counted[v.ProviderID.String()]++
		}
		if v.ID != nil && v.Rule == "" != slices.Contains(v.Flags, projections.FlagPending) && v.Provision != "" && v.Rule != "" {
			t.Fatalf("%s/%s is pending with a rule: %+v", v.Assignment, v.Slot, v)
		}
	}
	for _, p := range s.ListProviders().Items {
		if counted[p.ID.String()] != p.Bindings {
			t.Fatalf("%s counts %d bindings, there are %d", p.Name, p.Bindings, counted[p.ID.String()])
		}
	}
}

func collect[T any](items []T, f func(T) string) []string {
	out := make([]string, len(items))
	for i, v := range items {
		out[i] = f(v)
	}
	return out
}

// The laws hold under any sequence of commands.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		for _, n := range someNodes {
			w.must(RegisterNode{n})
		}
		for _, p := range someProvisions {
			w.must(DefineProvision{Name: p, Scope: events.ScopeNode})
		}
		w.settle()
		for i := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			c := randomCommand(rt)
			w.reason = "because"
			before := served(w.s)
			d, err := w.twice(rt, c)
			if err != nil {
				var r *Refusal
				if !errors.As(err, &r) {
					rt.Fatalf("%s %+v: %v is no refusal", c.Verb(), c, err)
				}
				continue
			}
			moved(rt, c, d, before, served(w.s))
			legal(rt, w.s)
			if i%10 == 0 {
				w.replay()
			}
		}
		w.replay()
	})
}

// settle gives the mesh what most commands need to be legal.
func (w *world) settle() {
	for i, p := range someProviders[:4] {
		w.must(RegisterProvider{Name: p, Provision: "pg", Node: someNodes[i%3], Endpoint: fmt.Sprintf("seed:%d", i+1), Version: "16.4"})
	}
	w.must(DeclareModule{"wiki", manifest.Module{
		Requires: map[string]manifest.Requirement{"db": {Provision: "pg"}},
		Embeds:   map[string]manifest.Embed{"own": {Provision: "pg", Because: "fork", Replaceable: true}}}},
		CreateAssignment{Module: "wiki", Node: "beta"}, CreateAssignment{Module: "wiki", Node: "gamma", Name: "one", Bind: map[string]string{"db": "p-a"}})
}

// moved checks law 3: a binding that had a target has another one only by a
// command that may, and with an event under its id that says so.
func moved(t *rapid.T, c Command, d *Decision, before, after map[events.ID]string) {
	spoken := map[events.ID]bool{}
	for _, e := range d.Events {
		switch e.Data.(type) {
		case *events.BindingRebound, *events.BindingReleased:
			spoken[e.Entity] = true
		}
	}
	for id, was := range before {
		now, there := after[id]
		if was == "" || there && now == was {
			continue
		}
		if !mayRebind(c) {
			t.Fatalf("%s %+v moved binding %s from %q to %q", c.Verb(), c, id, was, now)
		}
		if !spoken[id] {
			t.Fatalf("binding %s moved from %q to %q and no event under it says so", id, was, now)
		}
	}
}

// A manifest applied twice changes nothing the second time, whatever came
// between its parts; and what an operator decided in between stays.
func TestApplyTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		m := randomManifest(rt)
		c := ApplyManifest{Manifest: m}
		if _, err := w.twice(rt, c); err != nil {
			return // not every random manifest is a legal fleet
		}
		d, err := w.twice(rt, c)
		if err != nil || len(d.Events) != 0 {
			rt.Fatalf("the second apply wrote %v (%v)\n%s", d, err, asJSON(m))
		}
		for range rapid.IntRange(0, 8).Draw(rt, "commands") {
			w.reason = "because"
			_, _ = w.twice(rt, randomCommand(rt))
		}
		before := served(w.s)
		d, err = w.twice(rt, c)
		if err != nil {
			return // refused: an operator's change makes it illegal, or it moved
		}
		moved(rt, c, d, before, served(w.s))
		if d, err = w.twice(rt, c); err != nil || len(d.Events) != 0 {
			rt.Fatalf("applying again wrote %d events (%v)", len(d.Events), err)
		}
		legal(rt, w.s)
		w.replay()
	})
}

func asJSON(v any) string {
	b, _ := json.MarshalIndent(v, "", " ")
	return string(b)
}

func randomManifest(t *rapid.T) *manifest.Manifest {
	m := &manifest.Manifest{Provisions: map[string]manifest.Provision{}, Nodes: someNodes, Providers: map[string]manifest.Provider{},
		Modules: map[string]manifest.Module{}, Assignments: map[string]manifest.Assignment{}}
	for _, p := range someProvisions {
		m.Provisions[p] = manifest.Provision{Scope: "node"}
	}
	for i, p := range someProviders {
		m.Providers[p] = manifest.Provider{Provision: pick(t, "provision", mostlyPG), Node: pick(t, "node", someNodes),
			Endpoint: fmt.Sprintf("host:%d", 100+i), Version: pick(t, "version", someVersions), Features: features(t)}
	}
	for _, name := range someModules {
		m.Modules[name] = randomModule(t)
	}
	for _, name := range someAssignments {
		if rapid.Bool().Draw(t, "assigned "+name) {
			m.Assignments[name] = manifest.Assignment{Module: pick(t, "module", someModules), Node: pick(t, "node", someNodes), Bind: randomBind(t)}
		}
	}
	for _, p := range someProvisions {
		if rapid.Bool().Draw(t, "default "+p) {
			m.Defaults = append(m.Defaults, manifest.Default{Provision: p, Provider: pick(t, "provider", someProviders)})
		}
	}
	if len(m.Assignments) > 0 && rapid.Bool().Draw(t, "overrides") {
		m.Overrides = append(m.Overrides, manifest.Override{Slot: pick(t, "assignment", sortedKeys(m.Assignments)) + "/" + pick(t, "slot", someSlots),
			Provider: pick(t, "provider", someProviders), Reason: "because"})
	}
	return m
}

// A series that dies between any two of its commands leaves a legal state, and
// the same series finishes it.
func TestSeriesFinishes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := twoNodes(t)
		n := rapid.IntRange(1, 30).Draw(rt, "assignments")
		m := &manifest.Manifest{Assignments: map[string]manifest.Assignment{}}
		for i := range n {
			a := manifest.Assignment{Module: "wiki", Node: "alpha"}
			if i%3 == 0 {
				a.Bind = map[string]string{"db": "pg-alpha"}
			}
			m.Assignments[fmt.Sprintf("a%02d", i)] = a
		}
		limit := rapid.IntRange(3, 20).Draw(rt, "limit")
		runs := func(next func(k int) Command) {
			for k := 0; ; k++ {
				if k > 0 && rapid.Bool().Draw(rt, "dies") {
					k = 0 // another process begins again
				}
				d, err := w.limited(next(k), limit)
				if err != nil {
					rt.Fatal(err)
				}
				legal(rt, w.s)
				if !d.More {
					return
				}
			}
		}
		runs(func(k int) Command { return ApplyManifest{Manifest: m, Part: k} })
		if got := len(w.s.ListAssignments().Items); got != n {
			rt.Fatalf("%d of %d assignments", got, n)
		}
		runs(func(k int) Command { return DrainProvider{Provider: "pg-alpha", To: "pg-beta", Step: k} })
		w.must(RetireProvider{Provider: "pg-alpha"})
		for _, v := range w.s.ListBindings(projections.BindingFilter{}).Items {
			if v.Provider != "pg-beta" || len(v.Flags) > 0 || !strings.HasPrefix(v.Assignment, "a") {
				rt.Fatalf("after the drain: %+v", v)
			}
		}
		w.replay()
	})
}

// limited decides c with smaller batches than the server's.
func (w *world) limited(c Command, limit int) (*Decision, error) {
	w.now = w.now.Add(1e9)
	mark := w.s.Begin()
	tx := &Tx{State: w.s, Env: w.env(), limit: limit, origin: events.OriginCommand, prefix: w.s.Chain}
	d, err := tx.run(c)
	if err != nil {
		w.s.Rollback(mark)
		return nil, err
	}
	w.s.Commit()
	w.log = append(w.log, d.Events...)
	return d, nil
}

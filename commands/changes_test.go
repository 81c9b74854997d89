package commands

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"bindery/events"
	"bindery/projections"
)

// commandsOf cuts a log at the borders of commands.
func commandsOf(log []events.Event) (out [][]events.Event) {
	for len(log) > 0 {
		n := slices.IndexFunc(log, func(e events.Event) bool { return e.Last() }) + 1
		out, log = append(out, log[:n]), log[n:]
	}
	return out
}

// listener keeps documents as changes tell of them.
type listener struct {
	docs  map[events.ID]projections.BindingDocument
	kinds map[projections.ChangeKind]int
}

func (l *listener) hear(cs []projections.Change) {
	for _, c := range cs {
		l.kinds[c.Kind]++
		if c.Document != nil {
			l.docs[c.Binding] = *c.Document
		} else {
			delete(l.docs, c.Binding)
		}
	}
}

func unstamped(d projections.BindingDocument) projections.BindingDocument {
	d.Stamp = projections.Stamp{}
	return d
}

// allDocuments are those of a state, without their stamps.
func allDocuments(s *projections.State) map[events.ID]projections.BindingDocument {
	out := map[events.ID]projections.BindingDocument{}
	for i := 1; i <= s.BindingCount(); i++ {
		if r := projections.BindingRef(i); s.HasDocument(r) {
			out[s.Binding(r).ID] = unstamped(s.BindingDocument(r))
		}
	}
	return out
}

// kindOf is the kind of change that an event about a binding must be told as.
var kindOf = map[string]projections.ChangeKind{
	"binding.bound": projections.ChangeBound, "binding.rebound": projections.ChangeRebound, "binding.released": projections.ChangeReleased,
	"binding.applied": projections.ChangeApplied, "binding.failed": projections.ChangeFailed,
	"credential.requested": projections.ChangeRequested, "credential.issued": projections.ChangeIssued,
	"credential.failed": projections.ChangeIssueFailed, "credential.revoked": projections.ChangeRevoked,
	"credential.written-off": projections.ChangeWrittenOff,
}

// TestChanges: whoever keeps the documents that changes carry has the documents
// of the fold after every command; no event about a binding goes untold; nothing
// is told of a binding that is as it was. The moves are those of the credentials'
// model.
func TestChanges(t *testing.T) {
	t.Parallel()
	kinds := map[projections.ChangeKind]int{}
	for seed := range seeds()/2 + 25 {
		rng := rand.New(rand.NewPCG(seed, 78))
		p := newPlay(t, func(n int) int { return rng.IntN(n) }, t.Fatalf)
		for range 150 {
			p.step(p.next())
		}
		all := commandsOf(p.w.log)
		l := listener{docs: map[events.ID]projections.BindingDocument{}, kinds: kinds}
		f := projections.NewChangeFold(projections.DocumentFilter{})
		from := rng.IntN(len(all)) // what lies before is skipped
		for i, group := range all {
			last := group[len(group)-1]
			if i < from {
				if err := f.Skip(group); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if i == from {
				for _, d := range f.Documents() {
					l.docs[*d.ID] = d
				}
			}
			before := allDocuments(f.State())
			cs, err := f.Apply(group)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			l.hear(cs)
			want := allDocuments(f.State())
			got := map[events.ID]projections.BindingDocument{}
			for id, d := range l.docs {
				got[id] = unstamped(d)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, after sequence %d the documents of the fold are (-), those of the changes (+)\n%s", seed, last.Seq, diff)
			}
			inOrder(t, seed, last, cs)
			toldOf(t, seed, group, cs, before, want)
		}
	}
	for _, k := range projections.ChangeKinds() {
		if n := kinds[k]; n == 0 && k != projections.ChangePresent && k != projections.ChangeOther && k != projections.ChangeGone && k != projections.ChangePending {
			t.Errorf("nothing was ever %s", k)
		}
	}
	if kinds[projections.ChangeGone] > 0 {
		t.Error("a fold of everything says that something is gone")
	}
	t.Logf("%v", kinds)
}

// inOrder checks the changes of one command: by binding and kind, each once.
func inOrder(t *testing.T, seed uint64, last events.Event, cs []projections.Change) {
	t.Helper()
	all := projections.ChangeKinds()
	for i, c := range cs {
		if c.Seq != last.Seq || c.Chain != last.Chain.String() || c.Text() == "" {
			t.Fatalf("seed %d: %+v at %d says %q", seed, c, last.Seq, c.Text())
		}
		if i == 0 {
			continue
		}
		was := cs[i-1]
		if was.Binding.String() > c.Binding.String() || was.Binding == c.Binding && slices.Index(all, was.Kind) > slices.Index(all, c.Kind) {
			t.Fatalf("seed %d, sequence %d: %s of %s comes before %s of %s", seed, last.Seq, was.Kind, was.Binding, c.Kind, c.Binding)
		}
		if cmp.Equal(was, c) {
			t.Fatalf("seed %d: told twice: %+v", seed, c)
		}
	}
}

// toldOf checks that each event about a binding and each difference is told, and
// nothing else.
func toldOf(t *testing.T, seed uint64, group []events.Event, cs []projections.Change, before, after map[events.ID]projections.BindingDocument) {
	t.Helper()
	has := func(id events.ID, kind projections.ChangeKind) bool {
		return slices.ContainsFunc(cs, func(c projections.Change) bool { return c.Binding == id && (kind == "" || c.Kind == kind) })
	}
	own := map[events.ID]bool{}
	for i := range group {
		e := &group[i]
		if kind, ok := kindOf[e.Type.Short()]; ok {
			own[e.Entity] = true
			if !has(e.Entity, kind) {
				t.Fatalf("seed %d: %s at %d is not told", seed, e.Type.Short(), e.Seq)
			}
		}
	}
	for _, c := range cs {
		b, was := before[c.Binding]
		a, is := after[c.Binding]
		if was == is && cmp.Equal(b, a) && !own[c.Binding] {
			t.Fatalf("seed %d: %+v, and it is as it was", seed, c)
		}
	}
}

// TestChangesOfDocuments: two documents of a binding, however far apart, differ
// exactly where changes are told; that is how those hear who read the buckets.
func TestChangesOfDocuments(t *testing.T) {
	t.Parallel()
	for seed := range seeds()/2 + 25 {
		rng := rand.New(rand.NewPCG(seed, 79))
		p := newPlay(t, func(n int) int { return rng.IntN(n) }, t.Fatalf)
		var seen []map[events.ID]projections.BindingDocument
		for range 40 {
			for range 4 {
				p.step(p.next())
			}
			seen = append(seen, allDocuments(p.w.s))
		}
		for range 100 {
			x, y := seen[rng.IntN(len(seen))], seen[rng.IntN(len(seen))]
			for _, narrow := range []bool{false, true} {
				for id, before := range x {
					o := projections.Occasion{Narrow: narrow}
					var next *projections.BindingDocument
					after, there := y[id]
					if there {
						next = &after
					}
					cs := projections.Changes(&before, next, &o)
					if differ := !there || !cmp.Equal(before, after); differ != (len(cs) > 0) {
						t.Fatalf("seed %d: differ %v, told %d changes\n%s", seed, differ, len(cs), cmp.Diff(before, after))
					}
					for _, c := range cs {
						if there != (c.Document != nil) {
							t.Fatalf("seed %d: the document of %+v", seed, c)
						}
					}
					if there {
						if cs := projections.Changes(nil, next, &o); len(cs) == 0 {
							t.Fatalf("seed %d: nothing is told of %+v", seed, after)
						}
					}
				}
			}
		}
	}
}

// TestChangesFiltered: a filter leaves out and changes nothing else.
func TestChangesFiltered(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 80))
	p := newPlay(t, func(n int) int { return rng.IntN(n) }, t.Fatalf)
	p.run(400)
	s := p.w.s
	var filters []projections.DocumentFilter
	for i := range 3 {
		filters = append(filters, projections.DocumentFilter{Provider: s.Provider(projections.ProviderRef(i + 1)).ID},
			projections.DocumentFilter{Node: s.Node(projections.NodeRef(i + 1)).ID})
	}
	for i := range 5 {
		filters = append(filters, projections.DocumentFilter{Bindings: []events.ID{s.Binding(projections.BindingRef(i + 1)).ID}})
	}
	for _, filter := range filters {
		whole, part := projections.NewChangeFold(projections.DocumentFilter{}), projections.NewChangeFold(filter)
		docs := map[events.ID]projections.BindingDocument{}
		told := 0
		for _, group := range commandsOf(p.w.log) {
			all, err := whole.Apply(group)
			if err != nil {
				t.Fatal(err)
			}
			some, err := part.Apply(group)
			if err != nil {
				t.Fatal(err)
			}
			told += len(some)
			for _, c := range some {
				if !slices.ContainsFunc(all, func(o projections.Change) bool { return cmp.Equal(o, c) }) {
					t.Fatalf("%+v: only the filtered fold tells %+v", filter, c)
				}
				// What no longer fits has left.
				if filter.Keeps(c.Document) {
					docs[c.Binding] = *c.Document
				} else {
					delete(docs, c.Binding)
				}
			}
			if want := part.Documents(); len(want) != len(docs) {
				t.Fatalf("%+v: %d documents, told of %d", filter, len(want), len(docs))
			} else {
				for _, d := range want {
					if diff := cmp.Diff(unstamped(d), unstamped(docs[*d.ID])); diff != "" {
						t.Fatalf("%+v: (-fold +told)\n%s", filter, diff)
					}
				}
			}
		}
		if told == 0 {
			t.Errorf("%+v told nothing", filter)
		}
	}
}

// schemaOf is the compiled schema of something that subscribers read.
func schemaOf(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(projections.Schema(name)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("urn:"+name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fits checks that the schema takes v as it is written.
func fits(t *testing.T, s *jsonschema.Schema, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err == nil {
		err = s.Validate(got)
	}
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// TestChangeJSON: a change says the same after it was written and read, and the
// schemas take all that is written.
func TestChangeJSON(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 81))
	p := newPlay(t, func(n int) int { return rng.IntN(n) }, t.Fatalf)
	p.run(300)
	binding, holder, change := schemaOf(t, projections.SchemaBinding), schemaOf(t, projections.SchemaHolder), schemaOf(t, projections.SchemaChange)
	f := projections.NewChangeFold(projections.DocumentFilter{})
	for _, group := range commandsOf(p.w.log) {
		cs, err := f.Apply(group)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= f.State().BindingCount() && group[0].Seq%8 == 0; i++ {
			r := projections.BindingRef(i)
			if f.State().HasDocument(r) {
				fits(t, binding, f.State().BindingDocument(r))
			}
			for _, h := range f.State().HolderDocuments(r) {
				fits(t, holder, h)
			}
		}
		for _, c := range cs {
			fits(t, change, c)
			data, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			var again projections.Change
			if err := json.Unmarshal(data, &again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s\n%s", data, diff)
			}
		}
	}
}

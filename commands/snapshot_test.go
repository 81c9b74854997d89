package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"bindery/events"
	"bindery/projections"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func saved(t testing.TB, s *projections.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// loaded is a state that was saved and loaded; saved once more, it is the same.
func loaded(t testing.TB, s *projections.State) *projections.State {
	t.Helper()
	data := saved(t, s)
	out, err := projections.Load(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(saved(t, out), data) {
		t.Fatalf("at %d: loaded and saved again, it is another snapshot", s.Seq)
	}
	return out
}

// answers is everything that can be asked of a state: what readers see, the
// documents, what the ladder says, what is found by name, and what is remembered.
func answers(s *projections.State, log []events.Event) string {
	out := []any{dump(s), s.ListGrants(), s.Gauges(s.Time), s.Operators(), s.Finished()}
	for i := 1; i <= s.BindingCount(); i++ {
		r := projections.BindingRef(i)
		b := s.Binding(r)
		out = append(out, documents(s, r), s.Aside(r), slices.Collect(s.Credentials(r)), s.Live(r), s.BaseOfChoice(b), s.BaseOfOverride(b))
		slot := s.Assignment(b.Assignment).Name + "/" + s.SlotName(b)
		explained, err := Explain{Slot: slot}.Answer(s, s.Time)
		out = append(out, slot, explained, fmt.Sprint(err))
	}
	names := append(append(append([]string{"alpha", "beta", "gamma", "pg", "s3", "ca", "dns"}, someProviders...), someAssignments...), someModules...)
	for _, entity := range []events.Entity{events.EntityNode, events.EntityProvision, events.EntityProvider, events.EntityModule, events.EntityAssignment} {
		out = append(out, s.Names(entity))
		for _, name := range names {
			gone, _ := s.Gone(entity, name)
			out = append(out, s.FormerBearer(entity, name), gone)
		}
	}
	for _, name := range names {
		out = append(out, s.EndedAssignments(name), s.RetiredProviders(name))
	}
	for i := range log {
		known, ok := s.Remembered(log[i].Command)
		out = append(out, known, ok, s.CommandForgotten(log[i].Command))
		s.Affected(&log[i], func(r projections.BindingRef) { out = append(out, r) })
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func sameAnswers(t testing.TB, what string, want, got *projections.State, log []events.Event) {
	t.Helper()
	if a, b := answers(want, log), answers(got, log); a != b {
		t.Fatalf("%s, at %d, it answers otherwise:\n%s", what, want.Seq, cmp.Diff(pretty(a), pretty(b)))
	}
}

func pretty(text string) (v any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return text
	}
	return v
}

// followers read the log beside the world: one from the beginning, the others from
// snapshots that were made on the way.
type followers struct {
	t     testing.TB
	w     *world
	read  int
	first *projections.State
	later []*projections.State
}

func follow(t testing.TB, w *world) *followers {
	return &followers{t: t, w: w, first: projections.New()}
}

// catchUp folds what the world has written since.
func (f *followers) catchUp() {
	f.t.Helper()
	for _, s := range append([]*projections.State{f.first}, f.later...) {
		for i := f.read; i < len(f.w.log); i++ {
			if err := s.Apply(&f.w.log[i]); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	f.read = len(f.w.log)
}

// snapshot begins one more, from a snapshot of whom roll says; the oldest makes room.
func (f *followers) snapshot(roll dice) {
	f.catchUp()
	from := f.first
	if n := len(f.later); n > 0 && roll(2) == 0 {
		from = f.later[roll(n)]
	}
	if f.later = append(f.later, loaded(f.t, from)); len(f.later) > 3 {
		f.later = f.later[1:]
	}
}

// agree compares all of them.
func (f *followers) agree() {
	f.t.Helper()
	f.catchUp()
	want := saved(f.t, f.first)
	sameAnswers(f.t, "folded from the log", f.w.s, f.first, f.w.log)
	for _, s := range f.later {
		sameAnswers(f.t, "gone on from a snapshot", f.first, s, f.w.log)
		if !bytes.Equal(saved(f.t, s), want) {
			f.t.Fatalf("gone on from a snapshot, at %d, the state is another one", s.Seq)
		}
	}
}

// TestSnapshotsOfPlays: a state that was saved and loaded on the way gives every
// answer that the one gives which never was. The moves are those of the credentials'
// model.
func TestSnapshotsOfPlays(t *testing.T) {
	t.Parallel()
	operator, agent := publicKey(t), publicKey(t)
	for seed := range max(4, seeds()/4) {
		rng := rand.New(rand.NewPCG(seed, 31))
		roll := func(n int) int { return rng.IntN(n) }
		p := newPlay(t, roll, t.Fatalf)
		f := follow(t, p.w)
		for step := range 150 {
			p.step(p.next())
			if step == 60 {
				p.m.command(p.w.must(GrantAccess{Name: "root", Role: events.RoleOperator, NKey: operator}).Events)
				if d, err := p.w.do(GrantAccess{Name: "hand", Role: events.RoleAgent, Node: "beta", NKey: agent}); err == nil { // beta is there still
					p.m.command(d.Events)
				}
			}
			switch roll(15) {
			case 0, 1:
				f.snapshot(roll)
			case 2:
				f.agree()
			}
		}
		f.agree()
	}
}

// TestSnapshotsDecideAlike: a world that goes on with a state that was saved and
// loaded decides every command as it would have, byte by byte, and takes back what
// is refused.
func TestSnapshotsDecideAlike(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		for _, n := range someNodes {
			w.must(RegisterNode{n})
		}
		for _, p := range someProvisions {
			w.must(DefineProvision{Name: p, Scope: events.ScopeNode})
		}
		w.settle()
		if m := (ApplyManifest{Manifest: randomManifest(rt)}); rapid.Bool().Draw(rt, "applies") {
			_, _ = w.do(m) // not every random manifest is a legal fleet
		}
		other := &world{t: t, s: loaded(t, w.s), log: w.log, ids: w.ids, now: w.now}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if rapid.IntRange(0, 7).Draw(rt, "saves") == 0 {
				other.s = loaded(t, other.s)
			}
			c := randomCommand(rt)
			w.reason, other.reason = "because", "because"
			d, err := w.do(c)
			o, otherErr := other.do(c)
			if fmt.Sprint(err) != fmt.Sprint(otherErr) {
				rt.Fatalf("%s %+v: %v, and from a snapshot %v", c.Verb(), c, err, otherErr)
			}
			var r *Refusal
			if err != nil && !errors.As(err, &r) {
				rt.Fatalf("%s %+v: %v is no refusal", c.Verb(), c, err)
			}
			if err == nil && !(reflect.DeepEqual(d.Records, o.Records) && reflect.DeepEqual(d.Effect, o.Effect)) {
				rt.Fatalf("%s %+v is decided otherwise from a snapshot:\n%s", c.Verb(), c, cmp.Diff(d.Records, o.Records))
			}
		}
		sameAnswers(t, "gone on from a snapshot", w.s, other.s, w.log)
	})
}

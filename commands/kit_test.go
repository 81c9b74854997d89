package commands

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"bindery/events"
	"bindery/projections"

	"github.com/google/go-cmp/cmp"
)

// world is a ledger in memory: the state, and every event that made it. Ids and
// time are counted, so that a run can be repeated exactly.
type world struct {
	t      testing.TB
	s      *projections.State
	log    []events.Event
	stored []events.Event // the same, as they are read from where they are kept
	ids    uint64
	now    time.Time
	reason string
}

func newWorld(t testing.TB) *world {
	w := freshWorld(t)
	w.must(CreateMesh{Name: "home"})
	return w
}

// freshWorld is a world without a mesh.
func freshWorld(t testing.TB) *world {
	return &world{t: t, s: projections.New(), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
}

func (w *world) id() events.ID {
	w.ids++
	var id events.ID
	ms := uint64(w.now.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

func (w *world) env() Env {
	return Env{Now: w.now, NewID: w.id, Actor: "ann", Reason: w.reason, Command: w.id()}
}

// do decides c and keeps what it wrote.
func (w *world) do(c Command) (*Decision, error) {
	w.now = w.now.Add(time.Second)
	d, err := Decide(w.s, c, w.env())
	if err != nil {
		return nil, err
	}
	w.s.Commit()
	w.log = append(w.log, d.Events...)
	for i := range d.Records {
		e, err := events.Decode(&d.Records[i])
		if err != nil {
			w.t.Fatalf("what %s wrote cannot be read: %v", c.Verb(), err)
		}
		w.stored = append(w.stored, e)
	}
	return d, nil
}

// must does what cannot be refused.
func (w *world) must(cs ...Command) *Decision {
	w.t.Helper()
	var d *Decision
	var err error
	for _, c := range cs {
		if d, err = w.do(c); err != nil {
			w.t.Fatalf("%s %+v: %v", c.Verb(), c, err)
		}
	}
	return d
}

// because does c with a reason.
func (w *world) because(reason string, c Command) *Decision {
	w.t.Helper()
	w.reason = reason
	defer func() { w.reason = "" }()
	return w.must(c)
}

// refused checks that c is refused with code and that nothing changed.
func (w *world) refused(code Code, c Command) *Refusal {
	w.t.Helper()
	before, seq := w.dump(), w.s.Seq
	_, err := w.do(c)
	var r *Refusal
	if !errors.As(err, &r) {
		w.t.Fatalf("%s %+v: %v, want a refusal with %s", c.Verb(), c, err, code)
	}
	if r.Code != code {
		w.t.Fatalf("%s %+v: %v, want %s", c.Verb(), c, r, code)
	}
	if w.s.Seq != seq {
		w.t.Fatalf("%s was refused and moved the ledger", c.Verb())
	}
	if diff := cmp.Diff(before, w.dump()); diff != "" {
		w.t.Fatalf("%s was refused and changed the state:\n%s", c.Verb(), diff)
	}
	if r.Message == "" || strings.Contains(r.Fix.String(), "%!") || r.Candidates == nil {
		w.t.Fatalf("%s: incomplete refusal %+v", c.Verb(), r)
	}
	return r
}

// unchanged checks that c succeeds and writes nothing.
func (w *world) unchanged(c Command) {
	w.t.Helper()
	if d := w.must(c); len(d.Events) != 0 {
		w.t.Fatalf("%s %+v wrote %d events, want none", c.Verb(), c, len(d.Events))
	}
}

// wrote checks the types a decision wrote, in order.
func (w *world) wrote(d *Decision, types ...string) {
	w.t.Helper()
	var got []string
	for _, e := range d.Events {
		got = append(got, e.Type.Short())
	}
	if diff := cmp.Diff(types, got); diff != "" {
		w.t.Fatalf("events (-want +got):\n%s", diff)
	}
}

// bound checks what serves slots: path, provider's name ("embedded", "" for
// nothing), and rule.
func (w *world) bound(path, provider string, rule events.Rule) {
	w.t.Helper()
	f, err := Finder{w.s}.Slot(path)
	if err != nil {
		w.t.Fatal(err)
	}
	gotProvider, gotRule := "", events.Rule("")
	if f.Binding != 0 {
		b := w.s.Binding(f.Binding)
		gotProvider, gotRule = w.s.TargetName(w.s.Target(b)), b.Rule()
	}
	if gotProvider != provider || gotRule != rule {
		w.t.Fatalf("%s is bound to %q by %q, want %q by %q", path, gotProvider, gotRule, provider, rule)
	}
}

// flags checks the flags of a slot.
func (w *world) flags(path string, want ...projections.Flag) {
	w.t.Helper()
	v := w.view(path)
	if diff := cmp.Diff(append([]projections.Flag{}, want...), v.Flags); diff != "" {
		w.t.Fatalf("flags of %s (-want +got):\n%s", path, diff)
	}
}

func (w *world) view(path string) projections.BindingView {
	w.t.Helper()
	v, err := ShowBinding{path}.Answer(w.s, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	return v.(projections.BindingView)
}

// dump is everything readers can see, for comparison.
func (w *world) dump() []any { return dump(w.s) }

func dump(s *projections.State) []any {
	return []any{s.Mesh, s.Seq, s.Chain, s.ListNodes(), s.ListProvisions(), s.ListProviders(), s.ListModules(),
		s.ListAssignments(), s.ListBindings(projections.BindingFilter{}), s.ListOverrides(), s.Status(s.Time),
		s.ListCredentials(projections.CredentialFilter{All: true}), rotationsOf(s)}
}

// replay folds the whole log, as it is read, into a fresh state and compares: what readers
// see, and what a snapshot saves, byte by byte.
func (w *world) replay() {
	w.t.Helper()
	fresh := projections.New()
	stored := w.stored
	if len(stored) != len(w.log) { // of a test that decides by itself
		stored = w.log
	}
	for i := range stored {
		if err := fresh.Apply(&stored[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	if !bytes.Equal(saved(w.t, fresh), saved(w.t, w.s)) {
		w.t.Fatalf("a snapshot of the live state is not what the log gives:\n%s", difference(w.s, fresh))
	}
	if !reflect.DeepEqual(dump(fresh), w.dump()) {
		w.t.Fatalf("the fold of the log is not the live state:\n%s", cmp.Diff(w.dump(), dump(fresh)))
	}
}

// difference shows where two states differ, with what is in no view.
func difference(a, b *projections.State) string {
	return cmp.Diff(a, b, cmp.Exporter(func(reflect.Type) bool { return true }))
}

func str(s string) *string { return &s }

// rotationsOf is every rotation with its members.
func rotationsOf(s *projections.State) []projections.RotationView {
	var out []projections.RotationView
	for _, v := range s.ListRotations(projections.RotationFilter{}, s.Time).Items {
		out = append(out, s.RotationMembers(projections.RotationRef(s.ByID(events.EntityRotation, v.ID)), s.Time, 0))
	}
	return out
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

// fakeAsker answers with what was prepared, in order; the last answer again and
// again. It notes what it was asked.
type fakeAsker struct {
	answers []any
	asked   []commands.Query
}

func (f *fakeAsker) Ask(ctx context.Context, q commands.Query) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, refusal(commands.Unreachable, "no answer in time", "", commands.Fix{})
	}
	f.asked = append(f.asked, q)
	v := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	if err, ok := v.(error); ok {
		return nil, err
	}
	return json.Marshal(v)
}

// ticks are n looks after the first one.
func ticks(n int) chan time.Time {
	c := make(chan time.Time, n)
	for range n {
		c <- time.Time{}
	}
	return c
}

// rotationAt is the rotation of pg-alpha's holders as far as it is.
func rotationAt(state projections.RotationState, done int, left ...member) rotationView {
	return rotationView{ID: events.ID{15: 7}, Provider: "pg-alpha", State: string(state), Done: done, Total: 30, Members: left}
}

// waitOn waits with a served store, and gives what was said on stderr.
func waitOn(ctx context.Context, a asker, w waited, change func(*wait)) (said string, err error) {
	var errs bytes.Buffer
	on := wait{line: (&cli{program: NewProgram()}).line, asker: a, served: true, tick: ticks(50), bar: &bar{ui: &ui{err: &errs}}}
	if change != nil {
		change(&on)
	}
	err = on.until(ctx, w)
	return errs.String(), err
}

func codeOf(t *testing.T, err error) *commands.Refusal {
	t.Helper()
	var r *commands.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %v, want a refusal", err)
	}
	return r
}

// A wait looks until the rotation is complete, without its members, and by id
// from the second look on: the provider may be rotated again.
func TestWaitLooksUntilItIsOver(t *testing.T) {
	a := &fakeAsker{answers: []any{rotationAt(projections.Open, 1), rotationAt(projections.Open, 20), rotationAt(projections.Completed, 30)}}
	if said, err := waitOn(t.Context(), a, &rotationWaited{named: "pg-alpha"}, nil); err != nil || said != "" {
		t.Fatalf("got %v, %q", err, said)
	}
	id := events.ID{15: 7}.String()
	for i, want := range []string{"pg-alpha", id, id} {
		if got := (commands.ShowRotation{Rotation: want, Brief: true}); i >= len(a.asked) || a.asked[i] != got {
			t.Errorf("question %d of %v is not %v", i, a.asked, got)
		}
	}
}

// What is over is not waited for, whether the store is served or not.
func TestWaitForWhatIsOver(t *testing.T) {
	a := &fakeAsker{answers: []any{rotationAt(projections.Completed, 30)}}
	if _, err := waitOn(t.Context(), a, &rotationWaited{named: "pg-alpha"}, func(w *wait) { w.served, w.tick = false, nil }); err != nil {
		t.Error(err)
	}
}

func TestWaitNeedsServe(t *testing.T) {
	a := &fakeAsker{answers: []any{rotationAt(projections.Open, 1)}}
	_, err := waitOn(t.Context(), a, &rotationWaited{named: "pg-alpha"}, func(w *wait) { w.served = false })
	if r := codeOf(t, err); r.Code != commands.NeedsServe || r.Code.Exit() != 7 || !strings.HasPrefix(r.Fix.String(), "rotation show ") {
		t.Errorf("got %+v", r)
	}
}

// At the end of --timeout those are listed who are missing, twenty at most.
func TestWaitTooLong(t *testing.T) {
	var left []member
	for i := range 25 {
		left = append(left, member{Binding: events.ID{15: 1}, Assignment: fmt.Sprintf("a-%02d", i), Slot: "db", Step: projections.StepAdopt, Turn: projections.TurnConsumer, Who: "beta"})
	}
	left = append(left, member{Binding: events.ID{15: 1}, Assignment: "z", Slot: "db", Step: projections.StepDone})
	end := make(chan time.Time, 1)
	end <- time.Time{}
	a := &fakeAsker{answers: []any{rotationAt(projections.Open, 5, left...)}}
	_, err := waitOn(t.Context(), a, &rotationWaited{named: "pg-alpha"}, func(w *wait) { w.tick, w.end, w.limit = nil, end, time.Minute })
	r := codeOf(t, err)
	if r.Code != commands.StillPending || r.Code.Exit() != 8 || r.Message != "waited 1m0s for the rotation of the holders of pg-alpha" || r.Why != "5 of 30 done" {
		t.Errorf("got %+v", r)
	}
	if n := len(r.Candidates); n != 21 || r.Candidates[0].Name != "a-00/db" || r.Candidates[0].Why != "adopt: beta (consumer)" || r.Candidates[20].Why != "and 5 more" {
		t.Errorf("%d candidates: %+v", n, r.Candidates)
	}
}

func TestWaitForWhatIsAborted(t *testing.T) {
	a := &fakeAsker{answers: []any{rotationAt(projections.Open, 1), rotationAt(projections.Aborted, 1)}}
	_, err := waitOn(t.Context(), a, &rotationWaited{named: "pg-alpha"}, nil)
	if r := codeOf(t, err); r.Code != commands.RotationClosed {
		t.Errorf("got %+v", r)
	}
}

// Ctrl-C ends the waiting and says how to go on, also in the middle of a question.
func TestWaitInterrupted(t *testing.T) {
	for name, tick := range map[string]chan time.Time{"between": nil, "asking": ticks(1)} {
		ctx, cancel := context.WithCancel(t.Context())
		a := &fakeAsker{answers: []any{rotationAt(projections.Open, 1)}}
		stopping := stopAfter{a, cancel}
		_, err := waitOn(ctx, stopping, &rotationWaited{named: "pg-alpha"}, func(w *wait) { w.tick = tick })
		r := codeOf(t, err)
		if r.Code != commands.Interrupted || r.Code.Exit() != 130 || r.Fix.String() != "rotation wait "+(events.ID{15: 7}).String() {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// stopAfter is interrupted after each answer.
type stopAfter struct {
	asker
	cancel context.CancelFunc
}

func (s stopAfter) Ask(ctx context.Context, q commands.Query) (json.RawMessage, error) {
	data, err := s.asker.Ask(ctx, q)
	s.cancel()
	return data, err
}

// What cannot be asked ends a wait.
func TestWaitFails(t *testing.T) {
	a := &fakeAsker{answers: []any{rotationAt(projections.Open, 1), refusal(commands.Unreachable, "no answer", "", commands.Fix{})}}
	_, err := waitOn(t.Context(), a, &rotationWaited{named: "pg-alpha"}, nil)
	if r := codeOf(t, err); r.Code != commands.Unreachable {
		t.Errorf("got %+v", r)
	}
}

// Without a terminal a line is said every ten seconds.
func TestWaitSaysHowFarItIs(t *testing.T) {
	a := &fakeAsker{answers: []any{rotationAt(projections.Open, 1), rotationAt(projections.Open, 20), rotationAt(projections.Completed, 30)}}
	w := &slowly{rotationWaited{named: "pg-alpha"}, nil}
	said, err := waitOn(t.Context(), a, w, func(on *wait) { w.bar = on.bar })
	want := "waiting for the rotation of the holders of pg-alpha: 20 of 30, who is missing: bindery rotation show " + (events.ID{15: 7}).String() + "\n"
	if err != nil || said != want {
		t.Errorf("got %v, %q, want %q", err, said, want)
	}
}

// slowly is a wait whose every look takes more than ten seconds.
type slowly struct {
	rotationWaited
	bar *bar
}

func (s *slowly) look(ctx context.Context, a asker) (standing, error) {
	s.bar.said = s.bar.said.Add(-every)
	return s.rotationWaited.look(ctx, a)
}

// What a consumer waits for follows from its flags; with nothing to use yet it
// waits for that.
func TestWaitsFor(t *testing.T) {
	bound := bindingView{Rule: events.RuleCoLocated, ChangedSeq: 9, AppliedSeq: 9, Use: projections.UseView{Provider: "pg-alpha"}}
	with := func(flags ...projections.Flag) bindingView { v := bound; v.Flags = flags; return v }
	first := bindingView{Rule: events.RuleCoLocated, Generation: 16, ChangedSeq: 16}
	for _, tc := range []struct {
		v    bindingView
		want string
	}{
		{bound, ""},
		{with(projections.FlagDrift, projections.FlagStranded), ""},
		{with(projections.FlagOutdated), "it has not said that it runs with the last change, sequence 9"},
		{with(projections.FlagSwitching, projections.FlagOutdated), "generation 0 is not issued yet"},
		{with(projections.FlagCutOff), "its credential is over, and generation 0 is not issued yet"},
		{first, "generation 16 is not issued yet"},
	} {
		if got := waitsFor(tc.v); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.v.Flags, got, tc.want)
		}
	}
}

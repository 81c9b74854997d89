package commands

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// play is one run of both ledgers.
type play struct {
	*player
	steps []string
}

func newPlay(t testing.TB, roll dice, fatal func(string, ...any)) *play {
	w := newWorld(t)
	p := &play{player: &player{w: w, roll: roll}}
	p.m = newModel(func(format string, args ...any) {
		fatal("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(p.steps, "\n"))
	})
	p.m.command(w.log)
	for _, c := range p.furnish() {
		p.step(move{cmd: c, reason: "because", want: writes})
	}
	return p
}

// step gives a command to both and compares.
func (p *play) step(mv move) {
	w := p.w
	note := fmt.Sprintf("%s %+v", mv.cmd.Verb(), mv.cmd)
	sample := p.roll(8) == 0
	var before []any
	if sample {
		before = dump(w.s)
	}
	w.reason = mv.reason
	d, err := w.do(mv.cmd)
	if err != nil {
		p.steps = append(p.steps, note+" -> "+string(codeOf(err)))
		p.refusedAs(mv, err)
		if sample && !reflect.DeepEqual(before, dump(w.s)) {
			p.m.fail("%s was refused and changed the state:\n%s", note, cmp.Diff(before, dump(w.s)))
		}
		return
	}
	var types []string
	for _, e := range d.Events {
		types = append(types, fmt.Sprintf("%d %s", e.Seq, e.Type.Short()))
	}
	p.steps = append(p.steps, note+" -> "+strings.Join(types, ", "))
	p.acceptedAs(mv, len(d.Events) > 0)
	p.m.command(d.Events)
	p.m.agrees(w.s, w.now)
	if sample {
		p.m.exits(w)
		p.m.agrees(w.s, w.now)
	}
}

func (p *play) refusedAs(mv move, err error) {
	var r *Refusal
	switch {
	case !errors.As(err, &r):
		p.m.fail("%s %+v: %v is no refusal", mv.cmd.Verb(), mv.cmd, err)
	case mv.want != noMatter && mv.want != silent && mv.want != r.Code:
		p.m.fail("%s %+v: %v, the model wants %s", mv.cmd.Verb(), mv.cmd, err, mv.want)
	}
}

func (p *play) acceptedAs(mv move, wrote bool) {
	ok := mv.want == noMatter || wrote && mv.want == writes || !wrote && (mv.want == changes0 || mv.want == silent)
	if !ok {
		p.m.fail("%s %+v wrote: %t, the model wants %s", mv.cmd.Verb(), mv.cmd, wrote, mv.want)
	}
}

// run plays n random moves.
func (p *play) run(n int) {
	for i := range n {
		p.step(p.next())
		if i%25 == 24 {
			p.w.foldsAgain(p.m.fail)
		}
	}
	p.m.exits(p.w)
	p.w.foldsAgain(p.m.fail)
}

// numbers are 0, 1, 2 …
var numbers = func() []int {
	out := make([]int, 4096)
	for i := range out {
		out[i] = i
	}
	return out
}()

// What readers see of credentials and rotations is what a naive reading of
// DESIGN section 6 says, under any sequence of commands.
func TestModelCredentials(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// Sampled, for a range is drawn from with a bias to its ends.
		roll := func(n int) int { return rapid.SampledFrom(numbers[:n]).Draw(rt, "roll") }
		p := newPlay(t, roll, func(f string, args ...any) { rt.Fatalf(f, args...) })
		p.run(rapid.IntRange(1, 150).Draw(rt, "steps"))
	})
}

// seeds is how many runs are played from fixed seeds: 100, or as many as
// -rapid.checks asks for.
func seeds() uint64 {
	n, err := strconv.ParseUint(flag.Lookup("rapid.checks").Value.String(), 10, 32)
	if err != nil {
		return 100
	}
	return n
}

// The random play comes by every row of the table and every step of the fan-out.
func TestModelCoverage(t *testing.T) {
	seen := map[string]int{}
	for seed := range seeds() {
		src := rand.New(rand.NewPCG(seed, 6))
		p := newPlay(t, src.IntN, t.Fatalf)
		p.run(150)
		for what, n := range p.m.seen {
			seen[what] += n
		}
	}
	var all []string
	for what, n := range seen {
		all = append(all, fmt.Sprintf("%6d %s", n, what))
	}
	slices.SortFunc(all, func(x, y string) int { return strings.Compare(x[7:], y[7:]) })
	t.Log("reached:\n" + strings.Join(all, "\n"))
	for want := range strings.Lines(toReach) {
		if want = strings.TrimSuffix(want, "\n"); seen[want] == 0 {
			t.Errorf("never reached: %s", want)
		}
	}
}

// toReach are the rows of the table (state, event: what it becomes), the steps
// of the fan-out and the ways on from them, the flags, and what is refused or
// left unchanged.
const toReach = `acknowledged: as it is
acknowledged: before its issue
acknowledged: before the release
acknowledged: beyond the head
acknowledged: ended
acknowledged: lower than before
acknowledged: released
acknowledged: twice
adopted, and an agent made it
adopted, higher applied: to-revoke
adopted, higher applied: to-revoke, embedded
ask: bound
ask: bound, embedded
ask: not by a rotation, one is open
ask: rebound
ask: rebound, embedded
ask: requested
ask: requested, embedded
ask: rotation
ask: rotation, embedded
asked, failed
asked, issued: in use
asked, issued: in use, embedded
asked: withdrawn, assignment ended
asked: withdrawn, replaced
asked: withdrawn, rotation aborted
asked: withdrawn, slot pruned
asked: withdrawn, target retired
changed under a released document
exit from adopt by binding.applied
exit from issue by credential.issued
exit from leaving by credential.issued
exit from revoke by credential.revoked
exit from stranded by credential.write-off
flag cut-off
flag outdated
flag stranded
flag switching
forced without a reason
forced, revoked: in use, asked already
forced, revoked: in use, asked anew
forced, revoked: in use, nothing can be asked
forced, revoked: in use, released
forced, revoked: not in use
forced, written-off: in use, asked already
forced, written-off: in use, asked anew
forced, written-off: in use, released
forced, written-off: not in use
generation unknown
in use, written-off: target retired
issued again, other: already_issued, adopted
issued again, other: already_issued, gone
issued again, other: already_issued, issued
issued again, other: already_issued, revoked
issued again, other: already_issued, to-revoke
issued again, other: already_issued, written-off
issued again, same: unchanged, adopted
issued again, same: unchanged, gone
issued again, same: unchanged, issued
issued again, same: unchanged, revoked
issued again, same: unchanged, to-revoke
issued again, same: unchanged, written-off
issued by an agent
issued, applied: adopted
issued, applied: adopted, embedded
issued, binding.failed: issued
live, embedded: gone
live, written-off: target retired
live: to-revoke, assignment ended
live: to-revoke, pruned and applied
login told, adopted
login told, issued
login told, to-revoke
none: switches at once, bound
none: switches at once, rebound
not_adopted
proven: absent
proven: dropped
pruned: a document stays
released document: taken note of
revocable, failed
revocable, revoked
revoked again: unchanged, asked
revoked again: unchanged, gone
revoked again: unchanged, revoked
revoked again: unchanged, withdrawn
rotation aborted by a retirement
rotation aborted: asked stays, what is in use is not live
rotation aborted: the mark outlives it
rotation completed: empty
rotation completed: gone
rotation completed: revoked
rotation completed: written-off
rotation of a binding
rotation of a binding, embedded
rotation of a provider
rotation superseded
rotation urged
rotation with issued-before
step adopt
step adopt, embedded
step adopt, of a released document
step done
step done, embedded
step issue
step issue, an operator's
step issue, embedded
step leaving
step leaving, an operator's
step leaving, embedded
step revoke
step revoke, an operator's
step revoke, embedded
step stranded
step stuck
step stuck, embedded
to-revoke, failed
to-revoke, revoked
to-revoke, written-off
to-revoke, written-off, stranded
unproven: absent, and not this agent's
unproven: another hook
unproven: by hand, unknown
unproven: not said
urgent, a higher one issued: revocable
withdrawn, issued: at a retired provider
withdrawn, issued: gone with the assignment
withdrawn, issued: to-revoke
written-off, revoked: taken`

package ledger

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"bindery/events"
)

func TestAppendRead(t *testing.T) {
	s := startStore(t, t.TempDir())
	l := mustCreate(t, s)
	w := newWriter()
	var all []events.Group
	for _, sizes := range [][]int{{1}, {1}, {3}, {1, 1, 1}, {1, 4, 1}, {1000}, {999, 1, 1}, {600, 600, 600}} {
		cmds := w.commands(sizes...)
		after := cmds[0][0].Seq - 1
		n, err := l.Append(ctxT(t), after, cmds)
		if err != nil || n != len(cmds) {
			t.Fatalf("appending %v: %d, %v", sizes, n, err)
		}
		all = append(all, cmds...)
	}
	got := readAll(t, l)
	if len(got) != len(all) {
		t.Fatalf("%d commands, want %d", len(got), len(all))
	}
	for i := range got {
		if len(got[i]) != len(all[i]) {
			t.Fatalf("command %d has %d events, want %d", i, len(got[i]), len(all[i]))
		}
	}
}

// What cannot be appended is refused before anything is sent.
func TestAppendRefuses(t *testing.T) {
	s := startStore(t, t.TempDir())
	l := mustCreate(t, s)
	w := newWriter()
	good := w.commands(1, 2)
	change := func(f func(g []events.Group)) []events.Group {
		g := []events.Group{slices.Clone(good[0]), slices.Clone(good[1])}
		f(g)
		return g
	}
	var tooBig *TooLargeError
	tests := []struct {
		name string
		cmds []events.Group
		size bool
	}{
		{"an empty command", change(func(g []events.Group) { g[1] = nil }), false},
		{"a gap", change(func(g []events.Group) { g[1][1].Seq++ }), false},
		{"another start", change(func(g []events.Group) { g[0][0].Seq = 0 }), false},
		{"no chain value", change(func(g []events.Group) { g[0][0].Header = map[string][]string{events.HeaderID: {"x"}} }), false},
		{"too many events", []events.Group{newWriter().command(MaxEvents + 1)}, true},
		{"a payload that is too large", change(func(g []events.Group) { g[1][1].Data = make([]byte, MaxPayload) }), true},
		{"a header that is too large", change(func(g []events.Group) {
			g[1][0].Header = maps.Clone(g[1][0].Header)
			g[1][0].Header["ce-extra"] = []string{strings.Repeat("x", 1<<16)}
		}), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n, err := l.Append(ctxT(t), 0, test.cmds)
			if n != 0 || err == nil || errors.As(err, &tooBig) != test.size || errors.Is(err, ErrBadGroup) == test.size {
				t.Errorf("%d stored, %v", n, err)
			}
		})
	}
	if last, err := l.Last(ctxT(t)); last != 0 || err != nil {
		t.Errorf("the stream ends at %d, %v", last, err)
	}
	if n, err := l.Append(ctxT(t), 0, nil); n != 0 || err != nil {
		t.Errorf("appending nothing: %d, %v", n, err)
	}
	if n, err := l.Append(ctxT(t), 0, good); n != 2 || err != nil {
		t.Errorf("%d stored, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := l.Append(ctx, 3, w.commands(1)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %d stored, %v", n, err)
	}
}

// A group is cut at the borders of commands, by number and by size.
func TestPlan(t *testing.T) {
	s := startStore(t, t.TempDir())
	l := mustCreate(t, s)
	flights := func(cmds []events.Group) (out []int) {
		for len(cmds) > 0 {
			f := l.plan(cmds)
			n := len(f.recs)
			if !f.batch {
				n = -n
			}
			out = append(out, n)
			cmds = cmds[len(f.cmds):]
		}
		return out
	}
	big := newWriter().commands(1, 1, 1)
	for i := range big {
		big[i][0].Data = make([]byte, 3<<20)
	}
	tests := []struct {
		cmds []events.Group
		want []int // events in each flight; negative: publishes
	}{
		{newWriter().commands(1), []int{-1}},
		{newWriter().commands(1, 1, 1), []int{-3}},
		{newWriter().commands(2), []int{2}},
		{newWriter().commands(1, 2, 1), []int{4}},
		{newWriter().commands(600, 400, 1), []int{1000, -1}},
		{newWriter().commands(600, 401, 1), []int{600, 402}},
		{newWriter().commands(slices.Repeat([]int{1}, 1500)...), []int{1000, 500}},
		{newWriter().commands(append(slices.Repeat([]int{1}, 5), 999)...), []int{-5, 999}},
		{big, []int{-2, -1}},
	}
	for i, test := range tests {
		if got := flights(test.cmds); !slices.Equal(got, test.want) {
			t.Errorf("%d: flights of %v, want %v", i, got, test.want)
		}
	}
	l.costs.batch = newLine(0, 0)
	if got := flights(big); !slices.Equal(got, []int{2, -1}) {
		t.Errorf("big ones: flights of %v", got)
	}
	l.costs.batch = newLine(1<<40, 1<<40)
	if got := flights(newWriter().commands(slices.Repeat([]int{1}, 600)...)); !slices.Equal(got, []int{-256, -256, -88}) {
		t.Errorf("where batches are dear: flights of %v", got)
	}
}

// Several callers at once: their appends do not mix.
func TestAppendTakesTurns(t *testing.T) {
	s := startStore(t, t.TempDir())
	l := mustCreate(t, s)
	w := newWriter()
	cmds := w.commands(slices.Repeat([]int{1}, 20)...)
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := 0
	for range 4 { // all append the same: a conflict with oneself is none
		wg.Go(func() {
			n, err := l.Append(ctxT(t), 0, cmds)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			stored += n
			mu.Unlock()
		})
	}
	wg.Wait()
	if stored != 80 || len(readAll(t, l)) != 20 {
		t.Errorf("%d stored", stored)
	}
}

package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bindery/projections"

	"github.com/google/go-cmp/cmp"
)

// TestStateAt: the past, looked at from snapshots, is what the events up to there
// fold to, at borders of commands, within them and beyond the end; with the snapshots
// that looking has left, and without any.
func TestStateAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grow(120)
	all, last := w.prefixes(), w.last()
	s, warnings := w.store()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		w.at(s, all, rng.Uint64N(last+5))
	}
	w.at(s, all, last)
	w.at(s, all, math.MaxUint64)
	w.at(nil, all, last/2)
	w.at(s, all, 0)
	if warnings.Len() > 0 {
		t.Errorf("warnings: %s", warnings)
	}
	if got, most := len(s.seqs(t)), int(last/100)+1; got < most-2 || got > most {
		t.Errorf("%d snapshots of %d events: %v", got, last, s.seqs(t))
	}
}

// borders are the first ends of commands at or after each 100 events.
func borders(all []prefix) []uint64 {
	var out []uint64
	for i := 1; i < len(all); i++ {
		if all[i].seq/100 != all[i-1].seq/100 {
			out = append(out, all[i].seq)
		}
	}
	return out
}

// Opening leaves what is kept: one at or after each 100 events, and the newest.
func TestOpenLeavesSnapshots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grow(100)
	s, _ := w.store()
	open := func() *projections.State {
		t.Helper()
		state, err := Open(t.Context(), w.log, s)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	open()
	all := w.prefixes()
	want := append(borders(all), w.last())
	if diff := cmp.Diff(slices.Compact(want), s.seqs(t)); diff != "" {
		t.Fatalf("snapshots (-want +got):\n%s", diff)
	}
	for _, e := range must(s.List())(t) {
		got, err := read(e)
		if err != nil || !bytes.Equal(bytesOf(t, got), upTo(all, e.Seq).snap) {
			t.Errorf("the snapshot at %d is not the fold to there: %v", e.Seq, err)
		}
		if i := must(os.Stat(e.Path))(t); i.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o", e.Path, i.Mode().Perm())
		}
	}
	if i := must(os.Stat(s.dir))(t); i.Mode().Perm() != 0o700 {
		t.Errorf("%s has mode %04o", s.dir, i.Mode().Perm())
	}
	// A little more is worth none; an orderly stop, and much more, are. The newest
	// before is not kept any longer.
	newest := w.last()
	w.grow(2)
	state := open()
	if got := s.Last(); got != newest {
		t.Errorf("after %d events a snapshot at %d was written", state.Seq-newest, got)
	}
	s.Stop(state)
	if got := s.seqs(t); got[len(got)-1] != state.Seq && state.Seq >= newest+10 || slices.Contains(got, newest) && !slices.Contains(borders(w.prefixes()), newest) {
		t.Errorf("after a stop at %d: %v", state.Seq, got)
	}
	w.grow(20)
	open()
	all = w.prefixes()
	if diff := cmp.Diff(slices.Compact(append(borders(all), w.last())), s.seqs(t)); diff != "" {
		t.Errorf("snapshots (-want +got):\n%s", diff)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Kind: a snapshot that is not what the log says, or cannot be read, gives the
// answer. It is removed, and the next older one or none takes its place; what a later
// program wrote is left alone.
func TestWrongSnapshots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grow(40)
	all, last := w.prefixes(), w.last()
	change := func(f func([]byte) []byte) func(*testing.T, Entry) {
		return func(t *testing.T, e Entry) {
			data := must(os.ReadFile(e.Path))(t)
			if err := os.WriteFile(e.Path, f(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	version := func(by int) func([]byte) []byte {
		return func(b []byte) []byte {
			at := len("bindery snapshot\n")
			binary.BigEndian.PutUint32(b[at:], uint32(projections.SnapshotVersion+by))
			return b
		}
	}
	// another is a state that claims to be another one.
	another := func(claim func(s *projections.State, e Entry)) func(*testing.T, Entry) {
		return func(t *testing.T, e Entry) {
			s := must(StateAt(t.Context(), w.log, nil, last/2))(t)
			claim(s, e)
			if err := os.WriteFile(e.Path, bytesOf(t, s), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, c := range map[string]struct {
		spoil func(*testing.T, Entry)
		stays bool
	}{
		"a byte changed":      {spoil: change(func(b []byte) []byte { b[len(b)/2] ^= 1; return b })},
		"cut off":             {spoil: change(func(b []byte) []byte { return b[:len(b)/3] })},
		"empty":               {spoil: change(func([]byte) []byte { return nil })},
		"older":               {spoil: change(version(-1))},
		"newer":               {spoil: change(version(+1)), stays: true},
		"of another sequence": {spoil: another(func(*projections.State, Entry) {})},
		"with another chain":  {spoil: another(func(s *projections.State, e Entry) { s.Seq = e.Seq })},
		"without what is in the log": {spoil: another(func(s *projections.State, e Entry) {
			mesh := s.Mesh
			*s = *projections.New()
			s.Mesh, s.Seq, s.Chain = mesh, e.Seq, must(chainAt(t.Context(), w.log, e.Seq))(t)
		})},
		"of another ledger": {spoil: func(t *testing.T, e Entry) {
			rename(t, e, fmt.Sprintf("%d-%s.snap", e.Seq, strings.Repeat("0", chainDigits)))
		}},
	} {
		wrong := func(t *testing.T, ahead bool) {
			w := w.in(t)
			s, warnings := w.store()
			// The newest is not at the end, so that there is something to fold.
			before := must(StateAt(t.Context(), w.log, s, last-20))(t)
			if err := s.Write(before); err != nil {
				t.Fatal(err)
			}
			kept := must(s.List())(t)
			newest := kept[len(kept)-1]
			c.spoil(t, newest)
			if ahead {
				s.Ahead()
			}
			w.at(s, all, last)
			now := s.seqs(t)
			if there := slices.Contains(now, newest.Seq); there != c.stays {
				t.Errorf("afterwards there are %v, %d should be there: %t", now, newest.Seq, c.stays)
			}
			if c.stays != (warnings.Len() == 0) {
				t.Errorf("warned: %q", warnings)
			}
			if err := s.Write(must(StateAt(t.Context(), w.log, s, last))(t)); err != nil {
				t.Error(err)
			}
			if there := slices.Contains(s.seqs(t), newest.Seq); there != c.stays {
				t.Errorf("after the next one there are %v, %d should be there: %t", s.seqs(t), newest.Seq, c.stays)
			}
		}
		t.Run(what, func(t *testing.T) { wrong(t, false) })
		t.Run(what+", loaded ahead", func(t *testing.T) { wrong(t, true) })
	}
}

func rename(t *testing.T, e Entry, name string) {
	t.Helper()
	if err := os.Rename(e.Path, filepath.Join(filepath.Dir(e.Path), name)); err != nil {
		t.Fatal(err)
	}
}

// Kind: the log has lost its tail, and the state goes on from what is lost.
func TestSnapshotBeyondTheLog(t *testing.T) {
	t.Parallel()
	long, short := newWorld(t), newWorld(t)
	long.grow(30)
	s, warnings := long.store()
	must(Open(t.Context(), long.log, s))(t)
	if len(s.seqs(t)) == 0 {
		t.Fatal("there is no snapshot")
	}
	short.grow(1)
	short.at(s, short.prefixes(), math.MaxUint64)
	short.grow(40) // its own events are at those sequences now
	short.at(s, short.prefixes(), math.MaxUint64)
	for _, e := range must(s.List())(t) {
		if chain := must(chainAt(t.Context(), short.log, e.Seq))(t); !strings.HasPrefix(chain.String(), e.digits) {
			t.Errorf("%s is still there", e.Path)
		}
	}
	if !strings.Contains(warnings.String(), "another chain value") {
		t.Errorf("warned: %s", warnings)
	}
}

// Failing to write is told, and costs nothing else; what was begun is not left.
func TestCannotWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grow(40)
	s, warnings := w.store()
	if err := os.WriteFile(s.dir, nil, 0o600); err != nil { // it is no directory
		t.Fatal(err)
	}
	w.at(s, w.prefixes(), math.MaxUint64)
	must(Open(t.Context(), w.log, s))(t)
	if !strings.Contains(warnings.String(), "writing a snapshot") {
		t.Errorf("warned: %q", warnings)
	}
}

// What was loaded ahead is used once, and not where another one is asked for.
func TestAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grow(60)
	all, last := w.prefixes(), w.last()
	s, _ := w.store()
	s.Ahead() // there is none
	must(Open(t.Context(), w.log, s))(t)
	s.Ahead()
	w.at(s, all, 150)
	s.Ahead()
	a, b := must(StateAt(t.Context(), w.log, s, last))(t), must(StateAt(t.Context(), w.log, s, last))(t)
	if a == b {
		t.Error("one state was given away twice")
	}
	w.at(s, all, last)
}

// What was left by who was killed while writing is swept out, in time.
func TestSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.store()
	state := must(StateAt(t.Context(), w.log, s, math.MaxUint64))(t)
	if err := s.Write(state); err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(s.dir, newPrefix+"old"), filepath.Join(s.dir, newPrefix+"young")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-2 * abandoned)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(state); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
	files, err := fs.Glob(os.DirFS(s.dir), "*")
	if err != nil || len(files) != 2 {
		t.Errorf("there are %v, %v", files, err)
	}
}

// patience is how long a test waits for what will come; it says only that something
// hangs, since a machine may be slow and busy.
const patience = 3 * time.Minute

// TestKeep: while the ledger grows, snapshots follow, and each is what the log says.
func TestKeep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, warnings := w.store()
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { s.Keep(ctx, w.log, func() uint64 { return w.h.Health().Seq }) })
	for range 10 {
		w.grow(15)
		for end := time.Now().Add(patience); s.Last()+50 <= w.last(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the ledger is at %d, the newest snapshot at %d", w.last(), s.Last())
			}
		}
	}
	stop()
	done.Wait()
	all := w.prefixes()
	entries := must(s.List())(t)
	if n := len(entries); n < int(w.last()/100) || n > int(w.last()/100)+1 {
		t.Errorf("%d snapshots of %d events", n, w.last())
	}
	for _, e := range entries {
		got, err := read(e)
		if err != nil || !bytes.Equal(bytesOf(t, got), upTo(all, e.Seq).snap) {
			t.Errorf("the snapshot at %d is not the fold to there: %v", e.Seq, err)
		}
	}
	if warnings.Len() > 0 {
		t.Errorf("warnings: %s", warnings)
	}
}

// A nil store has nothing and takes nothing.
func TestNoStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grow(3)
	var s *Store
	state := must(Open(t.Context(), w.log, s))(t)
	if state.Seq != w.last() || s.Last() != 0 || s.Write(state) != nil {
		t.Error("it took something")
	}
	s.Stop(state)
}

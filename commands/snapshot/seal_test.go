package snapshot

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"bindery/ledger"
)

// opened opens a store of snapshots anew, on a log that has read nothing yet, and returns
// at which sequence the snapshot is that it begins from, and what the log has skipped.
func (w *world) opened(s *Store, secrets ledger.Secrets) (from uint64, skipped ledger.Skipped) {
	w.t.Helper()
	log := &unread{Log: w.log}
	fresh := In(s.dir, nil).SealWith(secrets)
	state, _ := fresh.newest(w.t.Context(), log, w.last())
	return state.Seq, log.skipped
}

// unread is a log of which is known what a snapshot told.
type unread struct {
	Log
	skipped ledger.Skipped
}

func (u *unread) Skip(s ledger.Skipped)         { u.skipped = s }
func (u *unread) Skipped(uint64) ledger.Skipped { return u.skipped }

// Kind: who can put a file into the directory of snapshots is an operator. A snapshot
// is used as it was sealed, by a secret of the store, and in no other way.
func TestSeals(t *testing.T) {
	t.Parallel()
	first, second := ledger.NewSecret(1), ledger.NewSecret(40)
	harms := map[string]func(t *testing.T, path, other string){
		"no seal":                func(t *testing.T, path, _ string) { remove(t, sealPath(path)) },
		"an empty seal":          func(t *testing.T, path, _ string) { write(t, sealPath(path), "") },
		"the seal of another":    func(t *testing.T, path, other string) { write(t, sealPath(path), readFile(t, sealPath(other))) },
		"another under the seal": func(t *testing.T, path, other string) { write(t, path, readFile(t, other)) },
		"fewer were skipped": func(t *testing.T, path, _ string) {
			write(t, sealPath(path), strings.Replace(readFile(t, sealPath(path)), `"first":3`, `"first":4`, 1))
		},
	}
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s, _ := w.store()
			s.of(&unread{w.log, ledger.Skipped{Spans: []ledger.Span{{First: 3, Last: 5}}, Recovered: 4}})
			s.SealWith(ledger.Secrets{first})
			var seqs []uint64
			for range 2 {
				w.grow(5)
				state, err := StateAt(t.Context(), w.log, nil, w.last())
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Write(state); err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, state.Seq)
				s.tun.spacing = 1 // both are kept
			}
			all, err := s.List()
			if err != nil || len(all) == 0 || all[len(all)-1].Seq != seqs[1] {
				t.Fatal(all, err)
			}
			newest := all[len(all)-1]
			from, skipped := w.opened(s, ledger.Secrets{first, second})
			if from != seqs[1] || !slices.Equal(skipped.Spans, []ledger.Span{{First: 3, Last: 5}}) || skipped.Recovered != 4 {
				t.Fatalf("opened from %d, with %+v", from, skipped)
			}
			if from, _ := w.opened(s, ledger.Secrets{second}); from != 0 {
				t.Errorf("what another secret has sealed is used: from %d", from)
			}
			w.reseal(s, seqs[1])
			harm(t, newest.Path, w.elsewhere(s))
			if from, _ := w.opened(s, ledger.Secrets{first}); from == seqs[1] {
				t.Errorf("it is used")
			}
			if _, err := os.Stat(newest.Path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is left there: %v", err)
			}
		})
	}
}

// reseal writes the snapshot of a sequence again.
func (w *world) reseal(s *Store, seq uint64) {
	w.t.Helper()
	state, err := StateAt(w.t.Context(), w.log, nil, seq)
	if err == nil {
		err = s.Write(state)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// elsewhere is a snapshot of an earlier state, sealed as well.
func (w *world) elsewhere(s *Store) string {
	w.t.Helper()
	other := In(w.t.TempDir(), nil).SealWith(s.secrets)
	other.of(w.log)
	w.reseal(other, w.last()/2)
	all, err := other.List()
	if err != nil || len(all) != 1 {
		w.t.Fatal(all, err)
	}
	return all[0].Path
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

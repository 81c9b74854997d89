package ledger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bindery/events"
)

// Kind: an anchor that cannot be read is taken for none.
func TestAnchorFiles(t *testing.T) {
	s := Anchors{Dir: filepath.Join(t.TempDir(), "a", "b")}
	if _, ok, err := s.Load("X"); ok || err != nil {
		t.Fatalf("an anchor that was never written: %v, %v", ok, err)
	}
	a := Anchor{ID: "X", Mesh: "home", MeshID: events.ID{1}, Seq: 7, Chain: events.Chain{1, 2}, Path: "/srv/home", Time: time.Unix(1, 0).UTC()}
	if err := s.Save(a); err != nil {
		t.Fatal(err)
	}
	later := a
	later.ID, later.Seq, later.Time = "Y", 8, time.Unix(2, 0).UTC()
	if err := s.Save(later); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := s.Load("X"); !ok || err != nil || got != a {
		t.Errorf("loaded %+v, %v, %v", got, ok, err)
	}
	if got, ok, err := s.At("/srv/home"); !ok || err != nil || got != later {
		t.Errorf("the newest of a place: %+v, %v, %v", got, ok, err)
	}
	if i, err := os.Stat(s.File("X")); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("its file: %v, %v", i, err)
	}
	whole, err := os.ReadFile(s.File("X"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"empty": nil, "cut": whole[:len(whole)/2], "another's": bytes.Replace(whole, []byte(`"X"`), []byte(`"Z"`), 1)} {
		if err := os.WriteFile(s.File("X"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := s.Load("X"); ok || err == nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
		if _, _, err := s.At("/srv/home"); err == nil {
			t.Errorf("%s: the anchors of a place are told all the same", name)
		}
	}
	for _, id := range []string{"", "../X", ".X", "a/b"} {
		if _, _, err := s.Load(id); err == nil {
			t.Errorf("%q is taken for an id", id)
		}
	}
}

// Kind: the anchor goes back, or is ahead of what is durable.
func TestAnchorKeeper(t *testing.T) {
	s := Anchors{Dir: t.TempDir()}
	k := NewAnchorKeeper(s, Anchor{ID: "X"}, time.Now)
	for _, step := range []struct{ reach, want uint64 }{{3, 3}, {2, 3}, {3, 3}, {5, 5}} {
		if err := k.Reach(Position{Seq: step.reach, Mesh: events.ID{1}}); err != nil {
			t.Fatal(err)
		}
		if a, ok, err := s.Load("X"); err != nil || !ok || a.Seq != step.want {
			t.Errorf("after %d the anchor is at %d (%v, %v), want %d", step.reach, a.Seq, ok, err, step.want)
		}
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Dir, nil, 0o600); err != nil { // no directory can be made there
		t.Fatal(err)
	}
	var path *os.PathError
	if err := k.Reach(Position{Seq: 6}); !errors.As(err, &path) {
		t.Errorf("where nothing can be written: %v", err)
	}
	if a, err := k.Last(); a.Seq != 5 || err == nil {
		t.Errorf("the last that was written: %d, %v", a.Seq, err)
	}
}

// BenchmarkAnchor is what a write pays that waits for its anchor.
func BenchmarkAnchor(b *testing.B) {
	k := NewAnchorKeeper(Anchors{Dir: b.TempDir()}, Anchor{ID: "X"}, time.Now)
	seq := uint64(0)
	for b.Loop() {
		seq++
		if err := k.Reach(Position{Seq: seq}); err != nil {
			b.Fatal(err)
		}
	}
}

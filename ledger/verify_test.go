package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"bindery/events"
)

// verifyAll verifies a whole log.
func verifyAll(t testing.TB, l *Log, known ...Position) (Verified, error) {
	t.Helper()
	last, err := l.Last(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	return l.Verify(ctxT(t), Verifying{To: last, Known: known})
}

// positionOf is where a record of mesh lies.
func positionOf(t testing.TB, mesh events.ID, r events.Record) Position {
	t.Helper()
	chain, err := events.ParseChain(r.Get(events.HeaderChain))
	if err != nil {
		t.Fatal(err)
	}
	return Position{Seq: r.Seq, Chain: chain, Mesh: mesh}
}

// Each kind of damage is found at its first sequence; what a chain cannot see
// alone is found against a position that was known before.
func TestVerifyFindsDamage(t *testing.T) {
	sizes := []int{1, 2, 1, 2, 1, 2, 1, 2, 1, 2} // the sequences 1, 2-3, 4, 5-6, …, 14-15
	type records = []events.Record
	tests := []struct {
		name  string
		alter func(mesh events.ID, r records) records
		known uint64 // the sequence that was known; 0: none
		at    uint64 // 0: nothing is found
		last  uint64 // sound up to here
		why   string
	}{
		{"nothing", func(_ events.ID, r records) records { return r }, 15, 0, 15, ""},
		{"edited", func(_ events.ID, r records) records { r[6].Data = []byte(`{"name":"other"}`); return r }, 0, 7, 6, "not the event"},
		{"reordered", func(_ events.ID, r records) records { r[6], r[7] = r[7], r[6]; return r }, 15, 7, 6, "not the event"},
		{"middle gone", func(_ events.ID, r records) records { return slices.Delete(r, 6, 9) }, 0, 7, 6, "not the event"},
		{"a command's end gone", func(_ events.ID, r records) records { return r[:14] }, 0, 0, 13, ""},
		{"a command's end gone, and known", func(_ events.ID, r records) records { return r[:14] }, 15, 14, 13, "had reached 15"},
		{"tail gone, nothing known", func(_ events.ID, r records) records { return r[:10] }, 0, 0, 10, ""},
		{"tail gone", func(_ events.ID, r records) records { return r[:10] }, 15, 11, 10, "ends at 10, and had reached 15"},
		{"all but one gone", func(_ events.ID, r records) records { return r[:1] }, 4, 2, 1, "had reached 4"},
		{"written anew", func(mesh events.ID, r records) records {
			return chained(mesh, r, func(r *events.Record) {
				if r.Seq == 7 {
					r.Header["ce-actor"] = []string{"mallory"}
				}
			})
		}, 12, 12, 10, "from sequence 1 to here was written anew"},
		{"written anew after what is known", func(mesh events.ID, r records) records {
			return chained(mesh, r, func(r *events.Record) {
				if r.Seq == 13 {
					r.Header["ce-actor"] = []string{"mallory"}
				}
			})
		}, 12, 0, 15, ""},
	}
	s := quickStore(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, w := fastLog(t, s), newWriter()
			recs := flat(w.commands(sizes...))
			var known []Position
			if test.known > 0 {
				known = append(known, positionOf(t, w.mesh, recs[test.known-1]))
			}
			publish(t, l, test.alter(w.mesh, recs))
			done, err := verifyAll(t, l, known...)
			if done.Last.Seq != test.last || done.Events != test.last {
				t.Errorf("sound up to %d with %d events, want %d", done.Last.Seq, done.Events, test.last)
			}
			var damage *DamageError
			switch {
			case test.at == 0 && err != nil:
				t.Errorf("found %v", err)
			case test.at > 0 && (!errors.As(err, &damage) || damage.Seq != test.at || !strings.Contains(damage.Why, test.why)):
				t.Errorf("found %v, want %q at %d", err, test.why, test.at)
			}
		})
	}
}

// Foreign messages are counted, wherever they lie; a position that stands on one
// was an event's.
func TestVerifyCountsForeign(t *testing.T) {
	s := quickStore(t)
	l, w := fastLog(t, s), newWriter()
	appendAll := func(cmds []events.Group) {
		t.Helper()
		if _, err := l.Append(ctxT(t), cmds[0][0].Seq-1, cmds); err != nil {
			t.Fatal(err)
		}
	}
	appendAll(w.commands(1, 2))
	publish(t, l, []events.Record{foreignRecord(), foreignRecord()})
	w.seq += 2
	appendAll(w.commands(3))
	publish(t, l, []events.Record{foreignRecord()})
	done, err := verifyAll(t, l)
	if want := (Verified{Last: done.Last, Events: 6, Commands: 3, Foreign: 3, FirstForeign: 4}); err != nil || done != want || done.Last.Seq != 8 {
		t.Fatalf("%+v, %v; want %+v up to 8", done, err, want)
	}
	from, chains := Position{}, map[uint64]events.Chain{}
	_, err = l.Verify(ctxT(t), Verifying{To: 9, Each: func(evs []events.Event) error {
		for i := range evs {
			chains[evs[i].Seq] = evs[i].Chain
		}
		if evs[0].Seq == 2 {
			from = After(&evs[1])
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := l.Verify(ctxT(t), Verifying{From: from, To: 9}); err != nil || done.Events != 3 || done.Foreign != 3 || done.FirstForeign != 4 {
		t.Errorf("from %d: %+v, %v", from.Seq, done, err)
	}
	// Those before what is known were there already.
	for at, first := range map[uint64]uint64{6: 9, 8: 9} {
		if done, err := verifyAll(t, l, Position{Seq: at, Chain: chains[at]}); err != nil || done.Foreign != 3 || done.FirstForeign != first {
			t.Errorf("known up to %d: %+v, %v", at, done, err)
		}
	}
	var damage *DamageError
	if _, err := verifyAll(t, l, Position{Seq: 5, Chain: from.Chain}); !errors.As(err, &damage) || damage.Seq != 5 {
		t.Errorf("an event that a foreign message took the place of: %v", err)
	}
	var other *OtherMeshError
	if _, err := verifyAll(t, l, Position{Seq: 5, Mesh: newID()}); !errors.As(err, &other) {
		t.Errorf("another mesh: %v", err)
	}
	if _, err := verifyAll(t, l, Position{Seq: 500, Mesh: newID()}); !errors.As(err, &other) {
		t.Errorf("another mesh, further on: %v", err)
	}
}

// What stops the one who asked stops the walk, and is told as it is.
func TestVerifyStops(t *testing.T) {
	s := quickStore(t)
	l, w := fastLog(t, s), newWriter()
	publish(t, l, flat(w.commands(1, 1, 1)))
	enough := errors.New("enough")
	done, err := l.Verify(ctxT(t), Verifying{To: 3, Each: func(evs []events.Event) error {
		if evs[0].Seq == 2 {
			return enough
		}
		return nil
	}})
	if err != enough || done.Commands != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Verify(ctx, Verifying{To: 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestCheckpoint(t *testing.T) {
	golden := "bindery checkpoint 1\n01KDYAK3SE0000000000000001 demo\n12\n" + strings.Repeat("0e", 32) + "\n"
	c, err := ParseCheckpoint(golden)
	if err != nil || c.String() != golden {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, bad := range []string{"", golden[:len(golden)-1], golden + "\n", " " + golden, strings.Replace(golden, "1\n", "2\n", 1),
		strings.Replace(golden, "\n12\n", "\n012\n", 1), strings.Replace(golden, "\n12\n", "\n0\n", 1), strings.Replace(golden, "\n12\n", "\n+12\n", 1),
		strings.Replace(golden, " demo", "", 1), strings.Replace(golden, "demo", "De mo", 1), strings.Replace(golden, "0e", "0E", 1),
		strings.Replace(golden, "\n", "\r\n", -1), strings.Replace(golden, "01KD", "01kd", 1)} {
		if c, err := ParseCheckpoint(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, c)
		}
	}
}

// A checkpoint counts only with a signature of a key that was named.
func TestOpenCheckpoint(t *testing.T) {
	c := Checkpoint{Mesh: newID(), MeshName: "demo", Seq: 7, Chain: events.Chain{1, 2, 3}}
	skey, vkey := noteKeys(t, "demo")
	_, stranger := noteKeys(t, "demo")
	signed, err := c.Sign(skey + "\n")
	if err != nil {
		t.Fatal(err)
	}
	got, by, err := OpenCheckpoint(signed, []string{stranger, vkey})
	if err != nil || got != c || !slices.Equal(by, []string{"demo"}) {
		t.Errorf("%+v by %q, %v", got, by, err)
	}
	if _, _, err := OpenCheckpoint(signed, []string{stranger}); !errors.Is(err, ErrUnverified) {
		t.Errorf("signed by another: %v", err)
	}
	if _, _, err := OpenCheckpoint(signed, nil); !errors.Is(err, ErrUnverified) {
		t.Errorf("no key: %v", err)
	}
	edited := strings.Replace(string(signed), "\n7\n", "\n8\n", 1)
	if _, _, err := OpenCheckpoint([]byte(edited), []string{vkey}); err == nil {
		t.Error("an edited checkpoint is taken")
	}
	if _, err := c.Sign("PRIVATE+KEY+secret"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a key that is none: %v", err)
	}
}

// noteKeys makes the two halves of a key that signs notes.
func noteKeys(t testing.TB, name string) (skey, vkey string) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	return skey, vkey
}

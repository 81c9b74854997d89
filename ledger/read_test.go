package ledger

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/events"
)

// publish puts records into the stream as they are, whatever they are.
func publish(t testing.TB, l *Log, recs []events.Record) {
	t.Helper()
	for i := range recs {
		m := &nats.Msg{Subject: recs[i].Subject, Header: nats.Header(maps.Clone(recs[i].Header)), Data: recs[i].Data}
		if _, err := l.js.PublishMsg(ctxT(t), m); err != nil {
			t.Fatal(err)
		}
	}
}

func flat(cmds []events.Group) (out []events.Record) {
	for _, c := range cmds {
		for i := range c {
			r := c[i]
			r.Header, r.Data = maps.Clone(r.Header), slices.Clone(r.Data)
			out = append(out, r)
		}
	}
	return out
}

func foreignRecord() events.Record {
	return events.Record{
		Subject: events.SubjectFor(testMesh, events.Type{Entity: events.EntityNode, Name: "registered"}, newID()),
		Header:  map[string][]string{}, Data: []byte(`{}`),
	}
}

func fastLog(t testing.TB, s *store) *Log {
	l := freshLog(t, s)
	l.tun.watch, l.tun.partial = 30*time.Millisecond, 100*time.Millisecond
	return l
}

// What was altered is found, at the right place, and what comes before it is
// yielded.
func TestReadFindsDamage(t *testing.T) {
	// Ten commands: the sequences 1, 2-3, 4, 5-6, …, 14-15.
	sizes := []int{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}
	tests := []struct {
		name     string
		alter    func(r []events.Record) []events.Record
		at       uint64
		commands int // yielded before
		why      string
	}{
		{"payload edited", func(r []events.Record) []events.Record {
			r[6].Data = []byte(strings.Replace(string(r[6].Data), "node-", "edon-", 1))
			return r
		}, 7, 4, "not the event"},
		{"header edited", func(r []events.Record) []events.Record {
			r[6].Header["ce-actor"] = []string{"somebody"}
			return r
		}, 7, 4, "not the event"},
		{"header added", func(r []events.Record) []events.Record {
			r[6].Header["ce-extra"] = []string{"x"}
			return r
		}, 7, 4, "not the event"},
		{"chain value edited", func(r []events.Record) []events.Record {
			r[6].Header[events.HeaderChain] = []string{strings.Repeat("a", 64)}
			return r
		}, 7, 4, "not the event"},
		{"two swapped", func(r []events.Record) []events.Record {
			r[6], r[7] = r[7], r[6]
			return r
		}, 7, 4, "not the event"},
		{"one removed", func(r []events.Record) []events.Record { return slices.Delete(r, 6, 7) }, 7, 4, "not the event"},
		{"one repeated", func(r []events.Record) []events.Record { return slices.Insert(r, 6, r[5]) }, 7, 4, "not the event"},
		{"the last one edited", func(r []events.Record) []events.Record {
			r[14].Data = []byte(`{"name":"other"}`)
			return r
		}, 15, 9, "not the event"},
		{"the first one removed", func(r []events.Record) []events.Record { return r[1:] }, 1, 0, "not the event"},
	}
	s := quickStore(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := fastLog(t, s)
			publish(t, l, test.alter(flat(newWriter().commands(sizes...))))
			got, err := tryRead(t, l)
			var damage *DamageError
			if !errors.As(err, &damage) {
				t.Fatalf("read %d commands, %v", len(got), err)
			}
			if damage.Seq != test.at || !strings.Contains(damage.Error(), test.why) {
				t.Errorf("found %v, want %q at %d", damage, test.why, test.at)
			}
			if len(got) != test.commands {
				t.Errorf("%d commands before it, want %d", len(got), test.commands)
			}
		})
	}
}

// chained makes records whose chain is right, whatever else is wrong with them.
func chained(mesh events.ID, recs []events.Record, alter func(r *events.Record)) []events.Record {
	var prev events.Chain
	for i := range recs {
		alter(&recs[i])
		prev = prev.Link(mesh, &recs[i])
		recs[i].Header[events.HeaderChain] = []string{prev.String()}
	}
	return recs
}

func TestReadChecksWhatIsChained(t *testing.T) {
	s := quickStore(t)
	damaged := func(t *testing.T, at uint64, why string, alter func(r *events.Record)) {
		t.Helper()
		l := fastLog(t, s)
		w := newWriter()
		publish(t, l, chained(w.mesh, flat(w.commands(1, 3, 2, 1)), alter))
		_, err := tryRead(t, l)
		var damage *DamageError
		if !errors.As(err, &damage) || damage.Seq != at || !strings.Contains(err.Error(), why) {
			t.Errorf("read: %v; want %q at %d", err, why, at)
		}
	}
	set := func(seq uint64, name, value string) func(r *events.Record) {
		return func(r *events.Record) {
			if r.Seq == seq {
				r.Header[name] = []string{value}
			}
		}
	}
	t.Run("border", func(t *testing.T) { damaged(t, 3, "belongs", set(3, events.HeaderBatch, "3/3")) })
	t.Run("length", func(t *testing.T) { damaged(t, 3, "belongs", set(3, events.HeaderBatch, "2/4")) })
	t.Run("no beginning", func(t *testing.T) { damaged(t, 2, "did not begin", set(2, events.HeaderBatch, "2/3")) })
	t.Run("command", func(t *testing.T) { damaged(t, 4, "belongs", set(4, events.HeaderCommand, newID().String())) })
	t.Run("payload", func(t *testing.T) {
		damaged(t, 5, "cannot be read", func(r *events.Record) {
			if r.Seq == 5 {
				r.Data = []byte("{")
			}
		})
	})
}

// A type of a newer program is recognised as such if the chain vouches for it.
func TestReadUnknownType(t *testing.T) {
	s := quickStore(t)
	l := fastLog(t, s)
	w := newWriter()
	newer := func(r *events.Record) {
		if r.Seq == 3 {
			r.Header[events.HeaderType] = []string{"bindery.node.painted.v1"}
		}
	}
	recs := chained(w.mesh, flat(w.commands(1, 1, 1, 1)), newer)
	publish(t, l, recs)
	got, err := tryRead(t, l)
	var unknown *events.UnknownTypeError
	if !errors.As(err, &unknown) || len(got) != 2 {
		t.Errorf("%d commands, then %v", len(got), err)
	}
	var damage *DamageError
	if errors.As(err, &damage) {
		t.Errorf("it is called damage: %v", err)
	}
	// Whoever wants the bytes gets them.
	n := 0
	for g, err := range l.Records(ctxT(t), Position{}, 4) {
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(g[0], recs[n]) {
			t.Errorf("record %v, want %v", g[0], recs[n])
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d records, want 4", n)
	}

	l = fastLog(t, s)
	recs[2].Data = []byte(`{"colour":"red"}`)
	publish(t, l, recs)
	if _, err := tryRead(t, l); !errors.As(err, &damage) || damage.Seq != 3 {
		t.Errorf("an altered event of an unknown type: %v", err)
	}
}

// A foreign message is skipped and counted, wherever it lies and whatever it
// claims, as soon as the chain goes over it.
func TestReadSkipsForeign(t *testing.T) {
	s := quickStore(t)
	l := fastLog(t, s)
	w := newWriter()
	claiming := foreignRecord()
	claiming.Header[events.HeaderChain] = []string{strings.Repeat("b", 64)}
	another := newWriter()
	another.seq = 4
	whole := another.command(1)[0] // a well-formed event of another ledger
	var want []string
	step := func(foreign ...events.Record) {
		cmds := w.commands(1, 2)
		want = append(want, chains(cmds)...)
		publish(t, l, flat(cmds))
		publish(t, l, foreign)
		w.seq += uint64(len(foreign))
	}
	publish(t, l, []events.Record{foreignRecord()})
	w.seq = 1
	w.command(1) // not the first event: mesh.created belongs to sequence 1
	w.seq, w.chain = 1, events.Chain{}
	step(claiming)        // 2 to 4, foreign 5
	step(whole, claiming) // 6 to 8, foreign 9, 10
	step()                // 11 to 13
	step(foreignRecord()) // 14 to 16, foreign 17: the tail
	for range 2 {         // counted once
		if got := readChains(readAll(t, l)); !reflect.DeepEqual(got, want) {
			t.Errorf("read %d events, want %d", len(got), len(want))
		}
	}
	f := l.Foreign()
	if f.Count != 5 || !slices.Equal(f.Seqs, []uint64{1, 5, 9, 10, 17}) {
		t.Errorf("foreign: %+v", f)
	}
	// What claims to be an event and ends the log is damage …
	publish(t, l, []events.Record{claiming})
	var damage *DamageError
	if _, err := tryRead(t, l); !errors.As(err, &damage) || damage.Seq != 18 {
		t.Errorf("a tail that claims to be an event: %v", err)
	}
	// … even where nobody asks for what comes behind it, unless the chain goes on.
	w.seq = 18
	publish(t, l, flat(w.commands(1)))
	n := 0
	for _, err := range l.Read(ctxT(t), Position{}, 18) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 8 {
		t.Errorf("%d commands up to 18, want 8", n)
	}
}

func TestReadFromPosition(t *testing.T) {
	s := quickStore(t)
	l := mustCreate(t, s)
	w := newWriter()
	cmds := w.commands(1, 3, 1, 2, 1)
	if _, err := l.Append(ctxT(t), 0, cmds); err != nil {
		t.Fatal(err)
	}
	all := readAll(t, l)
	var pos Position
	for i := range all {
		for to := pos.Seq; to <= w.seq; to++ {
			n, end := 0, pos.Seq
			for evs, err := range l.Read(ctxT(t), pos, to) {
				if err != nil {
					t.Fatal(err)
				}
				n += len(evs)
				end = evs[len(evs)-1].Seq
			}
			if end < to || uint64(n) != end-pos.Seq {
				t.Errorf("from %d to %d: %d events up to %d", pos.Seq, to, n, end)
			}
		}
		pos = After(&all[i][len(all[i])-1])
	}
	// A position of another history.
	pos = After(&all[1][2])
	pos.Chain[0] ^= 1
	var damage *DamageError
	for _, err := range l.Read(ctxT(t), pos, w.seq) {
		if !errors.As(err, &damage) || damage.Seq != pos.Seq+1 {
			t.Errorf("from a position with another chain value: %v", err)
		}
	}
	// More than there is.
	l.tun.watch = 20 * time.Millisecond
	for _, err := range l.Read(ctxT(t), After(&all[4][0]), w.seq+1) {
		if !errors.As(err, &damage) || damage.Seq != w.seq+1 {
			t.Errorf("beyond the end: %v", err)
		}
	}
	// The reader may stop, and its context may end.
	for range l.Read(ctxT(t), Position{}, w.seq) {
		break
	}
	ctx, cancel := context.WithCancel(ctxT(t))
	cancel()
	for _, err := range l.Read(ctx, Position{}, w.seq) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	}
}

func TestGet(t *testing.T) {
	s := quickStore(t)
	l := mustCreate(t, s)
	cmds := newWriter().commands(1, 30)
	if _, err := l.Append(ctxT(t), 0, cmds); err != nil {
		t.Fatal(err)
	}
	want := flat(cmds)
	got, err := l.Get(ctxT(t), 1, 31)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	var missing *NotFoundError
	if _, err := l.Get(ctxT(t), 31, 32); !errors.As(err, &missing) || missing.Seq != 32 {
		t.Errorf("beyond the end: %v", err)
	}
}

// A server whose consumers bring nothing for long is slow: that is no damage, and what
// they do not bring is read one by one.
func TestReadWithoutConsumers(t *testing.T) {
	s := quickStore(t)
	l, w := fastLog(t, s), newWriter()
	cmds := w.commands(slices.Repeat([]int{1, 3}, 200)...)
	if _, err := l.Append(ctxT(t), 0, cmds); err != nil {
		t.Fatal(err)
	}
	publish(t, l, []events.Record{foreignRecord()})
	w.seq++
	more := w.commands(2)
	if _, err := l.Append(ctxT(t), w.seq-2, more); err != nil {
		t.Fatal(err)
	}
	l.tun.watch = time.Microsecond // no consumer is as quick
	if got, want := readChains(readAll(t, l)), chains(append(cmds, more...)); !slices.Equal(got, want) {
		t.Errorf("read %d events, want %d", len(got), len(want))
	}
	f := follow(ctxT(t), l, Position{})
	f.wait(t, chains(append(cmds, more...)))
}

package ledger

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bindery/events"
)

// besieged is a ledger whose writer proves what it appends, and whoever else can
// publish into its stream.
type besieged struct {
	t       *testing.T
	l       *Log
	w       *writer  // the ledger's
	secrets Secrets  // of a store; none on a server
	prover  Prover   // the writer's
	want    []string // chain values of the ledger's events
}

func newBesieged(t *testing.T, s *store) *besieged {
	h := &besieged{t: t, l: fastLog(t, s), w: newWriter(), secrets: Secrets{NewSecret(1)}}
	h.prover = h.secrets[0]
	h.l.ProveWith(h.prover)
	h.l.Trust(h.secrets)
	return h
}

// newBesiegedServer is a ledger on a server, which grants its writer in its first
// command: what is proven there is proven by a key.
func newBesiegedServer(t *testing.T, s *store) *besieged {
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	h := &besieged{t: t, l: fastLog(t, s), w: newWriter(), prover: key}
	h.l.ProveWith(key)
	h.begin(&events.MeshCreated{Name: testMesh}, &events.AccessGranted{Name: "writer", Role: events.RoleWriter, NKey: key.Public})
	return h
}

// begin appends the first command of a ledger.
func (h *besieged) begin(payloads ...events.Payload) {
	h.t.Helper()
	first := h.w.command(1)[0]
	e, err := events.Decode(&first)
	if err != nil {
		h.t.Fatal(err)
	}
	h.w.seq, h.w.chain = 0, events.Chain{}
	var group events.Group
	for i, p := range payloads {
		e.Data, e.Type, e.ID, e.K, e.N, e.Seq = p, p.EventType(), newID(), i+1, len(payloads), h.w.seq+1
		r, err := e.Encode(h.w.chain)
		if err != nil {
			h.t.Fatal(err)
		}
		h.w.seq, h.w.chain = e.Seq, e.Chain
		group = append(group, r)
		e.Entity = newID()
	}
	if _, err := h.l.Append(ctxT(h.t), 0, []events.Group{group}); err != nil {
		h.t.Fatal(err)
	}
	h.want = chains([]events.Group{group})
}

// append appends as the writer does: after the stream's last message, continuing from
// its own last event.
func (h *besieged) append(sizes ...int) {
	h.t.Helper()
	last, err := h.l.Last(ctxT(h.t))
	if err != nil {
		h.t.Fatal(err)
	}
	h.w.seq = last
	cmds := h.w.commands(sizes...)
	if n, err := h.l.Append(ctxT(h.t), last, cmds); err != nil || n != len(cmds) {
		h.t.Fatal(n, err)
	}
	h.want = append(h.want, chains(cmds)...)
}

// forger continues the ledger from its last event, as the writer would.
func (h *besieged) forger() *writer {
	last, err := h.l.Last(ctxT(h.t))
	if err != nil {
		h.t.Fatal(err)
	}
	return &writer{mesh: h.w.mesh, name: testMesh, seq: last, chain: h.w.chain, n: 1000}
}

// reader opens the ledger anew: nothing is remembered.
func (h *besieged) reader(secrets Secrets) *Log {
	h.t.Helper()
	l, err := Open(ctxT(h.t), h.l.nc, testMesh)
	if err != nil {
		h.t.Fatal(err)
	}
	l.tun = h.l.tun
	if len(secrets) > 0 || len(h.secrets) > 0 {
		l.Trust(secrets)
	}
	return l
}

// tails are the ends that somebody may give a log who is not its writer.
var tails = map[string]func(h *besieged) []events.Record{
	"an event of an unknown type": func(h *besieged) []events.Record {
		return rechained(h, h.forger().commands(1), func(r *events.Record) {
			r.Header[events.HeaderType] = []string{"bindery.node.painted.v1"}
		})
	},
	"an event that cannot be read": func(h *besieged) []events.Record {
		return rechained(h, h.forger().commands(1), func(r *events.Record) { r.Data = []byte("{") })
	},
	"an event that does not fit the borders": func(h *besieged) []events.Record {
		return rechained(h, h.forger().commands(1), func(r *events.Record) { r.Header[events.HeaderBatch] = []string{"2/3"} })
	},
	"half a command":   func(h *besieged) []events.Record { return flat(h.forger().commands(3))[:2] },
	"a forged command": func(h *besieged) []events.Record { return flat(h.forger().commands(2)) },
	"many forged commands": func(h *besieged) []events.Record {
		return flat(h.forger().commands(slices.Repeat([]int{1, 3}, 200)...))
	},
	"half a command and a whole one": func(h *besieged) []events.Record {
		f := h.forger()
		return append(flat(f.commands(3))[:1], flat((&writer{mesh: f.mesh, name: testMesh, seq: h.forger().seq + 1, chain: h.w.chain}).commands(1))...)
	},
	"a command of more events than there may be": func(h *besieged) []events.Record {
		return rechained(h, h.forger().commands(3), func(r *events.Record) {
			k, _, _ := strings.Cut(r.Header[events.HeaderBatch][0], "/")
			r.Header[events.HeaderBatch] = []string{k + "/2000"}
		})
	},
	"a proof of somebody else": func(h *besieged) []events.Record {
		if len(h.secrets) > 0 {
			return flat(h.proven(NewSecret(1), h.forger().commands(1)))
		}
		key, err := NewKey()
		if err != nil {
			h.t.Fatal(err)
		}
		return flat(h.proven(key, h.forger().commands(1)))
	},
	"a proof that was copied": func(h *besieged) []events.Record {
		recs := flat(h.forger().commands(1))
		recs[0].Header[events.HeaderProof] = h.stored(1).Header[events.HeaderProof]
		return recs
	},
	"an event that was copied": func(h *besieged) []events.Record { return []events.Record{h.stored(h.w.seq)} },
	"a chain value and nothing else": func(h *besieged) []events.Record {
		r := foreignRecord()
		r.Header[events.HeaderChain] = []string{strings.Repeat("b", 64)}
		return slices.Repeat([]events.Record{r}, 1000)
	},
	"a message without headers": func(h *besieged) []events.Record { return slices.Repeat([]events.Record{foreignRecord()}, 1000) },
	"a proven event with a header of its own": func(h *besieged) []events.Record {
		recs := flat(h.proven(h.prover, h.forger().commands(1)))
		recs[0].Header["X-Note"] = []string{"bytes that nobody proves"}
		return recs
	},
	"a proven event with its proof written otherwise": func(h *besieged) []events.Record {
		recs := flat(h.proven(h.prover, h.forger().commands(1)))
		p := recs[0].Header[events.HeaderProof][0]
		recs[0].Header[events.HeaderProof] = []string{p + "="}
		return recs
	},
}

// proven puts proofs on commands.
func (h *besieged) proven(s Prover, cmds []events.Group) []events.Group {
	l := &Log{}
	l.ProveWith(s)
	if err := l.prove(cmds); err != nil {
		h.t.Fatal(err)
	}
	return cmds
}

// stored is the record of a sequence.
func (h *besieged) stored(seq uint64) events.Record {
	h.t.Helper()
	recs, err := h.l.Get(ctxT(h.t), seq, seq)
	if err != nil {
		h.t.Fatal(err)
	}
	return recs[0]
}

// rechained alters records, and makes their chain continue from the ledger.
func rechained(h *besieged, cmds []events.Group, alter func(r *events.Record)) []events.Record {
	recs, prev := flat(cmds), h.w.chain
	for i := range recs {
		alter(&recs[i])
		prev = prev.Link(h.w.mesh, &recs[i])
		recs[i].Header[events.HeaderChain] = []string{prev.String()}
	}
	return recs
}

// Kind: whoever can publish into the stream writes history. What no writer has proven
// is never read as an event, wherever it lies and whatever it is, keeps nobody from
// reading or appending, and is counted.
func TestForgedTails(t *testing.T) {
	s := quickStore(t)
	for name, tail := range tails {
		for where, besiege := range map[string]func(*testing.T, *store) *besieged{"store": newBesieged, "server": newBesiegedServer} {
			t.Run(name+" on a "+where, func(t *testing.T) { forgedTail(t, besiege(t, s), tail) })
		}
	}
}

func forgedTail(t *testing.T, h *besieged, tail func(h *besieged) []events.Record) {
	h.append(1, 2)
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	followed := follow(ctx, h.reader(h.secrets), Position{})
	var foreign []uint64
	attack := func() {
		last := h.forger().seq
		recs := tail(h)
		publish(t, h.l, recs)
		for i := range recs {
			foreign = append(foreign, last+1+uint64(i))
		}
	}
	check := func() {
		t.Helper()
		l := h.reader(h.secrets)
		if got := readChains(readAll(t, l)); !reflect.DeepEqual(got, h.want) {
			t.Errorf("read %d events, want %d", len(got), len(h.want))
		}
		f := l.Foreign()
		if f.Count != uint64(len(foreign)) || !slices.Equal(f.Seqs, foreign[:min(len(foreign), MaxForeign)]) || f.Open != f.Count || f.FirstOpen != foreign[0] {
			t.Errorf("foreign: %d, the first %v, open %d; want %d from %d on", f.Count, f.Seqs[:min(3, len(f.Seqs))], f.Open, len(foreign), foreign[0])
		}
		done, err := verifyAll(t, l)
		if err != nil || done.Foreign != uint64(len(foreign)) || done.FirstForeign != foreign[0] {
			t.Errorf("verified: %+v, %v", done, err)
		}
	}
	attack()
	check()
	h.append(3)
	check()
	attack()
	attack()
	h.append(1, 1, 2)
	attack()
	check()
	followed.wait(t, h.want)
	cancel()
	<-followed.done
	if len(followed.errs) != 1 || !errors.Is(followed.errs[0], context.Canceled) {
		t.Errorf("a follower ended with %v", followed.errs)
	}
}

// Who has no secrets tells a forged command from the ledger's by the next message: half
// of one always, a whole one where a single one lies there.
func TestForgedTailsWithoutSecrets(t *testing.T) {
	s := quickStore(t)
	for _, name := range []string{"half a command", "a forged command", "a proof of somebody else", "half a command and a whole one"} {
		t.Run(name, func(t *testing.T) {
			h := newBesieged(t, s)
			h.append(1, 2)
			publish(t, h.l, tails[name](h))
			h.append(1)
			l := h.reader(nil)
			if got := readChains(readAll(t, l)); !reflect.DeepEqual(got, h.want) {
				t.Errorf("read %d events, want %d", len(got), len(h.want))
			}
			publish(t, h.l, tails["half a command"](h))
			if got := readChains(readAll(t, l)); !reflect.DeepEqual(got, h.want) {
				t.Errorf("with half a command at the end: read %d events, want %d", len(got), len(h.want))
			}
			if f := l.Foreign(); f.Count == 0 || f.Seqs[0] != 4 {
				t.Errorf("foreign: %+v", f)
			}
		})
	}
}

// What was proven and is not what was appended any more is damage, at its place.
func TestProvenDamage(t *testing.T) {
	alter := map[string]struct {
		f  func(r []events.Record) []events.Record
		at uint64
	}{
		"payload edited":            {func(r []events.Record) []events.Record { r[6].Data = []byte(`{"name":"other"}`); return r }, 7},
		"the last one edited":       {func(r []events.Record) []events.Record { r[9].Data = []byte(`{"name":"other"}`); return r }, 10},
		"a command's middle edited": {func(r []events.Record) []events.Record { r[7].Data = []byte(`{"name":"other"}`); return r }, 8},
		"a proof edited": {func(r []events.Record) []events.Record {
			r[5].Header[events.HeaderProof] = r[1].Header[events.HeaderProof]
			return r
		}, 6},
		"a proof removed": {func(r []events.Record) []events.Record { delete(r[5].Header, events.HeaderProof); return r }, 6},
		"a header added":  {func(r []events.Record) []events.Record { r[7].Header["X-Note"] = []string{"x"}; return r }, 7},
	}
	s := quickStore(t)
	for name, test := range alter {
		t.Run(name, func(t *testing.T) {
			h := newBesieged(t, s)
			recs := flat(h.proven(h.prover, h.w.commands(1, 1, 1, 1, 1, 1, 3, 1))) // the command of three is 7 to 9
			publish(t, h.l, test.f(recs))
			_, err := tryRead(t, h.l)
			var damage *DamageError
			if !errors.As(err, &damage) || damage.Seq != test.at {
				t.Errorf("found %v, want damage at %d", err, test.at)
			}
		})
	}
	t.Run("an unknown type", func(t *testing.T) {
		h := newBesieged(t, s)
		h.append(1)
		recs := rechained(h, h.forger().commands(1), func(r *events.Record) {
			r.Header[events.HeaderType] = []string{"bindery.node.painted.v1"}
		})
		publish(t, h.l, flat(h.proven(h.prover, []events.Group{recs})))
		var newer *events.UnknownTypeError
		if _, err := tryRead(t, h.l); !errors.As(err, &newer) {
			t.Errorf("a newer writer's event: %v", err)
		}
	})
}

// A secret holds from its first sequence to the next one's, and nowhere else.
func TestSecretsHoldFrom(t *testing.T) {
	s := quickStore(t)
	h := newBesieged(t, s)
	h.l.ProveWith(nil)
	h.append(1, 1)
	first, second := NewSecret(3), NewSecret(5)
	for i, secret := range []Secret{first, second} {
		h.l.ProveWith(secret)
		h.l.Trust(Secrets{first, second}[:i+1])
		h.append(1, 1)
	}
	if got := readChains(readAll(t, h.reader(Secrets{first, second}))); !slices.Equal(got, h.want) {
		t.Errorf("read %d events, want %d", len(got), len(h.want))
	}
	publish(t, h.l, flat(h.proven(first, h.forger().commands(1))))
	if got := readChains(readAll(t, h.reader(Secrets{first, second}))); !slices.Equal(got, h.want) {
		t.Errorf("an event that is proven with a secret of before is read: %d events, want %d", len(got), len(h.want))
	}
	for _, bad := range []Secrets{{second, first}, {{From: 1, Key: []byte("short")}}, {{Key: first.Key}}} {
		if bad.check() == nil {
			t.Errorf("%v are taken", bad)
		}
	}
}

// The set of skipped sequences is a set, in whatever order it is filled.
func TestSpans(t *testing.T) {
	var s spans
	in := map[uint64]bool{}
	x := uint64(1)
	for range 4000 {
		x = x*6364136223846793005 + 1442695040888963407
		seq := x>>33%200 + 1
		if x>>20%3 == 0 {
			s.remove(seq)
			delete(in, seq)
		} else {
			s.add(seq)
			in[seq] = true
		}
		for i := 1; i < len(s); i++ {
			if s[i-1].Last+1 >= s[i].First {
				t.Fatal("runs that touch: ", s)
			}
		}
	}
	if s.count() != uint64(len(in)) {
		t.Fatalf("%d sequences, want %d", s.count(), len(in))
	}
	for seq := range uint64(202) {
		if s.has(seq) != in[seq] {
			t.Fatal(fmt.Sprint("sequence ", seq))
		}
	}
}

// Kind: a key that may not write any more, or not yet, writes. Each command is held
// against the writers' grants of before it, also where reading begins in the middle.
func TestWritersSucceed(t *testing.T) {
	h := newBesiegedServer(t, quickStore(t))
	first := h.prover
	second, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	var grants []events.ID
	access := func(p events.Payload, id events.ID) {
		t.Helper()
		cmd := h.w.command(1)[0]
		h.w.seq--
		e, err := events.Decode(&cmd)
		if err != nil {
			t.Fatal(err)
		}
		prev, err := events.ParseChain(h.want[len(h.want)-1])
		if err != nil {
			t.Fatal(err)
		}
		e.Data, e.Type, e.Entity = p, p.EventType(), id
		r, err := e.Encode(prev)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.l.Append(ctxT(t), e.Seq-1, []events.Group{{r}}); err != nil {
			t.Fatal(err)
		}
		h.w.seq, h.w.chain = e.Seq, e.Chain
		h.want = append(h.want, e.Chain.String())
	}
	for _, evs := range readAll(t, h.l) {
		grants = append(grants, evs[1].Entity)
	}
	publish(t, h.l, flat(h.proven(second, h.forger().commands(1)))) // not yet
	h.append(1)
	grants = append(grants, newID())
	access(&events.AccessGranted{Name: "second", Role: events.RoleWriter, NKey: second.Public}, grants[1])
	h.append(2)
	h.l.ProveWith(second)
	h.append(1, 1)
	middle := Position{Seq: h.w.seq, Chain: h.w.chain, Mesh: h.w.mesh,
		Writers: NewWriters(map[events.ID]string{grants[0]: first.(Key).Public, grants[1]: second.Public})}
	from := len(h.want)
	access(&events.AccessRevoked{}, grants[0])
	publish(t, h.l, flat(h.proven(first, h.forger().commands(1)))) // not any more
	h.append(3, 1)
	publish(t, h.l, flat(h.proven(first, h.forger().commands(1))))
	if got := readChains(readAll(t, h.reader(nil))); !slices.Equal(got, h.want) {
		t.Errorf("read %d events, want %d", len(got), len(h.want))
	}
	last, err := h.l.Last(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for evs, err := range h.reader(nil).Read(ctxT(t), middle, last) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, readChains([][]events.Event{evs})...)
	}
	if !slices.Equal(got, h.want[from:]) {
		t.Errorf("from the middle: read %d events, want %d", len(got), len(h.want)-from)
	}
	var runs []Proven
	l := h.reader(nil)
	if _, err := l.Verify(ctxT(t), Verifying{To: last, Proven: func(p Proven) { runs = append(runs, p) }}); err != nil {
		t.Fatal(err)
	}
	// The first command granted the first writer, so it needed no proof.
	want := []Proven{{"", 1, 2}, {first.(Key).Public, 4, 7}, {second.Public, 8, last - 1}}
	if !slices.Equal(runs, want) {
		t.Errorf("proven: %v, want %v", runs, want)
	}
	// Who wants the bytes gets those of the ledger alone.
	n := 0
	for g, err := range h.reader(nil).Records(ctxT(t), Position{}, last) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(g)
	}
	if n != len(h.want) {
		t.Errorf("%d records, want %d", n, len(h.want))
	}
}

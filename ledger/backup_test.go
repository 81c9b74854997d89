package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"bindery/events"
)

// backupOf makes a whole backup.
func backupOf(t testing.TB, l *Log) []byte {
	t.Helper()
	head, err := l.BackupHead(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.Backup(ctxT(t), &out, Backing{Head: head}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// restoreInto restores a backup into a store.
func restoreInto(t testing.TB, s *store, backup []byte) (*Log, error) {
	t.Helper()
	b, err := OpenBackup(bytes.NewReader(backup))
	if err != nil {
		return nil, err
	}
	return Restore(ctxT(t), s.nc, b, Restoring{batch: 2})
}

// readBackup reads a backup to its end.
func readBackup(backup []byte) (last Position, err error) {
	b, err := OpenBackup(bytes.NewReader(backup))
	for err == nil {
		var step BackupStep
		if step, err = b.Next(); err == nil {
			last = step.At
		}
	}
	if err == io.EOF {
		err = nil
	}
	return last, err
}

// shown is all of a record.
func shown(r events.Record) string {
	return fmt.Sprintf("%d %q %q %q", r.Seq, r.Subject, r.Header, r.Data)
}

// hostile fills a log with what nobody means: members, headers and types of a later
// program, payloads that are not UTF-8, and messages that are no part of the ledger.
func hostile(t testing.TB, l *Log) {
	t.Helper()
	w := newWriter()
	first := w.commands(1)
	recs := flat(append(first, w.commands(3, 1, 2, 1, 1, 1)...))
	later := chained(w.mesh, recs, func(r *events.Record) {
		switch r.Seq {
		case 2:
			r.Data = []byte(`{"name":"node-2","later":{"a":[1,2.50,"<&>\u2028"]}}`)
		case 3:
			r.Header["ce-later"] = []string{"%C3%A9", "two"}
		case 5:
			r.Header["ce-type"] = []string{"bindery.node.teleported.v9"}
		case 6:
			r.Data = []byte("\xff\xfe\x00 not UTF-8")
		case 7:
			r.Header["ce-binary"] = []string{"\xff\xfe"}
		case 8:
			r.Header["X-Trace"] = []string{"is no part of the event"}
		case 9:
			r.Data = nil
		}
	})
	publish(t, l, later[:7])
	for i, m := range []events.Record{
		{Subject: "bindery." + testMesh + ".x", Header: map[string][]string{}},
		{Subject: "bindery." + testMesh + ".\xff.x", Header: map[string][]string{"K": {"v", "\xff", ""}}, Data: []byte("\x00\xff")},
		{Subject: later[2].Subject, Header: later[2].Header, Data: later[2].Data}, // an event, again
	} {
		m.Seq = 8 + uint64(i)
		publish(t, l, []events.Record{m})
	}
	// The events after them are chained at the sequences they get.
	prev, err := events.ParseChain(later[6].Get(events.HeaderChain))
	if err != nil {
		t.Fatal(err)
	}
	rest := later[7:]
	for i := range rest {
		rest[i].Seq += 3
		prev = prev.Link(w.mesh, &rest[i])
		rest[i].Header[events.HeaderChain] = []string{prev.String()}
	}
	publish(t, l, rest)
}

// neutralised is the backup that a restored backup gives.
func neutralised(t testing.TB, backup []byte) []byte {
	t.Helper()
	restored, err := restoreInto(t, quickStore(t), backup)
	if err != nil {
		t.Fatal(err)
	}
	return backupOf(t, restored)
}

// A backup of a restored backup has the same events, and from then on the same bytes,
// whatever is in the ledger. A foreign message is kept as what was told of it.
func TestBackupRoundTrip(t *testing.T) {
	from, to := quickStore(t), quickStore(t)
	l := fastLog(t, from)
	hostile(t, l)
	first := backupOf(t, l)
	for _, want := range []string{`\"later\":{`, `teleported.v9`, `"data_base64":`, `"headers_base64":`, `"foreign":true`, `"X-Trace"`, `<&>`} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("the backup has no %s", want)
		}
	}
	restored, err := restoreInto(t, to, first)
	if err != nil {
		t.Fatal(err)
	}
	second := backupOf(t, restored)
	if third := neutralised(t, second); !bytes.Equal(second, third) {
		t.Errorf("the third backup is another one:\n%s\n%s", second, third)
	}
	foreign := 0
	for line := range bytes.Lines(first) {
		switch {
		case bytes.Contains(line, []byte(`,"foreign":true,`)):
			var m backupMessage
			if err := decodeLine(line, &m); err != nil {
				t.Fatal(err)
			}
			kept := backupMessage{Seq: m.Seq, Foreign: true, Subject: "bindery." + testMesh + ".foreign", Data: ptr(strings.TrimSuffix(string(line), "\n"))}
			var want bytes.Buffer
			if err := encodeLine(&want, kept); err != nil {
				t.Fatal(err)
			}
			foreign++
			if !bytes.Contains(second, want.Bytes()) {
				t.Errorf("what is told of a foreign message is lost: %s", line)
			}
		case !bytes.HasPrefix(line, endPrefix) && !bytes.Contains(second, line):
			t.Errorf("it is lost: %s", line)
		}
	}
	if foreign != 3 {
		t.Errorf("%d foreign messages, want 3", foreign)
	}
	last, err := l.Last(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	was, err := l.Get(ctxT(t), 1, last)
	if err != nil {
		t.Fatal(err)
	}
	is, err := restored.Get(ctxT(t), 1, last)
	if err != nil {
		t.Fatal(err)
	}
	for i := range was {
		if was[i].Seq >= 8 && was[i].Seq <= 10 { // foreign
			continue
		}
		if shown(was[i]) != shown(is[i]) {
			t.Errorf("it was %s and is %s", shown(was[i]), shown(is[i]))
		}
	}
	if _, err := restoreInto(t, to, first); !errors.Is(err, ErrExists) {
		t.Errorf("restored over a ledger: %v", err)
	}
}

// A ledger of random commands survives, too, and can be written to afterwards.
func TestRestoredLedgerGoesOn(t *testing.T) {
	from, to := quickStore(t), quickStore(t)
	l, w := freshLog(t, from), newWriter()
	for range 30 {
		sizes := make([]int, 1+rand.IntN(40))
		for i := range sizes {
			sizes[i] = 1 + rand.IntN(1+rand.IntN(30))
		}
		cmds := w.commands(sizes...)
		if _, err := l.Append(ctxT(t), cmds[0][0].Seq-1, cmds); err != nil {
			t.Fatal(err)
		}
	}
	restored, err := restoreInto(t, to, backupOf(t, l))
	if err != nil {
		t.Fatal(err)
	}
	more := w.commands(2, 1)
	if _, err := restored.Append(ctxT(t), more[0][0].Seq-1, more); err != nil {
		t.Fatal(err)
	}
	if done, err := verifyAll(t, restored, positionOf(t, w.mesh, more[1][0])); err != nil || done.Events != w.seq {
		t.Errorf("%+v, %v", done, err)
	}
}

// Whatever is changed in a backup, or left out of it, it is not taken.
func TestReadsNoBrokenBackup(t *testing.T) {
	l := fastLog(t, quickStore(t))
	hostile(t, l)
	good := backupOf(t, l)
	if last, err := readBackup(good); err != nil || last.Seq != 13 {
		t.Fatalf("as it was written: up to %d, %v", last.Seq, err)
	}
	broken := func(what string, backup []byte) {
		t.Helper()
		_, err := readBackup(backup)
		var b *BackupError
		if !errors.As(err, &b) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := 0; n < len(good); n += 1 + rand.IntN(16) {
		broken(fmt.Sprintf("cut off after %d bytes", n), good[:n])
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	lines = lines[:len(lines)-1]
	joined := func(ls ...[]byte) []byte { return bytes.Join(ls, nil) }
	for i := range lines {
		broken(fmt.Sprintf("without line %d", i+1), joined(append(append([][]byte{}, lines[:i]...), lines[i+1:]...)...))
		broken(fmt.Sprintf("line %d twice", i+1), joined(append(append([][]byte{}, lines[:i+1]...), lines[i:]...)...))
		if i+1 < len(lines) {
			swapped := append([][]byte{}, lines...)
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			broken(fmt.Sprintf("lines %d and %d swapped", i+1, i+2), joined(swapped...))
		}
	}
	for range 1000 {
		at := rand.IntN(len(good))
		edited := bytes.Clone(good)
		edited[at] ^= 1 << rand.IntN(8)
		broken(fmt.Sprintf("byte %d is %q instead of %q", at, edited[at], good[at]), edited)
	}
	broken("something behind", append(bytes.Clone(good), '\n'))
	broken("nothing", nil)
}

// A backup that was stopped anywhere goes on where a command ended, to the same
// bytes.
func TestBackupGoesOn(t *testing.T) {
	l := fastLog(t, quickStore(t))
	hostile(t, l)
	whole := backupOf(t, l)
	head, err := l.BackupHead(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 37 {
		var at Position
		kept := int64(0)
		if b, err := OpenBackup(bytes.NewReader(whole[:n])); err == nil {
			for {
				step, err := b.Next()
				if err != nil {
					break
				}
				if step.Command != nil {
					at, kept = step.At, step.Size
				}
			}
		}
		out := bytes.NewBuffer(bytes.Clone(whole[:kept]))
		sum := sha256.New()
		sum.Write(out.Bytes())
		if err := l.Backup(ctxT(t), out, Backing{Head: head, Done: at, Sum: sum}); err != nil {
			t.Fatalf("after %d bytes: %v", n, err)
		}
		if !bytes.Equal(out.Bytes(), whole) {
			t.Fatalf("after %d bytes, of which %d counted, it goes on to another backup", n, kept)
		}
	}
}

// A restore that was stopped is no ledger, and goes on with the same backup alone.
func TestRestoreGoesOn(t *testing.T) {
	l := fastLog(t, quickStore(t))
	hostile(t, l)
	whole := backupOf(t, l)
	for _, cut := range []int{len(whole) / 3, len(whole) / 2, len(whole) - 200, len(whole) - 1} {
		to := quickStore(t)
		if _, err := restoreInto(t, to, whole[:cut]); !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if _, err := Open(ctxT(t), to.nc, testMesh); !errors.Is(err, ErrRestoring) {
			t.Errorf("cut at %d, it is opened: %v", cut, err)
		}
		if _, err := Create(ctxT(t), to.nc, testMesh, CreateOptions{}); !errors.Is(err, ErrExists) {
			t.Errorf("cut at %d, another is created: %v", cut, err)
		}
		restored, err := restoreInto(t, to, whole)
		if err != nil {
			t.Fatalf("cut at %d, again: %v", cut, err)
		}
		if again := backupOf(t, restored); !bytes.Equal(again, neutralised(t, whole)) {
			t.Errorf("cut at %d, it is another ledger", cut)
		}
	}
}

// What the chain does not see is held against the backup as well: the messages that
// a broken one left behind do not become part of a ledger.
func TestRestoreComparesEveryByte(t *testing.T) {
	l := fastLog(t, quickStore(t))
	hostile(t, l)
	whole := backupOf(t, l)
	to := quickStore(t)
	var b *BackupError
	if _, err := restoreInto(t, to, bytes.Replace(whole, []byte("X-Trace"), []byte("X-Tracy"), 1)); !errors.As(err, &b) {
		t.Errorf("a broken one: %v", err)
	}
	if _, err := restoreInto(t, to, whole); !errors.Is(err, ErrOtherBackup) {
		t.Errorf("on what a broken one left: %v", err)
	}
}

// The beginning of one ledger is not taken for that of another with the same mesh.
func TestRestoreTellsBackupsApart(t *testing.T) {
	s := quickStore(t)
	w := newWriter()
	l := fastLog(t, s)
	cmds := w.commands(1, 1, 1, 1)
	if _, err := l.Append(ctxT(t), 0, cmds); err != nil {
		t.Fatal(err)
	}
	one := backupOf(t, l)
	l = freshLog(t, s)
	recs := chained(w.mesh, flat(cmds), func(r *events.Record) {
		if r.Seq == 2 {
			r.Header["ce-actor"] = []string{"bob"}
		}
	})
	publish(t, l, recs)
	two := backupOf(t, l)
	to := quickStore(t)
	if _, err := restoreInto(t, to, one[:len(one)-300]); !errors.Is(err, ErrTruncated) {
		t.Fatal(err)
	}
	if _, err := restoreInto(t, to, two); !errors.Is(err, ErrOtherBackup) {
		t.Errorf("another one's beginning: %v", err)
	}
}

// What is foreign at the end is left out, and a command that is not whole.
func TestBackupHead(t *testing.T) {
	l, w := fastLog(t, quickStore(t)), newWriter()
	if _, err := l.BackupHead(ctxT(t)); err == nil {
		t.Error("an empty log has a head")
	}
	recs := flat(w.commands(1, 2, 3))
	publish(t, l, recs[:5])
	for range 40 {
		publish(t, l, []events.Record{foreignRecord()})
	}
	head, err := l.BackupHead(ctxT(t))
	if err != nil || head.Position() != positionOf(t, w.mesh, recs[2]) {
		t.Errorf("%+v, %v; want sequence 3", head, err)
	}
}

// A log that is not what it was is not backed up.
func TestBackupFindsDamage(t *testing.T) {
	l, w := fastLog(t, quickStore(t)), newWriter()
	recs := flat(w.commands(1, 2, 1, 1, 1))
	recs[3].Data = []byte(`{"name":"other"}`)
	publish(t, l, recs)
	head, err := l.BackupHead(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	var damage *DamageError
	if err := l.Backup(ctxT(t), io.Discard, Backing{Head: head}); !errors.As(err, &damage) || damage.Seq != 4 {
		t.Errorf("%v; want damage at 4", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Backup(ctx, io.Discard, Backing{Head: head}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Each byte of every field comes back from its line.
func TestMessageLine(t *testing.T) {
	for range 2000 {
		text := func() string {
			b := make([]byte, rand.IntN(8))
			for i := range b {
				b[i] = byte(rand.IntN(256))
				if rand.IntN(2) == 0 {
					b[i] = "aé<>&\"\\\u2028\x7f"[rand.IntN(10)]
				}
			}
			return string(b)
		}
		want := events.Record{Seq: 1 + rand.Uint64N(1<<60), Subject: text(), Header: map[string][]string{}, Data: []byte(text())}
		for range rand.IntN(3) {
			want.Header["x"+text()] = []string{text()}
		}
		var line bytes.Buffer
		if err := encodeLine(&line, messageLine(&want, false)); err != nil {
			t.Fatal(err)
		}
		var m backupMessage
		if err := decodeLine(line.Bytes(), &m); err != nil {
			t.Fatalf("%s: %v", line.Bytes(), err)
		}
		got, err := m.record()
		if err != nil || shown(got) != shown(want) {
			t.Fatalf("%s became %s, %v", shown(want), shown(got), err)
		}
	}
	if _, err := (&backupMessage{HeadersBase64: map[string][][]byte{"!": nil}}).record(); !errors.As(err, new(base64.CorruptInputError)) {
		t.Errorf("a name that is no base64: %v", err)
	}
	if strings.Contains(string(backupOf(t, func() *Log { l := fastLog(t, quickStore(t)); hostile(t, l); return l }())), "Nats-") {
		t.Error("a backup has headers of the server")
	}
}

// What a backup and its reading take of memory does not grow with the ledger.
func TestBackupMemory(t *testing.T) {
	const events, most = 60_000, 16 << 20
	l, w := freshLog(t, quickStore(t)), newWriter()
	for w.seq < events {
		after := w.seq
		if _, err := l.Append(ctxT(t), after, w.commands(slices.Repeat([]int{1}, MaxEvents)...)); err != nil {
			t.Fatal(err)
		}
	}
	head, err := l.BackupHead(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	var first uint64
	grown := func(at Position) { // what lies between is 45 MB, if it is kept
		switch now := heapNow(); {
		case first == 0:
			first = now
		case now > first+most:
			t.Errorf("at sequence %d the heap has grown by %d MB since a quarter", at.Seq, (now-first)>>20)
		}
	}
	r, wr := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := l.Backup(t.Context(), wr, Backing{Head: head})
		wr.CloseWithError(err) // who reads is told why it ends
		done <- err
	}()
	b, err := OpenBackup(r)
	for err == nil {
		var step BackupStep
		if step, err = b.Next(); err == nil {
			if step.At.Seq%(events/4) == 0 {
				grown(step.At) // both sides are in use then
			}
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// heapNow is what is in use now.
func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

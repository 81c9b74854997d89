package ledger

import (
	"context"
	"io"
	"slices"
	"testing"
)

// chainsIn are the chain values of what a log gives.
func chainsIn(t *testing.T, l *Log) (out []string) {
	t.Helper()
	last, err := l.Last(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	for evs, err := range l.Read(ctxT(t), Position{}, last) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range evs {
			out = append(out, evs[i].Chain.String())
		}
	}
	return out
}

// Kind: a ledger that moves between a server and a store loses what the other one
// cannot check: a store proves by its secret, also after the grant of a writer; who has
// no secret any more, or another, still has every event.
func TestMovedLedgers(t *testing.T) {
	server := newBesiegedServer(t, quickStore(t)) // it grants its writer
	server.append(1, 3)
	moved, err := restoreInto(t, quickStore(t), backupOf(t, server.l))
	if err != nil {
		t.Fatal(err)
	}
	inStore := &besieged{t: t, l: moved, w: server.w, secrets: Secrets{NewSecret(server.w.seq + 1)}, want: server.want}
	inStore.l.Trust(inStore.secrets)
	inStore.l.ProveWith(inStore.secrets[0])
	inStore.append(1, 2, 1)
	same := func(what string, l *Log, h *besieged) {
		t.Helper()
		if got := chainsIn(t, l); !slices.Equal(got, h.want) {
			t.Errorf("%s: %d events are read, want %d", what, len(got), len(h.want))
		}
		if f := l.Foreign(); f.Count > 0 {
			t.Errorf("%s: %d events are taken for foreign", what, f.Count)
		}
	}
	same("the store", inStore.reader(inStore.secrets), inStore)
	same("the store, whose secret is lost", inStore.reader(nil), inStore)
	same("the store through who serves it", ReadFrom(through{moved}, testMesh, ""), inStore)

	backup := backupOf(t, moved)
	again, err := restoreInto(t, quickStore(t), backup)
	if err != nil {
		t.Fatalf("the backup of the store cannot be restored: %v", err)
	}
	again.Trust(Secrets{NewSecret(inStore.w.seq + 1)})
	same("another store", again, inStore)

	back, err := restoreInto(t, quickStore(t), backup)
	if err != nil {
		t.Fatal(err)
	}
	same("a server", back, inStore)
	// What is written there from then on needs the proof of a writer again.
	onServer := &besieged{t: t, l: back, w: inStore.w, prover: server.prover, want: inStore.want}
	if _, err := back.Append(ctxT(t), onServer.w.seq, onServer.forger().commands(1)); err != nil {
		t.Fatal(err)
	}
	back.ProveWith(onServer.prover)
	onServer.append(2)
	fresh := onServer.reader(nil)
	if got := chainsIn(t, fresh); !slices.Equal(got, onServer.want) {
		t.Errorf("the server, gone on with: %d events are read, want %d", len(got), len(onServer.want))
	}
	if f := fresh.Foreign(); f.Count != 1 {
		t.Errorf("%d messages are foreign, want the forged one", f.Count)
	}
}

// through is a log that another process reads: all of it is sound.
type through struct{ *Log }

// Sound implements Source.
func (t through) Sound(ctx context.Context) (uint64, error) { return t.Last(ctx) }

// soundTo is one that is sound up to a sequence.
type soundTo struct {
	*Log
	seq uint64
}

// Sound implements Source.
func (s soundTo) Sound(context.Context) (uint64, error) { return s.seq, nil }

// Kind: no backup as long as a stranger's message is the last. What is behind the last
// event that the writer knows is left out.
func TestBackupBeforeForgedTail(t *testing.T) {
	h := newBesiegedServer(t, quickStore(t))
	h.append(1, 3, 1)
	sound := h.w.seq
	forged := h.forger().commands(1, 2)
	for _, cmd := range forged {
		publish(t, h.l, cmd)
	}
	l := ReadFrom(soundTo{h.l, sound}, testMesh, h.l.Created())
	head, err := l.BackupHead(ctxT(t))
	if err != nil || head.Seq != sound {
		t.Fatalf("it reaches %d, the ledger %d: %v", head.Seq, sound, err)
	}
	if err := l.Backup(ctxT(t), io.Discard, Backing{Head: head}); err != nil {
		t.Error(err)
	}
}

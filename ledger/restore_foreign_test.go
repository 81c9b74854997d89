package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"bindery/events"
)

func ptr[T any](v T) *T { return &v }

// Kind: a backup is a file that makes whoever restores it publish. No line of it goes
// anywhere but to a literal subject of the ledger's own stream, or makes the server do
// something else with it than to store it.
func TestRestoreOfHostileLines(t *testing.T) {
	l, w := fastLog(t, quickStore(t)), newWriter()
	if _, err := l.Append(ctxT(t), 0, w.commands(1)); err != nil {
		t.Fatal(err)
	}
	head, err := l.BackupHead(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	first, err := l.Get(ctxT(t), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	// made is a backup with one more message, and an event after it.
	made := func(m events.Record, foreign bool) []byte {
		var out bytes.Buffer
		o := &backupWriter{w: &out, sum: sha256.New()}
		line := func(v any) {
			if err := o.line(v); err != nil {
				t.Fatal(err)
			}
		}
		f := *w
		if foreign {
			f.seq++
		} else {
			f.chain = f.chain.Link(w.mesh, &m)
			m.Header[events.HeaderChain] = []string{f.chain.String()}
			f.seq++
		}
		last := f.command(1)[0]
		h := head
		h.Seq, h.Chain, h.Time = last.Seq, f.chain, last.Get(headerTime)
		line(h.line())
		line(messageLine(&first[0], false))
		line(messageLine(&m, foreign))
		line(messageLine(&last, false))
		line(backupEnd{Checkpoint: backupCheckpoint{MeshID: h.MeshID, Seq: h.Seq, Chain: h.Chain.String()}, SHA256: hex.EncodeToString(o.sum.Sum(nil))})
		if err := o.flush(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	event := func(change func(r *events.Record)) events.Record {
		f := *w
		r := f.command(1)[0]
		change(&r)
		return r
	}
	subjects := []string{"$JS.API.STREAM.DELETE.bindery-" + testMesh, "other.stream", "bindery." + testMesh + ".>", "bindery.*.node.x.registered", "bindery.south.a.b.c",
		"bindery." + testMesh + ".a b\r\nPUB x 0\r\n", "", ">", "$SYS.REQ", "_INBOX.x", "bindery-req." + testMesh + ".command"}
	watch := func(t *testing.T, s *store, backup []byte) (strayed []string, restored *Log, err error) {
		watching, err2 := s.nc.SubscribeSync("other.stream")
		if err2 != nil {
			t.Fatal(err2)
		}
		restored, err = restoreInto(t, s, backup)
		if err := s.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := watching.NextMsg(time.Millisecond)
			if err != nil {
				break
			}
			strayed = append(strayed, m.Subject)
		}
		return strayed, restored, err
	}
	for _, subject := range subjects {
		t.Run(fmt.Sprintf("%q", subject), func(t *testing.T) {
			m := event(func(r *events.Record) { r.Subject = subject })
			m.Header["Nats-Rollup"], m.Header["Nats-Msg-Id"], m.Header["Nats-Expected-Stream"] = []string{"all"}, []string{"1"}, []string{"other"}
			strayed, restored, err := watch(t, quickStore(t), made(m, true))
			if err != nil || len(strayed) > 0 {
				t.Fatalf("a foreign message: %v, published on %q", err, strayed)
			}
			if got := readAll(t, restored); len(got) != 2 {
				t.Errorf("%d commands, want 2", len(got))
			}
			recs, err := restored.Get(ctxT(t), 2, 2)
			if err != nil || recs[0].Subject != "bindery."+testMesh+".foreign" || len(recs[0].Header) != 0 {
				t.Errorf("it lies there as %v, %v", recs, err)
			}
			m = event(func(r *events.Record) { r.Subject = subject })
			var b *BackupError
			if strayed, _, err = watch(t, quickStore(t), made(m, false)); !errors.As(err, &b) || b.Seq != 2 || len(strayed) > 0 {
				t.Errorf("as an event: %v, published on %q", err, strayed)
			}
		})
	}
	for _, name := range []string{"Nats-Rollup", "nats-rollup", "Nats-Expected-Last-Sequence", "Nats-TTL", "a b", "x\r\ny", ""} {
		m := event(func(r *events.Record) { r.Header[name] = []string{"x"} })
		var b *BackupError
		if _, err := restoreInto(t, quickStore(t), made(m, false)); !errors.As(err, &b) || b.Seq != 2 {
			t.Errorf("an event with a header %q: %v", name, err)
		}
	}
	long := event(func(r *events.Record) { r.Header["ce-reason"] = []string{strings.Repeat("x", 70_000)} })
	restored, err := restoreInto(t, quickStore(t), made(long, true))
	if err != nil {
		t.Fatal(err)
	}
	if recs, err := restored.Get(ctxT(t), 2, 2); err != nil || len(recs[0].Data) > 200 || !bytes.Contains(recs[0].Data, []byte(`"sha256":"`)) {
		t.Errorf("a long one lies there as %v, %v", recs, err)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands/snapshot"
	"bindery/events"
	"bindery/ledger"
)

// verdictOf runs audit verify and reads what it found.
func (p *patientStore) verdictOf(args ...string) (int, auditView) {
	p.t.Helper()
	code := p.run(p.t.Context(), append([]string{"audit", "verify", "-o", "json"}, args...)...)
	var v auditView
	if err := json.Unmarshal(p.out.Bytes(), &v); err != nil {
		p.t.Fatalf("exit code %d, %v: %s%s", code, err, &p.out, &p.errs)
	}
	return code, v
}

// keys makes a key for checkpoints and returns its file and the verifier key.
func (p *patientStore) keys() (file, verifier string) {
	p.t.Helper()
	file = filepath.Join(p.t.TempDir(), "home.key")
	p.must("audit", "keygen", file, "--name", "home")
	return file, strings.TrimSpace(p.out.String())
}

// records are the events of the store as they are stored.
func (p *patientStore) records() (out []events.Record) {
	p.t.Helper()
	p.behind(func(nc *nats.Conn, _ jetstream.JetStream) {
		log, err := ledger.Open(p.t.Context(), nc, "home")
		if err != nil {
			p.t.Fatal(err)
		}
		last, err := log.Last(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		if out, err = log.Get(p.t.Context(), 1, last); err != nil {
			p.t.Fatal(err)
		}
	})
	return out
}

// forged is a store whose stream holds these messages: somebody wrote it who can
// write files, and who knows nothing of keys.
func (p *patientStore) forged(recs []events.Record) *patientStore {
	p.t.Helper()
	q := &patientStore{Program: p.Program, t: p.t, dir: filepath.Join(p.t.TempDir(), "store"), env: p.env}
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	q.behind(func(nc *nats.Conn, js jetstream.JetStream) {
		if _, err := ledger.Create(p.t.Context(), nc, "home", ledger.CreateOptions{}); err != nil {
			p.t.Fatal(err)
		}
		for i := range recs {
			m := &nats.Msg{Subject: recs[i].Subject, Header: nats.Header(maps.Clone(recs[i].Header)), Data: recs[i].Data}
			if _, err := js.PublishMsg(p.t.Context(), m); err != nil {
				p.t.Fatal(err)
			}
		}
	})
	return q
}

// A log that was edited, reordered, or has lost its middle or its tail fails with
// exit code 9 and the first sequence that is wrong; what its chain alone cannot see,
// with the checkpoint.
func TestAuditVerifyFindsDamage(t *testing.T) {
	p := newPatientStore(t)
	for _, n := range []string{"iota", "kappa", "lambda", "mu"} {
		p.must("node", "register", n)
	}
	key, verifier := p.keys()
	checkpoint := filepath.Join(t.TempDir(), "home.checkpoint")
	p.must("audit", "checkpoint", "--key", key, "--out", checkpoint)
	with := []string{"--checkpoint", checkpoint, "--verifier", verifier}
	if code, v := p.verdictOf(with...); code != 0 || !v.OK || v.Checkpoint == nil || v.Checkpoint.Seq != v.Seq || v.Events != v.Seq {
		t.Fatalf("as it was written: exit code %d: %+v", code, v)
	}
	good := p.records()
	n := len(good)
	last := uint64(n)
	tests := []struct {
		name              string
		alter             func([]events.Record) []events.Record
		alone, checkpoint uint64 // the first sequence that is wrong; 0: nothing is found
	}{
		{"edited", func(r []events.Record) []events.Record {
			r[n-3].Data = bytes.Replace(r[n-3].Data, []byte("kappa"), []byte("kappo"), 1)
			return r
		}, last - 2, last - 2},
		{"reordered", func(r []events.Record) []events.Record { r[n-3], r[n-2] = r[n-2], r[n-3]; return r }, last - 2, last - 2},
		{"middle gone", func(r []events.Record) []events.Record { return slices.Delete(r, n-3, n-2) }, last - 2, last - 2},
		{"tail gone", func(r []events.Record) []events.Record { return r[:n-2] }, 0, last - 1},
		{"written anew", func(r []events.Record) []events.Record {
			r[n-3].Header["ce-actor"] = []string{"mallory"}
			prev, err := events.ParseChain(r[n-4].Get(events.HeaderChain))
			if err != nil {
				t.Fatal(err)
			}
			mesh, err := events.MeshOf(&r[0])
			if err != nil {
				t.Fatal(err)
			}
			for i := n - 3; i < n; i++ {
				prev = prev.Link(mesh, &r[i])
				r[i].Header[events.HeaderChain] = []string{prev.String()}
			}
			return r
		}, 0, last},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			recs := slices.Clone(good)
			for i := range recs {
				recs[i].Header, recs[i].Data = maps.Clone(recs[i].Header), slices.Clone(recs[i].Data)
			}
			q := p.forged(test.alter(recs))
			for _, c := range []struct {
				args []string
				want uint64
			}{{nil, test.alone}, {with, test.checkpoint}} {
				code, v := q.verdictOf(c.args...)
				switch {
				case c.want == 0 && (code != 0 || !v.OK):
					t.Errorf("%v: exit code %d: %+v", c.args, code, v)
				case c.want > 0 && (code != 9 || v.OK || v.Damage == nil || v.Damage.Seq != c.want || v.Seq >= c.want):
					t.Errorf("%v: exit code %d: %+v %+v, want sequence %d", c.args, code, v, v.Damage, c.want)
				case c.want > 0 && !strings.Contains(q.errs.String(), fmt.Sprintf("sequence %d is the first that is wrong", c.want)):
					t.Errorf("%v: %s", c.args, &q.errs)
				}
			}
			if code := q.run(t.Context(), "backup", filepath.Join(t.TempDir(), "b")); test.alone > 0 && code != 9 {
				t.Errorf("a damaged ledger is backed up: exit code %d: %s", code, &q.errs)
			}
		})
	}
}

// A checkpoint proves nothing without a key, with another's, and of another mesh.
func TestAuditVerifyRefusesCheckpoints(t *testing.T) {
	p, other := newPatientStore(t), newPatientStore(t)
	key, verifier := p.keys()
	_, stranger := p.keys()
	checkpoint := filepath.Join(t.TempDir(), "cp")
	p.must("audit", "checkpoint", "--key", key, "--out", checkpoint)
	refused := func(s *patientStore, exit int, code string, args ...string) {
		t.Helper()
		if got := s.run(t.Context(), append([]string{"audit", "verify", "--checkpoint", checkpoint}, args...)...); got != exit || !strings.Contains(s.errs.String(), "["+code+"]") {
			t.Errorf("%v: exit code %d: %s", args, got, &s.errs)
		}
	}
	refused(p, 2, "usage")
	refused(p, 2, "usage", "--verifier", "home")
	refused(p, 9, "checkpoint_invalid", "--verifier", stranger)
	refused(other, 4, "wrong_mesh", "--verifier", verifier)
	text, err := os.ReadFile(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	put(t, checkpoint, strings.Replace(string(text), " home\n", " hone\n", 1), 0o600)
	refused(p, 9, "checkpoint_invalid", "--verifier", verifier)
	if got := p.run(t.Context(), "audit", "checkpoint", "--key", checkpoint); got != 2 {
		t.Errorf("a key that is none: exit code %d: %s", got, &p.errs)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// Who can publish into the stream is told of, until a checkpoint says that it is known.
func TestAuditVerifyTellsOfStrangers(t *testing.T) {
	p := newPatientStore(t)
	key, verifier := p.keys()
	stray := func() {
		p.behind(func(_ *nats.Conn, js jetstream.JetStream) {
			if _, err := js.Publish(t.Context(), "bindery.home.stray", []byte("no event")); err != nil {
				t.Fatal(err)
			}
		})
	}
	code, v := p.verdictOf()
	if code != 0 {
		t.Fatalf("exit code %d: %+v", code, v)
	}
	last := v.Seq
	found := func(first, n uint64, args ...string) {
		t.Helper()
		code, v := p.verdictOf(args...)
		ok := code == 0 && v.OK && v.Damage == nil
		if first != 0 {
			ok = code == 9 && !v.OK && v.Damage != nil && v.Damage.Seq == first && strings.Contains(p.errs.String(), `"foreign_event"`)
		}
		if !ok || v.Foreign != n {
			t.Errorf("%v: exit code %d: %+v, %s", args, code, v, &p.errs)
		}
	}
	stray()
	stray()
	found(last+1, 2)
	p.must("node", "register", "delta") // over them
	found(last+1, 2)
	checkpoint := filepath.Join(t.TempDir(), "cp")
	p.must("audit", "checkpoint", "--key", key, "--out", checkpoint)
	known := []string{"--checkpoint", checkpoint, "--verifier", verifier}
	found(0, 2, known...)
	stray()
	found(last+4, 3, known...)
	found(last+1, 3)
}

// A verification that is not given what it was to be held against is none.
func TestAuditVerifyWithoutItsCheckpoint(t *testing.T) {
	p := newPatientStore(t)
	_, verifier := p.keys()
	for _, args := range [][]string{{"--checkpoint", ""}, {"--checkpoint", "", "--verifier", verifier}, {"--verifier", verifier},
		{"--checkpoint", "x", "--verifier", ""}} {
		if code := p.run(t.Context(), append([]string{"audit", "verify"}, args...)...); code != 2 {
			t.Errorf("%q: exit code %d: %s", args, code, &p.errs)
		}
	}
}

// An anchor that cannot be read is told of, and how to go on without it; that of
// another store hinders nobody.
func TestAnchorCannotBeRead(t *testing.T) {
	p := newPatientStore(t)
	p.must("status")
	files, err := filepath.Glob(filepath.Join(p.env["HOME"], ".local/state/bindery/anchors", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	put(t, filepath.Join(filepath.Dir(files[0]), "other.json"), "x", 0o600)
	p.must("status")
	put(t, files[0], "", 0o600)
	if code := p.run(t.Context(), "status"); code != 7 || !strings.Contains(p.errs.String(), "mv "+files[0]) {
		t.Fatalf("exit code %d: %s", code, &p.errs)
	}
	if err := os.Rename(files[0], files[0]+".bad"); err != nil {
		t.Fatal(err)
	}
	p.must("status")
}

// A snapshot that is not what the events give is found, whatever it says of itself.
func TestAuditVerifyHoldsSnapshots(t *testing.T) {
	p := newPatientStore(t)
	store := snapshot.In(filepath.Join(p.dir, snapshot.Dir), nil)
	p.behind(func(nc *nats.Conn, _ jetstream.JetStream) {
		log, err := ledger.Open(t.Context(), nc, "home")
		if err != nil {
			t.Fatal(err)
		}
		state, err := snapshot.Open(t.Context(), log, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Write(state); err != nil {
			t.Fatal(err)
		}
	})
	list, err := store.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if code, v := p.verdictOf(); code != 0 || v.Snapshots != 1 {
		t.Fatalf("exit code %d: %+v", code, v)
	}
	data, err := os.ReadFile(list[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][]byte{flipped(data), data[:len(data)-1], append(slices.Clone(data), 0)} {
		put(t, list[0].Path, string(wrong), 0o600)
		if code := p.run(t.Context(), "audit", "verify"); code != 9 || !strings.Contains(p.errs.String(), list[0].Path) {
			t.Errorf("exit code %d: %s", code, &p.errs)
		}
	}
}

// flipped is data with one bit of its middle changed.
func flipped(data []byte) []byte {
	out := slices.Clone(data)
	out[len(out)/2] ^= 1
	return out
}

// Through a serving process an operator and an auditor may verify and back up, an
// agent may not; what is written meanwhile is in it or not.
func TestAuditThroughServe(t *testing.T) {
	p := newPatientStore(t)
	dir := t.TempDir()
	for name, more := range map[string][]string{"ann": {"--role", "operator"}, "carl": {"--role", "auditor"}, "beta": {"--role", "agent", "--node", "beta"}} {
		p.must("access", "keygen", filepath.Join(dir, name))
		p.must(append([]string{"access", "grant", name, "--nkey", strings.TrimSpace(p.out.String())}, more...)...)
	}
	s := p.serve()
	writer := &patientStore{Program: p.Program, t: t, dir: p.dir, env: p.env}
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range 15 {
			if code := writer.run(t.Context(), "node", "register", fmt.Sprintf("n-%d", i)); code != 0 {
				t.Errorf("exit code %d: %s", code, &writer.errs)
			}
		}
	})
	for i := range 5 {
		file := filepath.Join(dir, fmt.Sprint(i))
		p.must("backup", file)
		p.must("restore", file, "--check")
		p.must("audit", "verify")
	}
	writing.Wait()
	at := *p
	at.dir, at.env = "", map[string]string{"HOME": t.TempDir(), "BINDERY_ACTOR": "x"}
	at.Program = NewProgram()
	at.Getenv = func(k string) string { return at.env[k] }
	for name, want := range map[string]int{"ann": 0, "carl": 0, "beta": 4} {
		for _, args := range [][]string{{"audit", "verify"}, {"backup", filepath.Join(dir, "of-"+name)}} {
			code := at.run(t.Context(), append(args, "--server", s.url, "--creds", filepath.Join(dir, name))...)
			if code != want || want == 4 && !strings.Contains(at.errs.String(), "[not_permitted]") {
				t.Errorf("%s: %v: exit code %d: %s", name, args, code, &at.errs)
			}
		}
	}
}

// A sealed ledger is read for ever, and written to never again.
func TestAuditSeal(t *testing.T) {
	p := newPatientStore(t)
	refused := func(exit int, code string, args ...string) {
		t.Helper()
		if got := p.run(t.Context(), args...); got != exit || !strings.Contains(p.errs.String(), "["+code+"]") {
			t.Errorf("%v: exit code %d: %s", args, got, &p.errs)
		}
	}
	refused(2, "usage", "audit", "seal", "--reason", "moved")
	refused(2, "reason_required", "audit", "seal", "--yes")
	refused(6, "ledger_moved", "audit", "seal", "--yes", "--reason", "moved", "--expect-seq", "1")
	p.must("audit", "seal", "--reason", "moved", "--dry-run")
	p.must("node", "register", "iota")
	p.must("audit", "seal", "--yes", "--reason", "moved", "--successor", "nats://n1:4222")
	for _, args := range [][]string{{"node", "register", "kappa"}, {"apply", "-f", "testdata/home.yaml"}, {"audit", "seal", "--yes", "--reason", "again"},
		{"node", "register", "kappa", "--dry-run"}} {
		refused(4, "ledger_sealed", args...)
	}
	if !strings.Contains(p.errs.String(), "it has moved to nats://n1:4222") {
		t.Errorf("it does not say where it went: %s", &p.errs)
	}
	p.must("status")
	if text := p.out.String(); !strings.Contains(text, "it is sealed, and has moved to nats://n1:4222") {
		t.Errorf("status does not tell: %s", text)
	}
	p.must("audit", "verify")
	file := filepath.Join(t.TempDir(), "b")
	p.must("backup", file)
	s := p.serve()
	refused(4, "ledger_sealed", "node", "register", "kappa")
	p.must("node", "list")
	s.stop()
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// patientStore is a store with the home mesh, and the program on it.
type patientStore struct {
	*Program
	t         *testing.T
	dir       string
	env       map[string]string
	out, errs bytes.Buffer
}

func newPatientStore(t *testing.T) *patientStore {
	t.Helper()
	p := &patientStore{Program: NewProgram(), t: t, dir: filepath.Join(t.TempDir(), "store"), env: map[string]string{"BINDERY_ACTOR": "ann@desk", "HOME": t.TempDir()}}
	p.Getenv = func(key string) string { return p.env[key] }
	p.must("apply", "--init", "-f", "testdata/home.yaml")
	return p
}

func (p *patientStore) run(ctx context.Context, args ...string) int {
	p.out.Reset()
	p.errs.Reset()
	if p.dir != "" {
		args = append(args, "--store", p.dir)
	}
	return p.Run(ctx, args, Streams{In: strings.NewReader(""), Out: &p.out, Err: &p.errs})
}

func (p *patientStore) must(args ...string) {
	p.t.Helper()
	if code := p.run(p.t.Context(), args...); code != 0 {
		p.t.Fatalf("%v: exit code %d: %s", args, code, &p.errs)
	}
}

// doctor examines the store.
func (p *patientStore) doctor(args ...string) (code int, checks []doctorCheck) {
	p.t.Helper()
	code = p.run(p.t.Context(), append([]string{"doctor", "-o", "json"}, args...)...)
	var d diagnosis
	if err := json.Unmarshal(p.out.Bytes(), &d); err != nil {
		p.t.Fatalf("exit code %d, %v: %s%s", code, err, &p.out, &p.errs)
	}
	return code, d.Items
}

// finds holds what is not well against what is wanted, CODE STATUS each, and the
// exit code with it. Those that are skipped are not told of.
func (p *patientStore) finds(want ...string) []doctorCheck {
	p.t.Helper()
	code, checks := p.doctor()
	fails := 0
	var got []string
	for _, k := range checks {
		if k.Status == checkFail {
			fails = 3
		}
		if k.Status == checkWarn || k.Status == checkFail {
			got = append(got, k.Code+" "+k.Status)
			if k.What == "" {
				p.t.Errorf("%s says nothing", k.Code)
			}
		}
	}
	if !slices.Equal(got, want) || code != fails {
		p.t.Fatalf("exit code %d, found %q, want %q\n%s", code, got, want, &p.out)
	}
	return checks
}

func checkOf(t *testing.T, checks []doctorCheck, code string) doctorCheck {
	t.Helper()
	i := slices.IndexFunc(checks, func(k doctorCheck) bool { return k.Code == code })
	if i < 0 {
		t.Fatalf("there is no check %s", code)
	}
	return checks[i]
}

// behind gives a test the server of the store.
func (p *patientStore) behind(f func(nc *nats.Conn, js jetstream.JetStream)) {
	p.t.Helper()
	srv, err := ledger.StartEmbedded(p.t.Context(), ledger.EmbeddedConfig{Dir: p.dir})
	if err != nil {
		p.t.Fatal(err)
	}
	defer srv.Close()
	nc, err := srv.Connect()
	if err != nil {
		p.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		p.t.Fatal(err)
	}
	f(nc, js)
}

// lastMessage is the last event as it is stored.
func lastMessage(t *testing.T, js jetstream.JetStream) *jetstream.RawStreamMsg {
	t.Helper()
	stream, err := js.Stream(t.Context(), ledger.StreamName("home"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(t.Context(), stream.CachedInfo().State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	for name := range m.Header {
		if strings.HasPrefix(name, "Nats-") {
			delete(m.Header, name)
		}
	}
	return m
}

// Each break of a store is found by the check that is about it, and by no other.
func TestDoctorFinds(t *testing.T) {
	publish := func(t *testing.T, p *patientStore, change func(m *nats.Msg)) {
		p.behind(func(_ *nats.Conn, js jetstream.JetStream) {
			last := lastMessage(t, js)
			m := &nats.Msg{Subject: last.Subject, Header: last.Header, Data: last.Data}
			change(m)
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		})
	}
	unopenedChecks := append([]string{"lock"}, ledgerChecks...)
	paint := func(m *nats.Msg) { m.Header[events.HeaderType] = []string{"bindery.node.painted.v1"} }
	// continued publishes the last event once more, as the one that follows it.
	continued := func(t *testing.T, p *patientStore, change func(m *nats.Msg), prove bool) {
		p.must("status", "-o", "json")
		var st statusView
		if err := json.Unmarshal(p.out.Bytes(), &st); err != nil {
			t.Fatal(err)
		}
		mesh, err := events.ParseID(st.MeshID)
		if err != nil {
			t.Fatal(err)
		}
		publish(t, p, func(m *nats.Msg) {
			prev, err := events.ParseChain(m.Header.Get(events.HeaderChain))
			if err != nil {
				t.Fatal(err)
			}
			m.Header[events.HeaderBatch] = []string{"1/1"}
			change(m)
			r := events.Record{Seq: st.Seq + 1, Subject: m.Subject, Header: m.Header, Data: m.Data}
			chain := prev.Link(mesh, &r).String()
			m.Header[events.HeaderChain] = []string{chain}
			if !prove {
				return
			}
			store, _, err := ledger.ReadStoreID(p.dir)
			if err != nil {
				t.Fatal(err)
			}
			secret, _ := store.Secrets.Newest()
			proof, err := secret.Prove(mesh, r.Seq, chain)
			if err != nil {
				t.Fatal(err)
			}
			m.Header[events.HeaderProof] = []string{proof}
		})
	}
	for name, c := range map[string]struct {
		harm func(t *testing.T, p *patientStore)
		want []string
		skip []string // of the checks, those that must be skipped
	}{
		"nothing": {func(*testing.T, *patientStore) {}, nil, nil},
		"no store": {func(t *testing.T, p *patientStore) { p.dir += "-elsewhere" }, []string{"store fail"},
			append([]string{"lock", "space"}, ledgerChecks...)},
		"readable by others": {func(t *testing.T, p *patientStore) { chmod(t, p.dir, 0o755) }, []string{"store warn"}, nil},
		"writable by others": {func(t *testing.T, p *patientStore) { chmod(t, p.dir, 0o770) }, []string{"store fail"}, unopenedChecks},
		"a key that others read": {func(t *testing.T, p *patientStore) { put(t, filepath.Join(p.dir, endpointFile), "{}", 0o644) },
			[]string{"store fail"}, nil},
		"an authority that others use":      {func(t *testing.T, p *patientStore) { put(t, filepath.Join(p.dir, "ca.key"), "", 0o640) }, []string{"store fail"}, nil},
		"a certificate, which all may read": {func(t *testing.T, p *patientStore) { put(t, filepath.Join(p.dir, "ca.pem"), "", 0o644) }, nil, nil},
		"a lock that others write":          {func(t *testing.T, p *patientStore) { chmod(t, filepath.Join(p.dir, ledger.LockFile), 0o622) }, []string{"store fail"}, unopenedChecks},
		"files that are not ours":           {func(t *testing.T, p *patientStore) { put(t, filepath.Join(p.dir, "notes"), "", 0o600) }, []string{"store warn"}, nil},
		"files of somebody else": {func(t *testing.T, p *patientStore) {
			if os.Geteuid() != 0 {
				t.Skip("only root may give a file away")
			}
			if err := os.Chown(filepath.Join(p.dir, server.JetStreamStoreDir), 4711, -1); err != nil {
				t.Fatal(err)
			}
		}, []string{"store fail"}, unopenedChecks},
		"a directory above that a group writes": {func(t *testing.T, p *patientStore) { moveBelow(t, p, 0o770) }, []string{"store warn"}, nil},
		"a directory above that all write":      {func(t *testing.T, p *patientStore) { moveBelow(t, p, 0o777) }, []string{"store fail"}, unopenedChecks},
		"a store that is locked": {func(t *testing.T, p *patientStore) {
			lock, err := ledger.AcquireLock(t.Context(), p.dir, ledger.LockConfig{Command: "bindery hold"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lock.Unlock() })
		}, []string{"lock fail"}, ledgerChecks},
		"a stream that forgets": {func(t *testing.T, p *patientStore) {
			p.behind(func(_ *nats.Conn, js jetstream.JetStream) {
				stream, err := js.Stream(t.Context(), ledger.StreamName("home"))
				if err != nil {
					t.Fatal(err)
				}
				cfg := stream.CachedInfo().Config
				cfg.MaxMsgs = 1000
				if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			})
		}, []string{"stream fail"}, butNot(ledgerChecks, "stream")},
		"no stream": {func(t *testing.T, p *patientStore) {
			if err := os.RemoveAll(filepath.Join(p.dir, server.JetStreamStoreDir, "$G")); err != nil {
				t.Fatal(err)
			}
		}, []string{"ledger fail"}, butNot(ledgerChecks, "ledger")},
		"a copy of an event":                {func(t *testing.T, p *patientStore) { publish(t, p, func(*nats.Msg) {}) }, []string{"foreign warn"}, nil},
		"a forged event of a later version": {func(t *testing.T, p *patientStore) { continued(t, p, paint, false) }, []string{"foreign warn"}, nil},
		"a proven event of a later version": {func(t *testing.T, p *patientStore) { continued(t, p, paint, true) }, []string{"versions fail"}, butNot(ledgerChecks, "versions")},
		"a forged event that does not fit":  {func(t *testing.T, p *patientStore) { continued(t, p, func(*nats.Msg) {}, false) }, []string{"foreign warn"}, nil},
		"a proven event that does not fit":  {func(t *testing.T, p *patientStore) { continued(t, p, func(*nats.Msg) {}, true) }, []string{"ledger fail"}, butNot(ledgerChecks, "ledger")},
		"a message of somebody else": {func(t *testing.T, p *patientStore) {
			publish(t, p, func(m *nats.Msg) { *m = nats.Msg{Subject: "bindery.home.stray", Data: []byte("no event")} })
		}, []string{"foreign warn"}, nil},
		"a clock that went back": {func(t *testing.T, p *patientStore) { p.Clock = func() time.Time { return time.Now().Add(-time.Hour) } },
			[]string{"clock fail"}, nil},
		"a clock that is a little behind": {func(t *testing.T, p *patientStore) {
			p.Clock = func() time.Time { return time.Now().Add(-40 * time.Second) }
		},
			[]string{"clock warn"}, nil},
		"a rotation that is late": {func(t *testing.T, p *patientStore) {
			p.must("credential", "list", "-o", "jsonl")
			var generation json.Number
			for line := range strings.Lines(p.out.String()) {
				var k struct {
					Assignment, Slot string
					Generation       json.Number
				}
				if err := json.Unmarshal([]byte(line), &k); err != nil {
					t.Fatal(err)
				}
				if k.Assignment == "wiki" && k.Slot == "db" {
					generation = k.Generation
				}
			}
			p.must("credential", "issued", "wiki/db", "--generation", generation.String(), "--secret-ref", "vault:kv/wiki/1")
			p.must("rotation", "start", "--binding", "wiki/db", "--deadline", "1h")
			p.Clock = func() time.Time { return time.Now().Add(2 * time.Hour) }
		}, []string{"rotations warn"}, nil},
		"a node that is gone": {func(t *testing.T, p *patientStore) {
			p.must("node", "retire", "alpha", "--force", "--reason", "it burnt")
		},
			[]string{"retired_nodes warn"}, nil},
		"an actor that cannot be recorded": {func(t *testing.T, p *patientStore) { p.env["BINDERY_ACTOR"] = "ann\ndesk" }, []string{"setting_actor fail"}, nil},
		"a home that is not regarded": {func(t *testing.T, p *patientStore) {
			p.env["XDG_DATA_HOME"] = "data"
			if err := os.MkdirAll(filepath.Join(p.env["HOME"], ".local", "share"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(p.dir, filepath.Join(p.env["HOME"], ".local", "share", "bindery")); err != nil {
				t.Fatal(err)
			}
			p.dir = ""
		}, []string{"setting_store warn"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatientStore(t)
			c.harm(t, p)
			checks := p.finds(c.want...)
			var skipped []string
			for _, k := range checks {
				if k.Status == checkSkipped && slices.Contains(append([]string{"lock", "space"}, ledgerChecks...), k.Code) {
					skipped = append(skipped, k.Code)
					if k.Why == "" {
						t.Errorf("%s is skipped, and nothing says why", k.Code)
					}
				}
			}
			if !slices.Equal(skipped, c.skip) {
				t.Errorf("skipped %q, want %q", skipped, c.skip)
			}
		})
	}
}

func butNot(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
}

// moveBelow moves a store into a directory with a mode.
func moveBelow(t *testing.T, p *patientStore, mode fs.FileMode) {
	t.Helper()
	above := t.TempDir()
	to := filepath.Join(above, "store")
	if err := os.Rename(p.dir, to); err != nil {
		t.Fatal(err)
	}
	chmod(t, above, mode)
	p.dir = to
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	chmod(t, path, mode)
}

// What a check says of facts that no test can bring about here.
func TestDoctorJudges(t *testing.T) {
	yes, no := true, false
	hour := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	inspected := func(f func(in *service.Inspection)) service.Inspection {
		in := service.Inspection{Version: serviceVersion, Commit: commit(), NATS: server.VERSION, Go: "go0", Synced: &yes,
			Stream: ledger.Inspection{Stream: "bindery-home", Replicas: 3}}
		f(&in)
		return in
	}
	attention := func(codes ...string) *statusView {
		st := &statusView{}
		for i, code := range codes {
			st.Attention = append(st.Attention, projections.Attention{Code: code, What: "thing " + string(rune('a'+i)), Why: "so", Fix: do("fix")})
		}
		return st
	}
	const gib = 1 << 30
	for name, c := range map[string]struct {
		got    doctorCheck
		status string
		says   string
	}{
		"sync unseen":      {checkSync(inspected(func(in *service.Inspection) { in.Synced = nil })), checkWarn, "sync_interval: always"},
		"sync late":        {checkSync(inspected(func(in *service.Inspection) { in.Synced = &no })), checkFail, "power"},
		"sync always":      {checkSync(inspected(func(*service.Inspection) {})), checkOK, ""},
		"trouble":          {checkWriter(inspected(func(in *service.Inspection) { in.Trouble = "no space left on device" })), checkFail, "no space left"},
		"no trouble":       {checkWriter(inspected(func(*service.Inspection) {})), checkOK, ""},
		"one replica":      {checkReplicas(inspected(func(in *service.Inspection) { in.Stream.Replicas = 1 })), checkOK, "only copy"},
		"two replicas":     {checkReplicas(inspected(func(in *service.Inspection) { in.Stream.Replicas = 2 })), checkWarn, "--replicas 3"},
		"three replicas":   {checkReplicas(inspected(func(*service.Inspection) {})), checkOK, "3 replicas"},
		"a replica behind": {checkReplicas(inspected(func(in *service.Inspection) { in.Stream.Lagging = []string{"n2"} })), checkWarn, "n2"},
		"stream changed": {checkStream(inspected(func(in *service.Inspection) {
			in.Stream.Settings = []ledger.Setting{{Name: "max_age", Want: "0s", Found: "1h0m0s"}}
		})), checkFail, "max_age is 1h0m0s, need 0s"},
		"another version":    {checkVersions(inspected(func(in *service.Inspection) { in.Version = "0.0.9" }), true), checkWarn, "0.0.9"},
		"no free space":      {judgeSpace("d", disk{0, 100 * gib}, syscall.ENOSPC), checkFail, "no space left"},
		"little space":       {judgeSpace("d", disk{gib - 1, 2 * gib}, nil), checkWarn, "1.0 GiB"},
		"little of the disk": {judgeSpace("d", disk{49 * gib, 1000 * gib}, nil), checkWarn, "5 %"},
		"space":              {judgeSpace("d", disk{51 * gib, 1000 * gib}, nil), checkOK, "51.0 GiB free of 1000.0 GiB"},
		"a minute behind":    {checkClock(hour.Add(-time.Minute), hour), checkWarn, "1m0s"},
		"more behind":        {checkClock(hour.Add(-time.Minute-time.Millisecond), hour), checkFail, "1m0s"},
		"not behind":         {checkClock(hour, hour), checkOK, ""},
		"one stuck":          {checkRotations(attention("stuck", "node_retired")), checkWarn, "fix"},
		"many late":          {checkRotations(attention("overdue", "overdue", "stuck", "overdue", "drift")), checkWarn, "thing c: so; 1 more"},
		"none late":          {checkRotations(attention("drift")), checkOK, ""},
		"one left":           {checkRetiredNodes(attention("node_retired")), checkWarn, "thing a: so"},
		"none left":          {checkRetiredNodes(attention("overdue")), checkOK, ""},
	} {
		if text := strings.Join([]string{c.got.What, c.got.Why, c.got.Fix.String()}, "\n"); c.got.Status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: got %+v, want %s and %q", name, c.got, c.status, c.says)
		}
	}
}

// A disk that is full is said to be: nothing can be written.
func TestDoctorFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("mounting is not permitted here: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	p := newPatientStore(t)
	if err := os.CopyFS(filepath.Join(dir, "store"), os.DirFS(p.dir)); err != nil {
		t.Fatal(err)
	}
	p.dir = filepath.Join(dir, "store")
	chmod(t, p.dir, 0o700)
	p.must("node", "list")
	if got := checkSpace(p.dir); got.Status != checkWarn {
		t.Errorf("before it is full: %+v", got)
	}
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			size /= 2
		}
	}
	code, checks := p.doctor()
	if space := checkOf(t, checks, "space"); code != 3 || space.Status != checkFail || !strings.Contains(space.Why, "no space left") {
		t.Errorf("exit code %d: %+v", code, checks)
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, endpointFile+".*")); left != nil {
		t.Errorf("the probe left %q", left)
	}
}

// A store that is served is examined through who serves it; what is changed
// behind its back is seen.
func TestDoctorServed(t *testing.T) {
	p := newPatientStore(t)
	s := p.serve()
	checks := p.finds()
	if lock := checkOf(t, checks, "lock"); !strings.Contains(lock.What, "serves the store") || !strings.Contains(lock.Why, s.url) {
		t.Errorf("%+v", lock)
	}
	e, ok := findEndpoint(p.dir)
	if !ok || strings.Contains(p.out.String(), e.Seed) {
		t.Errorf("the key is shown, or not there: %s", &p.out)
	}
	chmod(t, filepath.Join(p.dir, endpointFile), 0o640)
	p.finds("store fail")
	chmod(t, filepath.Join(p.dir, endpointFile), 0o600)
	s.stop()
	if lock := checkOf(t, p.finds(), "lock"); !strings.Contains(lock.What, "nobody") {
		t.Errorf("%+v", lock)
	}
}

// Who serves a ledger on a server is asked like who serves a store; what only the
// store's files say is not looked at.
func TestDoctorRemote(t *testing.T) {
	p := newPatientStore(t)
	keys := t.TempDir()
	for name, more := range map[string][]string{"ann": {"--role", "operator"}, "beta": {"--role", "agent", "--node", "beta"}} {
		p.must("access", "keygen", filepath.Join(keys, name))
		p.must(append([]string{"access", "grant", name, "--nkey", strings.TrimSpace(p.out.String())}, more...)...)
	}
	s := p.serve()
	p.dir = ""
	p.env["XDG_DATA_HOME"] = t.TempDir()
	doctor := func(want int, key string) []doctorCheck {
		t.Helper()
		code, checks := p.doctor("--server", s.url, "--creds", filepath.Join(keys, key))
		if code != want {
			t.Errorf("exit code %d: %s", code, &p.out)
		}
		return checks
	}
	checks := doctor(0, "ann")
	for _, code := range []string{"setting_server", "rights", "writer", "fsync", "stream", "clock", "versions", "rotations"} {
		if k := checkOf(t, checks, code); k.Status != checkOK {
			t.Errorf("%+v", k)
		}
	}
	if slices.ContainsFunc(checks, func(k doctorCheck) bool { return k.Code == "store" || k.Code == "lock" || k.Code == "space" }) {
		t.Errorf("a store is spoken of: %+v", checks)
	}
	if k := checkOf(t, doctor(3, "beta"), "ledger"); k.Status != checkFail || !strings.Contains(k.What, "may not") {
		t.Errorf("%+v", k)
	}
	s.stop()
	if k := checkOf(t, doctor(3, "ann"), "ledger"); k.Status != checkFail || !strings.Contains(k.What, "not reached") {
		t.Errorf("%+v", k)
	}
}

// No line of it has a secret, wherever one was put.
func TestDoctorShowsNoSecret(t *testing.T) {
	key, err := ledger.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	p := newPatientStore(t)
	p.env["BINDERY_ACTOR"] = secret
	p.env["BINDERY_STORE"] = "/srv/" + secret
	for _, format := range formatNames() {
		code := p.run(t.Context(), "doctor", "-o", format, "--mesh", secret)
		if all := p.out.String() + p.errs.String(); code != 3 || strings.Contains(all, secret) {
			t.Errorf("exit code %d: %s", code, all)
		}
		p.out.Reset()
		p.Run(t.Context(), []string{"doctor", "-o", format}, Streams{Out: &p.out, Err: &p.errs})
		if all := p.out.String() + p.errs.String(); strings.Contains(all, secret) {
			t.Errorf("%s", all)
		}
	}
}

// An interrupt is no finding.
func TestDoctorInterrupted(t *testing.T) {
	p := newPatientStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := p.run(ctx, "doctor"); code != 130 || p.out.Len() > 0 {
		t.Errorf("exit code %d: %s", code, &p.out)
	}
}

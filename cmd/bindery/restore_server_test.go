package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/events"
	"bindery/ledger"
)

// Kind: a ledger that was restored on a server loses its end before anybody serves it,
// and nobody notices.
func TestRestoreOnServerKeepsAnAnchor(t *testing.T) {
	p := newPatientStore(t)
	file := filepath.Join(t.TempDir(), "home.jsonl")
	p.must("backup", file)
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir(), Listen: true, Host: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	p.dir = ""
	p.must("restore", file, "--server", srv.URL())
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	log, err := ledger.Open(t.Context(), nc, "home")
	if err != nil {
		t.Fatal(err)
	}
	last, err := log.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&cli{program: p.Program}).remoteAnchor(srv.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a, ok, err := r.anchors.Load(log.Created())
	if err != nil || !ok || a.Seq != last || a.Check(t.Context(), log) != nil {
		t.Errorf("the anchor is %+v, %v, %v; the ledger ends at %d", a, ok, err, last)
	}
	// It is held against what is there when somebody wants to write.
	a.Seq++
	if err := r.anchors.Save(a); err != nil {
		t.Fatal(err)
	}
	var loss *ledger.LossError
	if _, err := r.taking(t.Context(), log, nil); !errors.As(err, &loss) {
		t.Errorf("a ledger that ends before its anchor: %v", err)
	}
}

// Kind: a store that was restored, or copied, takes what was written to another for its
// own, since the same secret proves it.
func TestStoresHaveSecretsOfTheirOwn(t *testing.T) {
	p := newPatientStore(t)
	file := filepath.Join(t.TempDir(), "home.jsonl")
	p.must("backup", file)
	secrets := func(dir string) ledger.Secrets {
		t.Helper()
		store, ok, err := ledger.ReadStoreID(dir)
		if err != nil || !ok || len(store.Secrets) == 0 {
			t.Fatalf("the store %s says %+v, %v", dir, store, err)
		}
		info, err := os.Stat(filepath.Join(dir, ledger.StoreFile))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("its secret is for all to read: %v, %v", info.Mode(), err)
		}
		return store.Secrets
	}
	own := secrets(p.dir)
	if own[0].From != 1 || len(own) != 1 {
		t.Errorf("a new store proves from sequence %d on", own[0].From)
	}
	home := p.dir
	copied, restored := filepath.Join(t.TempDir(), "copied"), filepath.Join(t.TempDir(), "restored")
	if err := os.CopyFS(copied, os.DirFS(home)); err != nil {
		t.Fatal(err)
	}
	p.dir = restored
	p.must("restore", file)
	for _, dir := range []string{copied, restored} {
		p.dir = dir
		p.must("node", "register", "elsewhere")
		newest, _ := secrets(dir).Newest()
		if newest.ID() == own[0].ID() || newest.From < 2 {
			t.Errorf("the store %s has the secret %s from %d on", dir, newest.ID(), newest.From)
		}
		p.must("audit", "verify")
	}
	p.dir = home
	p.must("status")
	if again := secrets(home); again[0].ID() != own[0].ID() || len(again) != 1 {
		t.Errorf("the first one has another secret now: %v", again)
	}
}

// Kind: whoever can publish into a stream on a server has the last word. What is there
// is acknowledged with the key of a writer, and nothing is cut.
func TestRecoverOnServer(t *testing.T) {
	p := &patientStore{Program: NewProgram(), t: t, env: map[string]string{"BINDERY_ACTOR": "ann@desk", "HOME": t.TempDir()}}
	p.Getenv = func(key string) string { return p.env[key] }
	seed := func(name string) (file string, key ledger.Key) {
		t.Helper()
		key, err := ledger.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		text, err := key.Seed()
		if err != nil {
			t.Fatal(err)
		}
		file = filepath.Join(p.env["HOME"], name)
		put(t, file, text+"\n", 0o600)
		return file, key
	}
	writer, key := seed("writer")
	other, otherKey := seed("other")
	_, ann := seed("ann")
	all := func(key ledger.Key) ledger.User {
		return ledger.User{Key: key.Public, Publish: []string{">"}, Subscribe: []string{">"}}
	}
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir(), Listen: true, Host: "127.0.0.1", Port: -1,
		Users: []ledger.User{all(key), all(otherKey)}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	nc, err := srv.Connect(key.Option())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p.must("init", "--mesh", "home", "--operator", "ann", "--nkey", ann.Public, "--server", srv.URL(), "--creds", writer)
	log, err := ledger.Open(t.Context(), nc, "home")
	if err != nil {
		t.Fatal(err)
	}
	read := func() (types []string) {
		t.Helper()
		last, err := log.Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for evs, err := range log.Read(t.Context(), ledger.Position{}, last) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range evs {
				types = append(types, evs[i].Type.Short())
			}
		}
		return types
	}
	recover := func(want int, creds string, args ...string) {
		t.Helper()
		args = append([]string{"audit", "recover", "--server", srv.URL(), "--creds", creds}, args...)
		if code := p.run(t.Context(), args...); code != want {
			t.Errorf("%v: exit code %d, want %d: %s", args, code, want, &p.errs)
		}
	}
	recover(4, writer, "--reason", "x")
	if _, err := nc.Request("bindery.home.junk", []byte("junk"), time.Minute); err != nil {
		t.Fatal(err)
	}
	recover(2, writer)
	recover(0, writer, "--reason", "a test wrote it")
	want := []string{"mesh.created", "access.granted", "access.granted", "mesh.recovered"}
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("the ledger is %v, want %v", got, want)
	}
	if f := log.Foreign(); f.Count != 1 || f.Open != 0 {
		t.Errorf("foreign: %+v", f)
	}
	recover(4, writer, "--reason", "again")
	// What the ledger's writer has proven, and is not what it was: a copy of its last
	// event whose payload was altered, as its sequence and its proof are those of before.
	last, err := log.Get(t.Context(), 5, 5)
	if err != nil {
		t.Fatal(err)
	}
	chain := strings.Repeat("ab", 32)
	proof, err := key.Prove(mustMesh(t, &last[0]), 6, chain)
	if err != nil {
		t.Fatal(err)
	}
	m := &nats.Msg{Subject: last[0].Subject, Header: nats.Header(last[0].Header), Data: []byte(`{}`)}
	m.Header[events.HeaderChain], m.Header[events.HeaderProof] = []string{chain}, []string{proof}
	if _, err := nc.RequestMsg(m, time.Minute); err != nil {
		t.Fatal(err)
	}
	recover(9, writer, "--reason", "the disk died")
	recover(0, writer, "--reason", "the disk died", "--accept-loss")
	if got := read(); !slices.Equal(got, append(want, "mesh.recovered")) {
		t.Errorf("after a loss the ledger is %v", got)
	}
	recover(4, other, "--reason", "x")
}

func mustMesh(t *testing.T, r *events.Record) events.ID {
	t.Helper()
	id, err := events.MeshOf(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

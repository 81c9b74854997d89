package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

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

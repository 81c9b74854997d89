package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"bindery/commands"
	"bindery/commands/snapshot"
	"bindery/ledger"
)

// refused runs a command, which must be refused with a code, and returns the refusal.
func (p *patientStore) refused(code commands.Code, args ...string) commands.Refusal {
	p.t.Helper()
	exit := p.run(p.t.Context(), append(args, "-o", "json")...)
	var r commands.Refusal
	if err := json.Unmarshal(p.errs.Bytes(), &r); err != nil || exit == 0 || r.Code != code {
		p.t.Errorf("%v: exit code %d, want %s: %s%s", args, exit, code, &p.out, &p.errs)
	}
	return r
}

func skipUnlessRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
}

// Each way in which others can change a store or its anchors: nothing uses it then,
// and the fix, where it is one of rights, helps.
func TestStoreThatOthersCanChange(t *testing.T) {
	block := func(p *patientStore) string {
		found, err := filepath.Glob(filepath.Join(p.dir, server.JetStreamStoreDir, "*", "streams", "*", "msgs", "*.blk"))
		if err != nil || len(found) == 0 {
			p.t.Fatal("no file of messages is found", err)
		}
		return found[0]
	}
	anchors := func(p *patientStore) string {
		return filepath.Join(p.env["HOME"], ".local", "state", "bindery", "anchors")
	}
	mode := func(mode fs.FileMode, of func(p *patientStore) string) func(t *testing.T, p *patientStore) string {
		return func(t *testing.T, p *patientStore) string { chmod(t, of(p), mode); return "chmod " }
	}
	owner := func(of func(p *patientStore) string) func(t *testing.T, p *patientStore) string {
		return func(t *testing.T, p *patientStore) string {
			skipUnlessRoot(t)
			if err := os.Chown(of(p), 4711, -1); err != nil {
				t.Fatal(err)
			}
			return "chown "
		}
	}
	linked := func(of func(p *patientStore) string) func(t *testing.T, p *patientStore) string {
		return func(t *testing.T, p *patientStore) string {
			was := of(p)
			if err := errors.Join(os.Rename(was, p.dir+".moved"), os.Symlink(p.dir+".moved", was)); err != nil {
				t.Fatal(err)
			}
			return "ls -la "
		}
	}
	in := func(name string) func(p *patientStore) string {
		return func(p *patientStore) string { return filepath.Join(p.dir, name) }
	}
	for name, spoil := range map[string]func(t *testing.T, p *patientStore) string{ // they return how the fix begins
		"its directory, by a group":  mode(0o770, in("")),
		"its directory, by all":      mode(0o757, in("")),
		"its directory, its owner":   func(t *testing.T, p *patientStore) string { owner(in(""))(t, p); return "sudo -u '#4711' " },
		"its lock":                   mode(0o620, in(ledger.LockFile)),
		"its id":                     mode(0o602, in(ledger.StoreFile)),
		"the server's directory":     mode(0o770, in(server.JetStreamStoreDir)),
		"the server's, its owner":    owner(in(server.JetStreamStoreDir)),
		"a file of messages":         mode(0o660, block),
		"a file of messages's owner": owner(block),
		"a link for the lock":        linked(in(ledger.LockFile)),
		"a link for the server's":    linked(in(server.JetStreamStoreDir)),
		"snapshots": func(t *testing.T, p *patientStore) string {
			if err := os.MkdirAll(in(snapshot.Dir)(p), 0o700); err != nil {
				t.Fatal(err)
			}
			chmod(t, in(snapshot.Dir)(p), 0o770)
			return "chmod "
		},
		"the endpoint of a serving process": func(t *testing.T, p *patientStore) string {
			put(t, in(endpointFile)(p), `{"url":"nats://127.0.0.1:1"}`, 0o666)
			return "chmod "
		},
		"a link for that": func(t *testing.T, p *patientStore) string {
			put(t, p.dir+".json", `{"url":"nats://127.0.0.1:1"}`, 0o600)
			if err := os.Symlink(p.dir+".json", in(endpointFile)(p)); err != nil {
				t.Fatal(err)
			}
			return "ls -la "
		},
		"a directory above, by all": func(t *testing.T, p *patientStore) string { moveBelow(t, p, 0o777); return "chmod " },
		"its anchors":               mode(0o770, anchors),
		"its anchors' owner":        owner(anchors),
		"its anchor":                mode(0o606, func(p *patientStore) string { return glob(p.t, filepath.Join(anchors(p), "*.json")) }),
		"a directory above anchors": mode(0o777, func(p *patientStore) string { return filepath.Dir(filepath.Dir(anchors(p))) }),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatientStore(t)
			begins := spoil(t, p)
			for _, args := range [][]string{{"status"}, {"node", "register", "gamma"}, {"serve"}, {"init", "--mesh", "home"}, {"audit", "verify"},
				{"backup", filepath.Join(t.TempDir(), "b")}} {
				if r := p.refused(commands.StoreUnusable, args...); !strings.HasPrefix(r.Fix.String(), begins) {
					t.Errorf("%v: the fix is %q, want %s…", args, r.Fix, begins)
				}
			}
		})
	}
}

func glob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: nothing is found (%v)", pattern, err)
	}
	return found[0]
}

// The fix of a refused store is run as it stands, and then the store is used. A
// directory above that one group writes is a matter of doctor alone.
func TestStoreFix(t *testing.T) {
	p := newPatientStore(t)
	chmod(t, p.dir, 0o770)
	r := p.refused(commands.StoreUnusable, "status")
	if r.Fix.String() != "chmod 700 "+p.dir {
		t.Fatal(r.Fix)
	}
	chmod(t, p.dir, 0o700)
	p.must("status")
	moveBelow(t, p, 0o770)
	p.must("status")
	link := filepath.Join(t.TempDir(), "link") // to a store, by a link in a directory of ours
	if err := os.Symlink(p.dir, link); err != nil {
		t.Fatal(err)
	}
	p.dir = link
	p.must("status")
}

// A store is neither begun nor restored where others can write already.
func TestPlaceThatOthersCanChange(t *testing.T) {
	p := newPatientStore(t)
	file := filepath.Join(t.TempDir(), "b")
	p.must("backup", file)
	p.env["HOME"] = t.TempDir()
	for name, place := range map[string]func() string{
		"the directory is there": func() string { dir := t.TempDir(); chmod(t, dir, 0o777); return dir },
		"its parent is all's": func() string {
			dir := t.TempDir()
			chmod(t, dir, 0o777)
			return filepath.Join(dir, "store")
		},
	} {
		p.dir = place()
		p.refused(commands.StoreUnusable, "init", "--mesh", "home")
		if found, _ := filepath.Glob(filepath.Join(p.dir, "*")); found != nil {
			t.Errorf("%s: init left %q", name, found)
		}
		p.dir = place()
		if name == "the directory is there" {
			if err := os.MkdirAll(restoringDir(p.dir), 0o700); err != nil {
				t.Fatal(err)
			}
			chmod(t, restoringDir(p.dir), 0o777)
		}
		p.refused(commands.StoreUnusable, "restore", file)
		if _, err := os.Stat(filepath.Join(restoringDir(p.dir), server.JetStreamStoreDir)); err == nil {
			t.Errorf("%s: a store was restored", name)
		}
	}
}

// No file that bindery writes is written through a link that lies in its place.
func TestNothingIsWrittenThroughALink(t *testing.T) {
	const precious = "do not touch"
	p := newPatientStore(t)
	p.must("apply", "-f", "testdata/home.yaml")
	key, err := ledger.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, write := range map[string]func(path string){
		"backup":      func(path string) { p.run(t.Context(), "backup", path) },
		"backup.part": func(path string) { p.run(t.Context(), "backup", strings.TrimSuffix(path, ".part")) },
		"key":         func(path string) { p.run(t.Context(), "access", "keygen", path) },
		"signer":      func(path string) { p.run(t.Context(), "audit", "keygen", path, "--name", "home.arpa/bindery") },
		"cursor":      func(path string) { f := cursorFile{path: path, dirty: true}; _ = f.flush() },
		endpointFile: func(path string) {
			e := endpoint{URL: "nats://127.0.0.1:1", Seed: key.Public}
			_ = e.leave(filepath.Dir(path))
		},
		"server.key": func(path string) { _ = pairInto(t, path+".pem", path) },
		"server.pem": func(path string) { _ = pairInto(t, path, path+".key") },
		ledger.LockFile: func(path string) {
			_, _ = ledger.AcquireLock(t.Context(), filepath.Dir(path), ledger.LockConfig{Wait: -1})
		},
		ledger.StoreFile: func(path string) { _ = ledger.WriteStoreID(filepath.Dir(path), ledger.StoreID{Mesh: "home"}) },
		"anchor.json": func(path string) {
			_ = ledger.Anchors{Dir: filepath.Dir(path)}.Save(ledger.Anchor{ID: "anchor", Mesh: "home", Seq: 1, Time: time.Now()})
		},
		"anchor.1.x": func(path string) {
			put(t, filepath.Join(filepath.Dir(path), "anchor.json"), "{}", 0o600)
			_, _ = ledger.Anchors{Dir: filepath.Dir(path)}.Keep(ledger.Anchor{ID: "anchor", Seq: 1}, "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			within := filepath.Join(dir, strings.ReplaceAll(name, ".", "-"))
			victim := filepath.Join(dir, "victim of "+name)
			if err := errors.Join(os.Mkdir(within, 0o700), os.WriteFile(victim, []byte(precious), 0o600), os.Symlink(victim, filepath.Join(within, name))); err != nil {
				t.Fatal(err)
			}
			write(filepath.Join(within, name))
			if got, err := os.ReadFile(victim); string(got) != precious || err != nil {
				t.Errorf("the target of the link holds %q (%v)", got, err)
			}
		})
	}
}

func pairInto(t *testing.T, certFile, keyFile string) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return writePair(certFile, keyFile, []byte("certificate"), key)
}

// A backup is not written into a file that somebody else has begun or can read: a
// name in a shared directory can be guessed.
func TestBackupIntoSomebodyElsesFile(t *testing.T) {
	p := newPatientStore(t)
	for name, spoil := range map[string]func(path string) error{
		"readable": func(path string) error { return os.Chmod(path, 0o644) },
		"foreign": func(path string) error {
			skipUnlessRoot(t)
			return os.Chown(path, 4711, -1)
		},
	} {
		file := filepath.Join(t.TempDir(), "backup")
		put(t, file+".part", "", 0o600)
		if err := spoil(file + ".part"); err != nil {
			t.Fatal(err)
		}
		p.refused(commands.Usage, "backup", file)
		if i, err := os.Stat(file + ".part"); err != nil || i.Size() > 0 {
			t.Errorf("%s: it was written into (%v)", name, err)
		}
	}
}

package agent

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"bindery/events"
	"bindery/projections"
)

func openTestTree(t testing.TB, dir string) *tree {
	t.Helper()
	tr, err := openTree(dir, -1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.close)
	return tr
}

const hostileHome = dirBindings + "/01M8P88V58TFQXDZHEJCG190XZ"

// A tree belongs to one process.
func TestTreeIsLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	openTestTree(t, dir)
	if _, err := openTree(dir, -1); err == nil || !strings.Contains(err.Error(), errInUse.Error()) {
		t.Errorf("%v", err)
	}
}

// Links that somebody has put into the tree lead nothing out of it, and nothing to
// another part of it.
func TestLinksInTheTree(t *testing.T) {
	outside := t.TempDir()
	for name, plant := range map[string]func(root string) error{
		"bindings out":    func(root string) error { return os.Symlink(outside, filepath.Join(root, "bindings")) },
		"bindings within": func(root string) error { return os.Symlink("secrets", filepath.Join(root, "bindings")) },
		"secrets out":     func(root string) error { return os.Symlink(outside, filepath.Join(root, "secrets")) },
		"state within":    func(root string) error { return os.Symlink("issued", filepath.Join(root, "state")) },
		"the lock out": func(root string) error {
			return os.Symlink(filepath.Join(outside, "x"), filepath.Join(root, "agent.lock"))
		},
		"bindings, a file":  func(root string) error { return os.WriteFile(filepath.Join(root, "bindings"), nil, 0o600) },
		"names, a relative": func(root string) error { return os.MkdirAll(filepath.Join(root, "bindings"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			if err := os.Mkdir(root, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := plant(root); err != nil {
				t.Fatal(err)
			}
			tr, err := openTree(root, -1)
			if name == "names, a relative" {
				if err != nil {
					t.Fatal(err)
				}
				defer tr.close()
				if err := os.Symlink("../../..", filepath.Join(root, hostileHome)); err != nil {
					t.Fatal(err)
				}
				if _, err := tr.writeSet(hostileHome, "db", map[string]string{"password": "x"}); err == nil {
					t.Error("it wrote through a link")
				}
			} else if err == nil {
				tr.close()
				t.Error("it was opened")
			}
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Errorf("outside there is %v", left)
			}
		})
	}
}

// What is in the way of a slot's link is replaced, and what it led to is not
// touched.
func TestSlotLinkReplacesWhatIsThere(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "password")
	if err := os.WriteFile(victim, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(slot string) error{
		"a link out":  func(slot string) error { return os.Symlink(outside, slot) },
		"a file":      func(slot string) error { return os.WriteFile(slot, []byte("x"), 0o644) },
		"a directory": func(slot string) error { return os.MkdirAll(filepath.Join(slot, "below"), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			tr := openTestTree(t, root)
			set, err := tr.writeSet(hostileHome, "db", map[string]string{"password": "new"})
			if err != nil {
				t.Fatal(err)
			}
			if err := plant(filepath.Join(root, hostileHome, "db")); err != nil {
				t.Fatal(err)
			}
			if err := tr.turnTo(hostileHome, "db", set); err != nil {
				t.Fatal(err)
			}
			if got := tr.readSet(hostileHome, "db"); got["password"] != "new" {
				t.Errorf("%v", got)
			}
			if data, err := os.ReadFile(victim); err != nil || string(data) != "kept" {
				t.Errorf("%q %v", data, err)
			}
			info, err := os.Stat(filepath.Join(root, hostileHome, "db", "password"))
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("%v %v", info.Mode(), err)
			}
		})
	}
}

// References to files lead nowhere but below secrets.
func TestFileReferences(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	tr := openTestTree(t, root)
	secret := `{"username":"u","password":"p"}`
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "secrets", "a"), 0o700),
		os.WriteFile(filepath.Join(root, "secrets", "a", "1"), []byte(secret), 0o600),
		os.WriteFile(filepath.Join(root, "state", "x"), []byte(secret), 0o600),
		os.Symlink("../state/x", filepath.Join(root, "secrets", "out")),
		os.Symlink("a/1", filepath.Join(root, "secrets", "within")),
		os.WriteFile(filepath.Join(root, "secrets", "list"), []byte(`["x"]`), 0o600),
		os.WriteFile(filepath.Join(root, "secrets", "number"), []byte(`{"username":1}`), 0o600),
		os.WriteFile(filepath.Join(root, "secrets", "path"), []byte(`{"../x":"p"}`), 0o600),
		os.WriteFile(filepath.Join(root, "secrets", "type"), []byte(`{"type":"mysql"}`), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for ref, ok := range map[string]bool{"a/1": true, "within": true, "a": false, "none": false, "out": false, "../state/x": false, "/etc/passwd": false,
		"a/../../state/x": false, "": false, ".": false, "list": false, "number": false, "path": false, "type": false} {
		got, err := tr.readSecret(ref)
		if (err == nil) != ok || ok && got["password"] != "p" {
			t.Errorf("%q: %v %v", ref, got, err)
		}
		if err != nil && strings.Contains(err.Error(), root) {
			t.Errorf("%q: the message has a path: %v", ref, err)
		}
	}
}

// No document makes a name of a file that is none, whatever is in it.
func TestHostileDocuments(t *testing.T) {
	id := func(s string) events.ID {
		v, err := events.ParseID(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"..", ".", "", "a/b", "../x", "/etc", ".sets", "by-name", "a\x00b", "A", "wiki"}),
			rapid.StringMatching(`[a-z][a-z0-9-]{0,70}`))
		b := id("01M8P88V58TFQXDZHEJDHTPEFF")
		d := projections.BindingDocument{Module: name.Draw(t, "module"), NodeID: id("01M8P88V58TFQXDZHEJCG190XZ")}
		d.ID, d.AssignmentID, d.Assignment, d.Slot = &b, id("01M8P88V58TFQXDZHEM4THMB97"), name.Draw(t, "assignment"), name.Draw(t, "slot")
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var read projections.BindingDocument // as it comes in an answer
		if err := json.Unmarshal(data, &read); err != nil {
			return
		}
		n, err := readNeed(d.NodeID.String(), d.Key(), &read)
		if err != nil {
			return
		}
		for _, s := range []string{n.name, n.slot, n.module} {
			if !fs.ValidPath(s) || strings.ContainsAny(s, "/.\\\x00") {
				t.Fatalf("%q is taken for a name", s)
			}
		}
	})
}

// The entries of a secret become files of the slot and nothing else.
func TestSecretEntries(t *testing.T) {
	for name, ok := range map[string]bool{"password": true, "tls.crt": true, "A_b-9": true, "": false, ".": false, "..": false, ".hidden": false, "a/b": false,
		"../x": false, "type": false, "provider": false, "host": false, "port": false, "uri": true, "-x": false, "a\x00": false, "ü": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false} {
		if err := checkSecret(map[string]string{name: "value-of-it"}); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		} else if err != nil && strings.Contains(err.Error(), "value-of-it") {
			t.Errorf("%q: the message has the value", name)
		}
	}
	many := map[string]string{}
	for i := range 65 {
		many[strings.Repeat("a", i+1)] = ""
	}
	if checkSecret(many) == nil || checkSecret(map[string]string{"a": strings.Repeat("x", maxSecretLen)}) == nil {
		t.Error("too much is taken")
	}
}

// A slot's files are replaced as one set: whoever opens the directory sees the old
// ones or the new ones.
func TestSlotChangesAsOne(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	tr := openTestTree(t, root)
	turn := func(v string) {
		set, err := tr.writeSet(hostileHome, "db", map[string]string{"username": v, "password": v})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.turnTo(hostileHome, "db", set); err != nil {
			t.Fatal(err)
		}
	}
	turn("0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			turn(strings.Repeat("x", i))
		}
	}()
	for reads := 0; ; reads++ {
		select {
		case <-done:
			if reads == 0 {
				t.Error("nothing was read meanwhile")
			}
			return
		default:
		}
		dir, err := os.OpenRoot(filepath.Join(root, hostileHome, "db"))
		if err != nil {
			t.Fatal(err)
		}
		user, err1 := dir.ReadFile("username")
		password, err2 := dir.ReadFile("password")
		dir.Close()
		if err1 != nil || err2 != nil || string(user) != string(password) {
			t.Fatalf("%q %v, %q %v", user, err1, password, err2)
		}
	}
}

// What no link leads to is swept; what one leads to is not.
func TestSweep(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	tr := openTestTree(t, root)
	for _, slot := range []string{"db", "db-x", "cache"} {
		for range 3 {
			set, err := tr.writeSet(hostileHome, slot, map[string]string{"password": slot})
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.turnTo(hostileHome, slot, set); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tr.sweep(hostileHome); err != nil {
		t.Fatal(err)
	}
	sets, err := tr.list(hostileHome + "/" + dirSets)
	if err != nil || len(sets) != 3 {
		t.Errorf("%v %v", sets, err)
	}
	for _, slot := range []string{"db", "db-x", "cache"} {
		if got := tr.readSet(hostileHome, slot); !maps.Equal(got, map[string]string{"password": slot}) {
			t.Errorf("%s: %v", slot, got)
		}
	}
}

// With a group, consumers' files are for it to read, and nothing else is.
func TestGroup(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	modes := func(gid int) map[string]fs.FileMode {
		tr, err := openTree(root, gid)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close()
		set, err := tr.writeSet(hostileHome, "db", map[string]string{"password": "x"})
		if err == nil {
			err = tr.turnTo(hostileHome, "db", set)
		}
		if err == nil {
			err = tr.writeRecord("secrets/x", "y")
		}
		if err == nil {
			err = tr.share()
		}
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]fs.FileMode{}
		for _, name := range []string{".", "bindings", hostileHome, hostileHome + "/.sets", hostileHome + "/db", hostileHome + "/db/password", "secrets", "secrets/x", "state", "issued"} {
			info, err := os.Stat(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = info.Mode().Perm()
		}
		return out
	}
	closed := map[string]fs.FileMode{".": 0o700, "bindings": 0o700, hostileHome: 0o700, hostileHome + "/.sets": 0o700, hostileHome + "/db": 0o700,
		hostileHome + "/db/password": 0o600, "secrets": 0o700, "secrets/x": 0o600, "state": 0o700, "issued": 0o700}
	open := maps.Clone(closed)
	maps.Copy(open, map[string]fs.FileMode{".": 0o710, "bindings": 0o750, hostileHome: 0o750, hostileHome + "/.sets": 0o750, hostileHome + "/db": 0o750,
		hostileHome + "/db/password": 0o640})
	for _, c := range []struct {
		gid  int
		want map[string]fs.FileMode
	}{{-1, closed}, {os.Getgid(), open}, {-1, closed}} {
		if got := modes(c.gid); !maps.Equal(got, c.want) {
			t.Errorf("group %d: %v, want %v", c.gid, got, c.want)
		}
	}
}

// A tree is not made where everybody could put a link to another directory in its
// place.
func TestTreeThatOthersCouldSwap(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if tr, err := openTree(filepath.Join(dir, "agent"), -1); err == nil {
		tr.close()
		t.Error("it is opened")
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	tr, err := openTree(filepath.Join(dir, "agent"), -1)
	if err != nil {
		t.Fatal(err)
	}
	tr.close()
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"bindery/commands/snapshot"
	"bindery/ledger"
)

// ownFiles are what bindery keeps in a store, and the modes they must have.
var ownFiles = map[string]fs.FileMode{server.JetStreamStoreDir: 0o700, ledger.LockFile: 0o600, ledger.StoreFile: 0o600, lostDir: 0o700, snapshot.Dir: 0o700, tlsDir: 0o700, endpointFile: 0o600,
	"ca.pem": 0o600, "ca.key": 0o600, "server.pem": 0o600, "server.key": 0o600}

// hasKey reports whether a file has a key in it.
func hasKey(name string) bool { return name == endpointFile || strings.HasSuffix(name, ".key") }

// checkFiles looks at who may use the files of a store.
func checkFiles(dir string) []doctorCheck {
	info, err := os.Stat(dir)
	if err != nil {
		return []doctorCheck{bad("store", "the store "+dir+" cannot be looked at", err.Error(), program("ls", "-ld", dir))}
	}
	var out []doctorCheck
	mode := info.Mode().Perm()
	switch {
	case mode&0o022 != 0:
		out = append(out, bad("store", fmt.Sprintf("others may write into %s: its mode is %04o", dir, mode), "whoever writes there writes the ledger", program("chmod", "700", dir)))
	case mode&0o055 != 0:
		out = append(out, warned("store", fmt.Sprintf("others may look into %s: its mode is %04o", dir, mode), "what they can read of it is the ledger", program("chmod", "700", dir)))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return append(out, bad("store", "the store "+dir+" cannot be read", err.Error(), program("ls", "-ld", dir)))
	}
	var foreign []string
	for _, e := range entries {
		want, own := ownFiles[e.Name()]
		path := filepath.Join(dir, e.Name())
		i, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone just now
		case err != nil:
			out = append(out, bad("store", path+" cannot be looked at", err.Error(), program("ls", "-l", dir)))
		case strings.HasPrefix(e.Name(), endpointFile+"."): // being written, or left by who was killed in it
		case !own:
			foreign = append(foreign, e.Name())
		case hasKey(e.Name()) && i.Mode().Perm()&0o077 != 0:
			out = append(out, bad("store", fmt.Sprintf("others may read %s: its mode is %04o", path, i.Mode().Perm()), "there is a key in it", program("chmod", "600", path)))
		case i.Mode().Perm()&^want&0o022 != 0:
			out = append(out, bad("store", fmt.Sprintf("others may write %s: its mode is %04o", path, i.Mode().Perm()), "it is a part of the store", program("chmod", fmt.Sprintf("%o", want), path)))
		}
	}
	if foreign != nil {
		out = append(out, warned("store", "files in the store that are not bindery's: "+strings.Join(firstFew(foreign), ", "), "a store is for nothing else", program("ls", "-la", dir)))
	}
	out = append(out, checkOwners(dir, info)...)
	out = append(out, checkSwap("store", dir)...)
	if out == nil {
		out = append(out, ok("store", dir+" is its owner's alone", ""))
	}
	return out
}

// checkSwap looks whether others could put another directory in the place of dir.
func checkSwap(code, dir string) []doctorCheck {
	p, err := aboveProblem(dir)
	switch {
	case err != nil:
		return []doctorCheck{bad(code, "not all directories above "+dir+" can be looked at", err.Error(), program("ls", "-ld", dir))}
	case p == nil || p.Path == ledger.RealPath(dir): // that is said already
		return nil
	}
	fix := program("ls", "-ld", p.Path)
	if p.Fix != nil {
		fix = program(p.Fix...)
	}
	check := warned
	if p.Anybody {
		check = bad
	}
	return []doctorCheck{check(code, "others could put another directory in the place of "+dir, p.Why, fix)}
}

// checkOwners looks for files of somebody else: of who ran a command as root,
// say. The store's owner cannot open them.
func checkOwners(dir string, top fs.FileInfo) []doctorCheck {
	owner, known := ownerOf(top)
	if !known {
		return nil
	}
	var out []doctorCheck
	if me := os.Geteuid(); me != owner {
		out = append(out, bad("store", fmt.Sprintf("the store belongs to user %d, and this is user %d", owner, me), "it can be used by its owner alone", program("sudo", "-u", "#"+fmt.Sprint(owner), "bindery", "doctor")))
	}
	var others []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone just now
		}
		if err != nil {
			return err
		}
		i, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if by, _ := ownerOf(i); by != owner {
			rel, _ := filepath.Rel(dir, path)
			others = append(others, rel)
		}
		return nil
	})
	if err != nil {
		out = append(out, bad("store", "not all files of the store can be looked at", err.Error(), program("ls", "-la", dir)))
	}
	if others != nil {
		out = append(out, bad("store", fmt.Sprintf("%s in the store belong to another user than the store: %s", plural(len(others), "file", "files"), strings.Join(firstFew(others), ", ")),
			"its owner may be unable to open them", program("chown", "-R", fmt.Sprint(owner), dir)))
	}
	return out
}

func firstFew(names []string) []string {
	if n := len(names); n > mostNamed {
		return append(slices.Clone(names[:mostNamed]), fmt.Sprintf("%d more", n-mostNamed))
	}
	return names
}

// Where the space on a disk is worth a warning.
const (
	littleSpace   = 1 << 30
	littlePercent = 5
)

// disk is how full one is.
type disk struct{ free, total uint64 } // bytes; free for who is not root

// checkSpace looks whether something can be written, and how much.
func checkSpace(dir string) doctorCheck {
	wrote := probeWrite(dir)
	d, err := spaceOf(dir)
	if wrote == nil && err != nil {
		return skipped("the free space cannot be seen: "+err.Error(), "space")[0]
	}
	return judgeSpace(dir, d, wrote)
}

func judgeSpace(dir string, d disk, wrote error) doctorCheck {
	fix := program("df", "-h", dir)
	what := size(d.free) + " free of " + size(d.total)
	switch {
	case wrote != nil:
		return bad("space", "nothing can be written to the store", wrote.Error(), fix)
	case d.free < littleSpace:
		return warned("space", what, "less than "+size(littleSpace)+" is free; a full disk stops the writer", fix)
	case d.free/littlePercent < d.total/100:
		return warned("space", what, fmt.Sprintf("less than %d %% is free; a full disk stops the writer", littlePercent), fix)
	}
	return ok("space", what, "")
}

// probeWrite writes into a store, and leaves nothing there.
func probeWrite(dir string) error {
	f, err := os.CreateTemp(dir, endpointFile+".*")
	if err != nil {
		return err
	}
	removed := os.Remove(f.Name()) // it lives on until it is closed
	_, err = f.Write(make([]byte, 4096))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, removed, f.Close())
}

// size is bytes for people.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

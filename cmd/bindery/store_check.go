package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"

	"bindery/commands"
	"bindery/commands/snapshot"
	"bindery/ledger"
	"bindery/ledger/owned"
)

// Whoever can write the files of a store writes the ledger, and whoever can write the
// anchors hides that the ledger has lost something. So a store is used only where
// nobody else can change it. It is used by its owner alone, also where root asks: the
// owner could not open the files that root would leave there.

// storeParts are the names of what bindery keeps in a store.
var storeParts = []string{ledger.LockFile, ledger.StoreFile, server.JetStreamStoreDir, lostDir, snapshot.Dir, endpointFile, tlsDir}

// checkStore refuses a store that others can change: it looks at every file in it.
func checkStore(dir string) error { return checkParts(dir, true, storeParts...) }

// checkParts refuses a store where others can change its directory or some parts of
// it. With whole it looks below them, too.
func checkParts(dir string, whole bool, parts ...string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return storeError(dir, err)
	}
	if uid, known := ownerOf(info); known && uid != os.Geteuid() {
		return foreignStore(dir, uid)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return unsafeStore(dir, &owned.Problem{Why: fmt.Sprintf("others can write into it: its mode is %04o", mode), Fix: []string{"chmod", "700", dir}})
	}
	if err := checkAbove(dir); err != nil {
		return unsafeStore(dir, err)
	}
	for _, name := range parts {
		if err := checkPart(filepath.Join(dir, name), whole); err != nil {
			return unsafeStore(dir, err)
		}
	}
	return nil
}

// checkPart looks at a file or directory in a store, and with whole at all below it.
func checkPart(top string, whole bool) error {
	return filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ledger.NotLink(path)
		}
		if err == nil {
			err = owned.Check(path)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // there is none, or the serving process has just removed it
		case err != nil:
			return err
		case e.IsDir() && !whole:
			return fs.SkipDir
		}
		return nil
	})
}

// checkAbove refuses a directory that every user of the machine could swap. Where only
// a group or one other user could, doctor warns: homes are often like that.
func checkAbove(dir string) error {
	p, err := aboveProblem(dir)
	if p != nil && p.Anybody {
		return p
	}
	return err
}

// aboveProblem says who could put another directory in the place of dir.
func aboveProblem(dir string) (*owned.Problem, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	err = owned.Dir(abs)
	var p *owned.Problem
	if errors.As(err, &p) {
		return p, nil
	}
	return nil, err
}

// checkAnchors refuses a directory of anchors that others can change.
func checkAnchors(dir string) error {
	if _, err := os.Stat(dir); dir == "" || err != nil {
		return nil // it is made, for its owner alone; another error comes up where it is read
	}
	err := checkAbove(dir)
	if err == nil {
		if dir, err = filepath.EvalSymlinks(dir); err == nil {
			err = checkPart(dir, true)
		}
	}
	if err == nil {
		return nil
	}
	r := refusal(commands.StoreUnusable, "the anchors in "+dir+" are not used", err.Error()+"; whoever can change them hides that the ledger has lost something", program("ls", "-la", dir))
	return withFix(r, err)
}

func unsafeStore(dir string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return storeError(dir, err)
	}
	return withFix(refusal(commands.StoreUnusable, "the store "+dir+" is not used", err.Error()+"; whoever can change it writes the ledger", program("ls", "-la", dir)), err)
}

// withFix takes the command that ends a problem as the fix.
func withFix(r *commands.Refusal, err error) *commands.Refusal {
	var p *owned.Problem
	if errors.As(err, &p) && p.Fix != nil {
		r.Fix = program(p.Fix...)
	}
	return r
}

func foreignStore(dir string, owner int) error {
	why := fmt.Sprintf("it belongs to user %d, and this is user %d", owner, os.Geteuid())
	if os.Geteuid() == 0 {
		why += "; its owner could not open the files that root leaves there"
	}
	return refusal(commands.StoreUnusable, "the store "+dir+" is used by its owner alone", why, program("sudo", "-u", "#"+fmt.Sprint(owner), "bindery", "status"))
}

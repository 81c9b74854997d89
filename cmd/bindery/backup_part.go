package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/gofrs/flock"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
)

// part is a backup that is not whole yet, in a file of its own. One process at a
// time writes it.
type part struct {
	path string
	f    *os.File
	lock *flock.Flock
}

// openPart opens the file, or makes it.
func openPart(path string) (*part, error) {
	if err := ledger.NotLink(path); err != nil {
		return nil, partError(path, err)
	}
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW), flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, partError(path, err)
	}
	if !ok {
		return nil, refusal(commands.StoreLocked, "another backup is written to "+path, "", program("fuser", "-v", path))
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err == nil {
		err = ownPart(path, f)
	}
	if err != nil {
		_ = lock.Unlock()
		return nil, partError(path, err)
	}
	return &part{path: path, f: f, lock: lock}, nil
}

// ownPart refuses a file of somebody else: its owner would read the ledger in it.
func ownPart(path string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, known := ownerOf(info); known && uid != os.Geteuid() || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		_ = f.Close()
		return usage("the file "+path+" is not one that bindery backup has begun", "it is somebody else's, or others can use it, and the ledger would be written into it", program("ls", "-l", path))
	}
	return nil
}

func (p *part) close() {
	_ = p.f.Close()
	_ = p.lock.Unlock()
}

// resume says what is left to be written: everything, or what follows the last whole
// command in the file, which must be of the same ledger. What is in the file is
// verified like any backup, since a machine that went down may have left a hole.
func (p *part) resume(ctx context.Context, log *ledger.Log) (on ledger.Backing, err error) {
	head, done, kept, err := p.read()
	if err != nil {
		return on, err
	}
	if kept == 0 {
		if head, err = log.BackupHead(ctx); err != nil {
			return on, err
		}
	} else if err := p.check(ctx, log, done); err != nil {
		return on, err
	}
	on = ledger.Backing{Head: head, Done: done, Sum: sha256.New()}
	if _, err := p.f.Seek(0, io.SeekStart); err != nil {
		return on, err
	}
	if _, err := io.CopyN(on.Sum, p.f, kept); err != nil {
		return on, err
	}
	return on, p.f.Truncate(kept)
}

// read finds the last whole command in the file, and how many bytes it and what is
// before it take; 0: none is there.
func (p *part) read() (head ledger.BackupHead, done ledger.Position, kept int64, err error) {
	b, err := ledger.OpenBackup(p.f)
	switch {
	case errors.Is(err, ledger.ErrTruncated):
		return head, done, 0, nil // not even the first line
	case err != nil:
		return head, done, 0, usage("the file "+p.path+" is no backup that was interrupted", err.Error(), program("rm", p.path))
	}
	for {
		step, err := b.Next()
		var broken *ledger.BackupError
		switch {
		case err == io.EOF, errors.As(err, &broken):
			return b.Head(), done, kept, nil
		case err != nil:
			return head, done, 0, err
		case step.Command != nil:
			done, kept = step.At, step.Size
		}
	}
}

// check holds the last command of the file against the log.
func (p *part) check(ctx context.Context, log *ledger.Log, done ledger.Position) error {
	recs, err := log.Get(ctx, done.Seq, done.Seq)
	var none *ledger.NotFoundError
	if err != nil && !errors.As(err, &none) {
		return err
	}
	if err == nil && recs[0].Get(events.HeaderChain) == done.Chain.String() {
		return nil
	}
	return refusal(commands.LedgerRestored, "the file "+p.path+" is not a backup of this ledger", "the ledger has another event at sequence "+strconv.FormatUint(done.Seq, 10), program("rm", p.path))
}

// finish gives the whole backup its name, and returns its size.
func (p *part) finish(path string) (int64, error) {
	info, err := p.f.Stat()
	if err == nil {
		err = p.f.Sync()
	}
	if err == nil {
		err = os.Rename(p.path, path)
	}
	if err == nil {
		err = ledger.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

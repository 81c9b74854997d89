package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// LockFile is the name of the lock in a store directory. It stays there
// unlocked: removing it would let two processes lock two files of one name.
const LockFile = "lock"

// LockWait is how long AcquireLock waits by default: the time another command
// line needs to finish.
const LockWait = time.Second

// lockPoll is how often a taken lock is tried again.
const lockPoll = 10 * time.Millisecond

// maxHolder bounds what is read of a lock file, in bytes.
const maxHolder = 4096

// Holder says who holds a store.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

// LockConfig says how to lock; the zero value is ready to use.
type LockConfig struct {
	Wait    time.Duration // 0: LockWait; negative: do not wait
	Command string        // what others are told this is; empty: the program's name
}

// Lock is the exclusive right to use a store directory. It ends with Unlock or
// with the process, however it dies (flock(2)).
type Lock struct {
	f   *flock.Flock
	dir string
}

// AcquireLock locks the existing directory dir. It waits as long as cfg and ctx
// say, then returns a *LockedError that names the holder. A directory that is
// not there is an error that wraps fs.ErrNotExist: nothing is created.
func AcquireLock(ctx context.Context, dir string, cfg LockConfig) (*Lock, error) {
	if fi, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("locking store %q: %w", dir, err)
	} else if !fi.IsDir() {
		return nil, fmt.Errorf("locking store %q: not a directory", dir)
	}
	path := filepath.Join(dir, LockFile)
	f := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW), flock.SetPermissions(0o600))
	ok, err := f.TryLock()
	if err == nil && !ok && cfg.Wait >= 0 {
		wait := cfg.Wait
		if wait == 0 {
			wait = LockWait
		}
		wctx, cancel := context.WithTimeout(ctx, wait)
		ok, err = f.TryLockContext(wctx, lockPoll)
		cancel()
	}
	switch {
	case ok:
	case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, fmt.Errorf("locking store %q: %w", dir, ctx.Err())
		}
		return nil, &LockedError{Dir: dir, Holder: readHolder(path)}
	default:
		return nil, fmt.Errorf("locking store %q: %w", dir, refuseLink(path, err))
	}
	if cfg.Command == "" {
		cfg.Command = filepath.Base(os.Args[0]) // not its arguments: they may hold anything
	}
	text, err := json.Marshal(Holder{PID: os.Getpid(), Command: cfg.Command, Since: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		// Same file, not a new one: the lock is on the inode.
		err = overwrite(path, append(text, '\n'))
	}
	if err != nil {
		// It is locked all the same; on a full disk nobody is told by whom, and
		// what is in the store can still be read.
		_ = overwrite(path, nil)
	}
	l := &Lock{f: f, dir: dir}
	held.Store(l, struct{}{})
	return l, nil
}

// held keeps every lock alive until it is unlocked: a file that nobody refers
// to is closed by the garbage collector, and its lock with it.
var held sync.Map

// readHolder reads what the holder wrote. It may be just writing it.
func readHolder(path string) (h Holder) {
	for range 5 {
		b, err := ReadRegular(path, maxHolder)
		if err == nil && bytes.HasSuffix(b, []byte("\n")) && json.Unmarshal(b, &h) == nil {
			return h
		}
		time.Sleep(2 * time.Millisecond)
	}
	return Holder{}
}

// ReadHolder returns what the present or the last holder of dir wrote, for
// messages only: whether the store is in use, only AcquireLock knows.
func ReadHolder(dir string) Holder { return readHolder(filepath.Join(dir, LockFile)) }

// Dir returns the locked directory.
func (l *Lock) Dir() string { return l.dir }

// Unlock ends the lock. The server that used the store must have been closed.
func (l *Lock) Unlock() error {
	held.Delete(l)
	// Empty before it is free: nobody is told of a holder that is gone.
	terr := overwrite(filepath.Join(l.dir, LockFile), nil)
	if err := errors.Join(terr, l.f.Unlock()); err != nil {
		return fmt.Errorf("unlocking store %q: %w", l.dir, err)
	}
	return nil
}

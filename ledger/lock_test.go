package ledger

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	dir := t.TempDir()
	first, err := AcquireLock(t.Context(), dir, LockConfig{Command: "bindery bind"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = AcquireLock(t.Context(), dir, LockConfig{Wait: 30 * time.Millisecond})
	var locked *LockedError
	if !errors.As(err, &locked) {
		t.Fatalf("second lock: %v, want a LockedError", err)
	}
	h := locked.Holder
	if locked.Dir != dir || h.PID != os.Getpid() || h.Command != "bindery bind" || time.Since(h.Since) > time.Minute {
		t.Errorf("second lock was told %+v", locked)
	}
	if !strings.Contains(err.Error(), "bindery bind") {
		t.Errorf("message %q does not name the holder", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	if h := ReadHolder(dir); h != (Holder{}) {
		t.Errorf("unlocked store still names %+v", h)
	}
	again, err := AcquireLock(t.Context(), dir, LockConfig{Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Unlock()

	// A waiting one gets it as soon as it is free.
	got := make(chan error, 1)
	go func() {
		l, err := AcquireLock(context.Background(), dir, LockConfig{Wait: patience})
		if err == nil {
			err = l.Unlock()
		}
		got <- err
	}()
	time.Sleep(20 * time.Millisecond)
	again.Unlock()
	if err := <-got; err != nil {
		t.Errorf("the one that waited: %v", err)
	}
}

func TestLockOfNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mistyped")
	if _, err := AcquireLock(t.Context(), dir, LockConfig{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("locking a directory that is not there: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there now: %v", err)
	}
}

// Another process is told who holds the store, within two seconds; when the
// holder is killed, the store is free.
func TestLockOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t.Context(), "lock", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the child says %q", line)
	}
	_, err = AcquireLock(t.Context(), dir, LockConfig{})
	var locked *LockedError
	if !errors.As(err, &locked) {
		t.Fatalf("lock: %v, want a LockedError", err)
	}
	if locked.Holder.PID != cmd.Process.Pid || locked.Holder.Command != "bindery serve" {
		t.Errorf("told of %+v, want process %d", locked.Holder, cmd.Process.Pid)
	}
	cmd.Process.Kill()
	cmd.Wait()
	l, err := AcquireLock(t.Context(), dir, LockConfig{})
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	l.Unlock()
}

// Kind: a lock that ends because nobody looks at it.
func TestLockSurvivesTheCollector(t *testing.T) {
	dir := t.TempDir()
	if _, err := AcquireLock(t.Context(), dir, LockConfig{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	var locked *LockedError
	if _, err := AcquireLock(t.Context(), dir, LockConfig{Wait: -1}); !errors.As(err, &locked) {
		t.Errorf("the lock was lost: %v", err)
	}
}

// A lock that is a link is refused, and its target is left as it was: also one that
// does not exist, and one that is put there while the store is held.
func TestLockThroughALink(t *testing.T) {
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	path := filepath.Join(dir, LockFile)
	link := func() {
		t.Helper()
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, path); err != nil {
			t.Fatal(err)
		}
	}
	var linked *LinkError
	link()
	if _, err := AcquireLock(t.Context(), dir, LockConfig{Wait: -1}); !errors.As(err, &linked) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(victim); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target was made: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := AcquireLock(t.Context(), dir, LockConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link()
	if err := l.Unlock(); !errors.As(err, &linked) {
		t.Errorf("%v", err)
	}
	if h := ReadHolder(dir); h != (Holder{}) {
		t.Errorf("%+v", h)
	}
	if text, err := os.ReadFile(victim); string(text) != "precious" || err != nil {
		t.Errorf("the target holds %q, %v", text, err)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
)

// restoringDir is where a store grows until it is whole.
func restoringDir(dir string) string { return dir + restoringSuffix }

const restoringSuffix = ".restoring"

// notRestoring refuses a store that grows still. Its name tells: what is in it may be
// whole already, and is not what was asked for before it has its place.
func notRestoring(dir string) error {
	whole, ok := strings.CutSuffix(dir, restoringSuffix)
	if !ok {
		return nil
	}
	return refusal(commands.LedgerMissing, dir+" is what a restore has not finished", "a store counts when it has its place, "+whole,
		do("restore", "FILE").With("--store", whole))
}

// notRestored refuses a place that a restore, which was not finished, has begun to fill.
func notRestored(dir string) error {
	if _, err := os.Lstat(restoringDir(dir)); err != nil {
		return nil
	}
	return refusal(commands.LedgerMissing, "a restore into "+dir+" was not finished", "it is in "+restoringDir(dir)+", and goes on by the same command; or remove that",
		do("restore", "FILE").With("--store", dir))
}

// into restores a backup over a connection, with a bar.
func (v *restore) into(ctx context.Context, c *cli, nc *nats.Conn, in *source) (*ledger.Log, error) {
	b := &bar{ui: c.ui, what: "restoring", total: int(in.b.Head().Seq)}
	b.start()
	defer b.stop()
	at := uint64(0)
	log, err := ledger.Restore(ctx, nc, in.b, ledger.Restoring{
		CreateOptions: ledger.CreateOptions{Replicas: v.replicas},
		Check:         in.allowed,
		Each: func(p ledger.Position) {
			at = p.Seq
			in.held.reach(p)
			b.at(int(at), "sequence "+fmt.Sprint(at))
		},
	})
	if err != nil && ctx.Err() != nil {
		return nil, refusal(commands.Interrupted, fmt.Sprintf("stopped after sequence %d", at), "what is there does not count as a ledger", again())
	}
	return log, c.badBackup(in.name, err)
}

// intoServer restores into a new stream.
func (v *restore) intoServer(ctx context.Context, c *cli, n natsContext, in *source) error {
	nc, err := n.connect()
	if err != nil {
		return notReached(n.URL, err)
	}
	defer nc.Close()
	mesh := in.b.Head().Mesh
	log, err := v.into(ctx, c, nc, in)
	switch {
	case errors.Is(err, ledger.ErrExists):
		return refusal(commands.LedgerExists, "the ledger of mesh "+mesh+" is on the server already", err.Error(), do("status").With("--server", publicURL(n.URL)))
	case errors.Is(err, ledger.ErrOtherBackup):
		return refusal(commands.LedgerExists, "a part of another ledger of mesh "+mesh+" is on the server", err.Error(), program("nats", "stream", "rm", ledger.StreamName(mesh)))
	case err != nil:
		return err
	}
	return c.anchorRestored(log, in.b.Head())
}

// intoStore restores into a free place (see freeForStore): a store grows beside it
// and gets its name when it is whole.
func (v *restore) intoStore(ctx context.Context, c *cli, dir string, in *source) error {
	grows := restoringDir(dir)
	if err := os.MkdirAll(grows, 0o700); err != nil {
		return storeError(grows, err)
	}
	err := v.grow(ctx, c, grows, in)
	if errors.Is(err, ledger.ErrOtherBackup) || errors.Is(err, ledger.ErrExists) {
		return refusal(commands.LedgerExists, "a part of another ledger is in "+grows, err.Error(), program("rm", "-r", grows))
	}
	if err == nil {
		err = c.identify(grows, dir, in.b.Head())
	}
	if err != nil {
		return err
	}
	// If we die here, the same command finds everything there.
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storeError(dir, err)
	}
	if err := os.Rename(grows, dir); err != nil {
		return storeError(dir, err)
	}
	return ledger.SyncDir(filepath.Dir(dir))
}

// freeForStore refuses a directory that has something in it.
func freeForStore(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return storeError(dir, err)
	case isStore(dir):
		return refusal(commands.LedgerExists, "there is a store in "+dir, "a backup is restored into a store that is not there yet", again().With("--store", dir+"-restored"))
	}
	return refusal(commands.StoreUnusable, "the directory "+dir+" is no store and not empty", fmt.Sprintf("it holds %q", entries[0].Name()),
		again().With("--store", filepath.Join(dir, "bindery")))
}

// grow restores into a locked directory.
func (v *restore) grow(ctx context.Context, c *cli, dir string, in *source) (err error) {
	if err := checkStore(dir); err != nil {
		return err
	}
	lock, err := ledger.AcquireLock(ctx, dir, ledger.LockConfig{Command: c.path})
	if err != nil {
		return storeError(dir, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	srv, err := ledger.StartEmbedded(ctx, ledger.EmbeddedConfig{Dir: dir})
	if err != nil {
		return storeError(dir, err)
	}
	defer srv.Close()
	nc, err := srv.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	_, err = v.into(ctx, c, nc, in)
	if errors.Is(err, ledger.ErrExists) && isWhole(ctx, nc, in.b.Head()) {
		return nil // only its name was missing
	}
	return err
}

// isWhole reports whether the ledger of a head is there.
func isWhole(ctx context.Context, nc *nats.Conn, h ledger.BackupHead) bool {
	log, err := ledger.Open(ctx, nc, h.Mesh)
	if err != nil {
		return false
	}
	last, err := log.Last(ctx)
	if err != nil || last != h.Seq {
		return false
	}
	recs, err := log.Get(ctx, last, last)
	return err == nil && recs[0].Get(events.HeaderChain) == h.Chain.String()
}

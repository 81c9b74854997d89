package instance

import (
	"context"
	"sync"

	"bindery/commands/snapshot"
)

// keepSnapshots begins with the newest snapshot, where there are any, and writes
// others until what it returns is called, which writes the last one. Where the log
// cannot be read now, it is followed from its beginning: who follows finds out why.
func (i *Instance) keepSnapshots(ctx context.Context) (stop func()) {
	store := i.cfg.Snapshots
	if store == nil {
		return func() {}
	}
	if state, err := snapshot.Open(ctx, i.log, store); err == nil {
		i.mu.Lock()
		i.follower = newFollower(state)
		i.mu.Unlock()
	} else if ctx.Err() == nil {
		i.logger.Warn("starting from a snapshot", "error", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { store.Keep(ctx, i.log, func() uint64 { return i.Status().Applied }) })
	return func() {
		cancel()
		done.Wait()
		i.View(store.Stop)
	}
}

package readmodel

import (
	"context"
	"sync"
)

// syncs tells up to which sequence the documents are what the ledger says.
type syncs struct {
	mu    *sync.Mutex
	state *syncState
}

type syncState struct {
	seq     uint64
	changed chan struct{}
}

func newSyncs() syncs {
	return syncs{&sync.Mutex{}, &syncState{changed: make(chan struct{})}}
}

func (s syncs) reach(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.seq = max(s.state.seq, seq)
	close(s.state.changed)
	s.state.changed = make(chan struct{})
}

// Synced returns when the documents are what the ledger says at seq or later, or
// ctx ends.
func (k *Keeper) Synced(ctx context.Context, seq uint64) error {
	for {
		k.synced.mu.Lock()
		now, changed := k.synced.state.seq, k.synced.state.changed
		k.synced.mu.Unlock()
		if now >= seq {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// At is up to which sequence the documents are what the ledger says.
func (k *Keeper) At() uint64 {
	k.synced.mu.Lock()
	defer k.synced.mu.Unlock()
	return k.synced.state.seq
}

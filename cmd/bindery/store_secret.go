package main

import (
	"context"
	"fmt"
	"strings"

	"bindery/events"
	"bindery/ledger"
)

// secure makes the store say which it is, and what its writer proves its commands
// with, durably and before anything is appended.
//
// A copy of a store gets a secret of its own: else what is written to the one would
// count in the other. So does a store that is recovered: what was lost must not come
// back.
func (s *session) secure(ctx context.Context, by opening) error {
	g, log := s.guard, s.log
	last, err := log.Last(ctx)
	if err != nil {
		return err
	}
	secrets, another := g.store.Secrets.After(last, g.mint || by.accept)
	if another && len(g.store.Secrets) == 0 && g.wasProven(ctx, log, last) {
		g.say(fmt.Sprintf("the secret that proves the events in %s is lost: another one is used from sequence %d on", g.dir, last+1), by.logger)
	}
	if another || g.mint {
		g.store.Secrets, g.store.Mesh = secrets, log.Mesh()
		if err := ledger.WriteStoreID(g.dir, g.store); err != nil {
			return storeError(g.dir, err)
		}
		g.mint = false
	}
	newest, _ := secrets.Newest()
	log.Trust(secrets)
	log.ProveWith(newest)
	if s.snapshots != nil {
		s.snapshots.SealWith(secrets)
	}
	return nil
}

// wasProven reports whether the last message is an event that a store has proven.
func (g *guard) wasProven(ctx context.Context, log *ledger.Log, last uint64) bool {
	if last == 0 {
		return false
	}
	recs, err := log.Get(ctx, last, last)
	return err == nil && strings.HasPrefix(recs[0].Get(events.HeaderProof), ledger.ProofBySecret)
}

package main

import (
	"context"
	"errors"
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

// trust makes the log take only what the store's secrets prove. Where they do not
// prove what the anchor does, or without one the first command, they are not those of
// this log: a file of another store, or an older one, lies there. Then they count as
// lost (see secure): to skip everything that they do not prove would show an empty
// ledger, and go on with that.
func (s *session) trust(ctx context.Context) error {
	g := s.guard
	proven, err := g.proves(ctx, s.log)
	if err != nil {
		return err
	}
	if !proven {
		g.store.Secrets = nil
	}
	s.log.Trust(g.store.Secrets)
	return nil
}

// proves reports whether the store's secrets prove an event that is known to be one of
// the ledger's, where there is one that they should prove.
func (g *guard) proves(ctx context.Context, log *ledger.Log) (bool, error) {
	secrets, at := g.store.Secrets, g.anchor.Seq
	if len(secrets) == 0 {
		return true, nil
	}
	if at == 0 && secrets[0].From == 1 {
		at = 1
	}
	last, err := log.Last(ctx)
	if err != nil || at < secrets[0].From || at > last {
		return true, err
	}
	for ; at <= last; at++ { // to the end of its command, which has the proof
		recs, err := log.Get(ctx, at, at)
		var none *ledger.NotFoundError
		if errors.As(err, &none) {
			return true, nil // that is damage, and found elsewhere
		}
		if err != nil {
			return true, err
		}
		r := &recs[0]
		mesh, err := events.MeshOf(r)
		k, n, batch := events.ParseBatch(r.Get(events.HeaderBatch))
		if g.anchor.Seq == at && r.Get(events.HeaderChain) != g.anchor.Chain.String() || err != nil || batch != nil {
			return true, nil // likewise
		}
		if k == n {
			return secrets.Proves(mesh, r), nil
		}
	}
	return true, nil
}

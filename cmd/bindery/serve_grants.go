package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"bindery/commands/service"
	"bindery/ledger"
	"bindery/projections"
)

// grants counts who is granted access.
func (s *session) grants() (n int) {
	s.handler.View(func(st *projections.State) { n = len(st.ListGrants().Items) })
	return n
}

// turnedAwayFor is how long a key that floods the server is kept out.
const turnedAwayFor = 10 * time.Second

// keepGrants lets those connect and be heard whom the ledger grants access, beside
// always, and follows its grants and revocations until the session is closed.
func (s *session) keepGrants(always string, logger *slog.Logger) error {
	ctx, stop := context.WithCancel(context.Background())
	var now [2]int
	take := func(first bool) error {
		keys, stamp := s.grantedKeys()
		if !first && stamp == now {
			return nil
		}
		keys = append(keys, always)
		guests := make([]ledger.Guest, len(keys))
		for i, key := range keys {
			guests[i] = service.GuestOf(s.mesh, key)
		}
		if err := s.server.SetGuests(guests); err != nil {
			return err
		}
		for _, svc := range s.services {
			if err := svc.Admit(keys); err != nil {
				return err
			}
		}
		now = stamp
		logger.Info("who may connect has changed", "granted", len(keys)-1)
		return nil
	}
	if err := take(true); err != nil {
		stop()
		return err
	}
	var done sync.WaitGroup
	done.Go(func() {
		for seq := uint64(0); ; {
			next, err := s.handler.Await(ctx, seq)
			if err != nil {
				return
			}
			seq = next
			if err := take(false); err != nil {
				logger.Error("taking up who may connect", "error", err) // requests are checked against the grants all the same
			}
		}
	})
	s.later(func() error { stop(); done.Wait(); return nil })
	return nil
}

// grantedKeys are the keys that the ledger grants access, and what is another one
// when they change.
func (s *session) grantedKeys() (keys []string, stamp [2]int) {
	s.handler.View(func(st *projections.State) {
		stamp = st.GrantsStamp()
		keys = st.GrantedKeys()
	})
	return keys, stamp
}

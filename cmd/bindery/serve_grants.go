package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"bindery/commands/service"
	"bindery/ledger"
	"bindery/projections"
)

// grants counts who is granted access.
func (s *session) grants() (n int) {
	s.handler.View(func(st *projections.State) { n = len(st.ListGrants().Items) })
	return n
}

// keepGrants lets those connect whom the ledger grants access, beside always, and
// follows its grants and revocations until the session is closed.
func (s *session) keepGrants(always []ledger.User, logger *slog.Logger) error {
	ctx, stop := context.WithCancel(context.Background())
	var now []string
	take := func() error {
		var keys []string
		s.handler.View(func(st *projections.State) {
			for _, g := range st.ListGrants().Items {
				keys = append(keys, g.NKey)
			}
		})
		if slices.Equal(keys, now) {
			return nil
		}
		users := slices.Clone(always)
		for _, key := range keys {
			users = append(users, service.CallerUser(key))
		}
		if err := s.server.SetUsers(users); err != nil {
			return err
		}
		now = keys
		logger.Info("who may connect has changed", "granted", len(keys))
		return nil
	}
	if err := take(); err != nil {
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
			if err := take(); err != nil {
				logger.Error("taking up who may connect", "error", err) // requests are checked against the grants all the same
			}
		}
	})
	s.later(func() error { stop(); done.Wait(); return nil })
	return nil
}

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
	var now []service.Caller
	take := func(first bool) error {
		var granted []service.Caller
		s.handler.View(func(st *projections.State) {
			for _, g := range st.ListGrants().Items {
				granted = append(granted, callerOf(s.mesh, g))
			}
		})
		if !first && slices.Equal(granted, now) {
			return nil
		}
		users := slices.Clone(always)
		for _, who := range granted {
			users = append(users, who.User())
		}
		if err := s.server.SetUsers(users); err != nil {
			return err
		}
		now = granted
		logger.Info("who may connect has changed", "granted", len(granted))
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

// callerOf is who asks under a grant.
func callerOf(mesh string, g projections.GrantView) service.Caller {
	c := service.Caller{Mesh: mesh, Key: g.NKey, Role: g.Role}
	if g.NodeID != nil {
		c.Node = *g.NodeID
	}
	return c
}

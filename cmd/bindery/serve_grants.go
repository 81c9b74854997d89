package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"bindery/commands/service"
	"bindery/ledger"
	"bindery/projections"
)

// grants counts who is granted access.
func (s *session) grants() int { return len(s.grantedKeys()) }

// turnedAwayFor is how long a key that floods the server is kept out.
const turnedAwayFor = 10 * time.Second

// keepGrants lets those connect and be heard whom the ledger grants access, beside
// always, and follows its grants and revocations until the session is closed.
func (s *session) keepGrants(always string, logger *slog.Logger) error {
	take := func(keys []string) error {
		keys = append(keys, always)
		guests := make([]ledger.Guest, len(keys))
		for i, key := range keys {
			guests[i] = service.GuestOf(s.mesh, key)
		}
		if err := s.server.SetGuests(guests); err != nil {
			return err
		}
		var failed error
		for _, svc := range s.services {
			failed = errors.Join(failed, svc.Admit(keys))
		}
		if failed == nil {
			logger.Info("who may connect has changed", "granted", len(keys)-1)
		}
		return failed
	}
	begun := s.grantedKeys()
	if err := take(slices.Clone(begun)); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	first := true
	done.Go(func() {
		service.FollowGrants(ctx, s.handler, func(keys []string) error {
			if first { // they are those of before, or a little newer
				first = false
				if slices.Equal(keys, begun) {
					return nil
				}
			}
			err := take(keys)
			if err != nil {
				logger.Error("taking up who may connect is tried again", "error", err) // requests are checked against the grants all the same
			}
			return err
		})
	})
	s.later(func() error { stop(); done.Wait(); return nil })
	return nil
}

// grantedKeys are the keys that the ledger grants access.
func (s *session) grantedKeys() (keys []string) {
	s.handler.View(func(st *projections.State) { keys = st.GrantedKeys() })
	return keys
}

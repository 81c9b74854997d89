package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"bindery/commands/snapshot"
	"bindery/ledger"
	"bindery/projections"
)

// expectSnapshot begins to load the newest snapshot of the store, while the server
// starts on it.
func (s *session) expectSnapshot(c *cli, by opening) {
	if by.whole {
		return
	}
	logger := by.logger
	if logger == nil {
		logger = slog.New(warnings{c.ui})
	}
	s.snapshots = snapshot.In(filepath.Join(by.server.Dir, snapshot.Dir), logger).SealWith(s.guard.store.Secrets)
	s.snapshots.Ahead()
}

// resume is the state from which the handler goes on: folded from the newest
// snapshot of the store, which is left a newer one where that took long. It is nil
// where the log cannot be folded: whoever folds it from its beginning finds out why.
func (s *session) resume(ctx context.Context) *projections.State {
	if s.snapshots == nil {
		return nil
	}
	state, err := snapshot.Open(ctx, s.log, s.snapshots)
	if err != nil {
		return nil
	}
	return state
}

// keepSnapshots writes snapshots while the session serves, and one when it ends.
func (s *session) keepSnapshots(srv *ledger.Embedded) error {
	h := s.handler
	s.later(func() error { // h is closed then
		h.Close()
		h.View(s.snapshots.Stop)
		return nil
	})
	nc, err := srv.Connect() // its own: what it reads must not be in the way of what is appended
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	log, err := ledger.Open(ctx, nc, s.mesh)
	if err != nil {
		stop()
		nc.Close()
		return err
	}
	log.Trust(s.guard.store.Secrets)
	var done sync.WaitGroup
	done.Go(func() { s.snapshots.Keep(ctx, log, func() uint64 { return h.Health().Seq }) })
	s.later(func() error { stop(); done.Wait(); nc.Close(); return nil })
	return nil
}

// warnings shows warnings as a command that does not serve shows them.
type warnings struct{ ui *ui }

var _ slog.Handler = warnings{}

// Enabled implements slog.Handler.
func (w warnings) Enabled(_ context.Context, level slog.Level) bool {
	return w.ui != nil && level >= slog.LevelWarn
}

// Handle implements slog.Handler.
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, ", %s %v", a.Key, a.Value); return true })
	w.ui.warn([]string{b.String()})
	return nil
}

// WithAttrs implements slog.Handler: nothing is told with each warning.
func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(string) slog.Handler { return w }

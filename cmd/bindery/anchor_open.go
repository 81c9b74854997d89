package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"

	"bindery/commands/handler"
	"bindery/ledger"
)

// guarded looks at the store before its server starts. Where it is damaged, by is
// made to open a copy of what is whole, for reading only; who serves does not open
// it at all: agents would act on what is left.
func (s *session) guarded(c *cli, dir string, by *opening) error {
	g, err := c.guardStore(dir, by.whole || by.accept)
	if err != nil {
		return err
	}
	s.guard = g
	if by.accept {
		by.find = g.findSalvaged(by.find)
		return g.replace(*by.cut, c.program.Clock())
	}
	if g.damage == nil {
		return nil
	}
	if g.damage.unread = g.damage.unread || g.files.Last == 0; g.damage.unread || by.answering != nil {
		return g.damage
	}
	copied, err := g.copied("")
	if err != nil {
		g.damage.unread = true
		return fmt.Errorf("%w; and it cannot be copied to be read: %w", g.damage, err)
	}
	s.later(func() error { return os.RemoveAll(copied) })
	by.server.Dir, by.find = copied, g.findSalvaged(by.find)
	return nil
}

// findSalvaged makes a server know the ledger again whose description is lost,
// before it is looked for as always.
func (g *guard) findSalvaged(find logOpener) logOpener {
	return func(ctx context.Context, nc *nats.Conn) (*ledger.Log, error) {
		if _, err := ledger.OpenSalvaged(ctx, nc, g.files.Mesh); err != nil {
			return nil, err
		}
		return find(ctx, nc)
	}
}

// openHandler folds the log and starts the writer; where the log is damaged, one
// that reads what is left and writes nothing.
func (s *session) openHandler(ctx context.Context, c *cli, cfg handler.Config, by opening) (*handler.Handler, error) {
	g := s.guard
	if g.damage == nil && !by.accept {
		if err := g.check(ctx, s.log); err != nil {
			return nil, err
		}
	}
	if g.damage == nil || by.accept {
		keeper := g.begin(s.log.Mesh(), by)
		if keeper != nil && g.mode == anchorSync {
			cfg.Durable = func(p ledger.Position) { g.reach(keeper, p, by.logger) }
		}
		h, err := handler.Open(ctx, cfg)
		var wrong *ledger.DamageError
		if err == nil && g.anchor.Seq > 0 && s.log.IsForeign(g.anchor.Seq) {
			h.Close()
			err = &ledger.DamageError{Seq: g.anchor.Seq, Why: "the anchor proves this event, and the store's secret does not"}
		}
		if err == nil {
			if err := s.secure(ctx, by); err != nil {
				h.Close()
				return nil, err
			}
			g.keep(s, keeper, h, by)
			return h, nil
		}
		if !errors.As(err, &wrong) || by.accept {
			return nil, err
		}
		g.damage = &damage{dir: g.dir, anchor: g.anchor, err: wrong}
	}
	if by.answering != nil {
		return nil, g.damage
	}
	return s.openSalvage(ctx, c, cfg)
}

// openSalvage opens what is left of a damaged ledger.
func (s *session) openSalvage(ctx context.Context, c *cli, cfg handler.Config) (*handler.Handler, error) {
	d := s.guard.damage
	left := ledger.NewSalvage(s.log, d)
	cfg.Log, cfg.Durable, cfg.State = left, nil, nil
	h, err := handler.Open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(d, err)
	}
	if d.end = left.End(); d.end.Seq == 0 {
		h.Close()
		d.unread = true
		return nil, d
	}
	s.damage, c.damaged = d, d
	return h, nil
}

// begin is the keeper of the store's anchor, under the id that secure writes into the
// store; nil where none can be kept.
func (g *guard) begin(mesh string, by opening) *ledger.AnchorKeeper {
	if g.mint && g.store.ID.IsZero() {
		g.store.ID = handler.NewIDs(g.c.program.Clock)() // not the program's: nobody chooses it
	}
	if g.anchors.Dir == "" {
		g.say("no anchor is kept: "+errNoAnchors.Error(), by.logger)
		return nil
	}
	now := g.anchor
	now.ID, now.Mesh, now.Path = g.store.ID.String(), mesh, g.path
	return ledger.NewAnchorKeeper(g.anchors, now, g.c.program.Clock)
}

// keep keeps the anchor until the session is closed: where the session serves once
// a second, else at its end. What it closes must be closed after the handler.
func (g *guard) keep(s *session, keeper *ledger.AnchorKeeper, h *handler.Handler, by opening) {
	if keeper == nil || by.accept {
		return
	}
	p := h.Position()
	switch {
	case p.Seq == 0:
	case g.anchor.Seq == 0:
		if g.reach(keeper, p, by.logger) && g.news == "" {
			g.news = fmt.Sprintf("the ledger in %s had no anchor: it is kept from now on, in %s", g.dir, g.anchors.File(g.store.ID.String()))
		}
	case g.anchor.Path != g.path: // it was moved
		now, _ := keeper.Last()
		if err := g.anchors.Save(now); err != nil {
			g.say("the anchor cannot be written: "+err.Error(), by.logger)
		}
	}
	g.say(g.news, by.logger)
	if by.answering == nil {
		s.later(func() error { g.reach(keeper, h.Position(), nil); return nil })
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keeper.Run(ctx, h.Position, func(err error) { g.say("the anchor cannot be written: "+err.Error(), by.logger) })
	}()
	s.later(func() error { stop(); <-done; return nil })
}

// reach writes the anchor, and says where that failed: what is durable stays so.
func (g *guard) reach(keeper *ledger.AnchorKeeper, p ledger.Position, logger *slog.Logger) bool {
	err := keeper.Reach(p)
	if err != nil {
		g.say("the anchor cannot be written: "+err.Error(), logger)
	}
	return err == nil
}

// say tells who uses the store something about its anchor.
func (g *guard) say(text string, logger *slog.Logger) {
	switch {
	case text == "":
	case logger != nil:
		logger.Warn(text)
	case g.c.ui != nil && !g.c.ui.machine():
		g.c.ui.note(text)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"bindery/commands/handler"
	"bindery/ledger"
)

// remoteAnchor keeps the anchor of a ledger on a server that is not this program's
// own: each process that serves it keeps one of what it wrote, on its machine.
type remoteAnchor struct {
	c       *cli
	url     string
	mode    anchorMode
	anchors ledger.Anchors
	logger  *slog.Logger
	keeper  atomic.Pointer[ledger.AnchorKeeper] // while this process writes
}

// remoteAnchor finds where the anchors are; nil where nobody says.
func (c *cli) remoteAnchor(url string, logger *slog.Logger) (*remoteAnchor, error) {
	mode, err := c.anchorMode()
	if err != nil {
		return nil, err
	}
	anchors, err := c.anchors()
	if errors.Is(err, errNoAnchors) {
		logger.Warn("no anchor is kept: " + err.Error())
		return nil, nil
	}
	if err == nil {
		err = checkAnchors(anchors.Dir)
	}
	return &remoteAnchor{c: c, url: url, mode: mode, anchors: anchors, logger: logger}, err
}

// durable is told how far everything is durable, before it is answered.
func (r *remoteAnchor) durable(p ledger.Position) {
	if k := r.keeper.Load(); k != nil && r.mode == anchorSync {
		r.failed(k.Reach(p))
	}
}

func (r *remoteAnchor) failed(err error) {
	if err != nil {
		r.logger.Warn("the anchor cannot be written", "error", err)
	}
}

// taking holds the log against the anchor when this process has the right to write
// it, and keeps the anchor until done is called. The error wraps a
// *ledger.LossError where something is lost.
func (r *remoteAnchor) taking(ctx context.Context, log *ledger.Log, h *handler.Handler) (done func(), err error) {
	id := log.Created()
	if id == "" {
		r.logger.Warn("no anchor is kept: the stream does not say what it was created with")
		return func() {}, nil
	}
	a, known, err := r.anchors.Load(id)
	if err != nil {
		return nil, unreadAnchor(r.anchors, err)
	}
	err = a.Check(ctx, log)
	if err == nil && a.Seq > 0 && log.IsForeign(a.Seq) {
		err = &ledger.LossError{Anchor: a, Last: h.Position().Seq, Why: fmt.Sprintf("sequence %d is not proven by a key that is granted as writer", a.Seq)}
	}
	if err == nil && known && a.Restored != log.Restored() {
		err = &ledger.LossError{Anchor: a, Last: h.Position().Seq, Why: fmt.Sprintf("the stream says that it was restored up to sequence %d, and it was up to %d: events before that need no proof", log.Restored(), a.Restored)}
	}
	if err != nil {
		var loss *ledger.LossError
		if !errors.As(err, &loss) {
			return nil, err
		}
		file := r.anchors.File(id)
		return nil, &damage{dir: r.url, err: loss, anchor: a, unread: true, aside: "mv " + quote(file) + " " + quote(strings.TrimSuffix(file, ".json")+".lost")}
	}
	if !known {
		r.logger.Warn("the ledger had no anchor: it is kept from now on", "file", r.anchors.File(id))
	}
	a.ID, a.Mesh, a.Restored = id, log.Mesh(), log.Restored()
	keeper := ledger.NewAnchorKeeper(r.anchors, a, r.c.program.Clock)
	r.keeper.Store(keeper)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); keeper.Run(ctx, h.Position, r.failed) }()
	return func() { r.keeper.Store(nil); stop(); <-ended }, nil
}

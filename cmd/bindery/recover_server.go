package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/instance"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// onServer goes on with a ledger on a server. Nothing of it is cut there: what lies
// behind the last sound event is skipped from then on, and mesh.recovered says so. A
// writer that serves meanwhile gets a conflict, and reads the event.
func (v *auditRecover) onServer(ctx context.Context, c *cli, n natsContext) error {
	key, _, err := n.identity()
	if err != nil {
		return err
	}
	nc, err := n.connect()
	if err != nil {
		return notReached(n.URL, err)
	}
	defer nc.Close()
	log, err := ledger.Open(ctx, nc, c.globals.mesh)
	if err != nil {
		return err
	}
	log.ProveWith(key)
	left := &soundPart{Log: log}
	mayWrite := func(s *projections.State) error { return instance.MayWrite(s, key.Public) }
	h, err := handler.Open(ctx, handler.Config{Log: left, Clock: c.program.Clock, NewID: c.program.NewID, MayWrite: mayWrite})
	if err != nil {
		return err
	}
	defer h.Close()
	var none *instance.NotWriterKeyError
	if h.View(func(s *projections.State) { err = mayWrite(s) }); errors.As(err, &none) {
		return notWriter(none, n.URL)
	}
	found, err := v.judge(ctx, c, n, left, h.Position())
	if err != nil {
		return err
	}
	req, err := c.request(&v.write, found)
	if err != nil {
		return err
	}
	if req.Reason == "" {
		return noReason("going on")
	}
	if !c.ui.machine() {
		c.ui.note(fmt.Sprintf("it goes on from sequence %d; what lies behind that is skipped", found.FoundSeq))
	}
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	r, err := h.Do(ctx, req)
	if err != nil {
		return err
	}
	return c.printResult("mesh "+log.Mesh(), r)
}

// judge says what is to be recorded of a ledger, or why nothing is.
func (v *auditRecover) judge(ctx context.Context, c *cli, n natsContext, left *soundPart, p ledger.Position) (commands.RecoverMesh, error) {
	found := commands.RecoverMesh{AnchorSeq: p.Seq, AnchorChain: p.Chain.String(), FoundSeq: p.Seq, Skipped: left.Foreign().Open}
	last, err := left.Last(ctx)
	if err != nil {
		return found, err
	}
	if p.Seq == 0 {
		return found, refusal(commands.LedgerDamaged, "nothing of the ledger can be read", fmt.Sprintf("its stream ends at sequence %d", last), do("restore", "FILE").With("--server", n.URL))
	}
	switch {
	case left.damage != nil && !v.acceptLoss:
		return found, refusal(commands.LedgerDamaged, "it is not said that the loss is accepted", left.damage.Error(), again().With("--accept-loss"))
	case left.damage != nil:
		found.AnchorSeq, found.Skipped = last, last-p.Seq
	case found.Skipped == 0:
		return found, refusal(commands.NothingLost, "nothing is lost", "every event is there, and nothing else", do("status"))
	}
	return found, nil
}

// soundPart is a log as far as it is sound, to be gone on with from there.
type soundPart struct {
	*ledger.Log
	damage *ledger.DamageError
}

// Read is Log.Read that ends before what is wrong.
func (s *soundPart) Read(ctx context.Context, from ledger.Position, to uint64) iter.Seq2[[]events.Event, error] {
	return func(yield func([]events.Event, error) bool) {
		for evs, err := range s.Log.Read(ctx, from, to) {
			if errors.As(err, &s.damage) {
				return
			}
			if !yield(evs, err) {
				return
			}
		}
	}
}

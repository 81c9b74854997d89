package readmodel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// rebuild makes the buckets what the ledger says, in place: what differs is put
// right, and what the ledger does not have is removed.
func (k *Keeper) rebuild(ctx context.Context) error {
	began := time.Now()
	k.held, k.aside = nil, map[projections.BindingRef]struct{}{}
	var doomed [kinds][]ledger.Entry
	for kind := range kinds {
		l, err := k.load(ctx, kind)
		if err != nil {
			return err
		}
		doomed[kind] = l.doomed
		// What was read may be of a later writer. Then this is no writer any more, and
		// must leave it alone; all it does from here on is in the place of what was
		// read.
		if err := k.confirm(ctx); err != nil {
			return err
		}
		ours, err := k.isOurs(ctx, l.newest)
		if err != nil {
			return err
		}
		if !ours {
			k.logger.Warn("the documents are of a ledger that was lost", "bucket", k.stores[kind].bucket.Name(), "at", l.newest.at)
			for r := range k.held {
				for i := range k.held[r][kind] {
					k.held[r][kind][i].sum = 0
				}
			}
		}
	}
	var refs []projections.BindingRef
	var at Mark
	var h nats.Header
	k.src.View(func(s *projections.State) {
		at, h = markOf(s), stamped(s)
		for i := 1; i <= s.BindingCount(); i++ {
			refs = append(refs, projections.BindingRef(i))
		}
	})
	if err := k.write(ctx, refs); err != nil {
		return err
	}
	for kind := range kinds {
		var out []change
		for _, e := range doomed[kind] {
			e.Header = h
			out = append(out, change{entry: e})
		}
		for len(out) > 0 {
			n := min(len(out), ledger.MaxEvents)
			if err := k.put(ctx, kind, out[:n]); err != nil {
				return err
			}
			out = out[n:]
		}
	}
	if err := k.markWhole(ctx); err != nil {
		return err
	}
	// Some documents may tell of later events already. Those will not be noted again.
	k.recent.reset(at, k.now().Seq, k.held)
	k.logger.Info("the documents are what the ledger says", "bindings", len(refs), "seq", at.Seq, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// markWhole says in each bucket that all documents are there. Where it is said
// already it stays as it is.
func (k *Keeper) markWhole(ctx context.Context) error {
	var stamp projections.Stamp
	var h nats.Header
	k.src.View(func(s *projections.State) { stamp, h = s.Stamp(), stamped(s) })
	for kind, s := range k.stores {
		if s.whole != 0 {
			continue
		}
		if err := k.put(ctx, kind, []change{{entry: ledger.Entry{Key: WholeKey, Value: encode(stamp), Header: h}}}); err != nil {
			return err
		}
		s.whole = s.last
	}
	return nil
}

// confirm returns errDeposed where another writes the ledger.
func (k *Keeper) confirm(ctx context.Context) error {
	err := k.src.Confirm(ctx)
	var lost *ledger.LeaseLostError
	if errors.As(err, &lost) {
		return fmt.Errorf("%w: %w", errDeposed, err)
	}
	return err
}

// isOurs reports whether the newest stamp in a bucket is of this ledger as it is
// now. A ledger that was restored to an earlier state has other events by then.
func (k *Keeper) isOurs(ctx context.Context, n newest) (bool, error) {
	if n.at == 0 {
		return true, nil
	}
	records, err := k.cfg.Log.Get(ctx, n.at, n.at)
	var none *ledger.NotFoundError
	if errors.As(err, &none) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return records[0].Get(events.HeaderChain) == n.chain, nil
}

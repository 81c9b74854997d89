package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"bindery/commands/handler"
	"bindery/commands/readmodel"
	"bindery/commands/service"
	"bindery/ledger"
	"bindery/projections"
)

// write is the writer's part: until the lease is lost, ctx ends, or what the log
// says cannot be folded (an error).
func (i *Instance) write(ctx context.Context, lease *ledger.Lease) error {
	keeper := readmodel.New(readmodel.Config{Log: i.log, Replicas: i.log.Replicas(), Logger: i.logger})
	h, err := i.open(ctx, lease, keeper)
	if err != nil || h == nil {
		i.release(lease)
		return err
	}
	done, err := i.taking(lease.Context(), h)
	if err != nil || done == nil {
		i.handBack(h)
		i.release(lease)
		return err
	}
	var keeping sync.WaitGroup
	kept, stopKeeping := context.WithCancel(lease.Context())
	defer stopKeeping()
	keeping.Go(func() {
		if err := keeper.Run(kept, i.cfg.Conn, h); err != nil {
			i.logger.Info("not keeping the documents any more", "cause", err)
		}
	})
	answers, err := i.answer("writer", func(cfg service.Config) (*service.Service, error) {
		cfg.Handler, cfg.Keeper = h, keeper
		cfg.Agents = service.NewAgentStore(i.cfg.Conn, i.log.Mesh(), readmodel.Where{Replicas: i.log.Replicas()})
		// One that was deposed and hangs still has its subscriptions: it must not
		// swallow what is for this one.
		cfg.Queue = fmt.Sprintf("writer-%d", lease.Epoch())
		return service.Serve(cfg)
	})
	if err == nil {
		i.note(func(s *Status) { s.Role, s.Epoch = Writer, lease.Epoch() })
		i.logger.Info("writing", "epoch", lease.Epoch(), "seq", h.Health().Seq)
		err = i.hold(ctx, h, lease)
	}
	i.note(func(s *Status) { s.Role, s.Epoch = Follower, 0 })
	i.logger.Info("not writing any more", "cause", cmp.Or(err, lease.Err(), context.Cause(ctx)))
	answers.stop()
	stopKeeping()
	keeping.Wait()
	done()
	i.handBack(h)
	i.release(lease)
	return err
}

// taking asks whether the log may be written. Both results are nil where that is not
// known: the lease is then competed for again.
func (i *Instance) taking(ctx context.Context, h *handler.Handler) (done func(), err error) {
	if i.cfg.Taking == nil {
		return func() {}, nil
	}
	done, err = i.cfg.Taking(ctx, i.log, h)
	var loss *ledger.LossError
	if err != nil && !errors.As(err, &loss) {
		i.logger.Warn("holding the log against what was proved", "error", err)
		return nil, nil
	}
	return done, err
}

// hold waits while the lease is held, and sees to it that what others may still
// have stored is known here. It ends with an error when the key of this instance is
// revoked: the handler writes nothing from there on, and another instance must.
func (i *Instance) hold(ctx context.Context, h *handler.Handler, lease *ledger.Lease) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	go i.align(lease)
	for {
		if err := i.mayWrite(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-lease.Lost():
			return nil
		case <-tick.C:
		}
		last, err := i.head(lease.Context())
		if err != nil {
			continue // the lease tells how long that may last
		}
		if err := h.Reach(lease.Context(), last); isFatal(err) {
			return err
		}
	}
}

// align keeps the lease where the ledger is, while it is held.
func (i *Instance) align(lease *ledger.Lease) {
	tick := time.NewTicker(alignEvery)
	defer tick.Stop()
	for {
		if err := lease.Align(lease.Context()); err != nil {
			i.logger.Debug("moving the lead of the leases", "error", err)
		}
		select {
		case <-tick.C:
		case <-lease.Lost():
			return
		}
	}
}

// isFatal reports whether reading the log again would bring the same error.
func isFatal(err error) bool {
	var damage *ledger.DamageError
	return errors.As(err, &damage) || isNewer(err)
}

// open hands the state to a new handler, which goes on from it. Both results are
// nil where the lease is lost before that, or ctx has ended.
func (i *Instance) open(ctx context.Context, lease *ledger.Lease, keeper *readmodel.Keeper) (*handler.Handler, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	cfg := i.cfg.Handler
	cfg.Log, cfg.Lease, cfg.State, cfg.Observe = i.log, lease, i.follower.take(), keeper.Note
	cfg.MayWrite = func(s *projections.State) error { return MayWrite(s, i.cfg.Key) }
	for {
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		stop := context.AfterFunc(lease.Context(), cancel)
		h, err := handler.Open(opening, cfg)
		stop()
		cancel()
		if err == nil {
			i.writer, i.follower = h, nil
			return h, nil
		}
		if isFatal(err) || lease.Err() != nil || ctx.Err() != nil {
			i.follower = newFollower(cfg.State)
			if !isFatal(err) {
				err = nil
			}
			return nil, err
		}
		i.logger.Warn("taking over", "error", err)
	}
}

// openTimeout is how long one attempt to read the rest of the log may take.
const openTimeout = 30 * time.Second

// handBack takes the state back from a handler.
func (i *Instance) handBack(h *handler.Handler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.follower, i.writer = newFollower(h.Take()), nil
}

// release gives a lease back that may be lost already.
func (i *Instance) release(lease *ledger.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		i.logger.Debug("releasing the lease", "error", err)
	}
}

var _ service.State = (*Instance)(nil)

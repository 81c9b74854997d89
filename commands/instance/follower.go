package instance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands/handler"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// follower is a state that follows the log while another process writes it.
type follower struct {
	mu     sync.RWMutex // guards what follows
	state  *projections.State
	growth handler.Growth

	gone chan struct{} // closed when the state is taken away
}

func newFollower(s *projections.State) *follower {
	return &follower{state: s, growth: handler.NewGrowth(), gone: make(chan struct{})}
}

// take gives the state away. Nothing may be folded any more.
func (f *follower) take() *projections.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.gone)
	s := f.state
	f.state = projections.New()
	return s
}

// View runs g on the state.
func (f *follower) View(g func(*projections.State)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	g(f.state)
}

// Await returns when the state has events after seq; with handler.ErrClosed when
// it is taken away.
func (f *follower) Await(ctx context.Context, seq uint64) (uint64, error) {
	return handler.AwaitGrowth(ctx, seq, f.gone, func() (uint64, <-chan struct{}) {
		f.mu.RLock()
		defer f.mu.RUnlock()
		return f.state.Seq, f.growth.Next()
	})
}

// position is where the state is.
func (f *follower) position() ledger.Position {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return ledger.Position{Seq: f.state.Seq, Chain: f.state.Chain, Mesh: f.state.Mesh.ID}
}

// apply folds one command.
func (f *follower) apply(group []events.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.state.ApplyCommand(group); err != nil {
		return &ledger.DamageError{Seq: group[0].Seq, Why: "an event does not fit those before it", Err: err}
	}
	f.growth.Announce()
	return nil
}

// Reading goes wrong for a moment while a cluster changes its leader. What is
// wrong each time, at the same place, is wrong.
const (
	readTries = 5
	readPause = time.Second
)

// run follows log until ctx ends (nil), or it cannot be gone on with: the log is
// damaged, a newer program writes it, the connection is closed for good.
func (f *follower) run(ctx context.Context, log *ledger.Log) error {
	for try, at := 0, uint64(0); ; try++ {
		broken, err := f.follow(ctx, log)
		if ctx.Err() != nil {
			return nil
		}
		if broken || errors.Is(err, nats.ErrConnectionClosed) || isNewer(err) {
			return err
		}
		if now := f.position().Seq; now != at {
			try, at = 0, now
		}
		if try >= readTries {
			return err
		}
		select {
		case <-time.After(readPause):
		case <-ctx.Done():
			return nil
		}
	}
}

func isNewer(err error) bool {
	var newer *events.UnknownTypeError
	return errors.As(err, &newer)
}

// follow folds what comes. broken reports that the fold is at fault: the state
// may hold half a command.
func (f *follower) follow(ctx context.Context, log *ledger.Log) (broken bool, err error) {
	f.mu.RLock()
	from := handler.ReadFrom(f.state)
	f.mu.RUnlock()
	for group, err := range log.Follow(ctx, from) {
		if err != nil {
			return false, err
		}
		if err := f.apply(group); err != nil {
			return true, err
		}
	}
	return false, ctx.Err()
}

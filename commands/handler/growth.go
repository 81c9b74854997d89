package handler

import "context"

// Growth wakes those who wait for a state to grow. The lock of the state guards
// it.
type Growth struct{ grown chan struct{} }

// NewGrowth is ready to be waited for.
func NewGrowth() Growth { return Growth{make(chan struct{})} }

// Announce wakes everybody who waits.
func (g *Growth) Announce() {
	close(g.grown)
	g.grown = make(chan struct{})
}

// Next is closed with the next Announce.
func (g *Growth) Next() <-chan struct{} { return g.grown }

// AwaitGrowth returns when a state has events after seq, ctx ends, or over is
// closed (ErrClosed): with the state's last sequence. look tells that, and what
// is closed when it grows.
func AwaitGrowth(ctx context.Context, seq uint64, over <-chan struct{}, look func() (uint64, <-chan struct{})) (uint64, error) {
	for {
		now, grown := look()
		if now > seq {
			return now, nil
		}
		select {
		case <-grown:
		case <-over:
			return now, ErrClosed
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

package handler

import (
	"context"
	"sync/atomic"
	"time"

	"bindery/commands"
	"bindery/events"
)

// Meter is told how the writer works. It is told by the writer, which waits for
// it; with a lease, Answered is also called beside the others.
type Meter interface {
	// Decided: one command was decided, and how long that took.
	Decided(took time.Duration)
	// Appended: a group of commands went to the log; err is nil where all are
	// durable.
	Appended(commands int, took time.Duration, err error)
	// Answered: a command is about to be answered.
	Answered(req commands.Request, r commands.Result, err error)
}

type noMeter struct{}

func (noMeter) Decided(time.Duration)                             {}
func (noMeter) Appended(int, time.Duration, error)                {}
func (noMeter) Answered(commands.Request, commands.Result, error) {}

// Health is how the writer is.
type Health struct {
	Head uint64 // the stream's last sequence, as far as it is known
	Seq  uint64 // the last event that is durable and folded
	// Err is why the log could not be written or read, the last time; nil from
	// the next time on that it could.
	Err error
	// Busy is since when a group is on its way to the log; zero: none is.
	Busy time.Time

	reading bool // Err is of reading alone
}

type health struct {
	last atomic.Pointer[Health]
	busy atomic.Int64 // in nanoseconds since 1970; 0: not
}

// Health tells how the writer is, and does not wait for it.
func (h *Handler) Health() Health {
	out := *h.health.last.Load()
	if at := h.health.busy.Load(); at != 0 {
		out.Busy = time.Unix(0, at)
	}
	return out
}

// note keeps how the writer is. h.mu is held, or nobody else is there yet.
func (h *Handler) note(err error) {
	h.health.last.Store(&Health{Head: h.head, Seq: h.state.Seq, Err: err})
}

// noteRead keeps how reading the log went. That it can be read again does not say
// that it can be written.
func (h *Handler) noteRead(err error) {
	now := Health{Head: h.head, Seq: h.state.Seq, Err: err, reading: true}
	if last := h.health.last.Load(); err == nil && !last.reading {
		now.Err, now.reading = last.Err, false
	}
	h.health.last.Store(&now)
}

// append appends, and tells how that went.
func (h *Handler) append(ctx context.Context, after uint64, groups []events.Group) (stored int, err error) {
	start := time.Now()
	h.health.busy.Store(start.UnixNano())
	defer h.health.busy.Store(0)
	stored, err = h.cfg.Log.Append(ctx, after, groups)
	h.cfg.Meter.Appended(len(groups), time.Since(start), err)
	return stored, err
}

// timed decides a call, and tells how long that took.
func (h *Handler) timed(c *call) events.Group {
	if _, ok := h.cfg.Meter.(noMeter); ok {
		return h.decide(c)
	}
	start := time.Now()
	step := h.decide(c)
	h.cfg.Meter.Decided(time.Since(start))
	return step
}

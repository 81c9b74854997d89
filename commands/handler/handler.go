// Package handler is the one writer of a ledger: it decides queued commands one
// after the other, appends what they wrote as one group, and answers when that
// is durable.
//
// There is one state. A group is folded into it under its journal while it is
// decided, with the handler's lock held; readers get in when the group is
// durable or taken back. So no answer of any kind, a refusal or a read among
// them, rests on an event that may still be lost.
package handler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Log is what the handler needs of a ledger; *ledger.Log is one. Its methods
// oblige: Append returns how many whole commands from the front are durable and
// settles unknown outcomes itself until its context ends.
type Log interface {
	Append(ctx context.Context, after uint64, cmds []events.Group) (stored int, err error)
	Read(ctx context.Context, from ledger.Position, to uint64) iter.Seq2[[]events.Event, error]
	Get(ctx context.Context, first, last uint64) ([]events.Record, error)
	Last(ctx context.Context) (uint64, error)
}

var _ Log = (*ledger.Log)(nil)

// Config says how a handler works.
type Config struct {
	Log   Log
	Clock func() time.Time // nil: time.Now
	NewID func() events.ID // mints ids; never called concurrently
	// Logger gets what the operator of a serving process should know; nil: nothing.
	Logger *slog.Logger
	// AppendTimeout bounds the settling of one group; after it the outcome is
	// said to be unknown. 0: 10 s.
	AppendTimeout time.Duration
}

// Limits of a handler.
const (
	queueLength = 4096
	maxGroup    = 1000 // events and commands of one group
	// gather is how long a busy handler waits for as many commands as came last
	// time. A lone caller never waits.
	gather = 300 * time.Microsecond
	// maxBackward is how far the clock may go back before time restarts from it.
	maxBackward = 60 * time.Second
	// maxAhead is how far the instant in a command's id may be ahead.
	maxAhead = 10 * time.Minute
	// maxTries bounds deciding again after others appended in between.
	maxTries = 16
)

// SystemActor is the actor of what the writer itself records.
const SystemActor = "bindery"

// ErrClosed is returned by Do after Close.
var ErrClosed = errors.New("the handler is closed")

// Handler is the writer of one ledger.
type Handler struct {
	cfg   Config
	queue chan *call
	done  chan struct{} // closed when the writer has ended

	closing  sync.RWMutex // held while queueing, so that Close drains all
	isClosed bool

	// mu guards state and what follows. The writer holds it from the first
	// decision of a group until that is durable or taken back.
	mu    sync.RWMutex
	state *projections.State
	head  uint64        // the stream's last sequence; foreign messages count
	stale bool          // an outcome is unknown: read the log before deciding
	grown chan struct{} // closed when the state has grown, and replaced

	lastGroup int // owned by the writer
}

// call is one queued request.
type call struct {
	ctx    context.Context
	req    commands.Request
	hash   events.CommandHash
	answer func(commands.Result, error)

	// set while it is decided
	result  commands.Result
	err     error
	mark    projections.Mark
	group   events.Group // nil where it wrote nothing
	repeat  *projections.CommandRecord
	stepped bool // the writer's own command goes before it: the clock went back
}

// Open folds the whole log and starts the writer.
func Open(ctx context.Context, cfg Config) (*Handler, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = NewIDs(cfg.Clock)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.AppendTimeout == 0 {
		cfg.AppendTimeout = 10 * time.Second
	}
	h := &Handler{cfg: cfg, queue: make(chan *call, queueLength), done: make(chan struct{}), state: projections.New(),
		grown: make(chan struct{})}
	if err := h.catchUp(ctx); err != nil {
		return nil, err
	}
	go h.write()
	return h, nil
}

// Close answers what is queued and ends the writer.
func (h *Handler) Close() {
	h.closing.Lock()
	if !h.isClosed {
		h.isClosed = true
		close(h.queue)
	}
	h.closing.Unlock()
	<-h.done
}

// Do runs a command and returns when its outcome is durable. The error is a
// *commands.Refusal where a rule refused it. When ctx ends first, the outcome
// is unknown: outcome_unknown, with the id to repeat.
func (h *Handler) Do(ctx context.Context, req commands.Request) (commands.Result, error) {
	type answer struct {
		result commands.Result
		err    error
	}
	got := make(chan answer, 1)
	h.Submit(ctx, req, func(r commands.Result, err error) { got <- answer{r, err} })
	select {
	case a := <-got:
		return a.result, a.err
	case <-ctx.Done():
		return commands.Result{}, Unknown(req.ID, ctx.Err())
	}
}

// Unknown is the refusal of an answer: the command may have been carried out.
func Unknown(id events.ID, cause error) *commands.Refusal {
	return &commands.Refusal{Code: commands.OutcomeUnknown, Message: "the outcome of command " + id.String() + " is not known",
		Why: cause.Error(), Fix: "the same command with --command-id " + id.String(), Candidates: []commands.Candidate{}}
}

// Submit queues a command; answer is called once, from the writer, and must not
// block.
func (h *Handler) Submit(ctx context.Context, req commands.Request, answer func(commands.Result, error)) {
	hash, err := req.Hash()
	if err != nil {
		answer(commands.Result{}, fmt.Errorf("hashing %s: %w", req.Command.Verb(), err))
		return
	}
	h.closing.RLock()
	defer h.closing.RUnlock()
	if h.isClosed {
		answer(commands.Result{}, ErrClosed)
		return
	}
	select {
	case h.queue <- &call{ctx: ctx, req: req, hash: hash, answer: answer}:
	case <-ctx.Done():
		answer(commands.Result{}, Unknown(req.ID, ctx.Err()))
	}
}

// View runs f on the state as far as it is durable. f must not keep it.
func (h *Handler) View(f func(*projections.State)) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	f(h.state)
}

// Await returns when the ledger has events after seq, or ctx ends: with the last
// sequence that is durable.
func (h *Handler) Await(ctx context.Context, seq uint64) (uint64, error) {
	for {
		h.mu.RLock()
		now, grown := h.state.Seq, h.grown
		h.mu.RUnlock()
		if now > seq {
			return now, nil
		}
		select {
		case <-grown:
		case <-h.done:
			return now, ErrClosed
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

// announce wakes those who await growth. h.mu is held.
func (h *Handler) announce() {
	close(h.grown)
	h.grown = make(chan struct{})
}

// catchUp folds what the log has beyond the state.
func (h *Handler) catchUp(ctx context.Context) error {
	last, err := h.cfg.Log.Last(ctx)
	if err != nil {
		return err
	}
	s := h.state
	from := ledger.Position{Seq: s.Seq, Chain: s.Chain, Mesh: s.Mesh.ID}
	if last > from.Seq {
		for group, err := range h.cfg.Log.Read(ctx, from, last) {
			if err != nil {
				return err
			}
			if err := s.ApplyCommand(group); err != nil {
				return &ledger.DamageError{Seq: group[0].Seq, Why: "an event does not fit those before it", Err: err}
			}
		}
	}
	if s.Seq > from.Seq {
		h.announce()
	}
	h.head, h.stale = max(last, s.Seq), false
	return nil
}

// Package handler is the one writer of a ledger: it decides queued commands one
// after the other, appends what they wrote as one group, and answers when that
// is durable.
//
// There is one state. A group is folded into it under its journal while it is
// decided, with the handler's lock held; readers get in when the group is
// durable or taken back. So no answer of any kind, a refusal or a read among
// them, rests on an event that may still be lost.
//
// Where several processes may write one ledger, one at a time has a lease on it
// (Config.Lease). The expected sequence of an append keeps the others' events
// out; that the state is still the newest there is, only the lease can tell. So
// a command's events are acknowledged while the lease is held, and every answer
// that brings none of its own leaves only after the lease was confirmed.
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
	Meter  Meter // is told how the writer works; nil: nobody is
	// Observe is told of events that are durable and folded, command by command and
	// in order, from the end of Open on; not of the writer's own mesh.clock-stepped.
	// The writer waits for it, and readers do: it must not block, nor look at the
	// state. nil: nobody is told.
	Observe func([]events.Event)
	// Durable is told how far everything is durable, once for each group of commands,
	// before any of them is answered; the writer waits for it. nil: nobody is told.
	Durable func(ledger.Position)
	// AppendTimeout bounds the settling of one group; after it the outcome is
	// said to be unknown. 0: 10 s.
	AppendTimeout time.Duration
	// State, a fold of the front part of Log, is gone on from instead of the
	// beginning; it is the handler's until Take. nil: everything is folded.
	State *projections.State
	// Lease is the right to write; nil: nobody else can have it.
	Lease Lease
	// MayWrite returns an error where nothing that is appended after a state would count,
	// since the ledger grants other keys to write than the one that Log proves with: then
	// nothing is. nil: whatever is appended counts.
	MayWrite func(*projections.State) error
}

// Lease is a right to write that others may take away; *ledger.Lease is one.
type Lease interface {
	// Context ends when it is lost.
	Context() context.Context
	// Held reports, without asking anybody, whether nobody else can have had it up
	// to now. It may be wrongly false, never wrongly true.
	Held() bool
	// Confirm returns nil when it was renewed after the call: up to then nobody
	// else has had it.
	Confirm(ctx context.Context) error
}

var _ Lease = (*ledger.Lease)(nil)

// NotWriterError is the answer of a process that is not the ledger's writer any
// more, or cannot show that it is. Who asks again, with the same command id, gets
// the answer from the one that is.
type NotWriterError struct {
	ID         events.ID // of the command
	MayBeDone  bool      // the command may have been carried out
	Underlying error
}

func (e *NotWriterError) Error() string {
	return "this process does not write the ledger any more: " + e.Underlying.Error()
}

// Unwrap returns what became of the lease.
func (e *NotWriterError) Unwrap() error { return e.Underlying }

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
	done  chan struct{} // closed when the writer has ended and all is answered

	ctx         context.Context // of appends: ends with the lease
	unconfirmed chan *call      // settled, to be answered when the lease is confirmed; nil without a lease

	closing  sync.RWMutex // held while queueing, so that Close drains all
	isClosed bool

	// mu guards state and what follows. The writer holds it from the first
	// decision of a group until that is durable or taken back.
	mu     sync.RWMutex
	state  *projections.State
	head   uint64 // the stream's last sequence; foreign messages count
	stale  bool   // an outcome is unknown: read the log before deciding
	growth Growth
	open   bool // Observe is told

	lastGroup int // owned by the writer
	reports   *reports
	told      told // owned by the writer
	health    health
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
	events  []events.Event
	repeat  *projections.CommandRecord
	stepped bool // the writer's own command goes before it: the clock went back
}

// Open folds the log, as far as Config.State is not at its end, and starts the
// writer. After an error, Config.State is the caller's again, and whole.
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
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	if cfg.AppendTimeout == 0 {
		cfg.AppendTimeout = 10 * time.Second
	}
	if cfg.State == nil {
		cfg.State = projections.New()
	}
	h := &Handler{cfg: cfg, queue: make(chan *call, queueLength), done: make(chan struct{}), state: cfg.State,
		growth: NewGrowth(), reports: newReports(), ctx: context.Background()}
	h.cfg.State = nil
	if err := h.catchUp(ctx); err != nil {
		return nil, err
	}
	h.note(nil)
	h.open = true
	if cfg.Lease != nil {
		h.ctx, h.unconfirmed = cfg.Lease.Context(), make(chan *call, queueLength)
		go h.answerConfirmed()
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

// Take closes the handler and gives its state back: what is known to be durable.
// Nothing may be asked of the handler any more.
func (h *Handler) Take() *projections.State {
	h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.state
	h.state = projections.New()
	return s
}

// Do runs a command and returns when its outcome is durable. The error is a
// *commands.Refusal where a rule refused it, and a *NotWriterError where the
// lease is lost. When ctx ends first, the outcome is unknown: outcome_unknown,
// with the id to repeat.
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
		Why: cause.Error(), Fix: projections.Again().With("--command-id", id.String()), Candidates: []commands.Candidate{}}
}

// Submit queues a command; answer is called once, from a goroutine of the
// handler's, and must not block.
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

// Confirm returns nil when nobody else could have written up to some instant
// after the call: what View shows then is not out of date. Without a lease that
// is always so. The error is a *NotWriterError.
func (h *Handler) Confirm(ctx context.Context) error {
	if h.cfg.Lease == nil {
		return nil
	}
	if err := h.cfg.Lease.Confirm(ctx); err != nil {
		return &NotWriterError{Underlying: err}
	}
	return nil
}

// Leased reports whether the right to write can be lost.
func (h *Handler) Leased() bool { return h.cfg.Lease != nil }

// Reach folds what others have stored, if there is anything and seq is beyond
// what is known. The log may end before seq.
func (h *Handler) Reach(ctx context.Context, seq uint64) error {
	h.mu.RLock()
	head := h.head
	h.mu.RUnlock()
	if head >= seq {
		return nil
	}
	last, err := h.cfg.Log.Last(ctx) // the writer need not wait for this
	if err != nil || last <= head {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	err = h.catchUp(ctx)
	h.noteRead(err)
	return err
}

// Await returns when the ledger has events after seq, or ctx ends: with the last
// sequence that is durable.
func (h *Handler) Await(ctx context.Context, seq uint64) (uint64, error) {
	return AwaitGrowth(ctx, seq, h.done, func() (uint64, <-chan struct{}) {
		h.mu.RLock()
		defer h.mu.RUnlock()
		return h.state.Seq, h.growth.Next()
	})
}

// catchUp folds what the log has beyond the state.
func (h *Handler) catchUp(ctx context.Context) error {
	last, err := h.cfg.Log.Last(ctx)
	if err != nil {
		return err
	}
	s := h.state
	from := ReadFrom(s)
	if last > from.Seq {
		for group, err := range h.cfg.Log.Read(ctx, from, last) {
			if err != nil {
				return err
			}
			if err := s.ApplyCommand(group); err != nil {
				return &ledger.DamageError{Seq: group[0].Seq, Why: "an event does not fit those before it", Err: err}
			}
			h.observe(group)
		}
	}
	if s.Seq > from.Seq {
		h.growth.Announce()
	}
	h.head, h.stale = max(last, s.Seq), false
	return nil
}

// ReadFrom is where the log is read on from a state: after its last event, with who may
// write then.
func ReadFrom(s *projections.State) ledger.Position {
	return ledger.Position{Seq: s.Seq, Chain: s.Chain, Mesh: s.Mesh.ID, Writers: ledger.NewWriters(s.WriterKeys())}
}

// position is the last event of the state. h.mu is held, or nobody else is there.
func (h *Handler) position() ledger.Position {
	return ledger.Position{Seq: h.state.Seq, Chain: h.state.Chain, Mesh: h.state.Mesh.ID}
}

// Position is the last event that is durable and folded.
func (h *Handler) Position() ledger.Position {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.position()
}

// durable tells how far everything is durable.
func (h *Handler) durable() {
	if h.cfg.Durable != nil {
		h.cfg.Durable(h.position())
	}
}

// observe tells of events that are durable.
func (h *Handler) observe(evs []events.Event) {
	if h.open && h.cfg.Observe != nil && len(evs) > 0 {
		h.cfg.Observe(evs)
	}
}

// observeCalls tells of what settled calls wrote.
func (h *Handler) observeCalls(calls []*call) {
	if h.cfg.Observe == nil {
		return
	}
	for _, c := range calls {
		if c.group != nil {
			h.observe(c.events)
		}
	}
}

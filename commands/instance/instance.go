// Package instance is one process of several that serve a mesh on one NATS.
//
// Each follows the log into a state of its own and answers reads from it. One at
// a time has the lease (ledger.Lease): it is the writer, decides commands and
// answers what is asked at the head. When it is gone or cannot show that it holds
// the lease, another takes over with the state it has; a deposed writer answers
// nothing from the past, and follows again.
package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"bindery/commands/handler"
	"bindery/commands/service"
	"bindery/commands/snapshot"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Config says what an instance serves, and where.
type Config struct {
	// Conn reads and writes the ledger and competes for the lease. It should
	// reconnect for ever: when it is closed, Run ends.
	Conn *nats.Conn
	// Dial makes a connection that hears requests and answers them: one for reads,
	// and one for each time that this instance is the writer, which is closed when
	// it is that no more. (Who ends a subscription while its connection is lost may
	// find the server sending it requests when that is back: nats.go 1.55 resends
	// one that is being drained, and then forgets it.) They, too, should reconnect
	// for ever.
	Dial    func() (*nats.Conn, error)
	Mesh    string // empty: the only one there is
	Name    string // of this instance, for people; empty: a new one
	Version string // of the program, semver
	// Lease says how long the right to write holds; its Holder is not used.
	Lease ledger.LeaseConfig
	// Handler is how commands are decided: Clock, NewID, Logger, Meter and
	// AppendTimeout. The rest is the instance's own.
	Handler handler.Config
	Door    service.Door // who may ask
	// Taking is called when this instance has the lease, before it writes or answers
	// as the writer: whether the log is what was proved. Run ends with its error where
	// that wraps a *ledger.LossError. What it returns is called when this instance is
	// the writer no more. nil: nothing is asked.
	Taking func(ctx context.Context, log *ledger.Log, h *handler.Handler) (done func(), err error)
	// Prover proves what this instance writes, by the key Key; nil: nothing can be proven,
	// and a ledger that grants writers is not served.
	Prover ledger.Prover
	Key    string
	// Snapshots are on this machine; nil: the whole log is read at the start.
	Snapshots *snapshot.Store
	// Inspect tells how the writer and its server are; nil: that cannot be asked.
	Inspect func(ctx context.Context) (service.Inspection, error)
}

// Role is what an instance does now.
type Role string

// The roles.
const (
	Starting Role = "starting" // it has not read the log to its end yet
	Follower Role = "follower" // it answers reads
	Writer   Role = "writer"   // it answers everything
	Stopped  Role = "stopped"  // Run has ended
)

// Status is how an instance is.
type Status struct {
	Name    string    `json:"name"`
	Mesh    string    `json:"mesh"`
	Role    Role      `json:"role"`
	Epoch   uint64    `json:"epoch"`   // of the lease, while it is the writer; else 0
	Applied uint64    `json:"applied"` // the last sequence in its state
	Head    uint64    `json:"head"`    // the stream's last sequence, as last heard
	HeadAt  time.Time `json:"head_at"` // when that was heard
}

// Lag is how many messages lie between the state and the stream's end; foreign
// ones at the end count.
func (s Status) Lag() uint64 { return s.Head - min(s.Head, s.Applied) }

// Ready reports whether it answers, and has heard of the stream's end lately.
func (s Status) Ready(now time.Time) bool {
	return (s.Role == Follower || s.Role == Writer) && now.Sub(s.HeadAt) < headStale
}

const (
	// lookEvery is how often an instance asks for the stream's last sequence.
	lookEvery = time.Second
	headStale = 5 * lookEvery
	// alignEvery is how often the writer has the lease kept where the ledger is.
	alignEvery = 5 * lookEvery
	// stopTimeout bounds what a stopping instance asks of the server.
	stopTimeout = 2 * time.Second
)

// Instance is one process that serves a mesh.
type Instance struct {
	cfg    Config
	logger *slog.Logger
	log    *ledger.Log
	found  atomic.Pointer[ledger.Log] // log, for who asks from outside

	// One of the two has the state. mu is held for writing while it is handed over.
	mu       sync.RWMutex
	follower *follower
	writer   *handler.Handler

	statusMu sync.Mutex
	status   Status
}

// New makes an instance; Run starts it.
func New(cfg Config) *Instance {
	cfg.Name = cmp.Or(cfg.Name, nuid.Next())
	if cfg.Handler.Logger == nil {
		cfg.Handler.Logger = slog.New(slog.DiscardHandler)
	}
	// Two of one name must not take each other for themselves.
	cfg.Lease.Holder = cfg.Name + "/" + nuid.Next()
	return &Instance{cfg: cfg, logger: cfg.Handler.Logger.With("instance", cfg.Name), follower: newFollower(projections.New()),
		status: Status{Name: cfg.Name, Mesh: cfg.Mesh, Role: Starting}}
}

// Run serves the mesh until ctx ends, and then answers what it has accepted and
// gives the lease back: nil. It ends with an error when it cannot go on: the
// mesh has no ledger, the log is damaged or written by a newer program, a
// connection is closed for good. It is called once.
func (i *Instance) Run(ctx context.Context) error {
	defer i.note(func(s *Status) { s.Role, s.Epoch = Stopped, 0 })
	candidate, err := i.join(ctx)
	if err != nil {
		return err
	}
	i.found.Store(i.log)
	i.note(func(s *Status) { s.Mesh = i.log.Mesh() })
	defer i.keepSnapshots(ctx)()
	var reads *answering
	defer func() { reads.stop() }()
	ready := func() (err error) {
		if err := i.mayWrite(); err != nil {
			return err
		}
		if reads == nil {
			reads, err = i.answer("reader", func(cfg service.Config) (*service.Service, error) { return service.ServeReads(cfg, i) })
		}
		return err
	}
	for {
		lease, err := i.follow(ctx, candidate, ready)
		if err != nil || lease == nil {
			return err
		}
		if err := i.write(ctx, lease); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// NotWriterKeyError says that a ledger takes what other keys prove, and not what this
// instance's would.
type NotWriterKeyError struct{ Key string } // empty: the instance has none

func (e *NotWriterKeyError) Error() string {
	if e.Key == "" {
		return "the ledger takes proven commands alone, and this process has no key to prove any"
	}
	return "the ledger does not grant the key " + e.Key + " to write"
}

// MayWrite returns an error where nothing that is proven with a key would count.
func MayWrite(s *projections.State, key string) error {
	if g := s.GrantOf(key); g != 0 && s.Grant(g).Role == events.RoleWriter || len(s.WriterKeys()) == 0 {
		return nil
	}
	return &NotWriterKeyError{key}
}

// mayWrite is MayWrite of this instance.
func (i *Instance) mayWrite() (err error) {
	i.View(func(s *projections.State) { err = MayWrite(s, i.cfg.Key) })
	return err
}

// Foreign is what reading the log has found that is no part of the ledger.
func (i *Instance) Foreign() ledger.Foreign {
	if log := i.found.Load(); log != nil {
		return log.Foreign()
	}
	return ledger.Foreign{}
}

// join opens the ledger and what the lease is competed for with. A server that
// is coming up may leave a request unanswered: that is asked again until ctx ends.
func (i *Instance) join(ctx context.Context) (candidate *ledger.Candidate, err error) {
	for {
		if i.log, err = ledger.Open(ctx, i.cfg.Conn, i.cfg.Mesh); err == nil {
			i.log.ProveWith(i.cfg.Prover)
			candidate, err = i.log.Candidate(ctx, i.cfg.Lease)
		}
		unanswered := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
		if !unanswered || ctx.Err() != nil {
			return candidate, err
		}
		i.logger.Warn("the server does not answer yet", "error", err)
	}
}

// answering is a service on a connection of its own.
type answering struct {
	conn   *nats.Conn
	svc    *service.Service
	logger *slog.Logger
	leave  context.CancelFunc // ends following who may ask
	left   chan struct{}      // closed when that has ended
}

// answer starts one.
func (i *Instance) answer(role string, serve func(service.Config) (*service.Service, error)) (*answering, error) {
	conn, err := i.cfg.Dial()
	if err != nil {
		return nil, fmt.Errorf("connecting to answer as %s: %w", role, err)
	}
	svc, err := serve(service.Config{Conn: conn, Mesh: i.log.Mesh(), Log: i.log, Version: i.cfg.Version, Clock: i.cfg.Handler.Clock,
		Door: i.cfg.Door, Dial: i.cfg.Dial, Past: i.cfg.Snapshots.Past(i.log), Inspect: i.cfg.Inspect, Ledger: i.log.Created(), Direct: i.cfg.Conn, Metadata: map[string]string{"role": role, "instance": i.cfg.Name}})
	if err != nil {
		conn.Close()
		return nil, err
	}
	ctx, leave := context.WithCancel(context.Background())
	a := &answering{conn, svc, i.logger, leave, make(chan struct{})}
	go func() {
		defer close(a.left)
		if i.cfg.Door.Signed {
			svc.AdmitGranted(ctx, func(err error) { i.logger.Warn("not everybody who is granted access is heard", "error", err) })
		}
	}()
	return a, nil
}

// stop answers what was accepted, and turns away what still comes, as long as the
// connection stands.
func (a *answering) stop() {
	if a == nil {
		return
	}
	a.leave()
	<-a.left
	if err := a.svc.Stop(); err != nil {
		a.logger.Warn("stopping the answers", "error", err)
	}
	defer a.conn.Close()
	if !a.conn.IsConnected() || a.conn.Drain() != nil {
		return
	}
	for end := time.Now().Add(stopTimeout); !a.conn.IsClosed() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Status tells how the instance is. It waits for nothing: while the state is
// handed over, Applied is the last one told.
func (i *Instance) Status() Status {
	i.statusMu.Lock()
	defer i.statusMu.Unlock()
	if i.mu.TryRLock() {
		if i.writer != nil {
			i.status.Applied = i.writer.Health().Seq
		} else {
			i.status.Applied = i.follower.position().Seq
		}
		i.mu.RUnlock()
	}
	return i.status
}

func (i *Instance) note(f func(*Status)) {
	i.statusMu.Lock()
	defer i.statusMu.Unlock()
	f(&i.status)
}

// View implements service.State, whoever has the state.
func (i *Instance) View(f func(*projections.State)) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.writer != nil {
		i.writer.View(f)
		return
	}
	i.follower.View(f)
}

// Await implements service.State, whoever has the state.
func (i *Instance) Await(ctx context.Context, seq uint64) (uint64, error) {
	for {
		i.mu.RLock()
		h, f := i.writer, i.follower
		i.mu.RUnlock()
		var now uint64
		var err error
		if h != nil {
			// The one before may have stored something that was not there yet when
			// this one read the log.
			_ = h.Reach(ctx, seq+1)
			now, err = h.Await(ctx, seq)
		} else {
			now, err = f.Await(ctx, seq)
		}
		if !errors.Is(err, handler.ErrClosed) {
			return now, err
		}
		// It was handed over: mu is free when that is done.
		if ctx.Err() != nil {
			return now, ctx.Err()
		}
	}
}

// follow follows the log, and competes for the lease once it has read it to its
// end; ready is called then. It returns the lease, with the state at rest; or an
// error; or neither, when ctx has ended.
func (i *Instance) follow(ctx context.Context, candidate *ledger.Candidate, ready func() error) (*ledger.Lease, error) {
	given := ctx // ends when the instance is to stop; ctx also when one of these has ended
	ctx, cancel := context.WithCancel(given)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	ended := make(chan error, 1)
	wg.Go(func() { ended <- i.follower.run(ctx, i.log) })
	wg.Go(func() { i.look(ctx) })
	type outcome struct {
		lease *ledger.Lease
		err   error
	}
	acquired := make(chan outcome, 1)
	wg.Go(func() {
		if !i.catchUp(ctx) {
			acquired <- outcome{}
			return
		}
		if err := ready(); err != nil {
			acquired <- outcome{err: err}
			return
		}
		i.note(func(s *Status) { s.Role = Follower })
		lease, err := candidate.Acquire(ctx)
		if lease != nil {
			i.logger.Debug("has the lease", "epoch", lease.Epoch())
			// What has come meanwhile, as long as reads are still answered; what is
			// missing then the handler reads.
			soon, cancel := context.WithTimeout(ctx, lookEvery/4)
			i.catchUp(soon)
			cancel()
		}
		acquired <- outcome{lease, err}
	})
	select {
	case err := <-ended:
		cancel()
		if a := <-acquired; a.lease != nil {
			i.release(a.lease)
		}
		return nil, err
	case a := <-acquired:
		cancel()
		err := <-ended
		switch {
		case a.lease == nil && given.Err() != nil && err == nil && !errors.Is(a.err, nats.ErrConnectionClosed):
			return nil, nil
		case a.lease == nil:
			return nil, errors.Join(a.err, err)
		case err != nil:
			i.release(a.lease)
			return nil, err
		}
		return a.lease, nil
	}
}

// catchUp waits until the follower has read the log to its present end, or as
// near as makes no difference: where the end is foreign, it is never reached. It
// reports whether ctx still stands.
func (i *Instance) catchUp(ctx context.Context) bool {
	for {
		last, err := i.log.Last(ctx)
		if err == nil && last == 0 {
			return true
		}
		if err == nil {
			turn, cancel := context.WithTimeout(ctx, lookEvery)
			before := i.follower.position().Seq
			now, err := i.follower.Await(turn, last-1)
			cancel()
			if err == nil || ctx.Err() == nil && now == before && now > 0 {
				return true
			}
		}
		select {
		case <-time.After(lookEvery / 20):
		case <-ctx.Done():
			return false
		}
	}
}

// look asks for the stream's last sequence, again and again, until ctx ends.
func (i *Instance) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		_, _ = i.head(ctx) // the next look may do better
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// head asks for the stream's last sequence, and notes it.
func (i *Instance) head(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	last, err := i.log.Last(ctx)
	if err == nil {
		i.note(func(s *Status) { s.Head, s.HeadAt = last, time.Now() })
	}
	return last, err
}

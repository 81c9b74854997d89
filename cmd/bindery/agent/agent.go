// Package agent does on a node what the ledger says is due there: it keeps the
// files that the node's consumers read, by the Service Binding specification
// (https://servicebinding.io/spec/core/1.1.0/), and has the operator's hooks issue
// and revoke credentials at the node's providers. It acknowledges what was done,
// and what was not.
//
// It is level-triggered: what the newest document of a thing says is compared with
// what is there, whatever came between. Hooks run at least once, and are told when
// they may have run before. It may be killed at any moment and started again.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/nats-io/nuid"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/ledger/owned"
	"bindery/projections"
)

// Ledger is the ledger's writer, as an agent asks it. All of it are requests that the
// agent's key may make: an agent has no other access to what is stored.
type Ledger interface {
	// Do runs a command. A *commands.Refusal says why not; any other error, or one
	// with Unreachable or OutcomeUnknown, that nobody knows whether it was run: it is
	// run again later, and has one effect.
	Do(ctx context.Context, c commands.Command, reason string) error
	// Ask puts a query and decodes its answer into v.
	Ask(ctx context.Context, q commands.Query, v any) error
	// CheckCursor refuses with LedgerRestored where the ledger is not the one that
	// was read.
	CheckCursor(ctx context.Context, at service.Cursor) error

	// A *service.Client has the rest. An error is a *commands.Refusal, with
	// Unreachable where nobody answered in time.

	Documents(ctx context.Context, q service.DocumentsQuery) (service.Documents, error)
	Lease(ctx context.Context, r service.LeaseRequest) (service.LeaseAnswer, error)
	Release(ctx context.Context, r service.LeaseRequest) error
	PublishKey(ctx context.Context, r service.KeyRequest) error
	Keys(ctx context.Context, r service.KeysRequest) (service.KeysAnswer, error)
	Seal(ctx context.Context, r service.SealRequest) (service.SealAnswer, error)
	Unseal(ctx context.Context, r service.UnsealRequest) error
	Sealed(ctx context.Context, r service.SealedRequest) (service.SealedAnswer, error)
	Wait(ctx context.Context, r service.WaitRequest) (service.WaitAnswer, error)
	// Connection tells how often the connection was made, and whether it is closed for
	// good.
	Connection() (made uint64, closed bool)
}

// Config says for which node an agent acts, and how.
type Config struct {
	Ledger Ledger
	Mesh   string
	MeshID events.ID
	Node   string // its name now
	NodeID events.ID

	Root        string            // directory of all that it writes; made where it is not there
	GroupID     int               // of those who may read bindings, -1: nobody beside the agent's user
	Hooks       string            // directory of hooks; "": none is run
	HookTimeout time.Duration     // of one run
	SecretsIn   string            // "file" or "sealed": where new secrets are stored
	Resolvers   map[string]string // command by scheme
	// FilesElsewhere has secrets stored in files for consumers on other nodes, too:
	// somebody brings them there.
	FilesElsewhere bool
	Key            *ledger.Key // that it was granted; nil: it has none, and can neither seal nor open

	Resync bool // take the ledger as it is now, though it is not the one that was read
	Logger *slog.Logger
	Clock  func() time.Time
	Getenv func(string) string
	Ready  func() // called once, when it has begun; nil: nobody is told
}

// Agent acts for one node.
type Agent struct {
	cfg    Config
	nodeID string
	log    *slog.Logger
	mark   string // of this run, in the environment of its hooks

	tree  *tree
	hooks *hooks // nil: none
	docs  *documents
	lease *lease
	queue *queue
	ready atomic.Bool // everything was listed once, and the work has begun
	stop  context.CancelCauseFunc

	curve nkeys.KeyPair // nil without a key
	own   service.SealingKey

	curs    sync.Mutex
	place   place  // as of the newest document
	kept    place  // as it was written last
	checked uint64 // how often the connection had been made when the cursor was checked last; 0: it must be

	// delay is how long what failed waits; tests shorten it.
	delay func(failures int) time.Duration
	// crash is called between the steps of the work, where a test ends it.
	crash func(step string)
}

// errGone is returned by Run when the connection is closed for good.
var errGone = errors.New("the connection to the ledger is closed")

// IsGone reports whether Run ended because its connection or its lease was lost:
// a new one with another connection goes on.
func IsGone(err error) bool { return errors.Is(err, errGone) || errors.Is(err, errLeaseLost) }

// New prepares an agent. Nothing is written before it runs.
func New(cfg Config) (*Agent, error) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	a := &Agent{cfg: cfg, nodeID: cfg.NodeID.String(), log: cfg.Logger, mark: "BINDERY_RUN=" + nuid.Next(), docs: newDocuments(),
		delay: backOff, crash: func(string) {}}
	if cfg.Hooks != "" {
		var err error
		if a.hooks, err = openHooks(cfg.Hooks); err != nil {
			return nil, badHooks(cfg.Hooks, err)
		}
	}
	return a, nil
}

// badHooks refuses a directory of hooks.
func badHooks(dir string, err error) error {
	r := &commands.Refusal{Code: commands.Usage, Message: "the directory of hooks cannot be used", Why: err.Error(),
		Fix: projections.Program("ls", "-ld", dir), Candidates: []commands.Candidate{}}
	var problem *owned.Problem
	if errors.As(err, &problem) {
		r.Why = problem.Why + "; whoever can do that chooses what the agent runs"
		if problem.Fix != nil {
			r.Fix = projections.Program(problem.Fix...)
		}
	}
	return r
}

// Run acts until ctx ends (nil), or until it cannot go on: the connection is
// closed for good or another agent has taken over (IsGone), or the ledger is not
// the one that was read (a *commands.Refusal with LedgerRestored).
func (a *Agent) Run(ctx context.Context) error {
	tree, err := openTree(a.cfg.Root, a.cfg.GroupID)
	if err != nil {
		return &commands.Refusal{Code: commands.StoreUnusable, Message: "the agent's directory " + a.cfg.Root + " cannot be used", Why: err.Error(),
			Fix: projections.Program("ls", "-ld", a.cfg.Root), Candidates: []commands.Candidate{}}
	}
	defer tree.close()
	a.tree = tree
	if err := a.begin(ctx); err != nil {
		return err
	}
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a.stop = stop
	var others sync.WaitGroup
	defer others.Wait()
	also := func(f func(context.Context) error) {
		others.Go(func() {
			if err := f(run); run.Err() == nil {
				stop(err)
			}
		})
	}
	err = a.run(run, also)
	stop(err) // where it is not over yet
	if ctx.Err() != nil {
		return nil
	}
	if cause := context.Cause(run); cause != nil {
		return cause
	}
	return err
}

// begin ends what an earlier run has left, and looks where that stopped.
func (a *Agent) begin(ctx context.Context) error {
	mark, err := a.tree.read(runFile, 1024)
	if err != nil {
		return err
	}
	if old := strings.TrimSpace(string(mark)); strings.HasPrefix(old, "BINDERY_RUN=") {
		if n := endLeftovers(old); n > 0 {
			a.log.Warn("ended hooks that an earlier run had left running", "processes", n)
		}
	}
	if err := a.tree.durably(runFile, []byte(a.mark+"\n")); err != nil {
		return err
	}
	there, err := a.tree.readRecord(placeFile, &a.place)
	if err != nil {
		a.log.Warn("where the agent stopped cannot be read", "error", err)
		a.place = place{}
	}
	if there && a.place.NodeID != "" && a.place.NodeID != a.nodeID {
		return &commands.Refusal{Code: commands.Usage, Message: "the directory " + a.cfg.Root + " is that of another node's agent",
			Why: "it is of node " + a.place.NodeID + ", and " + a.cfg.Node + " is " + a.nodeID, Fix: projections.Do("agent").With("--node", a.cfg.Node).With("--root", "DIR"),
			Candidates: []commands.Candidate{}}
	}
	if a.cfg.Resync {
		if err := a.forget(); err != nil {
			return err
		}
	}
	a.place.NodeID = a.nodeID
	if a.place.Tree == "" {
		a.place.Tree = nuid.Next()
	}
	if err := a.checkCursor(ctx); err != nil {
		return err
	}
	if a.cfg.Key != nil {
		return a.ownKey()
	}
	return nil
}

// run takes the lease, follows the ledger, and works until ctx ends.
func (a *Agent) run(ctx context.Context, also func(func(context.Context) error)) (err error) {
	a.lease = newLease(a.cfg.Ledger, a.nodeID, a.place.Tree, a.cfg.Clock, a.log)
	if err := a.lease.acquire(ctx); err != nil {
		return err
	}
	defer a.lease.release()
	also(a.lease.keep)
	a.queue = newQueue(ctx, a.work)
	a.queue.delay = a.delay
	defer a.queue.stop()
	defer func() { a.stop(err) }() // what runs ends before that waits for it
	if err := a.hearAll(ctx, also); err != nil {
		return err
	}
	if err := errors.Join(a.sweepTree(), a.tree.share()); err != nil {
		return err
	}
	if a.cfg.Key != nil {
		if err := a.seeToKey(ctx); err != nil {
			a.log.Warn("the agent's sealing key is not published yet", "error", err)
			a.queue.touch(ownKeyKey, true)
		}
	}
	a.ready.Store(true)
	if err := a.touchAll(false); err != nil {
		return err
	}
	a.log.Info("acting", "mesh", a.cfg.Mesh, "node", a.cfg.Node, "root", a.cfg.Root, "hooks", a.cfg.Hooks)
	if a.cfg.Ready != nil {
		a.cfg.Ready()
	}
	<-ctx.Done()
	return ctx.Err()
}

// hearAll begins to hear of changes, and returns when it is known what there is.
func (a *Agent) hearAll(ctx context.Context, also func(func(context.Context) error)) error {
	n, begun := 0, make(chan struct{}, 2) // of all that begin below
	begin := func(hear func(ctx context.Context, first func()) error) {
		n++
		first := sync.OnceFunc(func() { begun <- struct{}{} })
		also(func(ctx context.Context) error { return hear(ctx, first) })
	}
	begin(func(ctx context.Context, first func()) error {
		return a.follow(ctx, func() {
			first()
			if a.ready.Load() {
				if err := a.touchAll(false); err != nil { // it was deaf for a while
					a.log.Warn("looking for what is due", "error", err)
				}
			}
		})
	})
	if a.cfg.Key != nil {
		begin(a.listen)
	}
	for range n {
		select {
		case <-begun:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Prefixes of the queue's keys: what is to be done.
const (
	consumerKey = "consumer " // and an assignment's id
	providerKey = "provider " // and a group
	ownKeyKey   = "key"
)

// touchAll has everything looked at that there is, or that was done; with anew also
// what has failed and waits.
func (a *Agent) touchAll(anew bool) error {
	ids, err := a.tree.recorded()
	if err != nil {
		return err
	}
	for _, id := range append(ids, a.docs.assignments()...) {
		a.queue.touch(consumerKey+id, anew)
	}
	if a.hooks == nil {
		return nil
	}
	groups, err := a.recordedGroups()
	for _, g := range append(groups, a.docs.groupsFor("")...) {
		a.queue.touch(providerKey+g, anew)
	}
	return err
}

// work does what is due for one key of the queue.
func (a *Agent) work(ctx context.Context, key string) error {
	if err := a.checkCursor(ctx); err != nil {
		a.log.Debug("what is due waits", "error", err)
		return errors.Join(errNotSaid, err)
	}
	if !a.lease.held() {
		return errNoLease
	}
	var err error
	if id, ok := strings.CutPrefix(key, consumerKey); ok {
		err = a.consume(ctx, id)
	} else if group, ok := strings.CutPrefix(key, providerKey); ok {
		err = a.provide(ctx, group)
	} else {
		err = a.seeToKey(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("failed, and is tried again", "what", a.describe(key), "error", err)
	}
	return err
}

// describe is what a key of the queue is about, for people.
func (a *Agent) describe(key string) string {
	if id, ok := strings.CutPrefix(key, consumerKey); ok {
		if needs := a.docs.needsOf(id); len(needs) > 0 {
			return consumerKey + needs[0].name
		}
	} else if group, ok := strings.CutPrefix(key, providerKey); ok {
		if d := a.docs.holdersOf(group); len(d) > 0 {
			in := a.inputOf(d[0])
			return in.Assignment + "/" + in.Slot + " at " + in.name()
		}
	}
	return key
}

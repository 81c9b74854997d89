package readmodel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands/handler"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Source is the state the documents are made from: a *handler.Handler is one.
type Source interface {
	// View runs f on the state as far as it is durable; f must not keep it.
	View(f func(*projections.State))
	// Confirm returns nil when nobody else could have written the ledger up to some
	// instant after the call.
	Confirm(ctx context.Context) error
}

// Log reads stored events; *ledger.Log is one.
type Log interface {
	Get(ctx context.Context, first, last uint64) ([]events.Record, error)
}

// Config says what is kept, and where.
type Config struct {
	Log      Log
	Memory   bool // the documents are gone with their server; leases, too
	Replicas int  // of the buckets; 0: 1
	Logger   *slog.Logger
}

const (
	// auditEvery is how often a keeper looks whether somebody else has written to
	// its buckets.
	auditEvery = 2 * time.Second
	// again is the pause before a keeper begins anew.
	again = 500 * time.Millisecond
	// maxHeard bounds the events that wait; beyond it everything is made anew.
	maxHeard = 200_000
	// AgentLease is how long an agent's lease holds that is not renewed.
	AgentLease = 15 * time.Second
	// chunk is how many bindings are looked at in one View.
	chunk = 256
)

// Keeper keeps the documents of a mesh as the ledger says. The writer of the
// ledger runs one. What it has written and what it has heard make all it does: a
// document is made anew when an event may have changed it, and written when it
// has, in the place of the revision that was there. Of several changes in a row a
// document may show the last alone.
//
// It never puts an older state over a newer one: a revision that is not its own is
// read, and its right to write confirmed, before anything is put in its place.
type Keeper struct {
	cfg    Config
	logger *slog.Logger

	mu     sync.Mutex // guards heard and all
	heard  []events.Event
	all    bool // more was heard than is kept: everything may have changed
	signal chan struct{}

	recent *recent // what changed last, and how far the documents are

	// Owned by Run.
	nc     *nats.Conn
	src    Source
	stores [kinds]*store
	held   []held // by projections.BindingRef
	aside  map[projections.BindingRef]struct{}
}

// The kinds of documents, each in a bucket of its own.
const (
	ofBindings = iota
	ofHolders
	kinds
)

// held is what stands in the buckets of one binding.
type held [kinds][]place

// New makes a keeper; Note may be called at once, Run starts it.
func New(cfg Config) *Keeper {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Keeper{cfg: cfg, logger: cfg.Logger, signal: make(chan struct{}, 1), recent: newRecent()}
}

// Note hears of events that are durable. It does not block.
func (k *Keeper) Note(evs []events.Event) {
	k.mu.Lock()
	if len(k.heard) < maxHeard {
		k.heard = append(k.heard, evs...)
	} else {
		k.heard, k.all = nil, true
	}
	k.mu.Unlock()
	k.poke()
}

// poke makes the keeper look how far the ledger is.
func (k *Keeper) poke() {
	select {
	case k.signal <- struct{}{}:
	default:
	}
}

// take takes what was heard; all reports that everything may have changed.
func (k *Keeper) take() (heard []events.Event, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	heard, all = k.heard, k.all
	k.heard, k.all = nil, false
	return heard, all
}

// errDeposed says that another writes the ledger by now.
var errDeposed = errors.New("another writes the ledger")

// Run keeps the documents until ctx ends (nil), or the right to write is lost
// (an error). It is called once.
func (k *Keeper) Run(ctx context.Context, nc *nats.Conn, src Source) error {
	k.nc, k.src = nc, src
	for {
		err := k.keep(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errDeposed), errors.Is(err, nats.ErrConnectionClosed):
			return err
		}
		k.logger.Warn("keeping the documents", "error", err)
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return nil
		}
	}
}

// keep makes the buckets what the ledger says, and keeps them so until something
// is not as expected.
func (k *Keeper) keep(ctx context.Context) error {
	k.take() // it is among what the state knows
	k.recent.forget()
	defer k.recent.forget()
	if err := k.open(ctx); err != nil {
		return err
	}
	if err := k.rebuild(ctx); err != nil {
		return err
	}
	audit := time.NewTicker(auditEvery)
	defer audit.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.signal:
			// All that the state knows now has been heard, but for what changes no
			// document.
			now := k.now()
			heard, all := k.take()
			if all {
				return errors.New("more was heard than could be followed")
			}
			if err := k.follow(ctx, heard); err != nil {
				return err
			}
			if n := len(heard); n > 0 && heard[n-1].Seq > now.Seq {
				now = Mark{heard[n-1].Seq, heard[n-1].Chain.String()}
			}
			k.recent.reach(now)
		case <-audit.C:
			if err := k.audit(ctx); err != nil {
				return err
			}
		}
	}
}

// open finds the buckets, or makes them.
func (k *Keeper) open(ctx context.Context) error {
	mesh := ""
	k.src.View(func(s *projections.State) { mesh = s.Mesh.Name })
	where := Where{k.cfg.Memory, k.cfg.Replicas}
	bucket := func(name, what string) (*ledger.Bucket, error) {
		return ledger.OpenBucket(ctx, k.nc, ledger.BucketConfig{Name: name, Description: "bindery: " + what + " of mesh " + mesh,
			Memory: where.Memory, Replicas: where.Replicas})
	}
	bindings, err := bucket(Bindings(mesh), "what consumers run with, kept from the ledger")
	if err != nil {
		return err
	}
	holders, err := bucket(Holders(mesh), "what the provider side has to do, kept from the ledger")
	if err != nil {
		return err
	}
	if _, err = OpenAgents(ctx, k.nc, mesh, where); err != nil {
		return err
	}
	if _, err = OpenSealed(ctx, k.nc, mesh, where); err != nil {
		return err
	}
	k.stores = [kinds]*store{{bucket: bindings}, {bucket: holders}}
	return nil
}

// follow makes anew what the events may have changed.
func (k *Keeper) follow(ctx context.Context, heard []events.Event) error {
	dirty := map[projections.BindingRef]struct{}{}
	var refs []projections.BindingRef
	add := func(r projections.BindingRef) {
		if _, known := dirty[r]; !known {
			dirty[r] = struct{}{}
			refs = append(refs, r)
		}
	}
	if len(heard) == 0 {
		return nil
	}
	k.src.View(func(s *projections.State) {
		elsewhere := false
		for i := range heard {
			elsewhere = s.Affected(&heard[i], add) || elsewhere
		}
		if elsewhere {
			for r := range k.aside {
				add(r)
			}
		}
	})
	return k.write(ctx, refs)
}

// now is where the state is.
func (k *Keeper) now() (at Mark) {
	k.src.View(func(s *projections.State) { at = markOf(s) })
	return at
}

func markOf(s *projections.State) Mark { return Mark{s.Seq, s.Chain.String()} }

// audit looks whether somebody else has written to the buckets.
func (k *Keeper) audit(ctx context.Context) error {
	for _, s := range k.stores {
		last, err := s.bucket.Last(ctx)
		if err != nil {
			return err
		}
		if last != s.last {
			return fmt.Errorf("the bucket %s is at revision %d, and not at %d: %w", s.bucket.Name(), last, s.last, ledger.ErrRevision)
		}
	}
	return nil
}

// Synced returns when the documents are what the ledger says at seq, from 1, or
// later, or ctx ends.
func (k *Keeper) Synced(ctx context.Context, seq uint64) error {
	_, err := handler.AwaitGrowth(ctx, seq-1, nil, func() (uint64, <-chan struct{}) {
		k.recent.mu.Lock()
		defer k.recent.mu.Unlock()
		return k.recent.at.Seq, k.recent.grown.Next()
	})
	return err
}

package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// LeaseBucket is the key-value bucket that holds the leases of all meshes of an
// account, one key each: the mesh's name and the bucket's own id. A bucket that is
// deleted and made again counts its revisions from the beginning, and a holder
// from before must not take one of them for its own.
const LeaseBucket = "bindery-lease"

// bucketID is the metadata key of a bucket's id.
const bucketID = "bindery-bucket"

// Times of a lease, where LeaseConfig does not say otherwise.
const (
	DefaultLease = 3 * time.Second
	DefaultRenew = time.Second
)

// LeaseConfig says who competes for a lease, and how long one holds. All who
// compete for one lease should say the same times.
type LeaseConfig struct {
	// Holder names the candidate to people and to the others. No two may have the
	// same name at the same time; empty: a new one that nobody has.
	Holder string
	// Lease is how long a lease holds that is not renewed; 0: DefaultLease.
	Lease time.Duration
	// Renew is how often the holder renews it unasked; 0: a third of Lease.
	Renew time.Duration
}

func (c LeaseConfig) withDefaults() LeaseConfig {
	c.Holder = cmp.Or(c.Holder, nuid.Next())
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Renew = cmp.Or(c.Renew, c.Lease/3)
	return c
}

// LeaseRecord is what stands in the bucket under a mesh's name.
type LeaseRecord struct {
	Holder  string    `json:"holder"` // empty: it was released
	Epoch   uint64    `json:"epoch"`  // goes up by one each time it is taken
	Renewed time.Time `json:"renewed"`
	// Renewed is the holder's clock, for people: nothing is decided on it.
}

// LeaseLostError says that a lease is not held any more.
type LeaseLostError struct {
	Mesh string
	By   string // who has it now; empty: not known
	Why  string
}

func (e *LeaseLostError) Error() string {
	if e.By != "" {
		return fmt.Sprintf("the lease on the ledger of mesh %q is lost: %s has taken it", e.Mesh, e.By)
	}
	return fmt.Sprintf("the lease on the ledger of mesh %q is lost: %s", e.Mesh, e.Why)
}

// Candidate competes for the right to write one mesh's ledger. One goroutine at
// a time may use it.
//
// No clock is compared with another machine's. A candidate takes a lease from
// its holder only when it has seen the same revision of it for longer than the
// lease holds, by its own monotonic clock; and the holder counts from before it
// asked for that revision.
type Candidate struct {
	cfg LeaseConfig
	log *Log
	kv  jetstream.KeyValue
	key string

	seen  uint64    // the revision last seen; 0: none
	since time.Time // when it was first seen
}

// Candidate makes a candidate for the lease on l, and the bucket if it is not
// there: with as many replicas as l's stream has.
func (l *Log) Candidate(ctx context.Context, cfg LeaseConfig) (*Candidate, error) {
	c := &Candidate{cfg: cfg.withDefaults(), log: l}
	for try := 1; ; try++ {
		err := c.open(ctx)
		if err == nil {
			return c, nil
		}
		// Of several who make the bucket at the same time one does, and some get no
		// answer (measured).
		if try == openTries || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, jetstream.ErrBucketExists) || !sleep(ctx, rand.N(openPause)) {
			return nil, err
		}
	}
}

// How often, and how long each time, the bucket is looked for.
const (
	openTries   = 10
	openTimeout = 2 * time.Second
	openPause   = 100 * time.Millisecond
)

// Holder is the candidate's name.
func (c *Candidate) Holder() string { return c.cfg.Holder }

// open finds the bucket or makes it.
func (c *Candidate) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	replicas := int(c.log.replicas.Load())
	kv, err := c.log.js.KeyValue(ctx, LeaseBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = c.log.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: LeaseBucket, Description: "bindery: who writes the ledger of each mesh",
			History: 1, Storage: jetstream.FileStorage, Replicas: replicas, Metadata: map[string]string{bucketID: nuid.Next()}})
	}
	var status jetstream.KeyValueStatus
	if err == nil {
		status, err = kv.Status(ctx)
	}
	if err == nil && status.Config().Replicas < replicas {
		// A ledger on three servers must not depend on one.
		cfg := status.Config()
		cfg.Replicas = replicas
		kv, err = c.log.js.UpdateKeyValue(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("opening the bucket of leases: %w", err)
	}
	key := c.log.mesh
	if id := status.Config().Metadata[bucketID]; id != "" {
		key += "." + id
	}
	if key != c.key {
		c.kv, c.key = kv, key
		c.seen, c.since = 0, time.Time{}
	}
	return nil
}

// Acquire waits until the lease is ours, however long that takes; it returns an
// error only when ctx ends or the connection is closed for good.
func (c *Candidate) Acquire(ctx context.Context) (*Lease, error) {
	for {
		lease, err := c.try(ctx)
		if lease != nil {
			return lease, nil
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return nil, fmt.Errorf("waiting for the lease: %w", err)
		}
		if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrNoResponders) {
			_ = c.open(ctx) // somebody has deleted it; else the next look tells
		}
		if !sleep(ctx, c.cfg.Renew/4) {
			return nil, fmt.Errorf("waiting for the lease: %w", ctx.Err())
		}
	}
}

// try looks at the lease once and takes it if it is free. Both results are nil
// where another holds it.
func (c *Candidate) try(ctx context.Context) (*Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Lease)
	defer cancel()
	now, revision, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if revision < c.seen && time.Since(c.since) <= 3*c.cfg.Lease {
		return nil, nil // from a replica that lags; or else it was restored, or removed
	}
	if revision != c.seen || c.since.IsZero() {
		c.seen, c.since = revision, time.Now()
	}
	// What stands under our own name is of a lease that we have lost, or of an
	// attempt whose answer was lost.
	free := now.Holder == "" || now.Holder == c.cfg.Holder
	if !free && time.Since(c.since) <= c.cfg.Lease {
		return nil, nil
	}
	if revision == 0 {
		// A bucket may have been made anew since the last look: then there is
		// another key now. Where there is a revision, the key is of this bucket.
		key := c.key
		if err := c.open(ctx); err != nil || c.key != key {
			return nil, err
		}
	}
	epoch, start := now.Epoch+1, time.Now()
	if revision, err = c.swap(ctx, LeaseRecord{Holder: c.cfg.Holder, Epoch: epoch}, revision); err != nil {
		return nil, err
	}
	return newLease(c, epoch, revision, start), nil
}

// read returns what stands there and its revision, 0 for nothing. It may come
// from a replica that lags: whoever acts on it does so by compare-and-set.
func (c *Candidate) read(ctx context.Context) (r LeaseRecord, revision uint64, err error) {
	e, err := c.kv.Get(ctx, c.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyDeleted) {
		return r, 0, nil
	}
	if err != nil {
		return r, 0, fmt.Errorf("reading the lease: %w", err)
	}
	if err := json.Unmarshal(e.Value(), &r); err != nil {
		// Nobody of ours has written it. It is as good as another's.
		r = LeaseRecord{Holder: "unreadable"}
	}
	return r, e.Revision(), nil
}

// swap puts r in the place of a revision, 0 for nothing.
func (c *Candidate) swap(ctx context.Context, r LeaseRecord, revision uint64) (uint64, error) {
	r.Renewed = time.Now().UTC()
	data, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		return c.kv.Create(ctx, c.key, data)
	}
	return c.kv.Update(ctx, c.key, data, revision)
}

// Lease is the right to write one mesh's ledger, as long as it is renewed in
// time. Its methods may be called from several goroutines.
type Lease struct {
	c     *Candidate
	epoch uint64
	wake  chan struct{} // somebody wants a confirmation

	ctx    context.Context // ends with the lease
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when nobody renews any more

	mu       sync.Mutex
	revision uint64
	until    time.Time     // by the monotonic clock
	wall     time.Time     // the same by the wall clock, which goes on while a machine sleeps
	next     *confirmation // of those who came since the last attempt began; nil: nobody
}

// confirmation is what some wait for together.
type confirmation struct {
	done chan struct{}
	err  error
}

func newLease(c *Candidate, epoch, revision uint64, start time.Time) *Lease {
	own := *c // the candidate may go on
	l := &Lease{c: &own, epoch: epoch, revision: revision, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.extend(revision, start)
	go l.keep()
	return l
}

// extend notes that an attempt which began at start has succeeded. Clocks of two
// machines may run at different speeds: the holder stops a little early.
func (l *Lease) extend(revision uint64, start time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision, l.until = revision, start.Add(l.c.cfg.Lease-l.c.cfg.Lease/20)
	l.wall = l.until.Round(0)
}

// Epoch is how often the lease of this mesh has been taken, this time included.
func (l *Lease) Epoch() uint64 { return l.epoch }

// Context ends when the lease is lost or released; its cause is then a
// *LeaseLostError.
func (l *Lease) Context() context.Context { return l.ctx }

// Lost is closed when the lease is lost or released.
func (l *Lease) Lost() <-chan struct{} { return l.ctx.Done() }

// Err is nil while the lease is held, and then a *LeaseLostError.
func (l *Lease) Err() error { return context.Cause(l.ctx) }

// Held reports, without asking anybody, whether nobody else can have had the
// lease up to now.
func (l *Lease) Held() bool {
	if l.ctx.Err() != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until) && time.Now().Round(0).Before(l.wall)
}

// Confirm returns nil when the lease was renewed by an attempt that began after
// Confirm was called: up to then nobody else has had it. All who wait are served
// by one attempt. The error is a *LeaseLostError or ctx's own.
func (l *Lease) Confirm(ctx context.Context) error {
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return l.Err()
	}
	if l.next == nil {
		l.next = &confirmation{done: make(chan struct{})}
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	c := l.next
	l.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("confirming the lease: %w", ctx.Err())
	}
}

// Align sees to it that one server leads both the ledger's stream and the bucket
// of leases, where no other mesh has a lease in it: then the loss of another
// server disturbs neither, and the loss of that one both at the same time.
func (l *Lease) Align(ctx context.Context) error {
	ledger, err := l.c.log.leads(ctx, l.c.log.stream)
	if err != nil {
		return err
	}
	bucket, err := l.c.log.leads(ctx, kvStream)
	if err != nil || ledger.leader == "" || bucket.leader == "" || bucket.leader == ledger.leader || bucket.messages > 1 {
		return err
	}
	body := map[string]any{"placement": map[string]string{"preferred": ledger.leader}}
	var resp struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := l.c.log.api(ctx, "STREAM.LEADER.STEPDOWN."+kvStream, body, &resp); err != nil {
		return fmt.Errorf("moving the lead of %q: %w", kvStream, err)
	}
	if resp.Error != nil {
		return fmt.Errorf("moving the lead of %q: %w", kvStream, resp.Error)
	}
	return nil
}

// kvStream is the stream of the bucket.
const kvStream = "KV_" + LeaseBucket

// led is who leads a stream, and how much is in it.
type led struct {
	leader   string
	messages uint64
}

func (l *Log) leads(ctx context.Context, stream string) (led, error) {
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
		State struct {
			Messages uint64 `json:"messages"`
		} `json:"state"`
	}
	if err := l.api(ctx, "STREAM.INFO."+stream, nil, &resp); err != nil {
		return led{}, fmt.Errorf("asking who leads %q: %w", stream, err)
	}
	if resp.Error != nil {
		return led{}, fmt.Errorf("asking who leads %q: %w", stream, resp.Error)
	}
	return led{resp.Cluster.Leader, resp.State.Messages}, nil
}

// Release gives the lease back, so that another need not wait for its end. Where
// that fails, it ends by itself.
func (l *Lease) Release(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	l.lose(&LeaseLostError{Mesh: l.c.log.mesh, Why: "it was released"}, nil)
	<-l.ended // what was under way may have been stored all the same
	revision := l.revision
	for {
		_, err := l.c.swap(ctx, LeaseRecord{Epoch: l.epoch}, revision)
		if err == nil {
			return nil
		}
		now, there, look := l.c.read(ctx)
		if look == nil && (now.Holder != l.c.cfg.Holder || now.Epoch != l.epoch) {
			return nil // it is another's, or released by an attempt whose answer was lost
		}
		if errors.Is(err, nats.ErrConnectionClosed) || !sleep(ctx, time.Millisecond+rand.N(l.c.cfg.Renew/20+1)) {
			return fmt.Errorf("releasing the lease: %w", errors.Join(err, look))
		}
		revision = max(revision, there)
	}
}

// keep renews the lease until it is lost.
func (l *Lease) keep() {
	defer close(l.ended)
	timer := time.NewTimer(l.c.cfg.Renew)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
		l.renew()
		timer.Reset(l.c.cfg.Renew)
	}
}

// renew tries until an attempt succeeds or the lease is lost, and answers those
// who came before that attempt began.
func (l *Lease) renew() {
	var waiting []*confirmation
	for {
		l.mu.Lock()
		if l.next != nil {
			waiting = append(waiting, l.next)
			l.next = nil
		}
		revision, left := l.revision, time.Until(l.until)
		l.mu.Unlock()
		if left <= 0 {
			l.lose(&LeaseLostError{Mesh: l.c.log.mesh, Why: fmt.Sprintf("it could not be renewed for %v", l.c.cfg.Lease)}, waiting)
			return
		}
		start := time.Now()
		err := l.attempt(revision, start, min(left, l.c.cfg.Renew))
		var lost *LeaseLostError
		switch {
		case l.ctx.Err() != nil:
			l.answer(waiting, l.Err())
			return
		case err == nil:
			l.answer(waiting, nil)
			return
		case errors.As(err, &lost):
			l.lose(lost, waiting)
			return
		}
		sleep(l.ctx, time.Millisecond+rand.N(l.c.cfg.Renew/20+1))
	}
}

// attempt is one compare-and-set. Where it did not succeed, it looks who stands
// there: an answer may have been lost.
func (l *Lease) attempt(revision uint64, start time.Time, within time.Duration) error {
	ctx, cancel := context.WithTimeout(l.ctx, within)
	defer cancel()
	next, err := l.c.swap(ctx, LeaseRecord{Holder: l.c.cfg.Holder, Epoch: l.epoch}, revision)
	if err == nil {
		l.extend(next, start)
		return nil
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		return &LeaseLostError{Mesh: l.c.log.mesh, Why: "the connection is closed"}
	}
	if ctx.Err() != nil {
		return err
	}
	now, there, look := l.c.read(ctx)
	if look != nil {
		return errors.Join(err, look)
	}
	if there <= revision {
		return err // it was not stored, or a replica lags
	}
	if now.Holder != l.c.cfg.Holder || now.Epoch != l.epoch {
		return &LeaseLostError{Mesh: l.c.log.mesh, By: now.Holder, Why: "it was taken"}
	}
	// Ours, from an attempt whose answer was lost. It proves nothing about now.
	l.mu.Lock()
	l.revision = there
	l.mu.Unlock()
	return err
}

// lose ends the lease, once, and answers all who wait for a confirmation.
func (l *Lease) lose(why *LeaseLostError, waiting []*confirmation) {
	l.mu.Lock()
	l.cancel(why) // the first cause stays
	if l.next != nil {
		waiting = append(waiting, l.next)
		l.next = nil
	}
	l.mu.Unlock()
	l.answer(waiting, l.Err())
}

func (l *Lease) answer(waiting []*confirmation, err error) {
	for _, c := range waiting {
		c.err = err
		close(c.done)
	}
}

// sleep reports whether ctx still stands after d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

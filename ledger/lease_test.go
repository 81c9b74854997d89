package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Times that tests need not wait long for.
var quickLease = LeaseConfig{Lease: 300 * time.Millisecond, Renew: 100 * time.Millisecond}

func candidate(t *testing.T, s *store, name string) (*Candidate, *nats.Conn) {
	t.Helper()
	nc, err := s.srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l, err := Open(ctxT(t), nc, testMesh)
	if err != nil {
		t.Fatal(err)
	}
	cfg := quickLease
	cfg.Holder = name
	c, err := l.Candidate(ctxT(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, nc
}

func acquire(t *testing.T, c *Candidate) *Lease {
	t.Helper()
	l, err := c.Acquire(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(ctxT(t)) })
	return l
}

// Kind: two holders. While one renews, another waits, however long; when it gives
// the lease back, the other has it at once, and not before.
func TestLeaseOfTwo(t *testing.T) {
	s := quickStore(t)
	mustCreate(t, s)
	a, _ := candidate(t, s, "a")
	b, _ := candidate(t, s, "b")
	first := acquire(t, a)
	if !first.Held() || first.Epoch() != 1 || first.Err() != nil {
		t.Errorf("held %t, epoch %d, %v", first.Held(), first.Epoch(), first.Err())
	}
	impatient, cancel := context.WithTimeout(ctxT(t), 3*quickLease.Lease)
	defer cancel()
	if l, err := b.Acquire(impatient); l != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second holder: %v", err)
	}
	if !first.Held() {
		t.Error("it was renewed and is not held")
	}
	start := time.Now()
	if err := first.Release(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, b)
	if took := time.Since(start); took > quickLease.Lease {
		t.Logf("after a release it took %v", took)
	}
	var lost *LeaseLostError
	if first.Held() || !errors.As(first.Err(), &lost) || second.Epoch() != 2 {
		t.Errorf("the first is held %t (%v), the second has epoch %d", first.Held(), first.Err(), second.Epoch())
	}
	if err := first.Confirm(ctxT(t)); !errors.As(err, &lost) {
		t.Errorf("a released lease is confirmed: %v", err)
	}
}

// Kind: a holder that does not know that it is one no more. What it can still ask
// tells it; what it says without asking is over before another has the lease.
func TestLeaseTakenOver(t *testing.T) {
	s := quickStore(t)
	mustCreate(t, s)
	a, _ := candidate(t, s, "a")
	b, _ := candidate(t, s, "b")
	a.kv = &pausedKV{KeyValue: a.kv}
	first := acquire(t, a)
	hold := pauseRenewal(first)
	defer hold()
	second := acquire(t, b)
	if first.Held() {
		t.Error("both are held")
	}
	hold() // goes on
	var lost *LeaseLostError
	if err := first.Confirm(ctxT(t)); !errors.As(err, &lost) {
		t.Errorf("confirmed after it was taken: %v", err)
	}
	select {
	case <-first.Lost():
	case <-time.After(patience):
		t.Error("its loss is not told")
	}
	if err := second.Confirm(ctxT(t)); err != nil {
		t.Error(err)
	}
}

// pauseRenewal keeps a lease from being renewed, as a stopped process would; the
// result lets it go on.
func pauseRenewal(l *Lease) func() {
	p := l.c.kv.(*pausedKV)
	until := make(chan struct{})
	p.until.Store(&until)
	return sync.OnceFunc(func() { close(until) })
}

// pausedKV does not write for a while.
type pausedKV struct {
	jetstream.KeyValue
	until atomic.Pointer[chan struct{}]
}

func (p *pausedKV) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if until := p.until.Load(); until != nil {
		<-*until
	}
	return p.KeyValue.Update(ctx, key, value, revision)
}

// A holder that cannot reach the server loses its lease in time, and takes it
// again when it can.
func TestLeaseLost(t *testing.T) {
	s := quickStore(t)
	mustCreate(t, s)
	a, nc := candidate(t, s, "a")
	l := acquire(t, a)
	nc.Close()
	select {
	case <-l.Lost():
	case <-time.After(patience):
		t.Fatal("its loss is not told")
	}
	if err := l.Confirm(ctxT(t)); err == nil || l.Held() {
		t.Errorf("held %t, confirmed: %v", l.Held(), err)
	}
	again, _ := candidate(t, s, "a")
	if second := acquire(t, again); second.Epoch() != 2 {
		t.Errorf("epoch %d", second.Epoch())
	}
}

// countingKV counts what is written.
type countingKV struct {
	jetstream.KeyValue
	mu    sync.Mutex
	n     int
	lose  int           // so many answers get lost
	delay time.Duration // each takes that long
}

func (k *countingKV) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	k.mu.Lock()
	k.n++
	lose := k.lose > 0
	k.lose--
	k.mu.Unlock()
	time.Sleep(k.delay)
	rev, err := k.KeyValue.Update(ctx, key, value, revision)
	if lose && err == nil {
		return 0, nats.ErrTimeout
	}
	return rev, err
}

// Many confirmations cost few writes, and each is of an attempt that began after
// it was asked for.
func TestLeaseConfirm(t *testing.T) {
	s := quickStore(t)
	mustCreate(t, s)
	a, _ := candidate(t, s, "a")
	kv := &countingKV{KeyValue: a.kv, delay: 5 * time.Millisecond}
	a.kv = kv
	l := acquire(t, a)
	const callers, each = 100, 5
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if err := l.Confirm(ctxT(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	kv.mu.Lock()
	n := kv.n
	kv.mu.Unlock()
	if n < each || n > 10*each {
		t.Errorf("%d confirmations took %d writes", callers*each, n)
	}
	// An answer that is lost is found out about.
	kv.mu.Lock()
	kv.lose = 3
	kv.mu.Unlock()
	if err := l.Confirm(ctxT(t)); err != nil || !l.Held() {
		t.Errorf("after lost answers: %v", err)
	}
	ctx, cancel := context.WithCancel(ctxT(t))
	cancel()
	if err := l.Confirm(ctx); !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// A bucket that somebody deletes is made again; the lease in it is lost.
func TestLeaseBucketDeleted(t *testing.T) {
	s := quickStore(t)
	log := mustCreate(t, s)
	a, _ := candidate(t, s, "a")
	b, _ := candidate(t, s, "b")
	first := acquire(t, a)
	if err := log.js.DeleteKeyValue(ctxT(t), LeaseBucket); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, b)
	select {
	case <-first.Lost():
	case <-time.After(patience):
		t.Error("its loss is not told")
	}
	if err := second.Confirm(ctxT(t)); err != nil {
		t.Error(err)
	}
	e, err := b.kv.Get(ctxT(t), b.key)
	var r LeaseRecord
	if err != nil || json.Unmarshal(e.Value(), &r) != nil || r.Holder != "b" || r.Renewed.IsZero() {
		t.Errorf("the record is %+v, %v", r, err)
	}
}

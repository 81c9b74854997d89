package agent

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// queue does the work that is due: of one key one thing at a time, of all keys a
// few. What fails is tried again, later each time.
type queue struct {
	ctx   context.Context
	work  func(ctx context.Context, key string) error
	delay func(failures int) time.Duration
	slots chan struct{}

	wg    sync.WaitGroup
	mu    sync.Mutex
	items map[string]*item
	over  bool
}

// item is a key with something to do.
type item struct {
	running  bool
	again    bool        // it was touched while it ran
	anew     bool        // and that was about another thing
	failures int         // in a row
	timer    *time.Timer // for the next start; nil while it runs
}

// parallel is how many things are done at once.
const parallel = 4

// settle is how long what was touched waits for more of the same: the documents of
// one command come one after the other.
const settle = 30 * time.Millisecond

func newQueue(ctx context.Context, work func(context.Context, string) error) *queue {
	return &queue{ctx: ctx, work: work, delay: backOff, slots: make(chan struct{}, parallel), items: map[string]*item{}}
}

// Delays between tries.
const (
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
	// waitingDelay is how long what is done, and could not be told, waits at most.
	waitingDelay = 5 * time.Second
)

// backOff is how long to wait after so many failures in a row: it doubles, and no
// two of those that failed together come together again.
func backOff(failures int) time.Duration {
	d := min(firstDelay<<min(failures-1, 16), maxDelay)
	return d/2 + rand.N(d/2+1)
}

// touch says that there may be something to do for a key. anew: it is another
// thing than what failed, so that the delay begins anew.
func (q *queue) touch(key string, anew bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return
	}
	i := q.items[key]
	switch {
	case i == nil:
		i = &item{}
		q.items[key] = i
		q.start(key, i, settle)
	case i.running:
		i.again, i.anew = true, i.anew || anew
	case anew && i.failures > 0:
		i.failures = 0
		if i.timer.Stop() {
			q.wg.Done()
			q.start(key, i, settle)
		}
	}
}

// start has the key worked on after a while; the caller has q.mu.
func (q *queue) start(key string, i *item, after time.Duration) {
	q.wg.Add(1)
	i.timer = time.AfterFunc(after, func() {
		defer q.wg.Done()
		select {
		case q.slots <- struct{}{}:
		case <-q.ctx.Done():
			return
		}
		defer func() { <-q.slots }()
		q.run(key, i)
	})
}

// run works on a key once, and sees to what follows.
func (q *queue) run(key string, i *item) {
	q.mu.Lock()
	i.running, i.again, i.anew = true, false, false
	q.mu.Unlock()
	err := q.work(q.ctx, key)
	q.mu.Lock()
	defer q.mu.Unlock()
	i.running = false
	switch {
	case q.over || q.ctx.Err() != nil:
	case err != nil:
		if i.anew {
			i.failures = 0
			q.start(key, i, settle)
			return
		}
		i.failures++
		d := q.delay(i.failures)
		if isWaiting(err) {
			d = min(d, waitingDelay)
		}
		q.start(key, i, d)
	case i.again:
		i.failures = 0
		q.start(key, i, settle)
	default:
		delete(q.items, key)
	}
}

// stop waits until nothing runs any more. Its context must have ended.
func (q *queue) stop() {
	q.mu.Lock()
	q.over = true
	for _, i := range q.items {
		if !i.running && i.timer.Stop() {
			q.wg.Done()
		}
	}
	q.mu.Unlock()
	q.wg.Wait()
}

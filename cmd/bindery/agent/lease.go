package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// A lease is an entry in a bucket whose entries vanish after 15 s: whoever could
// write it where there was none is the agent of the node, as long as he keeps
// writing it.
const (
	leaseRenew = 5 * time.Second
	// leaseDoubt is how long after the last renewal no hook is begun any more: the
	// server lets go of it three seconds later.
	leaseDoubt = 12 * time.Second
	leaseRetry = time.Second
	leaseReply = 3 * time.Second
)

// leaseValue is what the bucket shows of who holds a lease.
type leaseValue struct {
	Holder string    `json:"holder"` // of this run
	Tree   string    `json:"tree"`   // whose lock it has
	Host   string    `json:"host"`
	PID    int       `json:"pid"`
	Since  time.Time `json:"since"`
}

// lease makes this process the one agent of a node.
type lease struct {
	js     jetstream.JetStream
	bucket string
	key    string
	me     leaseValue
	clock  func() time.Time
	logger *slog.Logger

	mu       sync.Mutex
	revision uint64    // of our entry; 0: we have none
	renewed  time.Time // when the renewal that counted last was sent
	other    entry     // what the watch saw last
}

func newLease(js jetstream.JetStream, bucket, key, tree string, clock func() time.Time, logger *slog.Logger) *lease {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &lease{js: js, bucket: bucket, key: key, clock: clock, logger: logger,
		me: leaseValue{Holder: nuid.Next(), Tree: tree, Host: host, PID: os.Getpid(), Since: clock().UTC()}}
}

// saw takes what the watch of the key tells.
func (l *lease) saw(e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other = e
}

// errLeaseLost says that another agent of the node has taken over.
var errLeaseLost = errors.New("another agent of this node has taken over")

// acquire waits until the lease is ours.
func (l *lease) acquire(ctx context.Context) error {
	for said := ""; ; {
		err := l.write(ctx, 0)
		if free := l.freeAt(); isWrongLast(err) && free != 0 {
			err = l.write(ctx, free)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return errGone
		}
		if who := l.waitingFor(err); who != said {
			l.logger.Info("waiting for the lease of the node", "reason", who)
			said = who
		}
		if !sleep(ctx, leaseRetry) {
			return ctx.Err()
		}
	}
}

// freeAt is the revision that nobody holds the lease with any more: who did has
// given it up, or has had the lock of this tree, which is ours now. 0: none, as far
// as is known.
func (l *lease) freeAt() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.seen()
	if l.other.value == nil || v.Tree == l.me.Tree && v.Host == l.me.Host {
		return l.other.revision
	}
	return 0
}

func (l *lease) waitingFor(err error) string {
	if !isWrongLast(err) {
		return err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.seen()
	if v.Holder == "" {
		return "another agent holds it"
	}
	return fmt.Sprintf("process %d on %s holds it since %s", v.PID, v.Host, v.Since.Format(time.RFC3339))
}

// write writes our entry where the last one of its key is that of expected.
func (l *lease) write(ctx context.Context, expected uint64) error {
	data, err := json.Marshal(l.me)
	if err != nil {
		return err
	}
	sent := l.clock()
	ctx, cancel := context.WithTimeout(ctx, leaseReply)
	defer cancel()
	ack, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: "$KV." + l.bucket + "." + l.key, Data: data},
		jetstream.WithExpectLastSequencePerSubject(expected), jetstream.WithRetryAttempts(0))
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision, l.renewed = ack.Sequence, sent
	return nil
}

// keep renews the lease until ctx ends or it is lost.
func (l *lease) keep(ctx context.Context) error {
	for sleep(ctx, leaseRenew) {
		if err := l.renew(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// renew renews the lease. It retries for as long as nobody else is seen to have it.
func (l *lease) renew(ctx context.Context) error {
	for warned := false; ; {
		err := l.write(ctx, l.expected())
		if isWrongLast(err) {
			if l.taken() {
				return errLeaseLost
			}
			// It vanished meanwhile, or the answer was lost: the watch will have seen.
			err = l.write(ctx, 0)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, nats.ErrConnectionClosed):
			return errGone
		}
		if !warned {
			l.logger.Warn("the lease of the node cannot be renewed", "error", err)
			warned = true
		}
		if !sleep(ctx, leaseRetry) {
			return ctx.Err()
		}
	}
}

// expected is the revision that the next renewal follows: of our last entry, of a
// later one that is ours though we were not told so, or of what deleted it.
func (l *lease) expected() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.other.revision > l.revision && (l.other.value == nil || l.seen().Holder == l.me.Holder) {
		return l.other.revision
	}
	return l.revision
}

// taken reports whether another was seen to have the lease after us.
func (l *lease) taken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.other.revision > l.revision && l.other.value != nil && l.seen().Holder != l.me.Holder
}

// seen is the entry that the watch saw last; the caller has l.mu.
func (l *lease) seen() (v leaseValue) {
	if json.Unmarshal(l.other.value, &v) != nil {
		return leaseValue{} // what is none of ours holds it, too
	}
	return v
}

// held reports whether nobody else can be the node's agent now.
func (l *lease) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision != 0 && l.clock().Sub(l.renewed) < leaseDoubt
}

// release gives the lease up, so that the next one need not wait for it to vanish.
func (l *lease) release() {
	l.mu.Lock()
	expected := l.revision
	l.revision = 0
	l.mu.Unlock()
	if expected == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseReply)
	defer cancel()
	m := &nats.Msg{Subject: "$KV." + l.bucket + "." + l.key, Header: nats.Header{jetstreamOperation: {operationDelete}}}
	// One that is not released vanishes by itself.
	_, _ = l.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(expected), jetstream.WithRetryAttempts(0))
}

// isWrongLast reports whether a write was refused because another came first: 10071
// with its sequence, or 10164 without.
func isWrongLast(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"bindery/commands"
	"bindery/commands/service"
)

// A lease makes one process the agent of a node: the writer of the ledger gives it to
// one at a time, for 15 s, and again each time that it is renewed.
const (
	leaseRenew = 5 * time.Second
	// leaseDoubt is how long after the last renewal no hook is begun any more: the
	// writer lets go of it three seconds later.
	leaseDoubt = 12 * time.Second
	leaseRetry = time.Second
	leaseReply = 3 * time.Second
)

// lease makes this process the one agent of a node.
type lease struct {
	ledger Ledger
	node   string // id
	me     service.LeaseHolder
	clock  func() time.Time
	logger *slog.Logger

	mu      sync.Mutex
	has     bool
	renewed time.Time // when the renewal that counted last was sent
}

func newLease(l Ledger, node, tree string, clock func() time.Time, logger *slog.Logger) *lease {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &lease{ledger: l, node: node, clock: clock, logger: logger,
		me: service.LeaseHolder{Holder: nuid.Next(), Tree: tree, Host: host, PID: os.Getpid(), Since: clock().UTC()}}
}

// errLeaseLost says that another agent of the node has taken over.
var errLeaseLost = errors.New("another agent of this node has taken over")

// errLeaseUnread says that nobody can tell who holds the lease.
var errLeaseUnread = errors.New("another agent holds it, or nobody: its entry cannot be read")

// otherHolder says who else holds the lease.
type otherHolder struct{ by service.LeaseHolder }

func (o *otherHolder) Error() string {
	return fmt.Sprintf("process %d on %s holds it since %s", o.by.PID, o.by.Host, o.by.Since.Format(time.RFC3339))
}

// acquire waits until the lease is ours.
func (l *lease) acquire(ctx context.Context) error {
	for said := ""; ; {
		err := l.try(ctx, false)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if over := l.over(err); over != nil {
			return over
		}
		if why := err.Error(); why != said {
			l.logger.Info("waiting for the lease of the node", "reason", why)
			said = why
		}
		if !sleep(ctx, leaseRetry) {
			return ctx.Err()
		}
	}
}

// try asks for the lease once.
func (l *lease) try(ctx context.Context, renew bool) error {
	ctx, cancel := context.WithTimeout(ctx, leaseReply)
	defer cancel()
	sent := l.clock()
	answer, err := l.ledger.Lease(ctx, service.LeaseRequest{Node: l.node, LeaseHolder: l.me, Renew: renew})
	switch {
	case err != nil:
		return err
	case !answer.Held && answer.By.Holder == "":
		return errLeaseUnread
	case !answer.Held:
		return &otherHolder{answer.By}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.has, l.renewed = true, sent
	return nil
}

// over is why nothing more can be asked after an error; nil where it can.
func (l *lease) over(err error) error {
	if _, closed := l.ledger.Connection(); closed {
		return errGone
	}
	var r *commands.Refusal
	if errors.As(err, &r) && r.Code == commands.NotPermitted {
		return r
	}
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

// renew renews the lease. It retries for as long as nobody else is known to have it.
func (l *lease) renew(ctx context.Context) error {
	for warned := false; ; {
		err := l.try(ctx, true)
		var other *otherHolder
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &other):
			return fmt.Errorf("%w: %w", errLeaseLost, err)
		}
		if over := l.over(err); over != nil {
			return over
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

// held reports whether nobody else can be the node's agent now.
func (l *lease) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.has && l.clock().Sub(l.renewed) < leaseDoubt
}

// release gives the lease up, so that the next one need not wait for it to expire.
func (l *lease) release() {
	l.mu.Lock()
	had := l.has
	l.has = false
	l.mu.Unlock()
	if !had {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseReply)
	defer cancel()
	// One that is not released expires by itself.
	_ = l.ledger.Release(ctx, service.LeaseRequest{Node: l.node, LeaseHolder: l.me})
}

package service

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands/readmodel"
)

// AgentStore keeps what agents store: leases and sealed secrets. Nobody but the
// writer reads and writes its buckets. It serves one writer; the next one makes
// its own.
type AgentStore struct {
	nc    *nats.Conn
	mesh  string
	where readmodel.Where

	mu     sync.Mutex // held while a bucket is opened
	leases *leases
	shelf  *shelf
}

// NewAgentStore keeps them in the buckets of a mesh. The buckets are opened when
// they are needed first.
func NewAgentStore(nc *nats.Conn, mesh string, where readmodel.Where) *AgentStore {
	return &AgentStore{nc: nc, mesh: mesh, where: where}
}

// openTimeout bounds opening a bucket and reading what is in it.
const openTimeout = 30 * time.Second

// openLeases gives the leases.
func (a *AgentStore) openLeases(s *Service) (*leases, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leases == nil {
		ctx, cancel := context.WithTimeout(s.ending, openTimeout)
		defer cancel()
		b, err := readmodel.OpenAgents(ctx, a.nc, a.mesh, a.where)
		if err != nil {
			return nil, closedBy(err)
		}
		a.leases = &leases{bucket: b, now: s.cfg.Clock, granted: map[string]grantedLease{}}
	}
	return a.leases, nil
}

// openShelf gives the sealed secrets; read anew where it is not known what is there.
func (a *AgentStore) openShelf(s *Service) (*shelf, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shelf != nil && !a.shelf.isStale() {
		return a.shelf, nil
	}
	ctx, cancel := context.WithTimeout(s.ending, openTimeout)
	defer cancel()
	b, err := readmodel.OpenSealed(ctx, a.nc, a.mesh, a.where)
	if err != nil {
		return nil, closedBy(err)
	}
	next, err := readShelf(ctx, b)
	if err != nil {
		return nil, closedBy(err)
	}
	if a.shelf != nil {
		a.shelf.announceAll() // those that wait look at the next one
	}
	a.shelf = next
	return next, nil
}

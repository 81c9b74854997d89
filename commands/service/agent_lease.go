package service

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"bindery/commands"
	"bindery/commands/readmodel"
	"bindery/ledger"
	"bindery/projections"
)

// leases decides who acts for a node. The bucket carries a lease over to the next
// writer; what this writer granted itself counts before what is in the bucket, so
// that nothing that gets in there takes a lease from its holder.
type leases struct {
	bucket *ledger.Bucket
	now    func() time.Time

	mu      sync.Mutex
	granted map[string]grantedLease // by node
	turns   map[string]*sync.Mutex  // by node: one decision at a time, with its write
}

// turn waits for the turn to decide on the lease of a node. The result ends it.
func (l *leases) turn(node string) (done func()) {
	l.mu.Lock()
	if l.turns == nil {
		l.turns = map[string]*sync.Mutex{}
	}
	m := l.turns[node]
	if m == nil {
		m = &sync.Mutex{}
		l.turns[node] = m
	}
	l.mu.Unlock()
	m.Lock()
	return m.Unlock
}

// grantedLease is a lease as this writer granted it last.
type grantedLease struct {
	to LeaseHolder
	at time.Time
}

// leaseTries bounds how often a decision is made again because another came first.
const leaseTries = 8

// acquire gives or renews the lease of a node: to whoever has it, where nobody has
// it, and to the next one with the lock of the same tree.
func (l *leases) acquire(ctx context.Context, node string, me LeaseHolder, renew bool) (LeaseAnswer, error) {
	data, err := json.Marshal(me)
	if err != nil {
		return LeaseAnswer{}, err
	}
	defer l.turn(node)()
	for range leaseTries {
		e, err := l.bucket.Get(ctx, node)
		if err != nil {
			return LeaseAnswer{}, err
		}
		asked := l.now()
		if by, held := l.holder(node, e); held && by.Holder != me.Holder && (renew || by.Tree != me.Tree || by.Host != me.Host) {
			return LeaseAnswer{By: by}, nil
		}
		_, err = l.bucket.Write(ctx, []ledger.Entry{{Key: node, Value: data, Revision: e.Revision}})
		if errors.Is(err, ledger.ErrRevision) {
			continue
		}
		if err != nil {
			return LeaseAnswer{}, err
		}
		l.mu.Lock()
		l.granted[node] = grantedLease{me, asked}
		l.mu.Unlock()
		return LeaseAnswer{Held: true, For: int(readmodel.AgentLease / time.Millisecond)}, nil
	}
	return LeaseAnswer{}, errContended()
}

// release gives the lease of a node up, where the holder has it.
func (l *leases) release(ctx context.Context, node, holder string) error {
	defer l.turn(node)()
	for range leaseTries {
		e, err := l.bucket.Get(ctx, node)
		if err != nil {
			return err
		}
		if by, held := l.holder(node, e); !held || by.Holder != holder {
			return nil
		}
		_, err = l.bucket.Write(ctx, []ledger.Entry{{Key: node, Revision: e.Revision}})
		if errors.Is(err, ledger.ErrRevision) {
			continue
		}
		l.mu.Lock()
		if l.granted[node].to.Holder == holder {
			delete(l.granted, node)
		}
		l.mu.Unlock()
		return err
	}
	return errContended()
}

// holder tells who holds the lease of a node: as granted here, else as the bucket
// says. An entry that cannot be read is of nobody that is known: it holds the lease
// until it expires.
func (l *leases) holder(node string, e ledger.Entry) (by LeaseHolder, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g, ok := l.granted[node]; ok {
		if l.now().Sub(g.at) < readmodel.AgentLease {
			return g.to, true
		}
		delete(l.granted, node)
	}
	if e.Value == nil {
		return LeaseHolder{}, false
	}
	if json.Unmarshal(e.Value, &by) != nil || by.Holder == "" {
		return LeaseHolder{}, true
	}
	return by, true
}

func errContended() error {
	return &commands.Refusal{Code: commands.Unreachable, Message: "others write there at the same time", Why: "nothing was written",
		Fix: projections.Again(), Candidates: []commands.Candidate{}}
}

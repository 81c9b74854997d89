package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/micro"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// agentAction answers an action of the key that asks.
type agentAction func(ctx context.Context, key string) (any, error)

// agent answers the actions of agents.
func (s *Service) agent(req micro.Request) {
	key, m, ok := heard[AgentMessage](s, req)
	if !ok {
		return
	}
	do, wait, err := s.agentAction(m)
	if err != nil {
		s.refuse(req, err)
		return
	}
	if !s.begin() {
		s.refuse(req, handler.ErrClosed)
		return
	}
	ready := s.readiness(QueryMessage{})
	if wait != nil {
		ready = append([]condition{s.newsFor(key, *wait)}, ready...)
	}
	s.when(req, ready, wait != nil, func() (any, uint64, error) {
		ctx, cancel := context.WithTimeout(s.ctx, shelfTimeout)
		defer cancel()
		result, err := do(ctx, key)
		if errors.Is(err, ledger.ErrRevision) {
			err = errContended()
		}
		// A writer that was deposed meanwhile may have read and written what is not so.
		if h := s.cfg.Handler; err == nil && h.Leased() {
			err = h.Confirm(ctx)
		}
		return result, 0, err
	})
}

// agentAction reads what an action is to do. wait says that it waits first.
func (s *Service) agentAction(m AgentMessage) (do agentAction, wait *WaitRequest, err error) {
	switch m.Do {
	case doLease:
		do, err = reading(m.Args, s.lease)
	case doRelease:
		do, err = reading(m.Args, s.releaseLease)
	case doKey:
		do, err = reading(m.Args, s.publishKey)
	case doSeal:
		do, err = reading(m.Args, s.seal)
	case doUnseal:
		do, err = reading(m.Args, s.unseal)
	case doSealed:
		do, err = reading(m.Args, s.sealed)
	case doKeys:
		do, err = reading(m.Args, s.sealingKeys)
	case doWait:
		wait = &WaitRequest{}
		if err = strict(m.Args, wait); err != nil {
			return nil, nil, badRequest(err)
		}
		do, err = reading(m.Args, s.news)
	default:
		err = badRequest(fmt.Errorf("there is no action %q", m.Do[:min(len(m.Do), 20)]))
	}
	return do, wait, err
}

// reading reads the arguments of an action.
func reading[A any](args json.RawMessage, f func(ctx context.Context, key string, args A) (any, error)) (agentAction, error) {
	var a A
	if err := strict(args, &a); err != nil {
		return nil, badRequest(err)
	}
	return func(ctx context.Context, key string) (any, error) { return f(ctx, key, a) }, nil
}

// viewed runs f on the state with a finder.
func (s *Service) viewed(f func(find commands.Finder) error) (err error) {
	s.state.View(func(st *projections.State) { err = f(commands.Finder{State: st}) })
	return err
}

// mayActFor refuses who is not the agent of a node.
func (s *Service) mayActFor(key, node string) error {
	if node == "" {
		return badRequest(errors.New("no node is named"))
	}
	return s.viewed(func(f commands.Finder) error {
		_, err := f.AgentOf(key, node)
		return err
	})
}

func (s *Service) lease(ctx context.Context, key string, r LeaseRequest) (any, error) {
	if err := s.mayActFor(key, r.Node); err != nil {
		return nil, err
	}
	if r.Holder == "" || r.Tree == "" || r.Host == "" || max(len(r.Holder), len(r.Tree), len(r.Host)) > maxLeaseText {
		return nil, badRequest(fmt.Errorf("the holder, its tree and its host have 1 to %d bytes each", maxLeaseText))
	}
	l, err := s.cfg.Agents.openLeases(s)
	if err != nil {
		return nil, err
	}
	return l.acquire(ctx, r.Node, r.LeaseHolder, r.Renew)
}

func (s *Service) releaseLease(ctx context.Context, key string, r LeaseRequest) (any, error) {
	if err := s.mayActFor(key, r.Node); err != nil {
		return nil, err
	}
	l, err := s.cfg.Agents.openLeases(s)
	if err != nil {
		return nil, err
	}
	return struct{}{}, l.release(ctx, r.Node, r.Holder)
}

// publishKey stores the sealing key of a node: signed by the key that asks.
func (s *Service) publishKey(ctx context.Context, key string, r KeyRequest) (any, error) {
	if err := s.mayActFor(key, r.Node); err != nil {
		return nil, err
	}
	if err := s.isGrantedKey(key, r.Node, &r.SealingKey); err != nil {
		return nil, err
	}
	h, err := s.cfg.Agents.openShelf(s)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(storedKey{r.SealingKey, r.NKey})
	if err != nil {
		return nil, err
	}
	return struct{}{}, h.put(ctx, r.Node+"."+keySuffix, data, func() error { return nil })
}

// isGrantedKey refuses a sealing key that the key that asks has not signed for a
// node, or that is not granted for it.
func (s *Service) isGrantedKey(key, node string, k *SealingKey) error {
	return s.viewed(func(f commands.Finder) error {
		if key != "" && k.NKey != key {
			return notThatKey("it is that of another key than the one that asks")
		}
		if err := k.Verify(f.Mesh.ID.String(), node); err != nil {
			return notThatKey(err.Error())
		}
		if id, err := events.ParseID(node); err != nil || !slices.Contains(f.AgentKeysOf(id), k.NKey) {
			return notThatKey("its nkey is not granted to an agent of the node")
		}
		return nil
	})
}

func notThatKey(why string) error {
	return &commands.Refusal{Code: commands.NotPermitted, Message: "the sealing key is not taken", Why: why, Candidates: []commands.Candidate{}}
}

// news tells what is new for a node since a cursor.
func (s *Service) news(_ context.Context, key string, r WaitRequest) (any, error) {
	if err := s.mayActFor(key, r.Node); err != nil {
		return nil, err
	}
	h, err := s.cfg.Agents.openShelf(s)
	if err != nil {
		return nil, err
	}
	out, _ := h.since(r.Node, r.Since)
	return out, nil
}

// newsFor is met when there is something new, or the time is over.
func (s *Service) newsFor(key string, r WaitRequest) condition {
	return func(ctx context.Context) error {
		if err := s.mayActFor(key, r.Node); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, min(time.Duration(r.Wait)*time.Millisecond, MaxLogWait))
		defer cancel()
		for {
			h, err := s.cfg.Agents.openShelf(s)
			if err != nil {
				return err
			}
			out, grown := h.since(r.Node, r.Since)
			if r.Since == "" || out.All || len(out.Sealed) > 0 || len(out.Keys) > 0 {
				return nil
			}
			select {
			case <-grown:
			case <-ctx.Done():
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return nil
				}
				return closedBy(ctx.Err())
			}
		}
	}
}

package service

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"bindery/commands"
	"bindery/events"
)

// seal stores a sealed secret for the consumer of a credential. The service makes the
// key: nobody stores anything in the place of what is another's.
func (s *Service) seal(ctx context.Context, key string, r SealRequest) (any, error) {
	var name commands.SealedName
	var consumer string
	err := s.viewed(func(f commands.Finder) error {
		maker, err := f.AgentOf(key, r.Maker)
		if err != nil {
			return err
		}
		if name, err = f.NameBy(maker, r.Secret); err != nil {
			return err
		}
		to, err := f.MaySeal(maker, name)
		consumer = to.String()
		return err
	})
	if err != nil {
		return nil, err
	}
	maker := name.Maker.String()
	if err := s.isGrantedKey(key, maker, &r.Value.Sender); err != nil {
		return nil, err
	}
	value, err := json.Marshal(storedSecret{Node: maker, SealedBox: r.Value, By: r.Value.Sender.NKey})
	if err != nil {
		return nil, err
	}
	h, err := s.cfg.Agents.openShelf(s)
	if err != nil {
		return nil, err
	}
	rest := name.Binding.String() + "." + name.Name()
	out := SealAnswer{Key: consumer + "." + rest}
	return out, h.put(ctx, out.Key, value, func() error { return h.room(consumer, rest, maker, len(value)) })
}

// unseal removes what the maker that asks has stored, also for a node that the
// consumer has left.
func (s *Service) unseal(ctx context.Context, key string, r UnsealRequest) (any, error) {
	var name commands.SealedName
	err := s.viewed(func(f commands.Finder) error {
		maker, err := f.AgentOf(key, r.Maker)
		if err == nil {
			name, err = f.NameBy(maker, r.Secret)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	node, err := events.ParseID(r.Node)
	if err != nil {
		return nil, badRequest(err)
	}
	h, err := s.cfg.Agents.openShelf(s)
	if err != nil {
		return nil, err
	}
	return struct{}{}, h.remove(ctx, node.String()+"."+name.Binding.String()+"."+name.Name(), name.Maker.String())
}

// sealed gives the secrets that are sealed for a node to its agent.
func (s *Service) sealed(ctx context.Context, key string, r SealedRequest) (any, error) {
	if err := s.mayActFor(key, r.Node); err != nil {
		return nil, err
	}
	if len(r.Refs) > maxRefs {
		return nil, badRequest(fmt.Errorf("%d references are asked for, and at most %d may be", len(r.Refs), maxRefs))
	}
	h, err := s.cfg.Agents.openShelf(s)
	if err != nil {
		return nil, err
	}
	refs := r.Refs
	if len(refs) == 0 {
		refs = h.refs(r.Node, r.After)
	}
	out := SealedAnswer{Values: []SealedValue{}}
	size := 0
	for i, ref := range refs {
		p, ok := h.secretAt(r.Node, ref)
		if !ok {
			continue
		}
		if size += p.size; size > sealedPage && i > 0 {
			out.Next = refs[i-1]
			break
		}
		v, err := s.sealedValue(ctx, h, ref, p)
		if err != nil {
			return nil, err
		}
		if v != nil {
			out.Values = append(out.Values, *v)
		}
	}
	return out, nil
}

// sealedValue reads a secret, and adds what the ledger says of it; nil where it is
// not there any more.
func (s *Service) sealedValue(ctx context.Context, h *shelf, ref string, p placed) (*SealedValue, error) {
	data, err := h.read(ctx, p)
	if err != nil || data == nil {
		return nil, err
	}
	var stored storedSecret
	if json.Unmarshal(data, &stored) != nil {
		return nil, errMalformed
	}
	out := &SealedValue{Ref: ref, Node: stored.Node, SealedBox: stored.SealedBox, By: stored.By, Keys: []string{}}
	return out, s.viewed(func(f commands.Finder) error {
		if id, err := events.ParseID(stored.Node); err == nil {
			out.Keys = f.AgentKeysOf(id)
		}
		text, name, _ := strings.Cut(ref, "/")
		number, _, _ := strings.Cut(name, "-")
		generation, err := strconv.ParseUint(number, 10, 64)
		if id, bad := events.ParseID(text); bad == nil && err == nil {
			out.Tag = f.TagOf(id, generation)
		}
		return nil
	})
}

// sealingKeys gives the sealing keys of nodes to any agent: whoever may seal needs
// them, they are public, and each says by its signature whose it is. One whose nkey
// is not granted for its node any more is left out.
func (s *Service) sealingKeys(ctx context.Context, key string, r KeysRequest) (any, error) {
	if err := s.viewed(func(f commands.Finder) error { _, err := f.AgentOf(key, ""); return err }); err != nil {
		return nil, err
	}
	if len(r.Nodes) > maxRefs {
		return nil, badRequest(fmt.Errorf("%d nodes are asked for, and at most %d may be", len(r.Nodes), maxRefs))
	}
	h, err := s.cfg.Agents.openShelf(s)
	if err != nil {
		return nil, err
	}
	out := KeysAnswer{Keys: map[string]SealingKey{}}
	for _, node := range r.Nodes {
		p, ok := h.keyAt(node)
		if !ok {
			continue
		}
		data, err := h.read(ctx, p)
		if err != nil {
			return nil, err
		}
		var k storedKey
		if data == nil || json.Unmarshal(data, &k) != nil || k.By != k.NKey || s.isGrantedKey("", node, &k.SealingKey) != nil {
			continue
		}
		out.Keys[node] = k.SealingKey
	}
	return out, nil
}

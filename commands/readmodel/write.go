package readmodel

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"bindery/ledger"
	"bindery/projections"
)

// change is one message to a bucket, and what stands there once it is written.
type change struct {
	entry ledger.Entry
	ref   projections.BindingRef // 0: of no binding
	at    uint64                 // the sequence of the state that it tells of
	sum   uint64
}

// work is what some bindings make necessary.
type work struct {
	changes         [kinds][]change
	aside, straight []projections.BindingRef
}

// write makes the documents of bindings, each named once, and writes those that
// have changed. While some are written the next are made.
func (k *Keeper) write(ctx context.Context, refs []projections.BindingRef) error {
	if len(refs) == 0 {
		return nil
	}
	k.slot(slices.Max(refs)) // the slice of what is held stays where it is
	ctx, cancel := context.WithCancel(ctx)
	made := make(chan work, 2)
	defer func() {
		cancel()
		for range made { // until nobody looks any more
		}
	}()
	go func() {
		defer close(made)
		for part := range slices.Chunk(refs, chunk) {
			select {
			case made <- k.look(part):
			case <-ctx.Done():
				return
			}
		}
	}()
	var todo [kinds][]change
	flush := func(atLeast int) error {
		for kind := range kinds {
			for len(todo[kind]) >= atLeast {
				n := min(len(todo[kind]), ledger.MaxEvents)
				if err := k.put(ctx, kind, todo[kind][:n]); err != nil {
					return err
				}
				todo[kind] = todo[kind][n:]
			}
		}
		return nil
	}
	for w := range made {
		for _, r := range w.straight {
			delete(k.aside, r)
		}
		for _, r := range w.aside {
			k.aside[r] = struct{}{}
		}
		for kind := range kinds {
			todo[kind] = append(todo[kind], w.changes[kind]...)
		}
		if err := flush(ledger.MaxEvents); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return flush(1)
}

// documents are what one binding's buckets shall hold.
type documents struct {
	ref     projections.BindingRef
	binding *projections.BindingDocument
	holders []projections.HolderDocument
}

// look makes the documents of bindings from one state, and says what is to be
// written. What it reads of k.held is of these bindings, and nobody changes that
// meanwhile.
func (k *Keeper) look(refs []projections.BindingRef) (w work) {
	all := make([]documents, len(refs))
	var h nats.Header
	var at uint64
	k.src.View(func(s *projections.State) {
		h, at = stamped(s), s.Seq
		for i, r := range refs {
			all[i] = documents{ref: r, holders: s.HolderDocuments(r)}
			if s.HasDocument(r) {
				d := s.BindingDocument(r)
				all[i].binding = &d
			}
			if s.Aside(r) {
				w.aside = append(w.aside, r)
			} else {
				w.straight = append(w.straight, r)
			}
		}
	})
	// Encoding is most of the work, and the writer of the ledger need not wait for it.
	for i := range all {
		d := &all[i]
		var entries [kinds][]ledger.Entry
		if d.binding != nil {
			entries[ofBindings] = []ledger.Entry{{Key: d.binding.Key(), Value: encode(d.binding)}}
		}
		for j := range d.holders {
			entries[ofHolders] = append(entries[ofHolders], ledger.Entry{Key: d.holders[j].Key(), Value: encode(&d.holders[j])})
		}
		for kind := range kinds {
			w.changes[kind] = append(w.changes[kind], changes(d.ref, k.held[d.ref][kind], entries[kind], h, at)...)
		}
	}
	return w
}

// changes is what makes the places of a binding those of its documents.
func changes(r projections.BindingRef, was []place, docs []ledger.Entry, h nats.Header, seq uint64) (out []change) {
	for _, d := range docs {
		sum := sumOf(d.Value)
		at := slices.IndexFunc(was, func(p place) bool { return p.key == d.Key })
		if at >= 0 {
			if was[at].sum == sum {
				continue // it says what it said
			}
			d.Revision = was[at].revision
		}
		d.Header = h
		out = append(out, change{d, r, seq, sum})
	}
	for _, p := range was {
		if !slices.ContainsFunc(docs, func(d ledger.Entry) bool { return d.Key == p.key }) {
			out = append(out, change{ledger.Entry{Key: p.key, Header: h, Revision: p.revision}, r, seq, 0})
		}
	}
	return out
}

// put writes one batch and notes what stands there then.
func (k *Keeper) put(ctx context.Context, kind int, batch []change) error {
	s := k.stores[kind]
	entries := make([]ledger.Entry, len(batch))
	for i := range batch {
		entries[i] = batch[i].entry
		if entries[i].Revision == 0 {
			entries[i].Revision = s.dead[entries[i].Key]
		}
	}
	first, err := s.bucket.Write(ctx, entries)
	if err == nil && first != s.last+1 {
		err = fmt.Errorf("the bucket %s went from revision %d to %d: %w", s.bucket.Name(), s.last, first, ledger.ErrRevision)
	}
	if err != nil {
		return err
	}
	for i := range batch {
		c, revision := &batch[i], first+uint64(i)
		if c.entry.Value == nil {
			if len(s.dead) >= maxDead {
				clear(s.dead)
			}
			s.dead[c.entry.Key] = revision
		} else {
			delete(s.dead, c.entry.Key)
		}
		if c.ref != 0 {
			k.note(kind, c, revision)
		}
	}
	s.last = first + uint64(len(batch)) - 1
	return nil
}

// slot makes room for what stands of a binding.
func (k *Keeper) slot(r projections.BindingRef) *held {
	if n := int(r) + 1 - len(k.held); n > 0 {
		k.held = append(k.held, make([]held, n)...)
	}
	return &k.held[r]
}

// note keeps in mind what stands under a key, or that nothing does.
func (k *Keeper) note(kind int, c *change, revision uint64) {
	places := &k.held[c.ref][kind]
	at := slices.IndexFunc(*places, func(p place) bool { return p.key == c.entry.Key })
	keys := 0
	switch now := (place{c.entry.Key, revision, c.sum}); {
	case c.entry.Value == nil && at >= 0:
		*places = slices.Delete(*places, at, at+1)
		keys = -1
	case at >= 0:
		(*places)[at] = now
	case c.entry.Value != nil:
		*places = append(*places, now)
		keys = 1
	}
	k.recent.note(Changed{Seq: c.at, Holder: kind == ofHolders, Binding: c.ref, Key: c.entry.Key}, keys)
}

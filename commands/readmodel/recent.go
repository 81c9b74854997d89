package readmodel

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"bindery/commands/handler"
	"bindery/events"
	"bindery/projections"
)

// Mark is a place in the ledger.
type Mark struct {
	Seq   uint64
	Chain string // the ledger's chain value at Seq
}

// Changed is a document that changed, or is gone from its key.
type Changed struct {
	Seq     uint64 // the document was made at this sequence
	Holder  bool   // it is a holder's document, not a binding's
	Binding projections.BindingRef
	Key     string
}

// recentSize is how many changes a keeper remembers, of all nodes together.
const recentSize = 1 << 16

// recent remembers which documents changed last, by node. Its memory is bounded: the
// oldest changes are overwritten. A change becomes visible when the documents of the
// whole mesh are as the ledger says at its sequence, never before. So a reader that
// has everything visible up to a sequence misses nothing when it asks for what comes
// after that sequence.
type recent struct {
	mu    sync.Mutex
	size  uint64
	known bool // every change after since is remembered, unless it was overwritten
	since uint64
	at    Mark // up to here the documents are what the ledger says
	grown handler.Growth

	ring    []remembered // the change number n is at (n-1) % size
	count   uint64       // the number of the last change
	lost    uint64       // the highest sequence that was overwritten
	last    map[events.ID]uint64
	pending []remembered // not visible yet
	waiting map[events.ID]chan struct{}
	// refs counts the keys of each binding's documents, by node.
	refs map[events.ID]map[projections.BindingRef]int
}

// remembered is a change in the ring.
type remembered struct {
	Changed
	node events.ID
	prev uint64 // the number of the node's change before it; 0: none
}

func newRecent() *recent {
	return &recent{size: recentSize, grown: handler.NewGrowth(), last: map[events.ID]uint64{}, waiting: map[events.ID]chan struct{}{},
		refs: map[events.ID]map[projections.BindingRef]int{}}
}

// nodeOf is the node that a key of a document begins with; zero where it begins with
// none.
func nodeOf(key string) (node events.ID) {
	if len(key) > idLength {
		node, _ = events.ParseID(key[:idLength])
	}
	return node
}

// idLength is the length of an id in a key.
const idLength = 26

// forget begins anew: until reset nothing is known.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.pending = false, nil
}

// reset says that the documents are what the ledger says at a mark, and which ones
// there are. What changed up to since is not known.
func (r *recent) reset(at Mark, since uint64, all []held) {
	refs := map[events.ID]map[projections.BindingRef]int{}
	for i := range all {
		for _, places := range all[i] {
			for _, p := range places {
				count(refs, nodeOf(p.key), projections.BindingRef(i), 1)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs = refs
	r.ring, r.count, r.lost = nil, 0, 0
	clear(r.last)
	r.known, r.since = true, since
	r.publish(at)
	for node := range r.waiting {
		r.wake(node)
	}
}

// count adds n to how many keys a binding has on a node.
func count(refs map[events.ID]map[projections.BindingRef]int, node events.ID, ref projections.BindingRef, n int) {
	of := refs[node]
	if of == nil {
		of = map[projections.BindingRef]int{}
		refs[node] = of
	}
	if of[ref] += n; of[ref] <= 0 {
		delete(of, ref)
		if len(of) == 0 {
			delete(refs, node)
		}
	}
}

// note takes note of a document that was written, or removed; keys is by how many its
// binding has more or fewer keys on that node.
func (r *recent) note(c Changed, keys int) {
	node := nodeOf(c.Key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		return // reset counts them all
	}
	if keys != 0 {
		count(r.refs, node, c.Binding, keys)
	}
	r.pending = append(r.pending, remembered{Changed: c, node: node})
}

// reach says that the documents are what the ledger says at a mark.
func (r *recent) reach(at Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.publish(at)
}

// publish makes visible what changed up to a mark, and wakes who waits for that.
func (r *recent) publish(at Mark) {
	if at.Seq > r.at.Seq {
		r.at = at
	}
	slices.SortStableFunc(r.pending, func(x, y remembered) int { return cmp.Compare(x.Seq, y.Seq) })
	n := 0
	for n < len(r.pending) && r.pending[n].Seq <= r.at.Seq {
		r.add(r.pending[n])
		r.wake(r.pending[n].node)
		n++
	}
	r.pending = append([]remembered(nil), r.pending[n:]...)
	r.grown.Announce()
}

// add puts a change into the ring, in the place of the oldest one where it is full.
func (r *recent) add(c remembered) {
	c.prev = r.last[c.node]
	r.count++
	if uint64(len(r.ring)) < r.size {
		r.ring = append(r.ring, c)
	} else {
		place := &r.ring[(r.count-1)%r.size]
		r.lost = max(r.lost, place.Seq)
		if r.last[place.node] == r.count-r.size {
			delete(r.last, place.node)
		}
		*place = c
	}
	r.last[c.node] = r.count
}

// wake wakes who waits for a node.
func (r *recent) wake(node events.ID) {
	if c := r.waiting[node]; c != nil {
		close(c)
		delete(r.waiting, node)
	}
}

// woken is closed with the next visible change of a node's documents.
func (r *recent) woken(node events.ID) <-chan struct{} {
	c := r.waiting[node]
	if c == nil {
		c = make(chan struct{})
		r.waiting[node] = c
	}
	return c
}

// after lists what changed of a node's documents after a sequence, each key once. It
// reports false where that is not known.
func (r *recent) after(node events.ID, seq uint64) (out []Changed, ok bool) {
	if !r.known || seq < r.since || seq > r.at.Seq {
		return nil, false
	}
	seen := map[string]bool{}
	for n := r.last[node]; n != 0 && n+r.size > r.count; {
		c := &r.ring[(n-1)%r.size]
		if c.Seq <= seq {
			return out, true
		}
		if !seen[c.Key] {
			seen[c.Key] = true
			out = append(out, c.Changed)
		}
		n = c.prev
	}
	return out, seq >= r.lost
}

// After lists the documents of a node that changed after a sequence, each key once,
// and up to which mark all changes are in the list. It reports false where the keeper
// does not know all that changed since.
func (k *Keeper) After(node events.ID, seq uint64) (out []Changed, at Mark, ok bool) {
	k.recent.mu.Lock()
	defer k.recent.mu.Unlock()
	out, ok = k.recent.after(node, seq)
	return out, k.recent.at, ok
}

// Here lists the bindings that have documents on a node as of a mark. Some may have
// left since.
func (k *Keeper) Here(node events.ID) (out []projections.BindingRef, at Mark) {
	k.recent.mu.Lock()
	defer k.recent.mu.Unlock()
	for ref := range k.recent.refs[node] {
		out = append(out, ref)
	}
	return out, k.recent.at
}

// AwaitChange returns nil when a document of a node that is wanted changed after a
// sequence, or that is not known; or ctx's error. wanted must not block.
func (k *Keeper) AwaitChange(ctx context.Context, node events.ID, seq uint64, wanted func([]Changed) bool) error {
	r := k.recent
	for {
		r.mu.Lock()
		found, ok := r.after(node, seq)
		at, woken := r.at.Seq, r.woken(node)
		r.mu.Unlock()
		if !ok || len(found) > 0 && wanted(found) {
			return nil
		}
		seq = max(seq, at) // the others need not be looked at again
		select {
		case <-woken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AwaitKept returns nil when the documents are what the ledger says at a sequence or
// later, and the keeper knows which there are; or ctx's error.
func (k *Keeper) AwaitKept(ctx context.Context, seq uint64) error {
	k.poke()
	_, err := handler.AwaitGrowth(ctx, 0, nil, func() (uint64, <-chan struct{}) {
		k.recent.mu.Lock()
		defer k.recent.mu.Unlock()
		if !k.recent.known || k.recent.at.Seq < max(seq, k.recent.since) {
			return 0, k.recent.grown.Next()
		}
		return 1, nil
	})
	return err
}

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"bindery/commands"
	"bindery/ledger"
)

// A shelf is the bucket of sealed secrets and sealing keys. It knows what is there:
// of each entry the revision, whose it is and how large; values are read when they
// are asked for. What was put there without a note of who asked is no entry.
type shelf struct {
	bucket *ledger.Bucket
	run    string // tells this reading of the bucket from others

	writing sync.Mutex // one writes at a time

	mu     sync.Mutex
	stale  bool // a write whose outcome is not known, or an entry that is gone
	at     uint64
	secret map[string]map[string]placed // by node and then <binding>.<name>
	keys   map[string]placed            // by node
	used   map[string]usage             // by maker
	grown  map[string]chan struct{}     // closed when there is something new for a node
}

// placed is where an entry is, and of whom.
type placed struct {
	revision uint64
	maker    string
	size     int
}

// usage is how much a maker has stored.
type usage struct{ count, bytes int }

// storedSecret is what lies under <node id>.<binding id>.<name>.
type storedSecret struct {
	Node string `json:"node"` // of the maker
	SealedBox
	By string `json:"by"` // the key that asked
}

// storedKey is what lies under <node id>.key.
type storedKey struct {
	SealingKey
	By string `json:"by"`
}

// keySuffix ends the key of a sealing key.
const keySuffix = "key"

// readShelf reads what is there.
func readShelf(ctx context.Context, b *ledger.Bucket) (*shelf, error) {
	h := &shelf{bucket: b, run: nuid.Next(), secret: map[string]map[string]placed{}, keys: map[string]placed{}, used: map[string]usage{},
		grown: map[string]chan struct{}{}}
	last, err := b.All(ctx, func(e ledger.Entry) {
		if e.Value != nil {
			h.note(e.Key, e.Value, e.Revision)
		}
	})
	h.at = last
	return h, err
}

// note takes an entry; the caller holds h.mu or is alone.
func (h *shelf) note(key string, value []byte, revision uint64) {
	h.forget(key)
	h.at = max(h.at, revision)
	node, rest, _ := strings.Cut(key, ".")
	if rest == keySuffix {
		var k storedKey
		if json.Unmarshal(value, &k) == nil && k.By != "" {
			h.keys[node] = placed{revision: revision, maker: node, size: len(value)}
		}
		return
	}
	var v storedSecret
	if json.Unmarshal(value, &v) != nil || v.By == "" {
		return
	}
	if h.secret[node] == nil {
		h.secret[node] = map[string]placed{}
	}
	h.secret[node][rest] = placed{revision: revision, maker: v.Node, size: len(value)}
	u := h.used[v.Node]
	h.used[v.Node] = usage{u.count + 1, u.bytes + len(value)}
}

// forget takes out what is known of a key; the caller holds h.mu or is alone.
func (h *shelf) forget(key string) {
	node, rest, _ := strings.Cut(key, ".")
	if rest == keySuffix {
		delete(h.keys, node)
		return
	}
	p, ok := h.secret[node][rest]
	if !ok {
		return
	}
	delete(h.secret[node], rest)
	if len(h.secret[node]) == 0 {
		delete(h.secret, node)
	}
	u := h.used[p.maker]
	if u.count--; u.count == 0 {
		delete(h.used, p.maker)
		return
	}
	h.used[p.maker] = usage{u.count, u.bytes - p.size}
}

func (h *shelf) isStale() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stale
}

// distrust has the bucket read anew.
func (h *shelf) distrust() {
	h.mu.Lock()
	h.stale = true
	h.mu.Unlock()
	h.announceAll()
}

func (h *shelf) announceAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for node, c := range h.grown {
		delete(h.grown, node)
		close(c)
	}
}

// put stores a value, unless it is there already. admit refuses what may not take
// the place of what is there.
func (h *shelf) put(ctx context.Context, key string, value []byte, admit func() error) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	if err := admit(); err != nil {
		return err
	}
	e, err := h.bucket.Get(ctx, key)
	if err != nil || bytes.Equal(e.Value, value) && value != nil {
		return err
	}
	first, err := h.bucket.Write(ctx, []ledger.Entry{{Key: key, Value: value, Revision: e.Revision}})
	if err != nil {
		h.distrust() // it may have been stored
		return err
	}
	h.mu.Lock()
	h.note(key, value, first)
	h.mu.Unlock()
	node, rest, _ := strings.Cut(key, ".")
	if rest == keySuffix {
		h.announceAll() // any agent may wait for it
	} else {
		h.announce(node)
	}
	return nil
}

// remove deletes what a maker stored under a key.
func (h *shelf) remove(ctx context.Context, key, maker string) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	e, err := h.bucket.Get(ctx, key)
	if err != nil || e.Value == nil {
		return err
	}
	var v storedSecret
	if err := json.Unmarshal(e.Value, &v); err == nil && v.By != "" && v.Node != maker {
		return &commands.Refusal{Code: commands.NotPermitted, Message: "the sealed secret is another node's", Why: "node " + v.Node + " made it", Candidates: []commands.Candidate{}}
	}
	if _, err := h.bucket.Write(ctx, []ledger.Entry{{Key: key, Revision: e.Revision}}); err != nil {
		h.distrust()
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(key)
	return nil
}

// room refuses what is more than one maker may store.
func (h *shelf) room(node, name, maker string, size int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.used[maker]
	if p, ok := h.secret[node][name]; ok {
		if p.maker != maker {
			return &commands.Refusal{Code: commands.NotPermitted, Message: "a secret of another node bears that name", Why: "node " + p.maker + " made it", Candidates: []commands.Candidate{}}
		}
		u = usage{u.count - 1, u.bytes - p.size}
	}
	why := ""
	switch {
	case size > maxSealedValue:
		why = fmt.Sprintf("it has %d bytes, and at most %d are kept", size, maxSealedValue)
	case u.count >= maxSealedCount:
		why = fmt.Sprintf("%d secrets of this node are kept, and no more", u.count)
	case u.bytes+size > maxSealedBytes:
		why = fmt.Sprintf("the secrets of this node have %d bytes, and at most %d are kept", u.bytes, maxSealedBytes)
	default:
		return nil
	}
	return &commands.Refusal{Code: commands.TooLarge, Message: "the sealed secret is not stored", Why: why, Candidates: []commands.Candidate{}}
}

// announce wakes those that wait for something for a node.
func (h *shelf) announce(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.grown[node]; ok {
		delete(h.grown, node)
		close(c)
	}
}

// since tells what is new for a node since a cursor, and what is closed when there
// is more.
func (h *shelf) since(node, cursor string) (WaitAnswer, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := WaitAnswer{Since: h.run + "." + strconv.FormatUint(h.at, 10)}
	run, text, _ := strings.Cut(cursor, ".")
	at, err := strconv.ParseUint(text, 10, 64)
	if cursor == "" {
		run, at, err = h.run, h.at, nil
	}
	out.All = err != nil || run != h.run || h.stale
	if !out.All {
		for rest, p := range h.secret[node] {
			if p.revision > at {
				out.Sealed = append(out.Sealed, refOf(rest))
			}
		}
		for other, p := range h.keys {
			if p.revision > at {
				out.Keys = append(out.Keys, other)
			}
		}
	}
	slices.Sort(out.Sealed)
	slices.Sort(out.Keys)
	if h.grown[node] == nil {
		h.grown[node] = make(chan struct{})
	}
	return out, h.grown[node]
}

// refOf is the path of the reference to <binding>.<name>.
func refOf(rest string) string { return strings.Replace(rest, ".", "/", 1) }

// read reads an entry; nil where it is not there any more.
func (h *shelf) read(ctx context.Context, p placed) ([]byte, error) {
	e, err := h.bucket.At(ctx, p.revision)
	if err != nil || e.Revision == p.revision {
		return e.Value, err
	}
	return nil, nil
}

// refs lists the names of the secrets for a node after one, in order.
func (h *shelf) refs(node, after string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for rest := range h.secret[node] {
		if ref := refOf(rest); ref > after {
			out = append(out, ref)
		}
	}
	slices.Sort(out)
	return out
}

// secretAt finds a secret for a node.
func (h *shelf) secretAt(node, ref string) (placed, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.secret[node][strings.Replace(ref, "/", ".", 1)]
	return p, ok
}

func (h *shelf) keyAt(node string) (placed, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.keys[node]
	return p, ok
}

// errMalformed is about an entry that was stored by this program and cannot be read.
var errMalformed = errors.New("a sealed secret in the bucket cannot be read")

// shelfTimeout bounds what one action asks of the server.
const shelfTimeout = 5 * time.Second

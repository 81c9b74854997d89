package subscriber

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"bindery/commands/readmodel"
	"bindery/ledger"
	"bindery/projections"
)

// message is what came for a key of the bucket.
type message struct {
	key   string
	doc   *projections.BindingDocument // nil: the key was deleted
	at    uint64
	chain string
	time  time.Time
	left  uint64 // messages that follow it already
}

// binding is what tells whose document it is: the last part of the key.
func (m *message) binding() string { return m.key[strings.LastIndexByte(m.key, '.')+1:] }

// whole reports whether it is the mark that all documents are there.
func (m *message) whole() bool { return m.key == readmodel.WholeKey }

// deletes is 1 for a deletion, else 0.
func (m *message) deletes() int {
	if m.doc == nil {
		return 1
	}
	return 0
}

// feed brings the documents under some keys.
type feed struct{ *ledger.BucketFeed }

// open begins to read some keys of the bucket.
func (w *watch) open(ctx context.Context, keys string) (feed, error) {
	ctx, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	f, err := ledger.FeedBucket(ctx, w.nc, readmodel.Bindings(w.mesh), keys)
	return feed{f}, err
}

// take returns the next message; ledger.ErrFeedNothing where none comes within a
// time. What is no document of ours is as if there were none.
func (f feed) take(ctx context.Context, within time.Duration) (m message, err error) {
	b, err := f.Next(ctx, within)
	if err != nil {
		return m, err
	}
	m = message{key: b.Key, chain: b.Header.Get(readmodel.HeaderChain), time: b.Time, left: b.Left}
	m.at, _ = strconv.ParseUint(b.Header.Get(readmodel.HeaderAt), 10, 64) // 0 where it is missing
	var d projections.BindingDocument
	if json.Unmarshal(b.Value, &d) == nil && d.ID != nil {
		m.doc, m.at, m.chain = &d, d.At, d.Chain
	}
	return m, nil
}

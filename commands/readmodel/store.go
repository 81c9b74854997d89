package readmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/maphash"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// store is one bucket of documents, as far as a keeper knows it.
type store struct {
	bucket *ledger.Bucket
	last   uint64 // its last revision: nobody else's
	whole  uint64 // the revision of WholeKey, 0 for none
	// dead has the revisions of the marks of deleted keys: whoever puts something
	// there must expect them. Not all are remembered: who meets one that is not reads
	// the bucket anew.
	dead map[string]uint64
}

// maxDead is how many marks are remembered.
const maxDead = 20_000

// place is a document that stands under a key.
type place struct {
	key      string
	revision uint64
	sum      uint64 // of what the document says, but for its stamp
}

// seed makes sums that nobody outside this process can foresee.
var seed = maphash.MakeSeed()

// chainMark comes before the last part of a stamp, chainDigits and a quote.
var chainMark = []byte(`"chain":"`)

const chainDigits = 64

// sumOf sums what a document says. Its stamp comes first: it says when the document
// was made, which alone is no news.
func sumOf(doc []byte) uint64 {
	if at := bytes.Index(doc, chainMark); at >= 0 {
		doc = doc[min(len(doc), at+len(chainMark)+chainDigits+1):]
	}
	return maphash.Bytes(seed, doc)
}

// stamped are the headers of every message: which state it tells of.
func stamped(s *projections.State) nats.Header {
	return nats.Header{HeaderAt: {strconv.FormatUint(s.Seq, 10)}, HeaderChain: {s.Chain.String()}}
}

// encode encodes a document. That cannot fail: it is made of text and numbers.
func encode(doc any) []byte {
	data, err := json.Marshal(doc)
	if err != nil {
		panic("readmodel: a document that is no JSON: " + err.Error())
	}
	return data
}

// bindingOf is the binding that a key of a bucket is about, or false.
func bindingOf(kind int, key string) (events.ID, bool) {
	parts := strings.Split(key, ".")
	at, n := 1, 2
	if kind == ofHolders {
		at, n = 2, 4
	}
	if len(parts) != n {
		return events.ID{}, false
	}
	id, err := events.ParseID(parts[at])
	return id, err == nil
}

// newest is the highest stamp that was read.
type newest struct {
	at    uint64
	chain string
}

// loaded is what a bucket held.
type loaded struct {
	newest newest
	doomed []ledger.Entry // what no binding of the ledger accounts for
}

// load reads a bucket.
func (k *Keeper) load(ctx context.Context, kind int) (out loaded, err error) {
	s := k.stores[kind]
	s.dead, s.whole = map[string]uint64{}, 0
	var entries []ledger.Entry
	s.last, err = s.bucket.All(ctx, func(e ledger.Entry) { entries = append(entries, e) })
	if err != nil {
		return out, err
	}
	k.src.View(func(st *projections.State) {
		for _, e := range entries {
			if at, err := strconv.ParseUint(e.Header.Get(HeaderAt), 10, 64); err == nil && at >= out.newest.at {
				out.newest = newest{at, e.Header.Get(HeaderChain)}
			}
			if e.Key == WholeKey {
				s.whole = e.Revision
				continue
			}
			if e.Value == nil {
				s.dead[e.Key] = e.Revision
				continue
			}
			id, ok := bindingOf(kind, e.Key)
			r := st.BindingWithID(id)
			if !ok || r == 0 {
				out.doomed = append(out.doomed, ledger.Entry{Key: e.Key, Revision: e.Revision})
				continue
			}
			p := place{key: e.Key, revision: e.Revision, sum: sumOf(e.Value)}
			if e.Header.Get(HeaderAt) == "" {
				p.sum = 0 // nobody of ours has written it
			}
			k.slot(r)[kind] = append(k.slot(r)[kind], p)
		}
	})
	return out, nil
}

package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// BucketConfig says what a key-value bucket is like.
type BucketConfig struct {
	Name        string
	Description string
	Memory      bool          // it is gone with its server
	Replicas    int           // 0: 1
	MaxAge      time.Duration // of a value; 0: no end
}

// Bucket is a key-value bucket as any NATS client reads it (ADR-8 of the NATS
// architecture: stream KV_<name>, subjects $KV.<name>.<key>), that is written in
// atomic batches, each value by compare-and-set. One goroutine at a time writes.
type Bucket struct {
	nc     *nats.Conn
	stream jetstream.Stream
	name   string
	prefix string // of subjects
	tr     natsTransport
}

// tombstone is how long the mark of a deleted key is kept.
const tombstone = 24 * time.Hour

// OpenBucket finds a bucket or makes it, and gives it the replicas that cfg asks
// for. What somebody else has changed about it is set right.
func OpenBucket(ctx context.Context, nc *nats.Conn, cfg BucketConfig) (*Bucket, error) {
	js, err := connect(nc)
	if err != nil {
		return nil, err
	}
	want := jetstream.StreamConfig{
		Name: "KV_" + cfg.Name, Description: cfg.Description, Subjects: []string{"$KV." + cfg.Name + ".>"},
		MaxMsgsPerSubject: 1, MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1, MaxAge: cfg.MaxAge,
		Storage: jetstream.FileStorage, Replicas: max(1, cfg.Replicas), Discard: jetstream.DiscardNew,
		AllowRollup: true, DenyDelete: true, AllowDirect: true, AllowAtomicPublish: true, AllowMsgTTL: true, Duplicates: duplicates,
	}
	if cfg.Memory {
		want.Storage = jetstream.MemoryStorage
	}
	s, err := js.Stream(ctx, want.Name)
	if err != nil || !fits(want, s.CachedInfo().Config) {
		s, err = js.CreateOrUpdateStream(ctx, want)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the bucket %q: %w", cfg.Name, err)
	}
	return &Bucket{nc: nc, stream: s, name: cfg.Name, prefix: "$KV." + cfg.Name + ".", tr: natsTransport{nc: nc}}, nil
}

// fits reports whether a bucket is as it shall be, in all that matters here.
func fits(want, is jetstream.StreamConfig) bool {
	return is.MaxAge == want.MaxAge && is.Storage == want.Storage && is.Replicas >= want.Replicas && is.MaxMsgsPerSubject == want.MaxMsgsPerSubject &&
		is.AllowAtomicPublish && is.AllowMsgTTL && is.DenyDelete && is.Discard == want.Discard && is.MaxMsgs == want.MaxMsgs &&
		is.MaxBytes == want.MaxBytes && is.MaxMsgSize == want.MaxMsgSize && slices.Equal(is.Subjects, want.Subjects)
}

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.name }

// Entry is what stands under a key.
type Entry struct {
	Key      string
	Value    []byte      // nil: the key is deleted
	Header   nats.Header // without the server's own, Nats-…
	Revision uint64      // the bucket's sequence
}

// The header of a deletion (ADR-8), and of a message's end (ADR-43).
const (
	hOperation = "KV-Operation"
	hTTL       = "Nats-TTL"
	deletion   = "DEL"
)

// Last is the bucket's last revision, 0 where nothing was ever written.
func (b *Bucket) Last(ctx context.Context) (uint64, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking for the last revision of %q: %w", b.name, err)
	}
	return info.State.LastSeq, nil
}

// All calls yield with everything in the bucket, the marks of deleted keys among
// it, up to the revision that is its last when All begins, which is returned.
func (b *Bucket) All(ctx context.Context, yield func(Entry)) (last uint64, err error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading %q: %w", b.name, err)
	}
	last = info.State.LastSeq
	if info.State.Msgs == 0 {
		return last, nil
	}
	cons, err := b.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, InactiveThreshold: inactive})
	if err != nil {
		return 0, fmt.Errorf("reading %q: %w", b.name, err)
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(pullMessages))
	if err != nil {
		return 0, fmt.Errorf("reading %q: %w", b.name, err)
	}
	defer it.Stop()
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return 0, fmt.Errorf("reading %q: %w", b.name, err)
		}
		seq, pending, err := place(m)
		if err != nil {
			return 0, fmt.Errorf("reading %q: %w", b.name, err)
		}
		yield(entryOf(strings.TrimPrefix(m.Subject(), b.prefix), m.Headers(), m.Data(), seq))
		if pending == 0 || seq >= last {
			return last, nil
		}
	}
}

// entryOf is what a stored message says.
func entryOf(key string, h nats.Header, data []byte, revision uint64) Entry {
	e := Entry{Key: key, Revision: revision}
	if h.Get(hOperation) == "" {
		if e.Value = data; data == nil {
			e.Value = []byte{}
		}
	}
	e.Header = record(revision, "", h, nil).Header
	return e
}

// ErrRevision is wrapped by the error of a Write that found another revision than
// was expected: somebody else has written. Nothing was stored.
var ErrRevision = errors.New("another has written to the bucket")

// Write stores up to MaxEvents entries, all or none, each in the place of the
// revision that its entry says: 0 for none. One without a value deletes its key;
// the mark of that keeps its header, and is forgotten after a day. It returns the
// revision of the first; those of the others follow.
//
// The error wraps ErrRevision where one was another. After any other error it is
// not known whether they are stored.
func (b *Bucket) Write(ctx context.Context, entries []Entry) (first uint64, err error) {
	msgs := make([]*nats.Msg, len(entries))
	batch := []string{nuid.Next()}
	for i, e := range entries {
		h := make(nats.Header, len(e.Header)+5)
		for name, v := range e.Header {
			h[name] = v
		}
		h[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(e.Revision, 10)}
		if e.Value == nil {
			h[hOperation], h[hTTL] = []string{deletion}, []string{strconv.Itoa(int(tombstone / time.Second))}
		}
		if len(entries) > 1 {
			h[hBatchID], h[hBatchSeq] = batch, []string{strconv.Itoa(i + 1)}
			if i == len(entries)-1 {
				h[hBatchEnd] = []string{"1"}
			}
		}
		msgs[i] = &nats.Msg{Subject: b.prefix + e.Key, Header: h, Data: e.Value}
	}
	a := b.tr.exchange(ctx, msgs, len(msgs)-1)[0]
	if a.err != nil && judge(a.err) == conflict {
		return 0, fmt.Errorf("writing to %q: %w", b.name, ErrRevision)
	}
	if a.err != nil {
		return 0, fmt.Errorf("writing to %q: %w", b.name, a.err)
	}
	return a.seq - uint64(len(entries)) + 1, nil
}

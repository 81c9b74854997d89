package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// BucketFeed brings the last entry of each key of a bucket, and then what follows,
// through a consumer of those keys alone, whose filter is in the subject that makes
// it and which delivers to an inbox: that is what an agent may make. The server
// sends no more than is taken. One goroutine may use it.
type BucketFeed struct {
	Pending uint64 // entries that were there

	nc     *nats.Conn
	bucket string
	name   string
	sub    *nats.Subscription
	next   uint64    // the place of the next message among what the consumer brings
	heard  time.Time // when something came last
	prefix string    // of the subjects
}

// BucketMessage is what came for a key.
type BucketMessage struct {
	Entry
	Time time.Time // when it was written
	Left uint64    // how many follow it already
}

const (
	// heartbeat is how often the server says that there is nothing new.
	heartbeat = 2 * time.Second
	// deaf is how long nothing at all may come.
	deaf = 3 * heartbeat
)

// Of a message that is none (server/consumer.go): its status, and where a consumer
// says that it waits for an answer, and the place of the last message it sent.
const (
	hStatus       = "Status"
	hStalled      = "Nats-Consumer-Stalled"
	hLast         = "Nats-Last-Consumer"
	statusControl = "100"
)

// Ends of a feed, and what is none. After an end, whoever wants to know all begins
// with another feed.
var (
	// ErrFeedLost says that entries were left out.
	ErrFeedLost = errors.New("messages of the bucket were left out")
	// ErrFeedDeaf says that not even a sign of life comes.
	ErrFeedDeaf = errors.New("nothing comes from the bucket's consumer")
	// ErrFeedNothing says that nothing came in the time that was given.
	ErrFeedNothing = errors.New("nothing came")
)

// FeedBucket begins to read the keys of a bucket that a pattern says: ">" for all.
func FeedBucket(ctx context.Context, nc *nats.Conn, bucket, keys string) (*BucketFeed, error) {
	js, err := connect(nc)
	if err != nil {
		return nil, err
	}
	f := &BucketFeed{nc: nc, bucket: bucket, name: "w" + nuid.Next(), next: 1, prefix: "$KV." + bucket + ".", heard: time.Now()}
	inbox := nc.NewInbox()
	if f.sub, err = nc.SubscribeSync(inbox); err != nil {
		return nil, fmt.Errorf("reading the bucket %q: %w", bucket, err)
	}
	if err := f.sub.SetPendingLimits(-1, -1); err != nil { // the consumer's flow control bounds it
		return nil, err
	}
	cons, err := js.CreatePushConsumer(ctx, "KV_"+bucket, jetstream.ConsumerConfig{
		Name: f.name, FilterSubject: f.prefix + keys, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		DeliverSubject: inbox, IdleHeartbeat: heartbeat, FlowControl: true, MaxDeliver: 1, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		_ = f.sub.Unsubscribe()
		return nil, fmt.Errorf("reading the bucket %q: %w", bucket, err)
	}
	f.Pending = cons.CachedInfo().NumPending
	return f, nil
}

// Close ends the feed. Nobody waits for an answer: a consumer that is not deleted
// ends by itself.
func (f *BucketFeed) Close() {
	_ = f.sub.Unsubscribe()
	_ = f.nc.Publish(jetstream.DefaultAPIPrefix+"CONSUMER.DELETE.KV_"+f.bucket+"."+f.name, nil)
}

// Next returns the next message; ErrFeedNothing where none comes within a time.
func (f *BucketFeed) Next(ctx context.Context, within time.Duration) (BucketMessage, error) {
	end := time.Now().Add(within)
	for {
		turn, cancel := context.WithDeadline(ctx, end)
		m, err := f.sub.NextMsgWithContext(turn)
		cancel()
		switch {
		case err != nil && ctx.Err() != nil:
			return BucketMessage{}, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && time.Since(f.heard) > deaf:
			return BucketMessage{}, ErrFeedDeaf
		case errors.Is(err, context.DeadlineExceeded):
			return BucketMessage{}, ErrFeedNothing
		case err != nil:
			return BucketMessage{}, err
		}
		f.heard = time.Now()
		if m.Header.Get(hStatus) == "" {
			return f.read(m)
		}
		if err := f.control(m); err != nil {
			return BucketMessage{}, err
		}
	}
}

// control answers what the consumer says of itself.
func (f *BucketFeed) control(m *nats.Msg) error {
	if m.Header.Get(hStatus) != statusControl {
		return fmt.Errorf("the bucket's consumer has ended: %s %s", m.Header.Get(hStatus), m.Header.Get("Description"))
	}
	reply := m.Reply
	if reply == "" {
		reply = m.Header.Get(hStalled)
	}
	if reply != "" {
		_ = f.nc.Publish(reply, nil) // it asks again
	}
	if last, err := strconv.ParseUint(m.Header.Get(hLast), 10, 64); err == nil && last >= f.next {
		return ErrFeedLost
	}
	return nil
}

func (f *BucketFeed) read(m *nats.Msg) (BucketMessage, error) {
	meta, err := m.Metadata()
	if err != nil {
		return BucketMessage{}, err
	}
	if meta.Sequence.Consumer != f.next {
		return BucketMessage{}, ErrFeedLost
	}
	f.next++
	return BucketMessage{Entry: entryOf(strings.TrimPrefix(m.Subject, f.prefix), m.Header, m.Data, meta.Sequence.Stream),
		Time: meta.Timestamp.UTC(), Left: meta.NumPending}, nil
}

package subscriber

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"bindery/commands/readmodel"
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

// feed brings the last message of each key, and then what follows, through a
// consumer of the node's subject alone, which delivers to an inbox: that is what an
// agent may make. The server sends no more than is taken from it.
type feed struct {
	pending uint64 // messages that were there

	w      *watch
	name   string
	sub    *nats.Subscription
	next   uint64    // the place of the next message among what the consumer brings
	heard  time.Time // when something came last
	prefix string    // of the subjects
}

const (
	// heartbeat is how often the server says that there is nothing new.
	heartbeat = 2 * time.Second
	// deaf is how long nothing at all may come.
	deaf = 3 * heartbeat
)

// headerOperation says what a message does that puts no value (ADR-8).
const headerOperation = "KV-Operation"

// Of a message that is none (server/consumer.go): its status, and where a consumer
// says that it waits for an answer, and the place of the last message it sent.
const (
	headerStatus  = "Status"
	headerStalled = "Nats-Consumer-Stalled"
	headerLast    = "Nats-Last-Consumer"
	statusControl = "100"
)

// open makes a consumer of some keys.
func (w *watch) open(ctx context.Context, keys string) (*feed, error) {
	bucket := readmodel.Bindings(w.mesh)
	f := &feed{w: w, name: "w" + nuid.Next(), next: 1, prefix: "$KV." + bucket + ".", heard: time.Now()}
	inbox := w.nc.NewInbox()
	var err error
	if f.sub, err = w.nc.SubscribeSync(inbox); err != nil {
		return nil, fmt.Errorf("reading the bucket %q: %w", bucket, err)
	}
	if err := f.sub.SetPendingLimits(-1, -1); err != nil { // the consumer's flow control bounds it
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	cons, err := w.js.CreatePushConsumer(ctx, "KV_"+bucket, jetstream.ConsumerConfig{
		Name: f.name, FilterSubject: f.prefix + keys, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		DeliverSubject: inbox, IdleHeartbeat: heartbeat, FlowControl: true, MaxDeliver: 1, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		_ = f.sub.Unsubscribe()
		return nil, fmt.Errorf("reading the bucket %q: %w", bucket, err)
	}
	f.pending = cons.CachedInfo().NumPending
	return f, nil
}

// close ends the feed. Nobody waits for an answer: a consumer that is not deleted
// ends by itself.
func (f *feed) close() {
	_ = f.sub.Unsubscribe()
	_ = f.w.nc.Publish(jetstream.DefaultAPIPrefix+"CONSUMER.DELETE.KV_"+readmodel.Bindings(f.w.mesh)+"."+f.name, nil)
}

// Ends of a feed.
var (
	// errLost says that messages were left out.
	errLost = errors.New("messages of the bucket were left out")
	// errDeaf says that not even a sign of life comes.
	errDeaf = errors.New("nothing comes from the bucket's consumer")
	// errNothing says that nothing came in the time that was given.
	errNothing = errors.New("nothing came")
)

// take returns the next message; errNothing where none comes within a time.
func (f *feed) take(ctx context.Context, within time.Duration) (message, error) {
	end := time.Now().Add(within)
	for {
		turn, cancel := context.WithDeadline(ctx, end)
		m, err := f.sub.NextMsgWithContext(turn)
		cancel()
		switch {
		case err != nil && ctx.Err() != nil:
			return message{}, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && time.Since(f.heard) > deaf:
			return message{}, errDeaf
		case errors.Is(err, context.DeadlineExceeded):
			return message{}, errNothing
		case err != nil:
			return message{}, err
		}
		f.heard = time.Now()
		if m.Header.Get(headerStatus) == "" {
			return f.decode(m)
		}
		if err := f.control(m); err != nil {
			return message{}, err
		}
	}
}

// control answers what the consumer says of itself.
func (f *feed) control(m *nats.Msg) error {
	if m.Header.Get(headerStatus) != statusControl {
		return fmt.Errorf("the bucket's consumer has ended: %s %s", m.Header.Get(headerStatus), m.Header.Get("Description"))
	}
	reply := m.Reply
	if reply == "" {
		reply = m.Header.Get(headerStalled)
	}
	if reply != "" {
		_ = f.w.nc.Publish(reply, nil) // it asks again
	}
	if last, err := strconv.ParseUint(m.Header.Get(headerLast), 10, 64); err == nil && last >= f.next {
		return errLost
	}
	return nil
}

// decode reads a message of the bucket. What is no document of ours is as if there
// were none.
func (f *feed) decode(msg *nats.Msg) (m message, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return m, err
	}
	if meta.Sequence.Consumer != f.next {
		return m, errLost
	}
	f.next++
	m = message{key: strings.TrimPrefix(msg.Subject, f.prefix), chain: msg.Header.Get(readmodel.HeaderChain),
		time: meta.Timestamp.UTC(), left: meta.NumPending}
	m.at, _ = strconv.ParseUint(msg.Header.Get(readmodel.HeaderAt), 10, 64) // 0 where it is missing
	if msg.Header.Get(headerOperation) == "" && len(msg.Data) > 0 {
		var d projections.BindingDocument
		if json.Unmarshal(msg.Data, &d) == nil && d.ID != nil {
			m.doc, m.at, m.chain = &d, d.At, d.Chain
		}
	}
	return m, nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// entry is what a bucket holds under one key now.
type entry struct {
	key      string
	value    []byte // nil: it was deleted
	revision uint64
}

// watch reads what a bucket holds under the keys of a pattern, and what changes
// there, until its context ends. It needs no right but to make a consumer that is
// filtered to that pattern: not to ask about the stream, and not to read it
// directly.
//
// What is gone is told as deleted, whether its deletion was seen or not: each
// time the watch has begun anew it is told what there is, and then that this is
// all (listed). Of one key older entries may be left out.
type watch struct {
	js      jetstream.JetStream
	nc      *nats.Conn
	bucket  string
	pattern string // of keys: "<node id>.>"
	entry   func(entry)
	listed  func()
	logger  *slog.Logger

	known map[string]bool // keys that were told of and not deleted
}

// A watch that hears nothing for heartbeat is told so by the server; after
// deafAfter it is dead: its consumer is gone, or its messages were lost.
const (
	heartbeat = 3 * time.Second
	deafAfter = 10 * time.Second
	// A consumer nobody listens to any more is removed by the server after this.
	consumerInactive = 30 * time.Second
	watchAgain       = time.Second
)

// run watches until ctx ends, or the connection is closed for good.
func (w *watch) run(ctx context.Context) error {
	w.known = map[string]bool{}
	for said := ""; ; {
		err := w.once(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if w.nc.IsClosed() {
			return errGone
		}
		if text := err.Error(); text != said { // the same once
			w.logger.Warn("watching begins anew", "bucket", w.bucket, "error", text)
			said = text
		}
		if !sleep(ctx, watchAgain) {
			return ctx.Err()
		}
	}
}

// errLostMessages says that a watch was not told everything.
var errLostMessages = errors.New("messages were lost")

// once watches from a fresh list on, until something is wrong.
func (w *watch) once(ctx context.Context) error {
	inbox := w.nc.NewInbox()
	sub, err := w.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // the server forgets the consumer by itself
	subjects := "$KV." + w.bucket + "."
	c, err := w.js.CreatePushConsumer(ctx, "KV_"+w.bucket, jetstream.ConsumerConfig{
		Name: nuid.Next(), DeliverSubject: inbox, FilterSubject: subjects + w.pattern,
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1,
		IdleHeartbeat: heartbeat, InactiveThreshold: consumerInactive, MemoryStorage: true, Replicas: 1})
	if err != nil {
		return fmt.Errorf("making a consumer: %w", err)
	}
	seen := map[string]bool{} // of the list; nil when it is told
	if c.CachedInfo().NumPending == 0 {
		w.endList(seen)
		seen = nil
	}
	for last := uint64(0); ; {
		m, err := w.next(ctx, sub)
		if err != nil {
			return err
		}
		if m.Header.Get("Status") != "" {
			if n, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err == nil && n != last {
				return errLostMessages
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != last+1 {
			return errLostMessages
		}
		last++
		e := entry{key: strings.TrimPrefix(m.Subject, subjects), revision: meta.Sequence.Stream}
		if m.Header.Get(jetstreamOperation) == "" {
			e.value = m.Data
		}
		if seen != nil {
			seen[e.key] = true
		}
		w.tell(e)
		if seen != nil && meta.NumPending == 0 {
			w.endList(seen)
			seen = nil
		}
	}
}

// next is the next message or heartbeat.
func (w *watch) next(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	turn, cancel := context.WithTimeout(ctx, deafAfter)
	defer cancel()
	m, err := sub.NextMsgWithContext(turn)
	if err != nil && ctx.Err() == nil && turn.Err() != nil {
		err = fmt.Errorf("nothing was heard for %s", deafAfter)
	}
	return m, err
}

// jetstreamOperation is the header of a message that deletes a key (ADR-8 of the
// NATS architecture).
const (
	jetstreamOperation = "KV-Operation"
	operationDelete    = "DEL"
)

func (w *watch) tell(e entry) {
	if e.value == nil {
		delete(w.known, e.key)
	} else {
		w.known[e.key] = true
	}
	w.entry(e)
}

// endList tells of what is gone since the list before, and that the list is whole.
func (w *watch) endList(seen map[string]bool) {
	for key := range w.known {
		if !seen[key] {
			w.tell(entry{key: key})
		}
	}
	w.listed()
}

// sleep reports whether ctx still stands after a while.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

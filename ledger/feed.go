package ledger

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

const (
	// pullMessages is how many messages one pull asks for (measured: bigger
	// pulls are not faster, and a limit in bytes is much slower).
	pullMessages = 10_000
	// chunkSize messages are decoded in one piece of work.
	chunkSize = 256
	// chunksAhead bounds how far the feed runs ahead of the reader.
	chunksAhead = 16
	// inactive is how long the server keeps a consumer nobody pulls from.
	inactive = 30 * time.Second
)

// chunk is a run of messages as they came, and what could be found out about
// each by itself or from the message right before it.
type chunk struct {
	recs []events.Record
	prev string // the chain header of the message before the first

	// Set by decode.
	evs    []events.Event
	linked []bool  // the chain continues from the message right before
	errs   []error // of decoding; nil if there is none at all
	proofs []proven
	ready  chan struct{}
}

// decode does what needs no knowledge of earlier chunks; several run at once.
// Without payloads, only the fields of evs that the chain and the borders of
// commands need are set.
func (c *chunk) decode(payloads bool, s Secrets) {
	defer close(c.ready)
	defer c.prove(s)
	n := len(c.recs)
	c.evs, c.linked = make([]events.Event, n), make([]bool, n)
	prev, err := events.ParseChain(c.prev)
	known := err == nil || c.prev == ""
	for i := range c.recs {
		r := &c.recs[i]
		var err error
		if payloads {
			c.evs[i], err = events.Decode(r)
		} else {
			c.evs[i], err = readBorder(r)
		}
		if err == nil {
			// Decode has read the stored chain value.
			e := &c.evs[i]
			c.linked[i] = known && prev.Link(e.Mesh, r) == e.Chain
			prev, known = e.Chain, true
			continue
		}
		if c.errs == nil {
			c.errs = make([]error, n)
		}
		c.errs[i] = err
		c.evs[i] = events.Event{Seq: r.Seq}
		if stored, err := events.ParseChain(r.Get(events.HeaderChain)); err != nil {
			known = false
		} else {
			if mesh, err := events.MeshOf(r); err == nil {
				c.evs[i].Mesh, c.evs[i].Chain = mesh, stored
				c.linked[i] = known && prev.Link(mesh, r) == stored
			}
			prev, known = stored, true
		}
	}
}

// readBorder reads what the chain and the borders of commands need.
func readBorder(r *events.Record) (e events.Event, err error) {
	e.Seq = r.Seq
	if e.Chain, err = events.ParseChain(r.Get(events.HeaderChain)); err != nil {
		return e, err
	}
	if e.Mesh, err = events.MeshOf(r); err != nil {
		return e, err
	}
	if e.Command, err = events.ParseID(r.Get(events.HeaderCommand)); err != nil {
		return e, err
	}
	e.K, e.N, err = events.ParseBatch(r.Get(events.HeaderBatch))
	return e, err
}

// feed delivers the messages of the stream from one sequence on, in order, as
// chunks, decoded by as many goroutines as there are processors.
type feed struct {
	chunks chan *chunk // in order; wait for ready

	stop    context.CancelFunc
	consume jetstream.ConsumeContext
	forget  func() // the server's side of it
	wg      sync.WaitGroup
}

// startFeed starts at sequence from. A chunk is cut at sequence to, so that
// whoever waits for it need not wait for more.
func (l *Log) startFeed(ctx context.Context, from, to uint64, prev string, payloads bool) (*feed, error) {
	octx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	cons, err := l.js.OrderedConsumer(octx, l.stream, jetstream.OrderedConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		InactiveThreshold: inactive,
	})
	if err != nil {
		return nil, fmt.Errorf("reading from sequence %d: %w", from, err)
	}
	ctx, stop := context.WithCancel(ctx)
	f := &feed{chunks: make(chan *chunk, chunksAhead), stop: stop}
	f.forget = func() {
		if info := cons.CachedInfo(); info != nil {
			// Nobody waits for the answer: what is not deleted ends by itself.
			_ = l.nc.Publish(jetstream.DefaultAPIPrefix+"CONSUMER.DELETE."+l.stream+"."+info.Name, nil)
		}
	}
	work := make(chan *chunk, chunksAhead)
	for range min(8, runtime.GOMAXPROCS(0)) {
		f.wg.Go(func() {
			for {
				select {
				case c := <-work:
					c.decode(payloads, l.secrets)
				case <-ctx.Done():
					return
				}
			}
		})
	}

	// Owned by the consumer's goroutine; a reset of the consumer starts
	// another one, after the first is through.
	var mu sync.Mutex
	next := from
	cur := &chunk{prev: prev, recs: make([]events.Record, 0, chunkSize)}
	handle := func(m jetstream.Msg) {
		seq, pending, err := place(m)
		if err != nil {
			return // a gap will show
		}
		mu.Lock()
		defer mu.Unlock()
		if seq < next || ctx.Err() != nil {
			return
		}
		next = seq + 1
		cur.recs = append(cur.recs, events.Record{Seq: seq, Subject: m.Subject(), Header: m.Headers(), Data: m.Data()})
		if len(cur.recs) < chunkSize && seq < to && pending > 0 {
			return
		}
		c := cur
		c.ready = make(chan struct{})
		cur = &chunk{prev: c.recs[len(c.recs)-1].Get(events.HeaderChain), recs: make([]events.Record, 0, chunkSize)}
		for _, out := range []chan *chunk{work, f.chunks} {
			select {
			case out <- c:
			case <-ctx.Done():
				return
			}
		}
	}
	// The server sends all that is pulled, also to who stops before.
	pull := pullMessages
	if to >= from && to-from < pullMessages/2 {
		pull = int(to-from) + chunkSize
	}
	f.consume, err = cons.Consume(handle, jetstream.PullMaxMessages(pull),
		// Whatever it is: the reader watches for progress itself.
		jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {}))
	if err != nil {
		stop()
		return nil, fmt.Errorf("reading from sequence %d: %w", from, err)
	}
	return f, nil
}

// place returns a message's sequence and how many follow it.
func place(m jetstream.Msg) (seq, pending uint64, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return 0, 0, err
	}
	return meta.Sequence.Stream, meta.NumPending, nil
}

// close ends the feed and waits for its goroutines. Stop leaves the server's
// consumer and its open pull behind until they are inactive; a server that is
// shut down with one takes 50 ms longer (server/jetstream.go,
// signalPullConsumers).
func (f *feed) close() {
	f.stop()
	f.consume.Stop()
	f.forget()
	f.wg.Wait()
}

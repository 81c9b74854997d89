package service

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
)

// pagesAhead is how many pages are fetched and decoded before the first is taken.
const pagesAhead = 3

// Commands yields the commands after a place of the ledger, each once and whole, in
// order, and goes on with what comes: its events are decoded and verified against the
// chain; the slice is the caller's. It survives restarts of the server, another writer
// and lost connections, as long as the client's connection goes on trying. The last
// thing yielded is an error:
//
//   - ctx's, or nats.ErrConnectionClosed where the connection is closed for good
//   - a *commands.Refusal: with ledger_restored where the ledger has another history up
//     to that place, with not_permitted where the caller may not read it, with
//     ledger_damaged where the server finds damage
//   - a *ledger.DamageError where the server sends something that does not continue
//     the chain
//   - one that wraps *events.UnknownTypeError where a newer program writes the ledger;
//     what came before has been yielded
func (c *Client) Commands(ctx context.Context, from ledger.Position) iter.Seq2[[]events.Event, error] {
	return func(yield func([]events.Event, error) bool) {
		turns, cancel := context.WithCancel(ctx)
		var fetching sync.WaitGroup
		defer fetching.Wait()
		defer cancel()
		pages := make(chan *decoding, pagesAhead)
		fetching.Go(func() {
			defer close(pages)
			c.fetch(turns, from, pages)
		})
		for p := range pages {
			<-p.ready
			for _, group := range p.groups {
				if !yield(group, nil) {
					return
				}
			}
			if p.err != nil {
				yield(nil, p.err)
				return
			}
		}
		yield(nil, context.Cause(ctx))
	}
}

// fetch fetches pages until ctx ends, or one brings an error.
func (c *Client) fetch(ctx context.Context, at ledger.Position, pages chan<- *decoding) {
	send := func(d *decoding) bool {
		select {
		case pages <- d:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for try := 0; ; {
		page, err := c.turn(ctx, at)
		switch {
		case ctx.Err() != nil:
			return
		case c.Closed():
			send(failed(nats.ErrConnectionClosed))
			return
		case err != nil && !Passes(err):
			send(failed(err))
			return
		case err != nil:
			if !pause(ctx, try) {
				return
			}
			try++
			continue
		}
		if try = 0; len(page.Items) == 0 {
			continue
		}
		d := &decoding{from: at, items: page.Items, ready: make(chan struct{})}
		next, err := d.end()
		go d.decode()
		if !send(d) || err != nil {
			return // who decodes it finds the same
		}
		at = next
	}
}

// turn waits for what follows a place.
func (c *Client) turn(ctx context.Context, at ledger.Position) (RecordsPage, error) {
	ctx, cancel := context.WithTimeout(ctx, followWait+followSlack)
	defer cancel()
	q := RecordsQuery{First: at.Seq + 1, Wait: int(followWait / time.Millisecond)}
	if at.Seq > 0 {
		q.Chain = at.Chain.String()
	}
	return c.Records(ctx, q)
}

// Passes reports whether an error of a query may be gone at the next try: nobody
// answered, or whoever did could not.
func Passes(err error) bool {
	var r *commands.Refusal
	if !errors.As(err, &r) {
		return false
	}
	switch r.Code {
	case commands.Unreachable, commands.OutcomeUnknown, commands.StillPending, commands.Interrupted, commands.Internal:
		return true
	}
	return false
}

// decoding is a page that is being decoded.
type decoding struct {
	from  ledger.Position
	items []StoredRecord

	ready  chan struct{} // closed when what follows is set
	groups [][]events.Event
	err    error // after the groups
}

// failed is a page that is only an error.
func failed(err error) *decoding {
	d := &decoding{ready: make(chan struct{}), err: err}
	close(d.ready)
	return d
}

// end is the place of the last event, as it says itself: the next page can be fetched
// before this one is verified.
func (d *decoding) end() (at ledger.Position, err error) {
	r := d.items[len(d.items)-1].Record()
	at.Seq = r.Seq
	if at.Chain, err = events.ParseChain(r.Get(events.HeaderChain)); err == nil {
		at.Mesh, err = events.MeshOf(&r)
	}
	return at, err
}

// decode verifies and decodes the events, and makes whole commands of them.
func (d *decoding) decode() {
	defer close(d.ready)
	at := d.from
	all := make([]events.Event, 0, len(d.items))
	for i, begin := 0, 0; i < len(d.items); i++ {
		r := d.items[i].Record()
		if d.err = next(at, &r); d.err != nil {
			return
		}
		e, err := events.Decode(&r)
		if err != nil {
			d.err = undecoded(&r, err)
			return
		}
		if e.K != i-begin+1 || e.N < e.K || i > begin && e.Command != all[begin].Command {
			d.err = &ledger.DamageError{Seq: e.Seq, Why: fmt.Sprintf("event %d of %d does not stand in its command", e.K, e.N)}
			return
		}
		all = append(all, e)
		if at = ledger.After(&e); e.K == e.N {
			d.groups = append(d.groups, all[begin:i+1:i+1])
			begin = i + 1
		}
	}
	if n := len(all); n > 0 && all[n-1].K != all[n-1].N {
		d.err = &ledger.DamageError{Seq: all[n-1].Seq, Why: "its command is not whole"}
	}
}

// next checks that a record is the one that follows a place.
func next(at ledger.Position, r *events.Record) error {
	if r.Seq <= at.Seq {
		return &ledger.DamageError{Seq: r.Seq, Why: fmt.Sprintf("it comes after sequence %d", at.Seq)}
	}
	if _, err := events.Verify(at.Chain, at.Mesh, r); err != nil {
		return &ledger.DamageError{Seq: r.Seq, Why: "not the event that was appended", Err: err}
	}
	return nil
}

// undecoded is the error about an event whose chain value is right.
func undecoded(r *events.Record, err error) error {
	var newer *events.UnknownTypeError
	if errors.As(err, &newer) {
		return fmt.Errorf("reading sequence %d: %w", r.Seq, newer)
	}
	return &ledger.DamageError{Seq: r.Seq, Why: "an event that cannot be read", Err: err}
}

package service

import (
	"bytes"
	"context"
	"encoding/json"
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
	ahead := &ahead{c: c}
	for try := 0; ; {
		d, err := ahead.take(ctx, at)
		if d == nil && err == nil {
			d, err = c.turn(ctx, at)
		}
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
		if try = 0; d.to.Seq <= at.Seq {
			continue // nothing has come
		}
		ahead.ask(ctx, d)
		go d.decode()
		if !send(d) {
			return
		}
		at = d.to
	}
}

// ahead are pages that are asked for before it is known where they are to begin. One
// that begins a little too early is as good.
type ahead struct {
	c     *Client
	asked []early
	next  uint64 // where the next is to begin
}

// early is a page that was asked for early.
type early struct {
	first uint64
	page  chan json.RawMessage // nil comes where there is none
}

// ask asks for pages beyond one, as many as the ledger has.
func (a *ahead) ask(ctx context.Context, d *decoding) {
	a.next = max(a.next, d.to.Seq+1)
	for len(a.asked) < pagesAhead && a.next+MaxRecords <= d.head {
		e := early{a.next, make(chan json.RawMessage, 1)}
		go func() {
			ctx, cancel := context.WithTimeout(ctx, followSlack)
			defer cancel()
			data, err := a.c.rawRecords(ctx, RecordsQuery{First: e.first})
			if err != nil {
				data = nil
			}
			e.page <- data
		}()
		a.asked = append(a.asked, e)
		a.next += MaxRecords
	}
}

// take returns the page that goes on from a place, or nil where none does.
func (a *ahead) take(ctx context.Context, at ledger.Position) (*decoding, error) {
	for len(a.asked) > 0 {
		e := a.asked[0]
		if e.first > at.Seq+1 {
			break // the one before it was shorter
		}
		a.asked = a.asked[1:]
		select {
		case data := <-e.page:
			if data == nil {
				continue
			}
			if d, err := look(at, data); err != nil || d.to.Seq > at.Seq {
				return d, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	a.asked, a.next = nil, 0
	return nil, nil
}

// turn waits for what follows a place.
func (c *Client) turn(ctx context.Context, at ledger.Position) (*decoding, error) {
	ctx, cancel := context.WithTimeout(ctx, followWait+followSlack)
	defer cancel()
	q := RecordsQuery{First: at.Seq + 1, Wait: int(followWait / time.Millisecond)}
	if at.Seq > 0 {
		q.Chain = at.Chain.String()
	}
	data, err := c.rawRecords(ctx, q)
	if err != nil {
		return nil, err
	}
	return look(at, data)
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
	from, to ledger.Position // to is what the page says: the next is asked for with it
	head     uint64          // the ledger's last sequence
	data     []byte

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

// look reads what comes before the items: where the page ends, at from.Seq or before
// where it brings nothing. That is verified with the items.
func look(from ledger.Position, data []byte) (*decoding, error) {
	d := &decoding{from: from, data: data, ready: make(chan struct{})}
	var head RecordsPage
	r := json.NewDecoder(bytes.NewReader(data))
	fields := map[string]any{"mesh": &head.Mesh, "mesh_id": &head.MeshID, "seq": &head.Seq, "next": &head.Next, "chain": &head.Chain}
	for name := json.Token(nil); name != "items"; {
		var err error
		if name, err = r.Token(); err != nil {
			return nil, fmt.Errorf("%w: %w", errAnswer, err)
		}
		if text, ok := name.(string); ok && fields[text] != nil {
			if err := r.Decode(fields[text]); err != nil {
				return nil, fmt.Errorf("%w: %w", errAnswer, err)
			}
		}
	}
	if d.head = head.Seq; head.Chain == "" {
		return d, nil // it has no item
	}
	var err error
	d.to = ledger.Position{Seq: head.Seq, Mesh: head.MeshID}
	if head.Next > 0 {
		d.to.Seq = head.Next - 1
	}
	if d.to.Chain, err = events.ParseChain(head.Chain); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return d, nil
}

// decode verifies and decodes the events, and makes whole commands of them.
func (d *decoding) decode() {
	defer close(d.ready)
	var page RecordsPage
	if d.err = json.Unmarshal(d.data, &page); d.err != nil {
		return
	}
	var at ledger.Position
	if at, d.err = d.commands(page.Items); d.err == nil && at != d.to {
		d.err = &ledger.DamageError{Seq: at.Seq, Why: fmt.Sprintf("the page says that it ends at %d with %s", d.to.Seq, d.to.Chain)}
	}
}

func (d *decoding) commands(items []StoredRecord) (at ledger.Position, err error) {
	at = d.from
	all := make([]events.Event, 0, len(items))
	begin := 0
	for len(items) > 0 && items[0].Seq <= at.Seq {
		items = items[1:] // it was asked for early
	}
	for i := range items {
		r := items[i].Record()
		if err := next(at, &r); err != nil {
			return at, err
		}
		e, err := events.Decode(&r)
		if err != nil {
			return at, undecoded(&r, err)
		}
		if e.K != i-begin+1 || i > begin && (e.N != all[begin].N || e.Command != all[begin].Command) {
			return at, &ledger.DamageError{Seq: e.Seq, Why: fmt.Sprintf("event %d of %d does not stand in its command", e.K, e.N)}
		}
		all = append(all, e)
		if at = ledger.After(&e); e.K == e.N {
			d.groups = append(d.groups, all[begin:i+1:i+1])
			begin = i + 1
		}
	}
	if begin < len(all) {
		return at, &ledger.DamageError{Seq: at.Seq, Why: "its command is not whole"}
	}
	return at, nil
}

// next checks that a record is the one that follows a place.
func next(at ledger.Position, r *events.Record) error {
	if r.Seq <= at.Seq {
		return &ledger.DamageError{Seq: r.Seq, Why: fmt.Sprintf("the server sent it after sequence %d", at.Seq)}
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

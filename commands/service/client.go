package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/ledger"
)

// Client asks a service. It may be used from several goroutines.
type Client struct {
	nc    *nats.Conn
	mesh  string
	inbox string      // answers come to inbox.<token>
	key   *ledger.Key // signs what is asked; nil: nobody does
	who   Identity    // the ledger that signatures are for
	sub   *nats.Subscription

	failsOver bool          // another may answer where one does not
	followers bool          // queries go to whoever follows the ledger
	seen      atomic.Uint64 // the highest sequence that an answer knew of

	mu      sync.Mutex
	waiting map[string]*waiter // by token
}

// NewClient asks the service of mesh over nc. When that is connected again after
// a break, what was asked and not answered is asked again: a command has one
// effect however often it comes. When it is closed for good, nobody waits on.
func NewClient(nc *nats.Conn, mesh string) (*Client, error) {
	c := &Client{nc: nc, mesh: mesh, inbox: nc.NewInbox(), waiting: map[string]*waiter{}}
	sub, err := nc.Subscribe(c.inbox+".*", c.deliver)
	if err != nil {
		return nil, fmt.Errorf("listening for answers: %w", err)
	}
	c.sub = sub
	nc.SetReconnectHandler(func(*nats.Conn) { c.again() })
	nc.SetClosedHandler(func(*nats.Conn) { c.fail(errGone) })
	return c, nil
}

// SignWith makes the client sign what it asks, for the ledger that who says (see
// Identities). The connection's inbox prefix must be that of the key (InboxOf).
func (c *Client) SignWith(key ledger.Key, who Identity) *Client {
	c.key, c.who = &key, who
	return c
}

// moreIdentities is how long to listen for a second ledger after the first.
const moreIdentities = 50 * time.Millisecond

// Identities asks over nc which ledgers are served there to its key. It returns as
// soon as that of mesh has answered; with an empty mesh all that answer within a
// moment. Where nobody answers the error is nats.ErrNoResponders or ctx's.
func Identities(ctx context.Context, nc *nats.Conn, mesh string) ([]Identity, error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(IdentitySubject, sub.Subject, nil); err != nil {
		return nil, err
	}
	var out []Identity
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case err != nil && len(out) > 0:
			return out, nil
		case err != nil:
			return nil, err
		case len(m.Data) == 0 && m.Header.Get("Status") == noResponders:
			return nil, nats.ErrNoResponders
		}
		var who Identity
		if err := json.Unmarshal(m.Data, &who); err != nil || who.Mesh == "" {
			continue
		}
		if who.Mesh == mesh {
			return []Identity{who}, nil
		}
		if out = append(out, who); len(out) == 1 {
			short, cancel := context.WithTimeout(ctx, moreIdentities)
			defer cancel()
			if mesh == "" {
				ctx = short
			}
		}
	}
}

// FailOver is for where several instances serve a mesh: what finds nobody to
// answer it, or one that is not the writer any more, or no answer for a while, is
// asked again until its context ends; a command under the same id. Without a
// deadline there is no end to it.
func (c *Client) FailOver() *Client {
	c.failsOver = true
	return c
}

// FromFollowers makes queries go to any instance that serves the mesh instead of
// its writer. They see at least what earlier answers to this client knew of.
func (c *Client) FromFollowers() *Client {
	c.followers = true
	return c
}

// Seen is the highest sequence that an answer to this client knew of: of its own
// last write, or of what it has read.
func (c *Client) Seen() uint64 { return c.seen.Load() }

// saw notes the sequence of an answer.
func (c *Client) saw(seq uint64) {
	for {
		now := c.seen.Load()
		if seq <= now || c.seen.CompareAndSwap(now, seq) {
			return
		}
	}
}

// Close stops listening for answers.
func (c *Client) Close() error { return c.sub.Unsubscribe() }

// Closed reports whether the client's connection is closed for good.
func (c *Client) Closed() bool { return c.nc.IsClosed() }

// errLostPart is returned when an answer did not arrive whole.
var errLostPart = errors.New("a part of the answer is missing")

// errGone is returned when the connection was closed for good after something was
// asked.
var errGone = fmt.Errorf("nobody answers any more: %w", nats.ErrConnectionClosed)

// errAnswer is wrapped by the error about an answer that cannot be read.
var errAnswer = errors.New("the answer cannot be read")

// request sends a message and waits for the whole answer. A client that fails
// over sends it again, to whoever then answers, until ctx ends: after silence for
// that long, and after an answer that says to.
func (c *Client) request(ctx context.Context, subject string, message any, silence time.Duration) (json.RawMessage, error) {
	data, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	heard := false // somebody may have begun with it
	for try := 0; ; try++ {
		a, err := c.once(ctx, subject, data, silence)
		if err == nil {
			c.saw(a.Seq)
			return a.Result, nil
		}
		heard = heard || !errors.Is(err, nats.ErrNoResponders)
		if !c.failsOver || !passing(err) {
			return nil, err
		}
		if !pause(ctx, try) {
			if heard {
				err = fmt.Errorf("%w; before that: %w", ctx.Err(), err)
			}
			return nil, err
		}
	}
}

// passing reports whether an error may be another at the next try.
func passing(err error) bool {
	var r *commands.Refusal
	switch {
	case errors.As(err, &r):
		return r.Code == commands.Unreachable || r.Code == commands.OutcomeUnknown
	case errors.Is(err, errGone), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return false
	}
	return true
}

// Pauses between tries: they double, not in step with others'.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 300 * time.Millisecond
)

// pause reports whether ctx still stands after a while.
func pause(ctx context.Context, try int) bool {
	d := min(firstPause<<min(try, 8), maxPause)
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once sends a message and waits for the whole answer.
func (c *Client) once(ctx context.Context, subject string, data []byte, silence time.Duration) (answer, error) {
	token, w := nuid.Next(), &waiter{subject: subject, data: data, command: subject == CommandSubject(c.mesh), done: make(chan result, 1)}
	c.mu.Lock()
	c.waiting[token] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, token)
		c.mu.Unlock()
	}()
	c.mu.Lock()
	err := c.publish(token, w)
	c.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	var resend <-chan time.Time // never, where nobody else would answer
	if c.failsOver {
		tick := time.NewTicker(silence)
		defer tick.Stop()
		resend = tick.C
	}
	for {
		select {
		case r := <-w.done:
			return read1(r)
		case <-resend:
			// Who was asked may be gone. If it is only slow, its answer counts.
			c.mu.Lock()
			if c.waiting[token] == w && len(w.parts[w.copies]) == 0 {
				_ = c.publish(token, w) // the next tick sends it again
			}
			c.mu.Unlock()
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

func read1(r result) (answer, error) {
	var a answer
	if r.err != nil {
		return a, r.err
	}
	if err := json.Unmarshal(r.data, &a); err != nil {
		return a, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if a.Error != nil {
		return a, a.Error
	}
	return a, nil
}

// Do runs a command. The error is a *commands.Refusal: where no answer came in
// time, outcome_unknown with the id to repeat.
func (c *Client) Do(ctx context.Context, req commands.Request) (commands.Result, error) {
	args, err := json.Marshal(req.Command)
	if err != nil {
		return commands.Result{}, err
	}
	data, err := c.request(ctx, CommandSubject(c.mesh), CommandMessage{Verb: req.Command.Verb(), Args: args, ID: req.ID,
		Actor: req.Actor, Reason: req.Reason, DryRun: req.DryRun, ExpectSeq: req.ExpectSeq, Invocation: nuid.Next()}, silent)
	if err != nil {
		if errors.Is(err, errLostPart) || errors.Is(err, errAnswer) || errors.Is(err, errGone) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return commands.Result{}, handler.Unknown(req.ID, err)
		}
		return commands.Result{}, AsRefusal(err)
	}
	var out commands.Result
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("reading the answer to %s: %w", req.Command.Verb(), err)
	}
	return out, nil
}

// Ask puts a query and returns its answer in JSON.
func (c *Client) Ask(ctx context.Context, q commands.Query) (json.RawMessage, error) {
	return c.ask(ctx, q.Name(), q)
}

// AskFollower puts a query to any instance that serves the mesh, which answers
// when it has read the log up to atLeast, and as far as this client has seen it. A
// refusal with still_pending says that it had not when ctx was about to end.
func (c *Client) AskFollower(ctx context.Context, q commands.Query, atLeast uint64) (json.RawMessage, error) {
	return c.query(ctx, q.Name(), q, silent, true, atLeast)
}

// AskAsOf puts a query as of a moment. The answer says which in "as_of".
func (c *Client) AskAsOf(ctx context.Context, q commands.Query, at AsOf) (json.RawMessage, error) {
	return c.queryAt(ctx, q.Name(), q, silent, c.followers, 0, &at)
}

// Moment asks where a moment is.
func (c *Client) Moment(ctx context.Context, at AsOf) (m Moment, err error) {
	data, err := c.queryAt(ctx, MomentQueryName, struct{}{}, silent, c.followers, 0, &at)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(data, &m)
}

// Diff asks what is different for each binding at two moments.
func (c *Client) Diff(ctx context.Context, q DiffQuery) (json.RawMessage, error) {
	return c.ask(ctx, DiffQueryName, q)
}

// Log reads one page of the log.
func (c *Client) Log(ctx context.Context, q LogQuery) (LogPage, error) {
	var page LogPage
	data, err := c.query(ctx, LogQueryName, q, silent+time.Duration(q.Wait)*time.Millisecond, c.followers, 0)
	if err != nil {
		return page, err
	}
	return page, json.Unmarshal(data, &page)
}

// Follow reads the log from first on and gives page after page to each, as
// events come, until that or ctx ends it. An interval without events gives an
// empty page.
func (c *Client) Follow(ctx context.Context, first uint64, each func(LogPage) error) error {
	return c.FollowOnly(ctx, first, LogQuery{}, each)
}

// FollowOnly is Follow for what q narrows the events to.
func (c *Client) FollowOnly(ctx context.Context, first uint64, q LogQuery, each func(LogPage) error) error {
	for first = max(first, 1); ; {
		turn, cancel := context.WithTimeout(ctx, followWait+followSlack)
		page, err := c.Log(turn, LogQuery{First: first, Wait: int(followWait / time.Millisecond),
			Entity: q.Entity, Actor: q.Actor, Command: q.Command, Type: q.Type})
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			// One that the server has put out is never let in again on this connection.
			if c.failsOver && passing(err) && !c.nc.IsClosed() && pause(ctx, 0) {
				continue
			}
			return err
		}
		if err := each(page); err != nil {
			return err
		}
		if page.Next != 0 {
			first = page.Next
		} else {
			first = max(first, page.Seq+1)
		}
	}
}

// How long one turn of following waits for events, and how much longer for its
// answer.
const (
	followWait  = 10 * time.Second
	followSlack = 5 * time.Second
)

// silent is how long a client that fails over waits for an answer before it asks
// again.
const silent = 2 * time.Second

func (c *Client) ask(ctx context.Context, name string, args any) (json.RawMessage, error) {
	return c.query(ctx, name, args, silent, c.followers, 0)
}

func (c *Client) query(ctx context.Context, name string, args any, silence time.Duration, follower bool, atLeast uint64) (json.RawMessage, error) {
	return c.queryAt(ctx, name, args, silence, follower, atLeast, nil)
}

func (c *Client) queryAt(ctx context.Context, name string, args any, silence time.Duration, follower bool, atLeast uint64, asOf *AsOf) (json.RawMessage, error) {
	a, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	subject, m := QuerySubject(c.mesh), QueryMessage{Query: name, Args: a, AsOf: asOf}
	if follower {
		subject, m.AtLeast = ReadSubject(c.mesh), max(atLeast, c.Seen())
		if end, ok := ctx.Deadline(); ok {
			m.Within = max(1, int((time.Until(end) * 9 / 10).Milliseconds())) // the answer takes its time, too
		}
	}
	data, err := c.request(ctx, subject, m, silence)
	if err == nil {
		return data, nil
	}
	r := AsRefusal(err)
	if r.Code == commands.OutcomeUnknown {
		r.Code, r.Message = commands.Unreachable, "no answer in time: "+strings.TrimSuffix(err.Error(), ".")
	}
	return nil, r
}

// Series runs a command, and goes on while its answer says that another part is
// due (drain, a large apply): each with an id derived from the first one's, so
// that the same id goes on where it stopped. next makes the k-th command of the
// series, k from 0; each is told of each answer.
func (c *Client) Series(ctx context.Context, req commands.Request, next func(k int) commands.Command, each func(k int, r commands.Result)) error {
	for k := 0; ; k++ {
		part := req
		part.Command, part.ID = next(k), commands.DerivedID(req.ID, k)
		if k > 0 {
			part.ExpectSeq = nil // it was checked for the first
		}
		r, err := c.Do(ctx, part)
		if err != nil {
			return err
		}
		each(k, r)
		if !r.More || req.DryRun {
			return nil
		}
	}
}

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"golang.org/x/time/rate"

	"bindery/projections"
)

// A guest is a caller with a granted key, in a NATS account of its own
// (ledger.Guest). What it publishes to bindery-req.<mesh>.<verb> arrives as
// bindery-req.<mesh>.<key>.<verb>: the key in the subject is proven by the server.
// Each guest has one subscription, and where the service can make them (Config.Dial)
// one connection of ours: those who wait, what is dropped, and a connection that the
// server ends since too much waits there, are its own.

// Limits of one guest. What is beyond them waits; what does not fit into the
// waiting room is dropped.
const (
	guestRate       = 2000     // requests a second
	guestBytes      = 16 << 20 // bytes a second
	guestBurstBytes = 64 << 20
	waitingMessages = 1024
	waitingBytes    = 32 << 20
	guestQueries    = parallelQueries / 2 // queries under way
	guestWaits      = parallelWaits / 4   // queries that wait for events
	// Of what is answered without a signature, and of what makes work for the server,
	// so many a second, and at a time.
	identityRate, identityBurst = 50, 200
	watchRate, watchBurst       = 10, 2 * maxWatches
	// floodDrops is how many dropped requests make a flood, floodBytes how many bytes
	// (as many as the last request had, each).
	floodDrops = 2000
	floodBytes = 128 << 20
	// floodPause is how long a guest is not heard then.
	floodPause = 10 * time.Second
	// parallelDials is how many connections for guests are made at once.
	parallelDials = 16
)

// guest is one of those whose requests are heard.
type guest struct {
	s        *Service
	key      string
	conn     *nats.Conn // the service's, or one of its own
	requests *rate.Limiter
	bytes    *rate.Limiter
	asks     *rate.Limiter // for which ledger is served
	watches  *rate.Limiter // consumers that are made
	queries  chan struct{} // a place for each query under way
	waits    chan struct{} // a place for each query that waits for events

	mu   sync.Mutex         // guards what follows
	sub  *nats.Subscription // nil: it is not heard for a while
	left bool               // it is not heard any more
}

// Admit says whose requests are heard: those of the guests with these keys, and of
// nobody else. Their accounts must be there already.
func (s *Service) Admit(keys []string) error {
	s.guestsMu.Lock()
	defer s.guestsMu.Unlock()
	next := make(map[string]*guest, len(keys))
	first, left := s.guests == nil, false
	var unknown []string
	for _, key := range keys {
		if g := s.guests[key]; g != nil {
			next[key] = g
		} else {
			unknown = append(unknown, key)
		}
	}
	arrived, failed := s.welcomeAll(unknown)
	for _, g := range arrived {
		next[g.key] = g
	}
	for key, g := range s.guests {
		if next[key] == nil {
			g.leave()
			left = true
		}
	}
	s.guests = next
	if s.watchers != nil && (first || left) && s.begin() {
		go func() { defer s.running.Done(); s.watchers.refresh() }()
	}
	return errors.Join(failed, s.flush())
}

// welcomeAll begins to hear guests, several at once: each may take a connection.
func (s *Service) welcomeAll(keys []string) (arrived []*guest, failed error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	places := make(chan struct{}, parallelDials)
	for _, key := range keys {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			g, err := s.welcome(key)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("listening to %s: %w", key, err))
			} else {
				arrived = append(arrived, g)
			}
		})
	}
	all.Wait()
	return arrived, failed
}

// welcome begins to hear a guest.
func (s *Service) welcome(key string) (*guest, error) {
	g := &guest{s: s, key: key, conn: s.cfg.Conn, requests: rate.NewLimiter(guestRate, guestRate), bytes: rate.NewLimiter(guestBytes, guestBurstBytes),
		asks: rate.NewLimiter(identityRate, identityBurst), watches: rate.NewLimiter(watchRate, watchBurst),
		queries: make(chan struct{}, guestQueries), waits: make(chan struct{}, guestWaits)}
	if s.cfg.Dial != nil {
		var err error
		if g.conn, err = s.cfg.Dial(); err != nil {
			return nil, err
		}
		if s.cfg.Door.Flooded != nil { // it is within the process: the server ends it for what waits there alone
			g.conn.SetDisconnectErrHandler(func(*nats.Conn, error) { g.flooded() })
		}
	}
	err := g.hear()
	if err == nil && g.conn != s.cfg.Conn && g.conn.IsConnected() {
		err = g.conn.FlushTimeout(flushTimeout)
	}
	if err != nil {
		g.leave()
		return nil, err
	}
	return g, nil
}

// hear subscribes to what the guest sends, unless it has left.
func (g *guest) hear() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left || g.sub != nil {
		return nil
	}
	sub, err := g.conn.QueueSubscribe(guestSubject(g.s.cfg.Mesh, g.key, g.s.hears), g.s.guestQueue(), g.take)
	if err == nil {
		err = sub.SetPendingLimits(waitingMessages, waitingBytes)
	}
	g.sub = sub
	return err
}

// guestQueue is the queue group of the guests' subscriptions. Writer and readers have
// different ones: the server makes one group of all that have the same name, whatever
// their subjects, and would give half of the reads to the writer.
func (s *Service) guestQueue() string {
	if s.cfg.Handler == nil {
		return cmp.Or(s.cfg.Queue, "readers")
	}
	return cmp.Or(s.cfg.Queue, "writer")
}

// leave hears the guest no more.
func (g *guest) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
	g.deafen()
	if g.conn != g.s.cfg.Conn {
		g.conn.SetDisconnectErrHandler(nil)
		g.conn.Close()
	}
}

// deafen ends the subscription; the caller holds mu.
func (g *guest) deafen() {
	if g.sub != nil {
		_ = g.sub.Unsubscribe() // the connection is lost, or it is done
		g.sub = nil
	}
}

// take hears one message of a guest. It blocks as long as the guest is beyond its
// limits: what comes meanwhile waits with the subscription.
func (g *guest) take(m *nats.Msg) {
	size := min(m.Size(), guestBurstBytes) // with its headers
	g.watchFlood(m.Sub, size)
	if g.requests.Wait(g.s.ending) != nil || g.bytes.WaitN(g.s.ending, size) != nil {
		return // the service stops
	}
	verb, ok := strings.CutPrefix(m.Subject, guestSubject(g.s.cfg.Mesh, g.key, ""))
	if !ok {
		return
	}
	req := &guestRequest{guest: g, m: m, verb: verb}
	if h := g.s.verbs[verb]; h != nil {
		h(req)
		return
	}
	if call, ok := strings.CutPrefix(verb, watchPrefix); ok && g.s.watchers != nil {
		g.s.watchers.serve(req, call)
	}
}

// watchFlood notices a guest of whose requests very many were dropped.
func (g *guest) watchFlood(sub *nats.Subscription, size int) {
	n, err := sub.Dropped()
	if err != nil || n < floodDrops && n*size < floodBytes {
		return
	}
	g.flooded()
}

// flooded hears the guest no more for a while, so that what it sends goes no further
// than to the server, and tells of it.
func (g *guest) flooded() {
	g.mu.Lock()
	was := g.sub != nil
	g.deafen()
	g.mu.Unlock()
	if !was {
		return
	}
	time.AfterFunc(floodPause, func() { _ = g.hear() }) // the connection is closed, or it is heard
	g.s.doorman.turn(errFlood)
	if f := g.s.cfg.Door.Flooded; f != nil {
		f(g.key)
	}
}

var errFlood = errors.New("the key sends more than is taken from one")

// place waits for a place among the queries that are answered at once: of one guest
// no more than half of them. The result gives it back.
func (s *Service) place(req micro.Request) (done func()) {
	var own chan struct{}
	if r, ok := req.(*guestRequest); ok {
		own = r.guest.queries
		own <- struct{}{}
	}
	s.queries <- struct{}{}
	return func() {
		<-s.queries
		if own != nil {
			<-own
		}
	}
}

// waitingPlace takes a place among the queries that wait: for events where it may be
// long, and then only if there is one. The result gives it back.
func (s *Service) waitingPlace(req micro.Request, long bool) (leave func(), ok bool) {
	rooms := []chan struct{}{s.asked}
	if long {
		rooms[0] = s.waits
	}
	if r, is := req.(*guestRequest); is {
		rooms = append(rooms, r.guest.waits)
	}
	taken := 0
	leave = func() {
		for _, room := range rooms[:taken] {
			<-room
		}
	}
	for _, room := range rooms {
		if !long {
			room <- struct{}{}
			taken++
			continue
		}
		select {
		case room <- struct{}{}:
			taken++
		default:
			leave()
			return nil, false
		}
	}
	return leave, true
}

// admitAgain is how long after a failure it is tried again to hear who is granted access.
const admitAgain = time.Second

// AdmitGranted hears the guests that the state grants access, as they change, until
// ctx ends. failed is told why some could not be heard; that is tried again.
func (s *Service) AdmitGranted(ctx context.Context, failed func(error)) {
	FollowGrants(ctx, s.state, func(keys []string) error {
		err := s.Admit(keys)
		if err != nil {
			failed(err)
		}
		return err
	})
}

// FollowGrants gives take the keys that a state grants access, now and after each
// change, until ctx ends or the state is taken away. What take could not do it is given
// again, whether or not anything changes meanwhile.
func FollowGrants(ctx context.Context, state State, take func(keys []string) error) {
	var now [2]int
	due := true
	for seq := uint64(0); ; {
		var keys []string
		state.View(func(st *projections.State) {
			stamp := st.GrantsStamp()
			if due = due || stamp != now; due {
				now, keys = stamp, st.GrantedKeys()
			}
		})
		if due {
			due = take(keys) != nil
		}
		next, err := awaitOr(ctx, state, seq, due)
		if err != nil {
			return
		}
		seq = next
	}
}

// awaitOr waits for events after seq; where something is due, not for long.
func awaitOr(ctx context.Context, state State, seq uint64, due bool) (uint64, error) {
	if !due {
		return state.Await(ctx, seq)
	}
	soon, cancel := context.WithTimeout(ctx, admitAgain)
	defer cancel()
	next, err := state.Await(soon, seq)
	if err != nil && ctx.Err() == nil && soon.Err() != nil {
		return seq, nil
	}
	return next, err
}

// guestsOf are the guests of a service.
type guestsOf struct {
	guestsMu sync.Mutex
	guests   map[string]*guest // by key
}

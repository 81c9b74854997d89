package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"golang.org/x/time/rate"

	"bindery/projections"
)

// A guest is a caller with a granted key, in a NATS account of its own
// (ledger.Guest). What it publishes to bindery-req.<mesh>.<verb> arrives as
// bindery-req.<mesh>.<key>.<verb>: the key in the subject is proven by the server.
// Each guest has one subscription, so that those who wait, and what is dropped, are
// its own.

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
	// floodDrops is how many dropped requests make a flood.
	floodDrops = 2000
)

// guest is one of those whose requests are heard.
type guest struct {
	s        *Service
	key      string
	sub      *nats.Subscription
	requests *rate.Limiter
	bytes    *rate.Limiter
	queries  chan struct{} // a place for each query under way
	waits    chan struct{} // a place for each query that waits for events
	dropped  int           // as last looked at; owned by the subscription's goroutine
}

// Admit says whose requests are heard: those of the guests with these keys, and of
// nobody else. Their accounts must be there already.
func (s *Service) Admit(keys []string) error {
	s.guestsMu.Lock()
	defer s.guestsMu.Unlock()
	next := make(map[string]*guest, len(keys))
	first, left := s.guests == nil, false
	var failed error
	for _, key := range keys {
		g := s.guests[key]
		if g == nil {
			var err error
			if g, err = s.welcome(key); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
		}
		next[key] = g
	}
	for key, g := range s.guests {
		if next[key] == nil {
			_ = g.sub.Unsubscribe() // the connection is lost, or it is done
			left = true
		}
	}
	s.guests = next
	if s.watchers != nil && (first || left) && s.begin() {
		go func() { defer s.running.Done(); s.watchers.refresh() }()
	}
	return errors.Join(failed, s.flush())
}

// welcome begins to hear a guest.
func (s *Service) welcome(key string) (*guest, error) {
	g := &guest{s: s, key: key, requests: rate.NewLimiter(guestRate, guestRate), bytes: rate.NewLimiter(guestBytes, guestBurstBytes),
		queries: make(chan struct{}, guestQueries), waits: make(chan struct{}, guestWaits)}
	subject := guestSubject(s.cfg.Mesh, key, s.hears)
	sub, err := s.cfg.Conn.QueueSubscribe(subject, cmp.Or(s.cfg.Queue, micro.DefaultQueueGroup), g.take)
	if err == nil {
		err = sub.SetPendingLimits(waitingMessages, waitingBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("listening to %s: %w", key, err)
	}
	g.sub = sub
	return g, nil
}

// take hears one message of a guest. It blocks as long as the guest is beyond its
// limits: what comes meanwhile waits with the subscription.
func (g *guest) take(m *nats.Msg) {
	g.watchFlood()
	if g.requests.Wait(g.s.ending) != nil || g.bytes.WaitN(g.s.ending, min(len(m.Data), guestBurstBytes)) != nil {
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

// watchFlood tells of a guest of whose requests very many were dropped.
func (g *guest) watchFlood() {
	n, err := g.sub.Dropped()
	if err != nil || n-g.dropped < floodDrops {
		return
	}
	g.dropped = n
	g.s.doorman.turn(errFlood)
	if f := g.s.cfg.Door.Flooded; f != nil {
		f(g.key)
	}
}

var errFlood = errors.New("the key sends more than is taken from one")

// guestRequest is what a guest asks.
type guestRequest struct {
	guest *guest
	m     *nats.Msg
	verb  string
}

var _ micro.Request = (*guestRequest)(nil)

// answerable reports whether the answer goes to the guest's own inbox.
func (r *guestRequest) answerable() bool {
	return strings.HasPrefix(r.m.Reply, InboxOf(r.guest.key)+".")
}

var errUnanswerable = errors.New("an answer goes nowhere but to the caller's own inbox")

// Respond implements micro.Request. It answers nowhere but to the guest's inbox.
func (r *guestRequest) Respond(data []byte, opts ...micro.RespondOpt) error {
	if !r.answerable() {
		return errUnanswerable
	}
	m := &nats.Msg{Subject: r.m.Reply, Data: data}
	for _, o := range opts {
		o(m)
	}
	return r.guest.s.cfg.Conn.PublishMsg(m)
}

// RespondJSON implements micro.Request.
func (r *guestRequest) RespondJSON(v any, opts ...micro.RespondOpt) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return r.Respond(data, opts...)
}

// Error implements micro.Request.
func (r *guestRequest) Error(code, description string, data []byte, opts ...micro.RespondOpt) error {
	return r.Respond(data, append(opts, micro.WithHeaders(micro.Headers{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {description}}))...)
}

// Data implements micro.Request.
func (r *guestRequest) Data() []byte { return r.m.Data }

// Headers implements micro.Request.
func (r *guestRequest) Headers() micro.Headers { return micro.Headers(r.m.Header) }

// Subject implements micro.Request: as the guest has called it.
func (r *guestRequest) Subject() string {
	if r.verb == identityVerb {
		return IdentitySubject
	}
	return SubjectRoot + "." + r.guest.s.cfg.Mesh + "." + r.verb
}

// Reply implements micro.Request.
func (r *guestRequest) Reply() string { return r.m.Reply }

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

// identity answers which ledger is served here. It need not be signed: it is what a
// signature needs.
func (s *Service) identity(req micro.Request) {
	_ = req.RespondJSON(s.Identity())
}

// Identity is which ledger is served here.
func (s *Service) Identity() Identity {
	return Identity{Mesh: s.cfg.Mesh, MeshID: s.meshID(), Ledger: s.cfg.Ledger}
}

// AdmitGranted hears the guests that the state grants access, as they change, until
// ctx ends. failed is told why some could not be heard.
func (s *Service) AdmitGranted(ctx context.Context, failed func(error)) {
	var now [2]int
	for seq, first := uint64(0), true; ; first = false {
		var keys []string
		stamp := now
		s.state.View(func(st *projections.State) {
			if stamp = st.GrantsStamp(); first || stamp != now {
				keys = st.GrantedKeys()
			}
		})
		if first || stamp != now {
			now = stamp
			if err := s.Admit(keys); err != nil {
				failed(err)
			}
		}
		next, err := s.state.Await(ctx, seq)
		if err != nil {
			return
		}
		seq = next
	}
}

// guestsOf are the guests of a service.
type guestsOf struct {
	guestsMu sync.Mutex
	guests   map[string]*guest // by key
}

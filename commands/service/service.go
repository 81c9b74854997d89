package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Log is what the service reads of a ledger beside what the handler does.
type Log interface {
	Get(ctx context.Context, first, last uint64) ([]events.Record, error)
	Foreign() ledger.Foreign
}

// Config says what to serve.
type Config struct {
	Conn    *nats.Conn
	Mesh    string
	Handler *handler.Handler
	Log     Log
	Version string           // of the program, semver; shown by the services API
	Clock   func() time.Time // nil: time.Now
}

// parallelQueries bounds how many queries are answered at once.
const parallelQueries = 16

// parallelWaits bounds how many queries wait for events at once.
const parallelWaits = 1024

// Service answers the requests of one mesh until it is stopped.
type Service struct {
	cfg     Config
	micro   micro.Service
	ctx     context.Context
	cancel  context.CancelFunc
	ending  context.Context // ends when the service begins to stop
	end     context.CancelFunc
	queries chan struct{} // a place for each query under way
	waits   chan struct{} // a place for each query that waits for events

	running sync.WaitGroup
	mu      sync.Mutex // guards stopped, and no Add to running beside its Wait
	stopped bool
}

// begin counts a request as under way, unless the service has stopped: a
// message may still be delivered while its subscription ends.
func (s *Service) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.running.Add(1)
	}
	return !s.stopped
}

// Serve starts answering.
func Serve(cfg Config) (*Service, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	s := &Service{cfg: cfg, queries: make(chan struct{}, parallelQueries), waits: make(chan struct{}, parallelWaits)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ending, s.end = context.WithCancel(s.ctx)
	svc, err := micro.AddService(cfg.Conn, micro.Config{Name: "bindery", Version: cfg.Version,
		Description: "binding ledger of mesh " + cfg.Mesh, Metadata: map[string]string{"mesh": cfg.Mesh}})
	if err != nil {
		return nil, fmt.Errorf("serving mesh %q: %w", cfg.Mesh, err)
	}
	s.micro = svc
	add := func(name, subject string, h micro.HandlerFunc) error {
		return svc.AddEndpoint(name, h, micro.WithEndpointSubject(subject))
	}
	if err := errors.Join(add("command", CommandSubject(cfg.Mesh), s.command), add("query", QuerySubject(cfg.Mesh), s.query)); err != nil {
		return nil, errors.Join(fmt.Errorf("serving mesh %q: %w", cfg.Mesh, err), svc.Stop())
	}
	// The first request may follow at once, on another connection.
	return s, cfg.Conn.Flush()
}

// Stop takes no more requests and waits for the answers under way.
func (s *Service) Stop() error {
	err := s.micro.Stop()
	s.end()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.running.Wait()
	s.cancel()
	return errors.Join(err, s.cfg.Conn.Flush())
}

func (s *Service) command(req micro.Request) {
	var m CommandMessage
	if err := strict(req.Data(), &m); err != nil {
		s.refuse(req, badRequest(err))
		return
	}
	c, err := commands.ParseCommand(m.Verb, m.Args)
	if err != nil {
		s.refuse(req, err)
		return
	}
	if !s.begin() {
		s.refuse(req, handler.ErrClosed)
		return
	}
	s.cfg.Handler.Submit(s.ctx, commands.Request{Command: c, ID: m.ID, Actor: m.Actor, Reason: m.Reason, DryRun: m.DryRun, ExpectSeq: m.ExpectSeq},
		func(r commands.Result, err error) {
			defer s.running.Done()
			if err != nil {
				s.refuse(req, err)
				return
			}
			s.respond(req, r)
		})
}

func (s *Service) query(req micro.Request) {
	var m QueryMessage
	if err := strict(req.Data(), &m); err != nil {
		s.refuse(req, badRequest(err))
		return
	}
	if !s.begin() {
		s.refuse(req, handler.ErrClosed)
		return
	}
	if m.Query == LogQueryName {
		s.logQuery(req, m.Args)
		return
	}
	s.queries <- struct{}{}
	go s.answer(req, func() (any, error) { return s.ask(m) })
}

// answer answers one query under way, and ends it.
func (s *Service) answer(req micro.Request, ask func() (any, error)) {
	defer s.running.Done()
	defer func() { <-s.queries }()
	result, err := ask()
	if err != nil {
		s.refuse(req, err)
		return
	}
	s.respond(req, result)
}

// logQuery answers a LogQuery, after there is something to tell where it says so.
func (s *Service) logQuery(req micro.Request, args json.RawMessage) {
	var q LogQuery
	if err := strict(args, &q); err != nil {
		s.running.Done()
		s.refuse(req, badRequest(err))
		return
	}
	if q.Wait <= 0 {
		s.queries <- struct{}{}
		go s.answer(req, func() (any, error) { return s.log(q) })
		return
	}
	select {
	case s.waits <- struct{}{}:
	default:
		s.running.Done()
		s.refuse(req, fmt.Errorf("%d others wait for events already", parallelWaits))
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(s.ending, min(time.Duration(q.Wait)*time.Millisecond, MaxLogWait))
		_, err := s.cfg.Handler.Await(ctx, max(q.First, 1)-1)
		cancel()
		<-s.waits
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.running.Done()
			s.refuse(req, handler.ErrClosed)
			return
		}
		s.queries <- struct{}{}
		s.answer(req, func() (any, error) { return s.log(q) })
	}()
}

func (s *Service) ask(m QueryMessage) (result any, err error) {
	q, err := commands.ParseQuery(m.Query, m.Args)
	if err != nil {
		return nil, err
	}
	s.cfg.Handler.View(func(st *projections.State) { result, err = commands.Answer(st, q, s.cfg.Clock()) })
	if v, ok := result.(projections.StatusView); ok {
		result = s.withForeign(v)
	}
	return result, err
}

// withForeign adds the messages in the stream that are no part of the ledger.
func (s *Service) withForeign(v projections.StatusView) projections.StatusView {
	f := s.cfg.Log.Foreign()
	v.Counts["foreign"] = int(f.Count)
	if f.Count > 0 {
		v.Attention = append(v.Attention, projections.Attention{Code: "foreign_event", What: fmt.Sprintf("%d messages in the stream", f.Count),
			Why: fmt.Sprintf("they are no part of the ledger and are skipped; the first is at sequence %d", f.Seqs[0]),
			Fix: "nats stream get " + ledger.StreamName(s.cfg.Mesh) + " " + strconv.FormatUint(f.Seqs[0], 10)})
	}
	return v
}

func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func badRequest(err error) *commands.Refusal {
	return &commands.Refusal{Code: commands.Usage, Message: "the request cannot be read", Why: err.Error(), Candidates: []commands.Candidate{}}
}

func (s *Service) respond(req micro.Request, result any) {
	data, err := json.Marshal(result)
	if err != nil {
		s.refuse(req, fmt.Errorf("encoding an answer: %w", err))
		return
	}
	s.send(req, answer{Result: data})
}

// refuse sends an error; one that is no refusal becomes one.
func (s *Service) refuse(req micro.Request, err error) {
	s.send(req, answer{Error: AsRefusal(err)})
}

// send writes an answer in as many parts as it takes. What cannot be sent is
// lost with its connection; the caller repeats the command under its id.
func (s *Service) send(req micro.Request, a answer) {
	data, err := json.Marshal(a)
	if err != nil {
		data = []byte(`{"error":{"code":"internal","message":"the answer cannot be encoded","why":"","fix":"","candidates":[]}}`)
	}
	n := max(1, (len(data)+maxPart-1)/maxPart)
	if n == 1 {
		_ = req.Respond(data)
		return
	}
	for k := 1; k <= n; k++ {
		part := data[(k-1)*maxPart : min(k*maxPart, len(data))]
		h := micro.Headers{HeaderPart: {strconv.Itoa(k) + "/" + strconv.Itoa(n)}}
		_ = req.Respond(part, micro.WithHeaders(h))
	}
}

// AsRefusal gives every error of the core a code.
func AsRefusal(err error) *commands.Refusal {
	var r *commands.Refusal
	if errors.As(err, &r) {
		return r
	}
	out := &commands.Refusal{Code: commands.Internal, Message: err.Error(), Candidates: []commands.Candidate{}}
	var (
		damage  *ledger.DamageError
		newer   *events.UnknownTypeError
		config  *ledger.ConfigError
		missing *ledger.MissingError
		locked  *ledger.LockedError
		unknown *ledger.UnknownError
		large   *ledger.TooLargeError
		store   *ledger.StoreError
		none    *ledger.NotFoundError
	)
	switch {
	case errors.As(err, &newer):
		out.Code, out.Fix = commands.NewerLedger, "use the version of bindery that wrote the ledger, or a later one"
	case errors.As(err, &damage):
		out.Code, out.Fix = commands.LedgerDamaged, "restore the store from a backup"
	case errors.As(err, &config):
		out.Code, out.Fix = commands.LedgerDamaged, "nats stream edit "+config.Stream
	case errors.As(err, &missing):
		out.Code, out.Fix = commands.LedgerMissing, "bindery init --mesh NAME"
	case errors.As(err, &locked):
		out.Code, out.Why = commands.StoreLocked, "one process at a time uses a store"
		out.Fix = "wait for it to end, or stop it"
	case errors.As(err, &unknown):
		out.Code = commands.OutcomeUnknown
	case errors.As(err, &large):
		out.Code = commands.TooLarge
	case errors.As(err, &store):
		out.Code, out.Why, out.Fix = commands.StoreUnusable, "nothing was written", "free space on the store's disk, then the same command"
	case errors.As(err, &none):
		out.Code = commands.EventNotFound
	case errors.Is(err, ledger.ErrExists):
		out.Code, out.Fix = commands.LedgerExists, "bindery status"
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, handler.ErrClosed):
		out.Code = commands.Unreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		out.Code = commands.OutcomeUnknown
	case errors.Is(err, context.Canceled):
		out.Code = commands.Interrupted
	}
	return out
}

// timeOf is how instants look in the log.
func timeOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

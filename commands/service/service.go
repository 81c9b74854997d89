package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Log is what the service reads of a ledger beside what the handler does.
type Log interface {
	Get(ctx context.Context, first, last uint64) ([]events.Record, error)
	Records(ctx context.Context, from ledger.Position, to uint64) iter.Seq2[events.Group, error]
	Stored(ctx context.Context, first, last uint64) ([]events.Record, error)
	Last(ctx context.Context) (uint64, error)
	Foreign() ledger.Foreign
	IsForeign(seq uint64) bool
}

// Config says what to serve.
type Config struct {
	Conn    *nats.Conn
	Mesh    string
	Handler *handler.Handler
	Log     Log
	Version string           // of the program, semver; shown by the services API
	Clock   func() time.Time // nil: time.Now
	// Metadata of the services API beside the mesh; nil: none.
	Metadata map[string]string
	// Queue is the queue group of the endpoints: of each group one member gets a
	// request. Empty: that of the services API.
	Queue string
	Door  Door // who may ask
	// Dial makes one more connection like Conn, for each guest one; nil: Conn is all
	// there is.
	Dial func() (*nats.Conn, error)
	// Ledger is what the stream was created with (ledger.Log.Created).
	Ledger string
	// Direct has all rights in the ledger's account: with it the documents are read
	// for who watches them; nil: nobody can.
	Direct *nats.Conn
	// Agents keeps what agents store; nil: no agent is served.
	Agents *AgentStore
	// Past gives states of the past; nil: that cannot be asked.
	Past Past
	// Keeper knows which documents of which node changed; nil: that is not known, and
	// everything of a node is told whenever the ledger has grown.
	Keeper *readmodel.Keeper
	// Inspect tells how the writer and its server are; nil: that cannot be asked.
	Inspect func(ctx context.Context) (Inspection, error)
}

// parallelQueries bounds how many queries are answered at once.
const parallelQueries = 16

// parallelWaits bounds how many queries wait at once for something to happen: a few
// of each node's agent.
const parallelWaits = 1 << 14

// Service answers the requests of one mesh until it is stopped.
type Service struct {
	cfg     Config
	state   State // what queries are answered from
	past    pasts
	doorman *doorman
	micro   micro.Service
	ctx     context.Context
	cancel  context.CancelFunc
	ending  context.Context // ends when the service begins to stop
	end     context.CancelFunc
	queries chan struct{} // a place for each query under way
	waits   chan struct{} // a place for each query that waits for events
	asked   chan struct{} // a place for each query that waits for the lease

	verbs    map[string]micro.HandlerFunc // by the end of the subject
	hears    string                       // the end of the subject that guests' subscriptions have
	watchers *watchers                    // nil: documents cannot be watched here
	guestsOf

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

// Serve starts answering as the ledger's writer does: commands, queries at the head,
// and what agents do.
func Serve(cfg Config) (*Service, error) {
	return start(cfg, cfg.Handler, ">", func(s *Service, add func(name, subject string, h micro.HandlerFunc) error) error {
		err := errors.Join(add("command", CommandSubject(cfg.Mesh), s.command), add("query", QuerySubject(cfg.Mesh), s.query))
		if cfg.Agents != nil {
			err = errors.Join(err, add("agent", AgentSubject(cfg.Mesh), s.agent))
		}
		return err
	})
}

// start adds a service and its endpoints.
func start(cfg Config, state State, hears string, endpoints func(s *Service, add func(name, subject string, h micro.HandlerFunc) error) error) (*Service, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	s := &Service{cfg: cfg, state: state, hears: hears, verbs: map[string]micro.HandlerFunc{}, queries: make(chan struct{}, parallelQueries), waits: make(chan struct{}, parallelWaits),
		asked: make(chan struct{}, parallelWaits)}
	s.past.make = cfg.Past
	s.doorman = newDoorman(cfg.Door, func() string { return s.Identity().Audience() }, cfg.Clock)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ending, s.end = context.WithCancel(s.ctx)
	metadata := map[string]string{"mesh": cfg.Mesh}
	maps.Copy(metadata, cfg.Metadata)
	svc, err := micro.AddService(cfg.Conn, micro.Config{Name: "bindery", Version: cfg.Version,
		Description: "binding ledger of mesh " + cfg.Mesh, Metadata: metadata})
	if err != nil {
		return nil, fmt.Errorf("serving mesh %q: %w", cfg.Mesh, err)
	}
	s.micro = svc
	if err := endpoints(s, func(name, subject string, h micro.HandlerFunc) error {
		s.verbs[name] = h
		opts := []micro.EndpointOpt{micro.WithEndpointSubject(subject)}
		if cfg.Queue != "" {
			opts = append(opts, micro.WithEndpointQueueGroup(cfg.Queue))
		}
		return svc.AddEndpoint(name, h, opts...)
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("serving mesh %q: %w", cfg.Mesh, err), svc.Stop())
	}
	if cfg.Handler != nil {
		s.verbs[identityVerb] = s.identity
		if cfg.Direct != nil && cfg.Door.Signed {
			s.watchers = newWatchers(s, cfg.Direct)
		}
	}
	// The first request may follow at once, on another connection.
	return s, s.flush()
}

// meshID is the mesh's id as far as the state knows it.
func (s *Service) meshID() (id events.ID) {
	s.state.View(func(st *projections.State) { id = st.Mesh.ID })
	return id
}

// flush waits until the server has what was sent, unless the connection is lost
// just now: then it is sent when that is back.
func (s *Service) flush() error {
	if !s.cfg.Conn.IsConnected() {
		return nil
	}
	return s.cfg.Conn.FlushTimeout(flushTimeout)
}

// flushTimeout is how long a server may take to confirm what was sent.
const flushTimeout = 2 * time.Second

// Stop takes no more requests and waits for the answers under way.
func (s *Service) Stop() error {
	err := s.micro.Stop()
	s.end()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.running.Wait()
	s.cancel()
	s.guestsMu.Lock()
	defer s.guestsMu.Unlock()
	for _, g := range s.guests {
		if g.conn != s.cfg.Conn && g.conn.IsConnected() {
			_ = g.conn.FlushTimeout(flushTimeout) // what was answered
		}
		g.leave()
	}
	s.guests = nil
	return errors.Join(err, s.flush())
}

func (s *Service) command(req micro.Request) {
	key, m, ok := heard[CommandMessage](s, req)
	if !ok {
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
	submit := func() { s.submit(req, c, m, key) }
	seq, chain := readOf(c)
	if chain == "" {
		submit()
		return
	}
	done := s.place(req)
	go func() { // the log is read: others need not wait for it
		defer done()
		if err := s.onChain(seq, chain); err != nil {
			s.running.Done()
			s.refuse(req, err)
			return
		}
		submit()
	}()
}

// submit gives a command to the handler, and answers it when that has.
func (s *Service) submit(req micro.Request, c commands.Command, m CommandMessage, key string) {
	s.cfg.Handler.Submit(s.ctx, commands.Request{Command: c, ID: m.ID, Key: key, Actor: m.Actor, Reason: m.Reason, DryRun: m.DryRun, ExpectSeq: m.ExpectSeq, Invocation: m.Invocation},
		func(r commands.Result, err error) {
			defer s.running.Done()
			if err != nil {
				s.refuse(req, err)
				return
			}
			s.respond(req, r, r.Seq)
		})
}

// admit tells whose request it is, and answers one that is turned away where
// that can be heard by nobody else.
func (s *Service) admit(req micro.Request) (key string, ok bool) {
	key, answer, err := s.doorman.admit(req)
	if err != nil && answer {
		s.refuse(req, err)
	}
	return key, err == nil
}

// heard tells whose request it is and what it says; one that is turned away, or cannot
// be read, is answered.
func heard[M any](s *Service, req micro.Request) (key string, m M, ok bool) {
	if key, ok = s.admit(req); !ok {
		return key, m, false
	}
	if err := strict(req.Data(), &m); err != nil {
		s.refuse(req, badRequest(err))
		return key, m, false
	}
	return key, m, true
}

// asked reads what a query under way asks for, as far as its key may ask that; else the
// query is answered, and over.
func asked[Q any](s *Service, req micro.Request, key string, m QueryMessage) (q Q, ok bool) {
	err := strict(m.Args, &q)
	if err != nil {
		err = badRequest(err)
	} else {
		err = s.authorize(key, q)
	}
	if err != nil {
		s.running.Done()
		s.refuse(req, err)
	}
	return q, err == nil
}

func (s *Service) query(req micro.Request) {
	key, m, ok := heard[QueryMessage](s, req)
	if !ok {
		return
	}
	if !s.begin() {
		s.refuse(req, handler.ErrClosed)
		return
	}
	switch m.Query {
	case LogQueryName:
		s.logQuery(req, key, m)
		return
	case RecordsQueryName:
		s.recordsQuery(req, key, m)
		return
	case StoredQueryName:
		s.storedQuery(req, key, m)
		return
	case DocumentsQueryName:
		s.documentsQuery(req, key, m)
		return
	}
	if m.Query == InspectQueryName && s.cfg.Inspect != nil {
		go s.answer(req, s.place(req), func() (any, uint64, error) {
			if err := s.authorize(key, commands.Status{}); err != nil {
				return nil, 0, err
			}
			v, err := s.cfg.Inspect(s.ctx)
			return v, 0, err
		})
		return
	}
	if m.AsOf != nil || m.Query == DiffQueryName {
		s.queryPast(req, key, m)
		return
	}
	if m.Query == CursorQueryName {
		s.when(req, s.readiness(m), s.cfg.Handler == nil, func() (any, uint64, error) { return struct{}{}, 0, s.cursorQuery(key, m.Args) })
		return
	}
	s.when(req, s.readiness(m), s.cfg.Handler == nil, func() (any, uint64, error) { return s.ask(key, m) })
}

// answer answers one query under way, and ends it.
func (s *Service) answer(req micro.Request, done func(), ask func() (result any, seq uint64, err error)) {
	defer s.running.Done()
	defer done()
	result, seq, err := ask()
	if err != nil {
		s.refuse(req, err)
		return
	}
	s.respond(req, result, seq)
}

// logQuery answers a LogQuery, after there is something to tell where it says so.
func (s *Service) logQuery(req micro.Request, key string, m QueryMessage) {
	q, ok := asked[LogQuery](s, req, key, m)
	if !ok {
		return
	}
	ready := s.readiness(m)
	if q.Wait > 0 {
		ready = append([]condition{s.growth(q)}, ready...)
	}
	s.when(req, ready, q.Wait > 0 || s.cfg.Handler == nil, func() (any, uint64, error) {
		page, err := s.log(q)
		return page, page.Seq, err
	})
}

// authorize refuses what the owner of a key may not read.
func (s *Service) authorize(key string, what any) (err error) {
	if key != "" {
		s.state.View(func(st *projections.State) { _, err = commands.Authorize(st, key, what) })
	}
	return err
}

func (s *Service) ask(key string, m QueryMessage) (result any, seq uint64, err error) {
	q, err := commands.ParseQuery(m.Query, m.Args)
	if err != nil {
		return nil, 0, err
	}
	s.state.View(func(st *projections.State) {
		if key != "" {
			if _, err = commands.Authorize(st, key, q); err != nil {
				return
			}
		}
		seq = st.Seq
		if who, ok := q.(commands.WhoAmI); ok {
			who.Key = key
			q = who
		}
		result, err = commands.Answer(st, q, s.cfg.Clock())
	})
	if v, ok := result.(projections.StatusView); ok {
		result = s.withForeign(v)
	}
	return result, seq, err
}

// withForeign adds the messages in the stream that are no part of the ledger.
func (s *Service) withForeign(v projections.StatusView) projections.StatusView {
	f := s.cfg.Log.Foreign()
	v.Counts["foreign"] = int(f.Count)
	if f.Open > 0 {
		v.Attention = append(v.Attention, projections.Attention{Code: "foreign_event", What: fmt.Sprintf("%d messages in the stream", f.Open),
			Why: fmt.Sprintf("the ledger's writer has not written them, and they are skipped; the first is at sequence %d", f.FirstOpen),
			Fix: projections.Do("audit recover").With("--reason", "TEXT")})
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

func (s *Service) respond(req micro.Request, result any, seq uint64) {
	data, err := json.Marshal(result)
	if err != nil {
		s.refuse(req, fmt.Errorf("encoding an answer: %w", err))
		return
	}
	// It is an answer as encoding/json would write it, but a long result is not
	// looked at once more.
	out := make([]byte, 0, len(data)+40)
	out = append(append(out, `{"result":`...), data...)
	if seq > 0 {
		out = strconv.AppendUint(append(out, `,"seq":`...), seq, 10)
	}
	send(req, append(out, '}'))
}

// refuse sends an error; one that is no refusal becomes one.
func (s *Service) refuse(req micro.Request, err error) {
	data, err := json.Marshal(answer{Error: AsRefusal(err)})
	if err != nil {
		data = []byte(`{"error":{"code":"internal","message":"the answer cannot be encoded","why":"","fix":"","candidates":[]}}`)
	}
	send(req, data)
}

// send writes an answer in as many parts as it takes. What cannot be sent is
// lost with its connection; the caller repeats the command under its id.
func send(req micro.Request, data []byte) {
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
		other   *handler.NotWriterError
	)
	switch {
	case errors.As(err, &other) && other.MayBeDone:
		return handler.Unknown(other.ID, err)
	case errors.As(err, &other):
		out.Code, out.Why, out.Fix = commands.Unreachable, "nothing was written", projections.Again()
	case errors.As(err, &newer):
		out.Code, out.Fix = commands.NewerLedger, projections.Advise("use the version of bindery that wrote the ledger, or a later one")
	case errors.As(err, &damage):
		out.Code, out.Fix = commands.LedgerDamaged, projections.Do("audit verify")
		out.Why = "it came up while the ledger was read; audit verify tells up to where it is sound, and how to go on"
	case errors.As(err, &config):
		out.Code, out.Fix = commands.LedgerDamaged, projections.Program("nats", "stream", "edit", config.Stream)
	case errors.As(err, &missing):
		out.Code, out.Fix = commands.LedgerMissing, projections.Do("init").With("--mesh", "NAME")
	case errors.As(err, &locked):
		out.Code, out.Why = commands.StoreLocked, "one process at a time uses a store"
		out.Fix = projections.Advise("wait for it to end, or stop it")
	case errors.As(err, &unknown):
		out.Code = commands.OutcomeUnknown
	case errors.As(err, &large):
		out.Code = commands.TooLarge
	case errors.As(err, &store):
		out.Code, out.Why, out.Fix = commands.StoreUnusable, "nothing was written", projections.Advise("free space on the store's disk, then the same command")
	case errors.As(err, &none):
		out.Code = commands.EventNotFound
	case errors.Is(err, ledger.ErrRestoring):
		out.Code, out.Why, out.Fix = commands.LedgerMissing, "what is there yet is a part of it", projections.Do("restore", "FILE")
	case errors.Is(err, ledger.ErrExists):
		out.Code, out.Fix = commands.LedgerExists, projections.Do("status")
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

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/readmodel"
	"bindery/commands/service"
	"bindery/commands/snapshot"
	"bindery/ledger"
)

// session is an open store: its lock, its server, and the request path on it.
// What was opened is closed in the reverse order.
type session struct {
	client    *service.Client
	conn      *nats.Conn // the client's
	mesh      string
	url       string             // where it listens, if it does
	isServed  bool               // by another process
	several   bool               // who serve it
	services  []*service.Service // nil where another process serves
	handler   *handler.Handler   // nil where another process serves
	keeper    *readmodel.Keeper
	log       *ledger.Log
	server    *ledger.Embedded
	snapshots *snapshot.Store // nil: none are kept
	guard     *guard          // what was known before the server started; nil where another process serves
	damage    *damage         // what is wrong with the ledger: it is open for reading only; nil: nothing
	closes    []func() error
}

// opening says how a process of its own opens a store.
type opening struct {
	lock      ledger.LockConfig
	server    ledger.EmbeddedConfig // its Dir is the store's
	answering *ledger.Key           // of the connection that answers; nil: the process's own
	logger    *slog.Logger          // nil: nothing is logged
	meter     handler.Meter         // nil: nothing is measured
	find      logOpener
	door      service.Door
	whole     bool // the log is read from its beginning: no snapshot is used
	// accept opens a damaged ledger to be written: what is after cut is put aside.
	accept bool
	cut    *ledger.Position
}

// open opens the store that is there, and never makes one.
func (c *cli) open(ctx context.Context) (*session, error) {
	return c.openWith(ctx, ledger.LockConfig{})
}

func (c *cli) openWith(ctx context.Context, lock ledger.LockConfig) (*session, error) {
	return c.reach(ctx, func(s *session, dir string) error {
		return s.open(ctx, c, dir, opening{lock: lock, find: openLog(dir, c.globals.mesh)})
	})
}

// reach is a session with whoever serves the ledger that is meant, on a server or a
// store, or one that opens the store alone.
func (c *cli) reach(ctx context.Context, alone func(s *session, dir string) error) (*session, error) {
	if n, ok, err := c.remote(); ok || err != nil {
		if err != nil {
			return nil, err
		}
		return c.openRemote(ctx, n)
	}
	dir, err := c.storeDir()
	if err != nil {
		return nil, err
	}
	if !isStore(dir) {
		return nil, c.noStore(dir)
	}
	return c.servedOr(dir, func(s *session) error { return alone(s, dir) })
}

// isStore reports whether dir has been a store before: a lock must not be put
// into a directory that was mistyped.
func isStore(dir string) bool {
	i, err := os.Stat(filepath.Join(dir, server.JetStreamStoreDir))
	return err == nil && i.IsDir()
}

func missing(dir, why string) *commands.Refusal {
	return refusal(commands.LedgerMissing, "no ledger in "+dir, why, do("init").With("--mesh", "NAME"))
}

// logOpener finds or makes the ledger on a server.
type logOpener func(ctx context.Context, nc *nats.Conn) (*ledger.Log, error)

// openLog opens the one ledger of a store, which must be mesh's if that is said.
func openLog(dir, mesh string) logOpener {
	return func(ctx context.Context, nc *nats.Conn) (*ledger.Log, error) {
		log, err := ledger.Open(ctx, nc, "")
		var none *ledger.MissingError
		if errors.As(err, &none) && len(none.There) == 0 {
			return nil, missing(dir, "the store is empty")
		}
		if err != nil {
			return nil, err
		}
		if mesh != "" && mesh != log.Mesh() {
			return nil, wrongMesh(dir, log.Mesh(), mesh)
		}
		last, err := log.Last(ctx)
		if err == nil && last == 0 {
			r := missing(dir, "its init was not finished")
			r.Fix = do("init").With("--mesh", log.Mesh())
			err = r
		}
		return log, err
	}
}

func wrongMesh(dir, there, want string) *commands.Refusal {
	return refusal(commands.WrongMesh, fmt.Sprintf("the store %s holds mesh %s", dir, there),
		"mesh "+want+" was asked for, and a store holds one mesh", do("status").With("--mesh", there))
}

func (s *session) later(f func() error) { s.closes = append(s.closes, f) }

// open opens the parts one on the other; the caller closes what was opened even
// after an error.
func (s *session) open(ctx context.Context, c *cli, dir string, by opening) error {
	// Not the whole command line: a value in it may be somebody's secret.
	by.lock.Command = cmp.Or(c.path, "bindery")
	if err := s.lock(ctx, dir, by.lock); err != nil {
		return err
	}
	if err := withdrawEndpoint(dir); err != nil { // of one that was killed
		return storeError(dir, err)
	}
	by.server.Dir = dir
	if err := s.guarded(c, dir, &by); err != nil {
		return err
	}
	s.expectSnapshot(c, by)
	srv, err := ledger.StartEmbedded(ctx, by.server)
	if err != nil {
		return storeError(dir, err)
	}
	s.later(func() error { srv.Close(); return nil })
	s.url, s.server = srv.URL(), srv
	conn := func(opts ...nats.Option) (*nats.Conn, error) {
		nc, err := srv.Connect(opts...)
		if err == nil {
			s.later(func() error { nc.Close(); return nil })
		}
		return nc, err
	}
	writer, err := conn()
	if err != nil {
		return err
	}
	log, err := by.find(ctx, writer)
	if err != nil {
		return unread(dir, err, srv.Complaints())
	}
	s.mesh = log.Mesh()
	answers := writer
	if by.answering != nil {
		if answers, err = conn(by.answering.Option()); err != nil {
			return err
		}
	}
	s.log = log
	if err := s.serve(ctx, c, answers, srv, by); err != nil {
		return err
	}
	caller, err := conn()
	if err != nil {
		return err
	}
	s.conn = caller
	s.client, err = service.NewClient(caller, s.mesh)
	return err
}

// lock makes a store this process's own, if nobody else can change it.
func (s *session) lock(ctx context.Context, dir string, by ledger.LockConfig) error {
	if err := checkParts(dir, false, ledger.LockFile); err != nil { // before anything is written there
		return err
	}
	lock, err := ledger.AcquireLock(ctx, dir, by)
	if err != nil {
		return storeError(dir, err)
	}
	s.later(lock.Unlock)
	return checkStore(dir)
}

// unread tells a store that holds nothing from one whose ledger the server could
// not read: it says so in its log alone.
func unread(dir string, err error, complaints []string) error {
	var r *commands.Refusal
	if !errors.As(err, &r) || r.Code != commands.LedgerMissing || len(complaints) == 0 {
		return err
	}
	return refusal(commands.StoreUnusable, "the ledger in "+dir+" cannot be read", complaints[0], program("ls", "-lR", dir))
}

// serve puts the handler and its service behind a connection.
func (s *session) serve(ctx context.Context, c *cli, nc *nats.Conn, srv *ledger.Embedded, by opening) error {
	if err := s.trust(ctx); err != nil {
		return err
	}
	cfg := handler.Config{Log: s.log, Clock: c.program.Clock, NewID: c.program.NewID, Logger: by.logger, Meter: by.meter}
	if by.answering != nil {
		s.keeper = readmodel.New(readmodel.Config{Log: s.log, Memory: true, Logger: by.logger})
		cfg.Observe = s.keeper.Note
	}
	cfg.State = s.resume(ctx)
	h, err := s.openHandler(ctx, c, cfg, by)
	if err != nil {
		return err
	}
	s.handler = h
	synced := srv.Synced()
	s.later(func() error { h.Close(); return nil })
	if s.keeper != nil {
		if err := s.keepSnapshots(srv); err != nil {
			return err
		}
	}
	answering := service.Config{Conn: nc, Mesh: s.mesh, Handler: h, Log: s.log, Clock: c.program.Clock, Version: serviceVersion,
		Door: by.door, Keeper: s.keeper, Past: s.snapshots.Past(s.log), Inspect: inspector(h, s.log, &synced, nc, c.program.Clock), Ledger: s.log.Created()}
	if by.answering != nil {
		direct, err := srv.Connect()
		if err != nil {
			return err
		}
		s.later(func() error { direct.Close(); return nil })
		answering.Direct = direct
		answering.Dial = func() (*nats.Conn, error) {
			return srv.Connect(by.answering.Option(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
		}
		answering.Agents = service.NewAgentStore(direct, s.mesh, readmodel.Where{Memory: true})
	}
	svc, err := service.Serve(answering)
	if err != nil {
		return err
	}
	s.services = append(s.services, svc)
	s.later(svc.Stop)
	if by.answering == nil {
		return nil // nobody else asks
	}
	reads, err := service.ServeReads(answering, h)
	if err == nil {
		s.services = append(s.services, reads)
		s.later(reads.Stop)
	}
	return err
}

// keepDocuments keeps the documents that subscribers read, until the session is
// closed.
func (s *session) keepDocuments() error {
	nc, err := s.server.Connect()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = s.keeper.Run(ctx, nc, s.handler) }) // it ends with ctx: nobody else can write
	s.later(func() error { stop(); done.Wait(); nc.Close(); return nil })
	return nil
}

// served reports whether others can write while this session is open: whether a
// bindery serve holds the store.
func (s *session) served() bool { return s.isServed }

// close closes everything; the store is free when it returns.
func (s *session) close() error {
	var errs []error
	for i := len(s.closes) - 1; i >= 0; i-- {
		errs = append(errs, s.closes[i]())
	}
	s.closes = nil
	return errors.Join(errs...)
}

// with runs f on the open store and closes it again.
func (c *cli) with(ctx context.Context, f func(s *session) error) error {
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	return s.using(f)
}

// using runs f on an open session and closes it. What went wrong in closing
// matters only where nothing else did.
func (s *session) using(f func(s *session) error) error {
	err := f(s)
	if closed := s.close(); err == nil {
		err = closed
	}
	return err
}

// ask puts one query to the store.
func (c *cli) ask(ctx context.Context, q commands.Query) (json.RawMessage, error) {
	var data json.RawMessage
	err := c.with(ctx, func(s *session) (err error) {
		data, err = limited{c, s}.Ask(ctx, q)
		return err
	})
	return data, err
}

// limited asks a session as the flags say: of whom, as of which moment, and no
// longer than --timeout.
type limited struct {
	c *cli
	s *session
}

// Ask implements asker.
func (l limited) Ask(ctx context.Context, q commands.Query) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.globals.timeout)
	defer cancel()
	data, err := l.c.askOf(ctx, l.s, q)
	if err != nil {
		return nil, err
	}
	return l.c.asText(data)
}

// askOf puts one query to a session: to the writer, or with --at-least to any
// instance that has come that far. Who serves a store alone is the writer.
func (c *cli) askOf(ctx context.Context, s *session, q commands.Query) (json.RawMessage, error) {
	if c.globals.asOf != "" {
		return c.askPast(ctx, s, q)
	}
	if c.globals.atLeast == 0 {
		return s.client.Ask(ctx, q)
	}
	if s.several {
		return s.client.AskFollower(ctx, q, c.globals.atLeast)
	}
	data, err := s.client.Ask(ctx, q)
	if err != nil {
		return nil, err
	}
	if seen := s.client.Seen(); seen < c.globals.atLeast {
		return nil, refusal(commands.StillPending, fmt.Sprintf("the ledger has not reached sequence %d", c.globals.atLeast),
			fmt.Sprintf("it is at %d", seen), do("status"))
	}
	return data, nil
}

// storeError gives what the file system says about a store a code.
func storeError(dir string, err error) error {
	var locked *ledger.LockedError
	var path *os.PathError
	var link *ledger.LinkError
	switch {
	case errors.As(err, &locked):
		return lockedRefusal(locked)
	case errors.As(err, &path), errors.As(err, &link):
		return refusal(commands.StoreUnusable, "the store "+dir+" cannot be used", err.Error(), program("ls", "-ld", dir))
	}
	return err
}

func lockedRefusal(e *ledger.LockedError) *commands.Refusal {
	r := refusal(commands.StoreLocked, "the store "+e.Dir+" is in use", "one process at a time uses a store", commands.Fix{})
	if h := e.Holder; h != (ledger.Holder{}) {
		r.Why = fmt.Sprintf("process %d (%s) holds it since %s", h.PID, h.Command, h.Since.UTC().Format("2006-01-02T15:04:05Z"))
		r.Fix = program("ps", "-fp", fmt.Sprint(h.PID))
	}
	return r
}

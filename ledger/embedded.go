package ledger

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// MaxPayload is the greatest message the embedded server takes, in bytes.
const MaxPayload = 8 << 20

// Limits of the embedded server. By default the server takes 75 % of what is
// free when it starts (server/jetstream.go, dynJetStreamConfig): a store would
// refuse to open on a full disk.
const (
	embeddedMaxMemory = 1 << 35 // consumers, and the documents that a serving process keeps; the ledger is on disk
	embeddedMaxStore  = 1 << 40
)

// tlsTimeout is how long a handshake may take, in seconds.
const tlsTimeout = 5

// EmbeddedConfig says what server to start.
type EmbeddedConfig struct {
	// Dir is the store directory. It must exist and be locked (AcquireLock):
	// the server itself lets two processes use one directory. The server's
	// files are kept below Dir/jetstream.
	Dir string
	// Logger gets what the server logs; nil: nothing is logged.
	Logger *slog.Logger
	// Listen makes the server accept connections on Host and Port, too. Off by
	// default: only this process reaches it.
	Listen bool
	Host   string
	Port   int // -1: any
	// Users are who may connect to the ledger's own account, beside this process
	// itself; nil: whoever reaches the server, with all rights. Everybody else is
	// a guest (SetGuests).
	Users []User
	// TLS is what connections over the network are secured with; nil: nothing.
	TLS *tls.Config
	// Adjust, if not nil, may change the server's options before it starts.
	Adjust func(*server.Options)
}

// Embedded is a running server in this process. It fsyncs before it
// acknowledges (SyncAlways).
type Embedded struct {
	srv  *server.Server
	log  *serverLog
	self *Key  // this process's own, where users log in
	gate *gate // nil: whoever reaches the server is let in

	closing   chan struct{} // closed by Close
	closeOnce sync.Once

	synced bool // it fsyncs before it acknowledges
}

// StartEmbedded starts a server on cfg.Dir and returns when it can be used. If
// it cannot start, the error says what the server logged. When ctx ends first,
// the server is stopped again as soon as it is up.
func StartEmbedded(ctx context.Context, cfg EmbeddedConfig) (*Embedded, error) {
	opts := &server.Options{
		ServerName:         "bindery",
		DontListen:         !cfg.Listen,
		Host:               cfg.Host,
		Port:               cfg.Port,
		NoSigs:             true,
		NoLog:              true,
		MaxPayload:         MaxPayload,
		JetStream:          true,
		StoreDir:           cfg.Dir, // the server appends "jetstream"
		SyncAlways:         true,
		JetStreamMaxMemory: embeddedMaxMemory,
		JetStreamMaxStore:  embeddedMaxStore,
		// The writer sends one group of commands in one go and the server
		// answers all of them.
		MaxPending:             256 << 20,
		DisableJetStreamBanner: true,
	}
	var self *Key
	var gate *gate
	if cfg.Users != nil {
		key, err := NewKey()
		if err != nil {
			return nil, err
		}
		self, gate = &key, newGate(append([]User{{Key: key.Public}}, cfg.Users...))
		opts.CustomClientAuthentication, opts.AlwaysEnableNonce, opts.MaxSubs = gate, true, GuestSubscriptions
	}
	if cfg.TLS != nil {
		opts.TLSConfig, opts.TLS, opts.TLSTimeout = cfg.TLS, true, tlsTimeout
		opts.OCSPConfig = &server.OCSPConfig{Mode: server.OCSPModeNever} // it would keep files in the store
	}
	if cfg.Adjust != nil {
		cfg.Adjust(opts)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("starting the embedded server on %q: %w", cfg.Dir, err)
	}
	e := &Embedded{srv: srv, log: newServerLog(cfg.Logger), self: self, gate: gate, closing: make(chan struct{}), synced: opts.SyncAlways}
	srv.SetLoggerV2(e.log, false, false, false)
	started := make(chan struct{})
	go func() {
		srv.Start() // returns when all is up, or after a fatal error
		close(started)
	}()
	select {
	case <-started:
	case <-e.log.fatal:
	case <-ctx.Done():
	}
	if reason := e.log.reason(); reason != "" {
		err = errors.New(reason)
	} else if err = ctx.Err(); err == nil && !srv.JetStreamEnabled() {
		err = fmt.Errorf("JetStream is not running: %q", e.log.all())
	}
	if err != nil {
		// Its files must be closed before the caller gives up the lock.
		<-started
		srv.Shutdown()
		return nil, fmt.Errorf("starting the embedded server on %q: %w", filepath.Join(cfg.Dir, server.JetStreamStoreDir), err)
	}
	if gate != nil {
		go e.watchGuests()
	}
	return e, nil
}

// Connect opens a connection to the server within the process. What goes wrong
// on it in the background is logged, unless opts say otherwise.
func (e *Embedded) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := []nats.Option{
		nats.InProcessServer(e.srv),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			e.log.say(slog.LevelWarn, err.Error(), "nats.go") // by default it goes to standard error
		}),
	}
	if e.self != nil {
		all = append(all, e.self.Option())
	}
	nc, err := nats.Connect("", append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to the embedded server: %w", err)
	}
	return nc, nil
}

// URL is where the server listens, or "" if it does not.
func (e *Embedded) URL() string {
	if e.srv.Addr() == nil {
		return ""
	}
	return e.srv.ClientURL()
}

// Complaints returns the server's warnings and errors so far (at most 20): a
// stream it could not recover appears only there.
func (e *Embedded) Complaints() []string { return e.log.all() }

// Close stops the server in order and returns when its files are closed. Close
// connections first: a publish that meets a closing server waits for its own
// deadline.
func (e *Embedded) Close() {
	e.closeOnce.Do(func() { close(e.closing) })
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
}

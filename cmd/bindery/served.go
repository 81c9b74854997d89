package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/ledger"
)

// A serving process leaves in its store how it is reached. The file is as secret
// as the store itself: who can read the one can write the other.

// endpointFile is its name.
const endpointFile = "serve.json"

// maxEndpointFile bounds what is read of it, in bytes: certificates are in it.
const maxEndpointFile = 1 << 20

// endpoint is how a serving process is reached.
type endpoint struct {
	URL string `json:"url"`
	service.Identity
	Seed string `json:"seed"` // of the key that logs in
	PID  int    `json:"pid"`
	HTTP string `json:"http,omitempty"` // where it tells of its health
	// With TLS: what vouches for it here, in PEM, and its name there; where other
	// machines reach it, and what vouches for it to them.
	Pin    string `json:"pin,omitempty"`
	Name   string `json:"name,omitempty"`
	Public string `json:"public,omitempty"`
	CA     string `json:"ca,omitempty"`
}

// leave writes e into a store: whole, or not at all.
func (e *endpoint) leave(dir string) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, endpointFile+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, endpointFile))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// withdrawEndpoint takes it out again.
func withdrawEndpoint(dir string) error {
	err := os.Remove(filepath.Join(dir, endpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// findEndpoint reads how the process that serves a store is reached, or was: one
// that was killed leaves it behind.
func findEndpoint(dir string) (endpoint, bool) {
	var e endpoint
	data, err := ledger.ReadRegular(filepath.Join(dir, endpointFile), maxEndpointFile)
	return e, err == nil && json.Unmarshal(data, &e) == nil
}

// dialTimeout is how long a serving process on this machine may take to answer a
// connection.
const dialTimeout = 2 * time.Second

// reconnects is how often a lost connection is tried again, at least 100 ms
// apart: one that serves anew is found by what it leaves in the store.
const reconnects = 10

// connecting are the options of every connection to another process: how often a
// lost one is tried again, -1 for ever. What goes wrong on it in the background
// whoever waits is told.
func connecting(reconnects int) []nats.Option {
	return []nats.Option{nats.Name("bindery"), nats.Timeout(dialTimeout), nats.MaxReconnects(reconnects), nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
}

// dial opens a session with the process that serves a store. When nobody listens
// there any more the error wraps errNotServed.
func (c *cli) dial(e endpoint) (*session, error) {
	if c.globals.mesh != "" && c.globals.mesh != e.Mesh {
		dir, _ := c.storeDir()
		return nil, wrongMesh(dir, e.Mesh, c.globals.mesh)
	}
	key, err := ledger.ParseKey([]byte(e.Seed))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotServed, err)
	}
	nc, err := nats.Connect(e.URL, append(connecting(reconnects), key.Option(), pinned(e.Pin, e.Name),
		nats.CustomInboxPrefix(service.InboxOf(key.Public)))...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotServed, err)
	}
	s := &session{mesh: e.Mesh, isServed: true, conn: nc}
	s.later(func() error { nc.Close(); return nil })
	s.client, err = service.NewClient(nc, s.mesh)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.client.SignWith(key, e.Identity)
	return s, nil
}

// pinned trusts the certificates in PEM, and no others; all that the system
// trusts where there are none.
func pinned(text, name string) nats.Option {
	return func(o *nats.Options) error {
		if text == "" {
			return nil
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(text)) {
			return errors.New("what is to vouch for the server is no certificate")
		}
		o.TLSConfig, o.Secure = &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS13}, true
		return nil
	}
}

// errNotServed says that nobody serves a store.
var errNotServed = errors.New("nobody serves the store")

// throughServe opens a session with the process that serves the store, if there
// is one.
func (c *cli) throughServe(dir string) (*session, error) {
	if _, err := os.Lstat(filepath.Join(dir, endpointFile)); err != nil {
		return nil, errNotServed
	}
	if err := checkParts(dir, false, endpointFile); err != nil { // else somebody could name another server
		return nil, err
	}
	e, ok := findEndpoint(dir)
	if !ok {
		return nil, errNotServed
	}
	return c.dial(e)
}

// openStore opens the store through whoever serves it, or by itself where
// nobody does.
func (c *cli) openStore(ctx context.Context, dir string, by opening) (*session, error) {
	return c.servedOr(dir, func(s *session) error { return s.open(ctx, c, dir, by) })
}

// servedOr is a session with whoever serves a store, or one that is opened alone
// where nobody does. One that is just starting holds the lock and says a moment
// later how it is reached.
func (c *cli) servedOr(dir string, alone func(s *session) error) (*session, error) {
	s, err := c.throughServe(dir)
	if !errors.Is(err, errNotServed) {
		return s, err
	}
	s = &session{}
	if err = alone(s); err == nil {
		return s, nil
	}
	_ = s.close()
	var r *commands.Refusal
	if errors.As(err, &r) && r.Code == commands.StoreLocked {
		if s, served := c.throughServe(dir); !errors.Is(served, errNotServed) {
			return s, served
		}
	}
	return nil, err
}

// patient asks whoever serves the store, and where nobody answers for a while,
// whoever serves it next: for what waits long.
type patient struct {
	c   *cli
	dir string
	now *session
	own bool  // now is one that this has opened
	err error // why nobody will ever answer; nil: somebody may
}

// patientWith is a patient asker that begins with an open session.
func (c *cli) patientWith(s *session) (*patient, error) {
	dir, err := c.storeDir()
	return &patient{c: c, dir: dir, now: s}, err
}

func (p *patient) close() {
	if p.own {
		_ = p.now.close() // it has no more than a connection
	}
}

// askAgain is how long a patient asker pauses before it looks for another.
const askAgain = 300 * time.Millisecond

// Ask implements asker.
func (p *patient) Ask(ctx context.Context, q commands.Query) (json.RawMessage, error) {
	for {
		data, err := p.now.client.Ask(ctx, q)
		if !p.now.served() || !isUnreachable(err) {
			return data, err
		}
		if !p.another(ctx) {
			return nil, cmp.Or(p.err, err)
		}
	}
}

// another waits until somebody serves the store. It reports false when ctx ends,
// and when who asks is let in no more (p.err).
func (p *patient) another(ctx context.Context) bool {
	for {
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return false
		}
		s, err := p.find(ctx)
		var r *commands.Refusal
		switch {
		case err == nil:
			p.close()
			p.now, p.own = s, true
			return true
		case errors.As(err, &r) && r.Code == commands.NotPermitted:
			p.err = err // it was revoked
			return false
		}
	}
}

// find looks for whoever serves the ledger now.
func (p *patient) find(ctx context.Context) (*session, error) {
	if n, ok, err := p.c.remote(); ok || err != nil {
		if err != nil {
			return nil, err
		}
		return p.c.openRemote(ctx, n)
	}
	return p.c.throughServe(p.dir)
}

func isUnreachable(err error) bool {
	var r *commands.Refusal
	return errors.As(err, &r) && r.Code == commands.Unreachable
}

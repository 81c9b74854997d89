package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/ledger"
)

type serve struct {
	listen   string
	http     string
	logLevel string

	tlsOwn          bool
	tlsCert, tlsKey string
	names           []string // under which others reach it

	answerCreds string // on a server that is not our own
	snapshots   string // likewise: where they are kept
}

func (*serve) help() *cobra.Command {
	return &cobra.Command{
		Use: "serve",
		Example: `  bindery serve --store /srv/bindery/home
  bindery serve --listen 127.0.0.1:4222 --log-level debug
  bindery serve --http 127.0.0.1:9464
  bindery serve --listen 0.0.0.0:4222 --tls-own --name alpha.home.arpa
  bindery serve --server nats://a:4222,nats://b:4222,nats://c:4222 --creds writer.nk`,
		Short: "Hold the store and answer for it",
		Long: `Holds the store and listens on this machine until it is told to stop (SIGTERM, Ctrl-C). Every other
command on the store finds it and goes through it, so that several can work at once and some can wait:
rotation wait, log --follow. Who can read the store's files can connect, and who is granted access. It
answers what it has accepted before it ends. Beyond this machine it listens with TLS only, and only when
somebody is granted access; --tls-own makes an authority in the store, and access grant --join writes what
another machine needs. With --http it tells there how it is: /healthz, /readyz, and /metrics for Prometheus,
to whoever is on this machine.

With --server or --context it serves the ledger on a NATS server, or a cluster of them, instead: start it
on several machines; one of them writes, the others follow and take over when it is gone.`,
	}
}

func (v *serve) flags(f *flags) {
	f.args()
	f.StringVar(&v.listen, "listen", defaultListen, "`HOST:PORT` to listen on; port 0: any")
	f.BoolVar(&v.tlsOwn, "tls-own", false, "TLS with certificates of the store's own authority")
	f.StringVar(&v.tlsCert, "tls-cert", "", "`file` with the certificate to show, in PEM")
	f.StringVar(&v.tlsKey, "tls-key", "", "`file` with its key")
	f.StringSliceVar(&v.names, "name", nil, "`host` name or address under which others reach it; may be repeated")
	f.cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	f.cmd.MarkFlagsMutuallyExclusive("tls-own", "tls-cert")
	f.StringVar(&v.answerCreds, "answer-creds", "", "with --server: `file` to log in with for the connection that answers")
	f.StringVar(&v.snapshots, "snapshots", "", "with --server: `directory` on this machine for snapshots, so that it starts sooner; not given: none are kept")
	f.values("name")
	f.StringVar(&v.logLevel, "log-level", "info", "what is logged on standard error: debug, info, warn or error")
	f.StringVar(&v.http, "http", "", "`HOST:PORT` on this machine for /healthz, /readyz and /metrics; not given: none")
	f.values("listen")
	f.values("http")
	f.values("log-level", "debug", "info", "warn", "error")
}

func (v *serve) run(ctx context.Context, c *cli, _ []string) error {
	logger, err := v.logger(c)
	if err != nil {
		return err
	}
	if v.http != "" {
		if _, _, err := onThisMachine("http", v.http, "it asks nobody who he is", "9464"); err != nil {
			return err
		}
	}
	if n, ok, err := c.remote(); ok || err != nil {
		if err != nil {
			return err
		}
		return v.serveRemote(ctx, c, n, logger)
	}
	if v.snapshots != "" {
		return usage("a store keeps its snapshots itself", "--snapshots is for a server that is not this program's own", do("serve"))
	}
	host, port, err := v.address()
	if err != nil {
		return err
	}
	if port == 0 {
		port = -1 // as the server says "any"
	}
	dir, err := c.storeDir()
	if err != nil {
		return err
	}
	if !isStore(dir) {
		return c.noStore(dir)
	}
	s := &session{}
	err = v.serve(ctx, c, s, dir, host, port, logger)
	if closed := s.close(); err == nil {
		err = closed
	}
	return stoppedServing(ctx, err, logger)
}

// stoppedServing is the end of serving: an error, or nil where it was told to stop, be it
// while it was starting.
func stoppedServing(ctx context.Context, err error, logger *slog.Logger) error {
	if err != nil && ctx.Err() != nil && (errors.Is(err, ctx.Err()) || service.AsRefusal(err).Code == commands.Interrupted) {
		err = nil
	}
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

// defaultListen is a port of the system's choice, on this machine.
const defaultListen = "127.0.0.1:0"

// logger writes to standard error.
func (v *serve) logger(c *cli) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(v.logLevel)); err != nil {
		return nil, usage(fmt.Sprintf("%q is no log level", clip(v.logLevel)), "it is debug, info, warn or error", do("serve").With("--log-level", "info"))
	}
	return slog.New(slog.NewTextHandler(shownWriter{to: c.streams.Err, hide: c.withoutLogins}, &slog.HandlerOptions{Level: level})), nil
}

// address is where to listen: beyond this machine with TLS only.
func (v *serve) address() (host string, port int, err error) {
	if v.tlsOwn || v.tlsCert != "" {
		return hostPort("listen", v.listen, "4222")
	}
	return onThisMachine("listen", v.listen, "beyond it, requests and answers would go in the clear (with --tls-own or --tls-cert they do not)", "4222")
}

// identity is what it proves itself with; nil without TLS.
func (v *serve) identity(dir, host string, now time.Time) (*serverIdentity, error) {
	switch {
	case v.tlsCert != "":
		return loadIdentity(v.tlsCert, v.tlsKey)
	case v.tlsOwn:
		names := v.names
		if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
			names = append([]string{host}, names...)
		}
		return ownIdentity(dir, names, now)
	}
	return nil, nil
}

// serve holds the store until ctx ends. What it opens is closed by s.
func (v *serve) serve(ctx context.Context, c *cli, s *session, dir, host string, port int, logger *slog.Logger) error {
	h, about, stop, err := v.health(c, logger)
	if err != nil {
		return err
	}
	s.later(stop)
	local, err := ledger.NewKey() // of whoever reads the store's files
	if err != nil {
		return err
	}
	responder, err := ledger.NewKey()
	if err != nil {
		return err
	}
	// Who may do what depends on the ledger, and that is not open yet.
	users := []ledger.User{service.ResponderUser(responder.Public)}
	proof, err := v.identity(dir, host, c.program.Clock())
	if err != nil {
		return err
	}
	by := opening{find: openLog(dir, c.globals.mesh), logger: logger, answering: &responder,
		door: service.Door{Signed: true, Local: local.Public, Listeners: func(key, subject string) int { return s.server.Listeners(key, subject) }, Flooded: func(key string) {
			logger.Warn("a key sends more than is taken from one, and is kept out for a while", "key", key, "for", turnedAwayFor)
			s.server.TurnAway(key, turnedAwayFor)
		}},
		server: ledger.EmbeddedConfig{Listen: true, Host: host, Port: port, Logger: logger, Users: users}}
	if about != "" {
		by.meter = h.metrics
	}
	if proof != nil {
		by.server.TLS = proof.config
	}
	if err := s.open(ctx, c, dir, by); err != nil {
		return err
	}
	if beyond(host) && s.grants() == 0 {
		return usage("nobody is granted access", "beyond this machine it serves who is granted access, and nobody is",
			do("access grant", "NAME").With("--role", "operator").With("--nkey", "KEY"))
	}
	seed, err := local.Seed()
	if err != nil {
		return err
	}
	if err := s.keepGrants(local.Public, logger); err != nil {
		return err
	}
	if err := s.keepDocuments(); err != nil {
		return err
	}
	e := endpoint{URL: s.url, Identity: s.services[0].Identity(), Seed: seed, PID: os.Getpid(), HTTP: about}
	v.tellOthers(&e, host, proof)
	if err := e.leave(dir); err != nil {
		return refusal(commands.StoreUnusable, "it cannot be said in the store how it is served", err.Error(), program("ls", "-ld", dir))
	}
	s.later(func() error { return withdrawEndpoint(dir) }) // first of all: nobody new comes
	h.watched.Store(&watched{handler: s.handler, log: s.log, turned: s.services[0].Turned})
	logger.Info("serving", "mesh", s.mesh, "store", dir, "url", s.url)
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		logger.Warn("telling systemd", "error", err)
	}
	<-ctx.Done()
	h.stopping.Store(true)
	logger.Info("stopping")
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	return nil
}

// health tells how the process is, where --http says, until stop is called; url is
// where that is, "" for nowhere.
func (v *serve) health(c *cli, logger *slog.Logger) (h *health, url string, stop func() error, err error) {
	h = newHealth(c.program.Clock)
	if v.http == "" {
		return h, "", func() error { return nil }, nil
	}
	host, port, _ := net.SplitHostPort(v.http) // it was looked at
	if url, stop, err = h.listen(host, port, logger); err != nil {
		return nil, "", nil, refusal(commands.Unreachable, "nobody can listen on "+v.http, err.Error(), do("serve").With("--http", "127.0.0.1:0"))
	}
	logger.Info("telling of its health", "http", url)
	return h, url, stop, nil
}

// tellOthers notes how it is reached with TLS: from this machine, and from others.
func (v *serve) tellOthers(e *endpoint, host string, proof *serverIdentity) {
	if proof == nil {
		return
	}
	_, port, _ := net.SplitHostPort(e.URL[len("nats://"):])
	ip := net.ParseIP(host)
	here, there := host, host
	if ip != nil && ip.IsUnspecified() {
		here = "127.0.0.1"
		there, _ = os.Hostname()
	}
	if len(v.names) > 0 {
		there = v.names[0]
	}
	e.URL, e.Pin, e.Name = "tls://"+net.JoinHostPort(here, port), string(proof.pin), proof.name
	e.Public, e.CA = "tls://"+net.JoinHostPort(there, port), string(proof.authority)
}

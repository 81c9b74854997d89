package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/instance"
	"bindery/commands/service"
	"bindery/ledger"
)

// serveRemote is one of several processes that serve a ledger on a server that is
// not this program's own: one of them writes, the others follow and take over.
func (v *serve) serveRemote(ctx context.Context, c *cli, n natsContext, logger *slog.Logger) error {
	if v.tlsOwn || v.tlsCert != "" || v.listen != defaultListen {
		return usage("what listens is the server "+n.URL, "--listen and --tls-… are for a store that is served", "bindery serve --server "+n.URL)
	}
	conn, err := n.connect()
	if err != nil {
		return notReached(n.URL, err)
	}
	defer conn.Close()
	answers := n
	if v.answerCreds != "" {
		answers.Creds, answers.NKey = v.answerCreds, ""
	} else {
		logger.Warn("the connection that answers may publish wherever this process may: give --answer-creds of a user that may publish below _INBOX alone")
	}
	h := newHealth(c.program.Clock)
	if v.http != "" {
		host, port, _ := net.SplitHostPort(v.http)
		url, stop, err := h.listen(host, port, logger)
		if err != nil {
			return refusal(commands.Unreachable, "nobody can listen on "+v.http, err.Error(), "bindery serve --http 127.0.0.1:0")
		}
		defer func() { _ = stop() }()
		logger.Info("telling of its health", "http", url)
	}
	host, _ := os.Hostname()
	inst := instance.New(instance.Config{Conn: conn, Dial: func() (*nats.Conn, error) { return answers.connect() }, Mesh: c.globals.mesh, Name: host + "-" + strconv.Itoa(os.Getpid()),
		Version: serviceVersion, Door: service.Door{Signed: true},
		Handler: handler.Config{Clock: c.program.Clock, NewID: c.program.NewID, Logger: logger, Meter: h.metrics}})
	watching := watchedInstance{inst}
	h.watched.Store(&watched{handler: watching, log: watching})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go announce(ctx, inst, logger)
	err = inst.Run(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

// watchedInstance is an instance as its health is told.
type watchedInstance struct{ *instance.Instance }

// Health implements writer. An instance that follows is ready when it hears where
// the ledger ends.
func (w watchedInstance) Health() handler.Health {
	now := w.Status()
	h := handler.Health{Head: now.Head, Seq: now.Applied}
	if !now.Ready(time.Now()) {
		h.Err = errors.New("it has not heard lately where the ledger ends")
	}
	return h
}

// Last implements watchedLog: as last heard, since Health says how long ago.
func (w watchedInstance) Last(context.Context) (uint64, error) { return w.Status().Head, nil }

// Foreign implements watchedLog: an instance does not tell them apart.
func (watchedInstance) Foreign() ledger.Foreign { return ledger.Foreign{} }

// announce logs what the instance does, when that changes, and tells systemd when
// it is ready.
func announce(ctx context.Context, inst *instance.Instance, logger *slog.Logger) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var role instance.Role
	ready := false
	for {
		select {
		case <-ctx.Done():
			_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
			return
		case <-tick.C:
		}
		now := inst.Status()
		if now.Role != role {
			role = now.Role
			logger.Info("serving", "role", string(role), "applied", now.Applied, "head", now.Head)
		}
		if !ready && now.Ready(time.Now()) {
			ready = true
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		}
	}
}

// login is how the context's user logs in; nothing where the server asks nobody.
func (n *natsContext) login() ([]nats.Option, error) {
	opts := []nats.Option{nats.Name("bindery"), nats.Timeout(dialTimeout), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
	if n.Creds != "" || n.NKey != "" {
		_, as, err := n.identity()
		if err != nil {
			return nil, err
		}
		opts = append(opts, as)
	}
	if n.Pinned != "" {
		opts = append(opts, pinned(n.Pinned, ""))
	}
	if n.CA != "" {
		opts = append(opts, nats.RootCAs(n.CA))
	}
	if n.Cert != "" {
		opts = append(opts, nats.ClientCert(n.Cert, n.Key))
	}
	return opts, nil
}

// connect makes a connection as the context says.
func (n *natsContext) connect(more ...nats.Option) (*nats.Conn, error) {
	opts, err := n.login()
	if err != nil {
		return nil, err
	}
	return nats.Connect(cmp.Or(n.URL, nats.DefaultURL), append(opts, more...)...)
}

// createRemote begins the ledger of a mesh on a server, with its first operator:
// without one nobody could ask for anything.
func (c *cli) createRemote(ctx context.Context, n natsContext, mesh string, replicas int, req commands.Request) (r commands.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	nc, err := n.connect()
	if err != nil {
		return r, notReached(n.URL, err)
	}
	defer nc.Close()
	log, err := ledger.Create(ctx, nc, mesh, ledger.CreateOptions{Replicas: replicas})
	if errors.Is(err, ledger.ErrExists) {
		log, err = ledger.Open(ctx, nc, mesh)
	}
	if err != nil {
		return r, err
	}
	if last, err := log.Last(ctx); err != nil || last > 0 {
		if err == nil {
			err = refusal(commands.LedgerExists, "the ledger of mesh "+mesh+" is on the server already", "it is at sequence "+strconv.FormatUint(last, 10), "bindery --server "+quote(n.URL)+" status")
		}
		return r, err
	}
	h, err := handler.Open(ctx, handler.Config{Log: log, Clock: c.program.Clock, NewID: c.program.NewID})
	if err != nil {
		return r, err
	}
	defer h.Close()
	return h.Do(ctx, req)
}

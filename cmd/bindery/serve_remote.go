package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/instance"
	"bindery/commands/service"
	"bindery/commands/snapshot"
	"bindery/ledger"
)

// serveRemote is one of several processes that serve a ledger on a server that is
// not this program's own: one of them writes, the others follow and take over.
func (v *serve) serveRemote(ctx context.Context, c *cli, n natsContext, logger *slog.Logger) error {
	if v.tlsOwn || v.tlsCert != "" || v.listen != defaultListen {
		return usage("what listens is the server "+publicURL(n.URL), "--listen and --tls-… are for a store that is served", do("serve").With("--server", publicURL(n.URL)))
	}
	answers := n
	if v.answerCreds != "" {
		answers.Creds, answers.NKey = v.answerCreds, ""
	}
	if err := checkBoundary(ctx, n, answers); err != nil {
		return err
	}
	conn, err := n.connect()
	if err != nil {
		return notReached(n.URL, err)
	}
	defer conn.Close()
	var snapshots *snapshot.Store
	if v.snapshots != "" {
		snapshots = snapshot.In(v.snapshots, logger)
	}
	anchor, err := c.remoteAnchor(publicURL(n.URL), logger)
	if err != nil {
		return err
	}
	h, _, stopTelling, err := v.health(c, logger)
	if err != nil {
		return err
	}
	defer func() { _ = stopTelling() }()
	host, _ := os.Hostname()
	cfg := instance.Config{Conn: conn, Dial: func() (*nats.Conn, error) { return answers.connect() }, Mesh: c.globals.mesh, Name: host + "-" + strconv.Itoa(os.Getpid()),
		Version: serviceVersion, Door: service.Door{Signed: true}, Snapshots: snapshots,
		Handler: handler.Config{Clock: c.program.Clock, NewID: c.program.NewID, Logger: logger, Meter: h.metrics}}
	if key, _, err := n.identity(); err == nil {
		cfg.Prover, cfg.Key = key, key.Public
		if snapshots != nil {
			snapshots.SealWith(ledger.Secrets{key.Sealing()})
		}
	} else {
		logger.Warn("what this process writes is not proven: it has no nkey of its own", "fix", c.line(do("serve").With("--creds", "FILE")))
	}
	if anchor != nil {
		cfg.Taking, cfg.Handler.Durable = anchor.taking, anchor.durable
	}
	inst := instance.New(cfg)
	watching := watchedInstance{inst}
	h.watched.Store(&watched{handler: watching, log: watching})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go announce(ctx, inst, logger)
	err = inst.Run(ctx)
	var none *instance.NotWriterKeyError
	if errors.As(err, &none) {
		err = notWriter(none, n.URL)
	}
	return stoppedServing(ctx, err, logger)
}

// notWriter refuses to serve a ledger that would not take what is written here.
func notWriter(e *instance.NotWriterKeyError, url string) error {
	fix := do("serve").With("--server", url).With("--creds", "FILE")
	if e.Key != "" {
		fix = do("access grant", "NAME").With("--role", "writer").With("--nkey", e.Key)
	}
	return refusal(commands.NotPermitted, "this process may not write the ledger", e.Error(), fix)
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

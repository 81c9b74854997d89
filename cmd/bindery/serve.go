package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/service"
	"bindery/ledger"
)

type serve struct {
	listen   string
	http     string
	logLevel string
}

func (*serve) help() *cobra.Command {
	return &cobra.Command{
		Use: "serve",
		Example: `  bindery serve --store /srv/bindery/home
  bindery serve --listen 127.0.0.1:4222 --log-level debug
  bindery serve --http 127.0.0.1:9464`,
		Short: "Hold the store and answer for it",
		Long: `Holds the store and listens on this machine until it is told to stop (SIGTERM, Ctrl-C). Every other
command on the store finds it and goes through it, so that several can work at once and some can wait:
rotation wait, log --follow. Only who can read the store's files can connect. It answers what it has
accepted before it ends. With --http it tells there how it is: /healthz, /readyz, and /metrics for
Prometheus, to whoever is on this machine.`,
	}
}

func (v *serve) flags(f *flags) {
	f.args()
	f.StringVar(&v.listen, "listen", "127.0.0.1:0", "`HOST:PORT` on this machine to listen on; port 0: any")
	f.StringVar(&v.logLevel, "log-level", "info", "what is logged on standard error: debug, info, warn or error")
	f.StringVar(&v.http, "http", "", "`HOST:PORT` on this machine for /healthz, /readyz and /metrics; not given: none")
	f.values("listen")
	f.values("http")
	f.values("log-level", "debug", "info", "warn", "error")
}

func (v *serve) run(ctx context.Context, c *cli, _ []string) error {
	host, port, err := onThisMachine("listen", v.listen, "whoever can read the store's files may write to it, and nobody else", "4222")
	if err != nil {
		return err
	}
	if port == 0 {
		port = -1 // as the server says "any"
	}
	if v.http != "" {
		if _, _, err := onThisMachine("http", v.http, "it asks nobody who he is", "9464"); err != nil {
			return err
		}
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(v.logLevel)); err != nil {
		return usage(fmt.Sprintf("%q is no log level", clip(v.logLevel)), "it is debug, info, warn or error", "bindery serve --log-level info")
	}
	logger := slog.New(slog.NewTextHandler(c.streams.Err, &slog.HandlerOptions{Level: level}))
	dir, err := c.storeDir()
	if err != nil {
		return err
	}
	if !isStore(dir) {
		return missing(dir, "there is no store")
	}
	s := &session{}
	err = v.serve(ctx, c, s, dir, host, port, logger)
	if closed := s.close(); err == nil {
		err = closed
	}
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

// onThisMachine reads a flag's HOST:PORT, which must be a loopback address.
func onThisMachine(flag, text, why, example string) (host string, port int, err error) {
	host, number, err := net.SplitHostPort(text)
	if err == nil {
		port, err = strconv.Atoi(number)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, usage("--"+flag+" is no HOST:PORT", "", "bindery serve --"+flag+" 127.0.0.1:"+example)
	}
	if ip := net.ParseIP(host); (ip == nil || !ip.IsLoopback()) && host != "localhost" {
		return "", 0, usage("--"+flag+" is not on this machine", why+": it listens on a loopback address",
			"bindery serve --"+flag+" 127.0.0.1:"+number)
	}
	return host, port, nil
}

// serve holds the store until ctx ends. What it opens is closed by s.
func (v *serve) serve(ctx context.Context, c *cli, s *session, dir, host string, port int, logger *slog.Logger) error {
	h := newHealth(c.program.Clock)
	about, meter := "", handler.Meter(nil)
	if v.http != "" {
		host, port, _ := net.SplitHostPort(v.http)
		url, stop, err := h.listen(host, port, logger)
		if err != nil {
			return refusal(commands.Unreachable, "nobody can listen on "+v.http, err.Error(), "bindery serve --http 127.0.0.1:0")
		}
		s.later(stop)
		about, meter = url, h.metrics
		logger.Info("telling of its health", "http", url)
	}
	local, err := ledger.NewKey() // of whoever reads the store's files
	if err != nil {
		return err
	}
	responder, err := ledger.NewKey()
	if err != nil {
		return err
	}
	users := []ledger.User{service.CallerUser(local.Public), service.ResponderUser(responder.Public)}
	by := opening{find: openLog(dir, c.globals.mesh), logger: logger, answering: &responder, meter: meter,
		door:   service.Door{Signed: true, Local: local.Public},
		server: ledger.EmbeddedConfig{Listen: true, Host: host, Port: port, Logger: logger, Users: users}}
	if err := s.open(ctx, c, dir, by); err != nil {
		return err
	}
	seed, err := local.Seed()
	if err != nil {
		return err
	}
	if err := s.keepGrants(users, logger); err != nil {
		return err
	}
	e := endpoint{URL: s.url, Mesh: s.mesh, Seed: seed, PID: os.Getpid(), HTTP: about}
	if err := e.leave(dir); err != nil {
		return refusal(commands.StoreUnusable, "it cannot be said in the store how it is served", err.Error(), "ls -ld "+quote(dir))
	}
	s.later(func() error { return withdrawEndpoint(dir) }) // first of all: nobody new comes
	h.watched.Store(&watched{handler: s.handler, log: s.log})
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

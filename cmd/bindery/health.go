package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"bindery/commands/handler"
)

// health tells over HTTP how a serving process is: /healthz that it lives,
// /readyz whether it can store commands, /metrics how much it does. It says
// nothing out of the ledger but counts.
type health struct {
	metrics  *metrics
	clock    func() time.Time
	viewWait time.Duration
	watched  atomic.Pointer[watched] // nil until the store is open
	stopping atomic.Bool
}

// watched is an open store.
type watched struct {
	handler writer
	log     watchedLog
	turned  func() map[string]uint64 // requests turned away at the door, by reason; nil: not known
}

func newHealth(clock func() time.Time) *health {
	h := &health{metrics: newMetrics(), clock: clock, viewWait: viewWait}
	h.metrics.registry.MustRegister(&stateMetrics{health: h, viewing: make(chan struct{}, 1)})
	return h
}

const (
	// tooLong is how long a group may be on its way to the log before it is said
	// that nothing can be stored.
	tooLong = 5 * time.Second
	// probeWait is how long the ledger may take to say where it ends.
	probeWait = 2 * time.Second
)

// trouble is why no command can be stored now, as far as the writer knows; nil
// where one can.
func (h *health) trouble() error {
	w := h.watched.Load()
	switch {
	case h.stopping.Load():
		return errors.New("it stops")
	case w == nil:
		return errors.New("the store is being opened")
	}
	return writerTrouble(w.handler.Health())
}

// writerTrouble is why a writer can store nothing.
func writerTrouble(state handler.Health) error {
	if state.Err != nil {
		return fmt.Errorf("the ledger could not be written or read the last time: %w", state.Err)
	}
	if busy := time.Since(state.Busy); !state.Busy.IsZero() && busy > tooLong {
		return fmt.Errorf("commands are on their way to the disk since %s", since(busy))
	}
	return nil
}

// probe is trouble, and asks the ledger, too.
func (h *health) probe(ctx context.Context) error {
	if err := h.trouble(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	if _, err := h.watched.Load().log.Last(ctx); err != nil {
		return fmt.Errorf("the ledger does not answer: %w", err)
	}
	return nil
}

func (h *health) mux(logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := h.probe(r.Context()); err != nil {
			say(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		say(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.metrics.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn), MaxRequestsInFlight: 8}))
	return mux
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // who asked has gone, else
}

// listen serves on an address of this machine until close is called, and returns
// its URL.
func (h *health) listen(host, port string, logger *slog.Logger) (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return "", nil, err
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() { // what localhost is, a file says
		return "", nil, errors.Join(fmt.Errorf("%s is not on this machine", l.Addr()), l.Close())
	}
	srv := &http.Server{Handler: h.mux(logger), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("telling of its health", "error", err)
		}
	}()
	return "http://" + l.Addr().String(), srv.Close, nil
}

package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/instance"
	"bindery/commands/service"
	"bindery/ledger"
	"bindery/projections"
)

// metrics count what a serving process does. No label has a name out of the
// ledger: who may read them need not be who may read the store.
type metrics struct {
	registry *prometheus.Registry
	commands *prometheus.CounterVec
	errors   *prometheus.CounterVec
	decide   prometheus.Histogram
	append   prometheus.Histogram
	group    prometheus.Histogram
	failures prometheus.Counter
}

var _ handler.Meter = (*metrics)(nil)

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bindery_commands_total",
			Help: "Commands that were answered, by what became of them: ok, unchanged, repeated, dry_run, refused, failed."}, []string{"verb", "outcome"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bindery_command_errors_total",
			Help: "Commands that were refused or failed, by code."}, []string{"code"}),
		decide: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "bindery_decide_seconds",
			Help: "How long it took to decide a command.", Buckets: prometheus.ExponentialBuckets(10e-6, 4, 9)}),
		append: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "bindery_append_seconds",
			Help: "How long it took until a group of commands was durable.", Buckets: prometheus.ExponentialBuckets(100e-6, 2.5, 13)}),
		group: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "bindery_group_commands",
			Help: "How many commands were appended as one group.", Buckets: prometheus.ExponentialBuckets(1, 2, 11)}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "bindery_append_failures_total",
			Help: "Groups that could not be appended whole."}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "bindery_build_info", Help: "Always 1; the versions are in the labels.",
		ConstLabels: prometheus.Labels{"version": serviceVersion, "nats": server.VERSION, "go": runtime.Version()}})
	build.Set(1)
	m.registry.MustRegister(m.commands, m.errors, m.decide, m.append, m.group, m.failures, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Decided implements handler.Meter.
func (m *metrics) Decided(took time.Duration) { m.decide.Observe(took.Seconds()) }

// Appended implements handler.Meter.
func (m *metrics) Appended(n int, took time.Duration, err error) {
	m.append.Observe(took.Seconds())
	m.group.Observe(float64(n))
	if err != nil {
		m.failures.Inc()
	}
}

// Answered implements handler.Meter.
func (m *metrics) Answered(req commands.Request, r commands.Result, err error) {
	m.commands.WithLabelValues(req.Command.Verb(), outcome(req, r, err)).Inc()
	if err != nil {
		m.errors.WithLabelValues(string(service.AsRefusal(err).Code)).Inc()
	}
}

// outcome is what became of a command, in a word.
func outcome(req commands.Request, r commands.Result, err error) string {
	switch {
	case err != nil:
		switch service.AsRefusal(err).Code.Exit() {
		case commands.ExitUsage, commands.ExitRefused, commands.ExitNotFound, commands.ExitConflict:
			return "refused"
		}
		return "failed"
	case req.DryRun:
		return "dry_run"
	case r.Repeated:
		return "repeated"
	case !r.Changed:
		return "unchanged"
	}
	return "ok"
}

// writer is what is watched: the handler, and the log it writes.
type writer interface {
	Health() handler.Health
	View(func(*projections.State))
}

// watchedLog is what is asked of the ledger.
type watchedLog interface {
	Last(ctx context.Context) (uint64, error)
	Foreign() ledger.Foreign
}

// viewWait is how long a scrape waits for the state. The writer holds it while it
// appends, and a disk may hang.
const viewWait = 2 * time.Second

// stateMetrics are read when somebody asks for them.
type stateMetrics struct {
	health  *health
	viewing chan struct{} // a place for one look at the state
}

var (
	readyDesc     = prometheus.NewDesc("bindery_ready", "1 where /readyz says so.", nil, nil)
	headDesc      = prometheus.NewDesc("bindery_head_sequence", "The last sequence of the stream, as far as the writer knows.", nil, nil)
	appliedDesc   = prometheus.NewDesc("bindery_applied_sequence", "The sequence of the last event that is durable and folded.", nil, nil)
	lagDesc       = prometheus.NewDesc("bindery_follower_lag_events", "How far this instance is behind the writer; 0 for the writer itself.", nil, nil)
	foreignDesc   = prometheus.NewDesc("bindery_foreign_messages", "Messages in the stream that are no part of the ledger.", nil, nil)
	rotationsDesc = prometheus.NewDesc("bindery_open_rotations", "Rotations that are open.", nil, nil)
	overdueDesc   = prometheus.NewDesc("bindery_overdue_members", "Credentials left in rotations whose deadline is past.", nil, nil)
	writerDesc    = prometheus.NewDesc("bindery_writer", "1 where this instance is the one that writes.", nil, nil)
	turnedDesc    = prometheus.NewDesc("bindery_requests_turned_away_total", "Requests that did not prove who asks.", []string{"reason"}, nil)
	holdersDesc   = prometheus.NewDesc("bindery_holders", "Credentials that can log in.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*stateMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{readyDesc, headDesc, appliedDesc, lagDesc, foreignDesc, rotationsDesc, overdueDesc, holdersDesc, writerDesc, turnedDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector. What cannot be known now is left out.
func (c *stateMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	w := c.health.watched.Load()
	if w == nil {
		gauge(readyDesc, 0)
		return
	}
	h := w.handler.Health()
	ready := 0.
	if c.health.trouble() == nil {
		ready = 1
	}
	gauge(readyDesc, ready)
	gauge(headDesc, float64(h.Head))
	gauge(appliedDesc, float64(h.Seq))
	writes := 1.
	if i, ok := w.handler.(watchedInstance); ok {
		status := i.Status()
		gauge(lagDesc, float64(status.Lag()))
		if status.Role != instance.Writer {
			writes = 0
		}
	} else {
		gauge(lagDesc, 0)
	}
	gauge(writerDesc, writes)
	if w.turned != nil {
		for reason, n := range w.turned() {
			to <- prometheus.MustNewConstMetric(turnedDesc, prometheus.CounterValue, float64(n), reason)
		}
	}
	gauge(foreignDesc, float64(w.log.Foreign().Open))
	if g, err := c.gauges(w.handler); err == nil {
		gauge(rotationsDesc, float64(g.Rotations))
		gauge(overdueDesc, float64(g.Overdue))
		gauge(holdersDesc, float64(g.Holders))
	}
}

var errBusy = errors.New("the state cannot be looked at now")

// gauges looks at the state, if that is to be had soon. At most one look waits.
func (c *stateMetrics) gauges(w writer) (projections.Gauges, error) {
	late := time.After(c.health.viewWait)
	select {
	case c.viewing <- struct{}{}:
	case <-late:
		return projections.Gauges{}, errBusy
	}
	got := make(chan projections.Gauges, 1)
	go func() {
		defer func() { <-c.viewing }()
		w.View(func(s *projections.State) { got <- s.Gauges(c.health.clock()) })
	}()
	select {
	case g := <-got:
		return g, nil
	case <-late:
		return projections.Gauges{}, errBusy
	}
}

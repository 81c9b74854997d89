package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/ledger"
	"bindery/projections"
)

// serving is a bindery serve within the test.
type serving struct {
	t         *testing.T
	url, http string
	log       *syncBuffer
	cancel    context.CancelFunc
	done      chan int
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// serve serves the store until stop is called or the test ends.
func (p *patientStore) serve(args ...string) *serving {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{t: p.t, log: &syncBuffer{}, cancel: cancel, done: make(chan int, 1)}
	program := *p.Program
	program.NewID = handler.NewIDs(program.Clock) // it is a process of its own elsewhere
	go func() {
		s.done <- program.Run(ctx, append([]string{"serve", "--store", p.dir}, args...), Streams{In: strings.NewReader(""), Out: io.Discard, Err: s.log})
	}()
	p.t.Cleanup(func() { s.stop() })
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if e, ok := findEndpoint(p.dir); ok && strings.Contains(s.log.String(), "msg=serving") {
			s.url, s.http = e.URL, e.HTTP
			return s
		}
		if time.Now().After(end) || len(s.done) > 0 {
			p.t.Fatalf("it does not serve: %s", s.log)
		}
	}
}

// patience is how long a test waits for what will come; it says only that something
// hangs, since a machine may be slow and busy.
const patience = 3 * time.Minute

func (s *serving) stop() {
	s.t.Helper()
	s.cancel()
	select {
	case code, open := <-s.done:
		if open && code != 0 {
			s.t.Errorf("exit code %d: %s", code, s.log)
		}
		if open {
			close(s.done)
		}
	case <-time.After(patience):
		s.t.Fatalf("it does not stop: %s", s.log)
	}
}

// get asks a serving process.
func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(data)
}

// sample is a line of the text format of Prometheus.
var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^}]*\})?) ([0-9.eE+-]+|NaN|\+Inf)$`)

// scrape reads /metrics; every line must be one that Prometheus reads.
func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	code, body := get(t, url+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "# HELP ") || strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no sample: %q", line)
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		out[m[1]] = v
	}
	return out
}

// A serving process tells how it is, and its metrics move with what it does.
func TestServeTellsOfItsHealth(t *testing.T) {
	p := newPatientStore(t)
	s := p.serve("--http", "127.0.0.1:0")
	if !strings.HasPrefix(s.http, "http://127.0.0.1:") || !strings.Contains(s.log.String(), "http="+s.http) {
		t.Fatalf("it tells of its health at %q: %s", s.http, s.log)
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/": 404, "/debug/pprof/": 404} {
		if code, body := get(t, s.http+path); code != want {
			t.Errorf("%s: status %d: %s", path, code, body)
		}
	}
	if r, err := http.Post(s.http+"/readyz", "", nil); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%v, %v", r, err)
	}
	before := scrape(t, s.http)
	run := func(want int, args ...string) {
		t.Helper()
		if code := p.run(t.Context(), args...); code != want {
			t.Fatalf("%v: exit code %d: %s", args, code, &p.errs)
		}
	}
	run(0, "node", "register", "delta")
	run(0, "node", "register", "epsilon", "--dry-run")
	run(4, "node", "register", "delta")
	run(4, "provider", "retire", "pg-alpha")
	id := p.NewID().String()
	run(0, "provider", "cordon", "pg-alpha", "--command-id", id)
	run(0, "provider", "cordon", "pg-alpha", "--command-id", id)
	run(0, "provider", "cordon", "pg-alpha")
	run(5, "node", "retire", "nowhere")
	after := scrape(t, s.http)
	for name, want := range map[string]float64{
		`bindery_commands_total{outcome="ok",verb="node.register"}`:          1,
		`bindery_commands_total{outcome="dry_run",verb="node.register"}`:     1,
		`bindery_commands_total{outcome="refused",verb="node.register"}`:     1,
		`bindery_commands_total{outcome="refused",verb="provider.retire"}`:   1,
		`bindery_commands_total{outcome="ok",verb="provider.cordon"}`:        1,
		`bindery_commands_total{outcome="repeated",verb="provider.cordon"}`:  1,
		`bindery_commands_total{outcome="unchanged",verb="provider.cordon"}`: 1,
		`bindery_command_errors_total{code="name_taken"}`:                    1,
		`bindery_command_errors_total{code="provider_in_use"}`:               1,
		`bindery_command_errors_total{code="node_not_found"}`:                1,
		"bindery_append_seconds_count":                                       2, "bindery_group_commands_sum": 2, "bindery_decide_seconds_count": 8, "bindery_append_failures_total": 0,
		"bindery_head_sequence": 2, "bindery_applied_sequence": 2, "bindery_follower_lag_events": 0, "bindery_ready": 0, "bindery_foreign_messages": 0,
	} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s moved by %v, want %v", name, got, want)
		}
	}
	if before["bindery_ready"] != 1 || after["go_goroutines"] == 0 || after["process_open_fds"] == 0 {
		t.Errorf("%v", before)
	}
	for name := range after {
		if strings.Contains(name, "alpha") || strings.Contains(name, "delta") || strings.Contains(name, "home") {
			t.Errorf("%s has a name out of the ledger", name)
		}
	}
	s.stop()
	if _, err := http.Get(s.http + "/healthz"); err == nil {
		t.Error("it answers after its end")
	}
}

// asked is the generation that is asked for on a slot.
func (p *patientStore) asked(assignment, slot string) string {
	p.t.Helper()
	p.must("credential", "list", "--assignment", assignment, "--state", "asked", "-o", "jsonl")
	for line := range strings.Lines(p.out.String()) {
		var k struct {
			Slot       string
			Generation uint64
		}
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			p.t.Fatal(err)
		}
		if k.Slot == slot {
			return strconv.FormatUint(k.Generation, 10)
		}
	}
	p.t.Fatalf("nothing is asked for on %s/%s: %s", assignment, slot, &p.out)
	return ""
}

// Rotations and holders are counted when somebody asks.
func TestMetricsOfRotations(t *testing.T) {
	p := newPatientStore(t)
	p.must("assignment", "create", "wiki", "--node", "alpha", "--name", "wiki-two")
	old := p.asked("wiki", "db")
	p.must("credential", "issued", "wiki/db", "--generation", old, "--secret-ref", "vault:kv/wiki/1")
	p.must("credential", "issued", "wiki-two/db", "--generation", p.asked("wiki-two", "db"), "--secret-ref", "vault:kv/two/1")
	s := p.serve("--http", "localhost:0")
	want := func(rotations, overdue, holders float64) {
		t.Helper()
		m := scrape(t, s.http)
		if m["bindery_open_rotations"] != rotations || m["bindery_overdue_members"] != overdue || m["bindery_holders"] != holders {
			t.Errorf("%v open, %v overdue, %v holders; want %v, %v, %v", m["bindery_open_rotations"], m["bindery_overdue_members"], m["bindery_holders"], rotations, overdue, holders)
		}
	}
	want(0, 0, 2)
	p.must("rotation", "start", "--provider", "pg-alpha", "--deadline", "1h")
	want(1, 0, 2)
	p.must("credential", "issued", "wiki/db", "--generation", p.asked("wiki", "db"), "--secret-ref", "vault:kv/wiki/2")
	want(1, 0, 3)
	p.must("status", "-o", "json")
	var st statusView
	if err := json.Unmarshal(p.out.Bytes(), &st); err != nil {
		t.Fatal(err)
	}
	p.must("binding", "applied", "wiki/db", "--at", strconv.FormatUint(st.Seq, 10))
	p.must("credential", "revoked", "wiki/db", "--generation", old)
	want(1, 0, 2)
	s.stop()
	p.Clock = func() time.Time { return time.Now().Add(2 * time.Hour) }
	s = p.serve("--http", "127.0.0.1:0")
	want(1, 1, 2)
}

// It listens nowhere but on this machine, and not at all unless it is told to.
func TestServeHTTPAddresses(t *testing.T) {
	p := newPatientStore(t)
	for _, address := range []string{"0.0.0.0:9464", ":9464", "192.0.2.1:9464", "example.org:9464", "[::]:9464", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:-1"} {
		if code := p.run(t.Context(), "serve", "--http", address); code != 2 || !strings.Contains(p.errs.String(), "fix: bindery serve --http 127.0.0.1:") {
			t.Errorf("%s: exit code %d: %s", address, code, &p.errs)
		}
	}
	// A name may stand for any address: it is looked at again.
	if _, stop, err := newHealth(time.Now).listen("0.0.0.0", "0", slog.New(slog.DiscardHandler)); err == nil {
		_ = stop()
		t.Error("it listens on every address")
	}
	s := p.serve("--http", "127.0.0.1:0")
	other := newPatientStore(t)
	taken := strings.TrimPrefix(s.http, "http://")
	if code := other.run(t.Context(), "serve", "--http", taken); code != 7 || !strings.Contains(other.errs.String(), taken) {
		t.Errorf("exit code %d: %s", code, &other.errs)
	}
	if q := other.serve(); q.http != "" {
		t.Errorf("it listens at %s unasked", q.http)
	}
}

// brokenWriter is a writer in any state.
type brokenWriter struct {
	health handler.Health
	last   error
	stuck  chan struct{} // View waits for it
}

func (b *brokenWriter) Health() handler.Health { return b.health }
func (b *brokenWriter) View(f func(*projections.State)) {
	if b.stuck != nil {
		<-b.stuck
	}
	f(projections.New())
}
func (b *brokenWriter) Last(context.Context) (uint64, error) { return 0, b.last }
func (b *brokenWriter) Foreign() ledger.Foreign              { return ledger.Foreign{} }

// Not ready: before the store is open, while it stops, and where nothing can be
// stored. It is alive all the time.
func TestReadiness(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(h *health)
		why     string // empty: ready
	}{
		"opening":  {func(*health) {}, "being opened"},
		"serving":  {func(h *health) { h.watched.Store(watching(&brokenWriter{})) }, ""},
		"stopping": {func(h *health) { h.watched.Store(watching(&brokenWriter{})); h.stopping.Store(true) }, "stops"},
		"failed": {func(h *health) {
			h.watched.Store(watching(&brokenWriter{health: handler.Health{Err: errors.New("no space left")}}))
		}, "no space left"},
		"hanging": {func(h *health) {
			h.watched.Store(watching(&brokenWriter{health: handler.Health{Busy: time.Now().Add(-tooLong - time.Second)}}))
		}, "on their way"},
		"busy":   {func(h *health) { h.watched.Store(watching(&brokenWriter{health: handler.Health{Busy: time.Now()}})) }, ""},
		"silent": {func(h *health) { h.watched.Store(watching(&brokenWriter{last: context.DeadlineExceeded})) }, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHealth(time.Now)
			c.prepare(h)
			srv := httptest.NewServer(h.mux(slog.New(slog.DiscardHandler)))
			defer srv.Close()
			code, body := get(t, srv.URL+"/readyz")
			if want := map[bool]int{true: 200, false: 503}[c.why == ""]; code != want || !strings.Contains(body, c.why) {
				t.Errorf("status %d: %s", code, body)
			}
			if code, _ := get(t, srv.URL+"/healthz"); code != 200 {
				t.Errorf("alive: status %d", code)
			}
			m := scrape(t, srv.URL)
			if c.why == "does not answer" || c.why == "" {
				if m["bindery_ready"] != 1 {
					t.Errorf("%v", m)
				}
			} else if m["bindery_ready"] != 0 {
				t.Errorf("%v", m)
			}
		})
	}
}

func watching(b *brokenWriter) *watched { return &watched{handler: b, log: b} }

// A writer that holds its state for long, since its disk hangs, keeps no scrape
// waiting; what is not known is left out, and comes back.
func TestScrapeOfAHangingWriter(t *testing.T) {
	b := &brokenWriter{health: handler.Health{Head: 7, Seq: 7}, stuck: make(chan struct{})}
	h := newHealth(time.Now)
	h.viewWait = 50 * time.Millisecond
	h.watched.Store(watching(b))
	srv := httptest.NewServer(h.mux(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	for range 3 {
		m := scrape(t, srv.URL)
		if _, known := m["bindery_holders"]; known || m["bindery_head_sequence"] != 7 {
			t.Errorf("%v", m)
		}
	}
	close(b.stuck)
	h.viewWait = patience
	if _, known := scrape(t, srv.URL)["bindery_holders"]; !known {
		t.Error("the holders are not counted")
	}
}

// Every end of a command is one of a few.
func TestOutcomes(t *testing.T) {
	for want, errs := range map[string][]error{
		"refused": {refusal(commands.NameTaken, "", "", commands.Fix{}), refusal(commands.NodeNotFound, "", "", commands.Fix{}), refusal(commands.LedgerMoved, "", "", commands.Fix{}), refusal(commands.NameInvalid, "", "", commands.Fix{})},
		"failed":  {errors.New("x"), fmt.Errorf("x: %w", &ledger.StoreError{Err: errors.New("full")}), refusal(commands.OutcomeUnknown, "", "", commands.Fix{}), handler.ErrClosed},
	} {
		for _, err := range errs {
			if got := outcome(commands.Request{}, commands.Result{}, err); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		}
	}
}

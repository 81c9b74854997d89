package instance

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

const testMesh = "north"

// member is one running instance and its connection.
type member struct {
	*Instance
	own  conns
	stop context.CancelFunc
	done chan error
}

func testConfig(dial func() *nats.Conn, name string) Config {
	cfg := Config{Conn: dial(), Dial: func() (*nats.Conn, error) { return dial(), nil }, Mesh: testMesh, Name: name, Version: "0.0.0"}
	if os.Getenv("BINDERY_TEST_LOG") != "" {
		cfg.Handler.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg
}

// conns are the connections of one instance.
type conns struct {
	mu  sync.Mutex
	all []*nats.Conn
}

func (c *conns) add(nc *nats.Conn) *nats.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, nc)
	return nc
}

// join starts an instance.
func join(t *testing.T, dial func() *nats.Conn, name string) *member {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{stop: cancel, done: make(chan error, 1)}
	m.Instance = New(testConfig(func() *nats.Conn { return m.own.add(dial()) }, name))
	go func() {
		err := m.Run(ctx)
		if err != nil {
			t.Logf("instance %s has ended: %v", name, err)
		}
		m.done <- err
	}()
	t.Cleanup(func() { cancel(); m.wait(t) })
	return m
}

// wait waits until the instance has ended.
func (m *member) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-m.done:
		m.done <- err
		return err
	case <-time.After(patience):
		t.Error("an instance does not end")
		return nil
	}
}

// kill ends an instance as if its process had died: nothing is given back.
func (m *member) kill() {
	m.own.mu.Lock()
	defer m.own.mu.Unlock()
	for _, nc := range m.own.all {
		nc.Close()
	}
}

func isWriter(m *member) bool { return m.Status().Role == Writer }

// writerOf waits until one of ms is the writer.
func writerOf(t *testing.T, ms ...*member) *member {
	t.Helper()
	var found *member
	eventually(t, "there is a writer", func() bool {
		i := slices.IndexFunc(ms, isWriter)
		if i >= 0 {
			found = ms[i]
		}
		return i >= 0
	})
	return found
}

// found makes the ledger of the mesh and its first event.
func found(t *testing.T, nc *nats.Conn, replicas int) *ledger.Log {
	t.Helper()
	ctx := patiently(t)
	var log *ledger.Log
	for log == nil { // while the cluster is coming up
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		made, err := ledger.Create(try, nc, testMesh, ledger.CreateOptions{Replicas: replicas})
		if errors.Is(err, ledger.ErrExists) { // by a try whose answer was lost
			made, err = ledger.Open(try, nc, testMesh)
		}
		cancel()
		if log = made; err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	h, err := handler.Open(ctx, handler.Config{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Do(ctx, request(commands.CreateMesh{Name: testMesh})); err != nil {
		t.Fatal(err)
	}
	return log
}

var idLock sync.Mutex

func newID() events.ID {
	idLock.Lock()
	defer idLock.Unlock()
	return events.ID(ulid.MustNew(ulid.Now(), rand.Reader))
}

func request(c commands.Command) commands.Request {
	return commands.Request{Command: c, ID: newID(), Actor: "ann"}
}

func newClient(t *testing.T, nc *nats.Conn) *service.Client {
	t.Helper()
	c, err := service.NewClient(nc, testMesh)
	if err != nil {
		t.Fatal(err)
	}
	return c.FailOver()
}

func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// digest tells states apart.
func digest(t *testing.T, s *projections.State) string {
	data, err := json.Marshal([]any{s.Seq, s.Chain.String(), s.ListNodes(), s.ListProvisions(), s.ListProviders(), s.ListModules(),
		s.ListAssignments(), s.ListBindings(projections.BindingFilter{})})
	if err != nil {
		t.Error(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// sampler notes the digests of instances at the sequences they are at.
type sampler struct {
	mu   sync.Mutex
	seen map[uint64]map[string][]string // sequence → digest → who
}

func (s *sampler) sample(t *testing.T, m *member) {
	m.View(func(st *projections.State) {
		if st.Seq == 0 {
			return
		}
		d := digest(t, st)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.seen[st.Seq] == nil {
			s.seen[st.Seq] = map[string][]string{}
		}
		s.seen[st.Seq][d] = append(s.seen[st.Seq][d], m.cfg.Name)
	})
}

// load writes with several clients until it is stopped, and knows what was
// acknowledged.
type load struct {
	t     *testing.T
	stop  chan struct{}
	ended sync.Once
	wg    sync.WaitGroup

	mu      sync.Mutex
	acked   map[events.ID]uint64 // command → sequence
	refused int
	reads   int
	slowest time.Duration
	times   []time.Time // of acknowledgements
}

// startLoad starts clients, two on each connection that connect makes. Each
// writes commands of one event and of several, asks for refusals, and reads what
// it has written, at the head and from followers.
func startLoad(t *testing.T, clients int, connect func(i int) *nats.Conn) *load {
	l := &load{t: t, stop: make(chan struct{}), acked: map[events.ID]uint64{}}
	for i := range clients {
		c := newClient(t, connect(i))
		l.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				l.turn(c, i, n)
			}
		})
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) turn(c *service.Client, i, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := fmt.Sprintf("n-%d-%d", i, n)
	if !l.do(ctx, c, commands.RegisterNode{Name: name}) {
		return
	}
	switch n % 4 {
	case 0: // several events
		l.do(ctx, c, commands.CreateAssignment{Name: "a" + name[1:], Module: "wiki", Node: name})
	case 1: // a refusal
		_, err := c.Do(ctx, request(commands.RegisterNode{Name: name}))
		var r *commands.Refusal
		if !errors.As(err, &r) || r.Code != commands.NameTaken {
			l.t.Errorf("a name that is taken: %v", err)
		}
		l.mu.Lock()
		l.refused++
		l.mu.Unlock()
	case 2:
		l.read(ctx, "the head", func() (json.RawMessage, error) { return c.Ask(ctx, commands.ShowNode{Node: name}) })
	case 3:
		l.read(ctx, "a follower", func() (json.RawMessage, error) { return c.AskFollower(ctx, commands.ShowNode{Node: name}, 0) })
	}
}

func (l *load) do(ctx context.Context, c *service.Client, cmd commands.Command) bool {
	req, start := request(cmd), time.Now()
	r, err := c.Do(ctx, req)
	if err != nil {
		l.t.Errorf("%s after %v: %v", cmd.Verb(), time.Since(start), err)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[req.ID] = r.Seq
	l.times = append(l.times, time.Now())
	l.slowest = max(l.slowest, time.Since(start))
	return true
}

func (l *load) read(_ context.Context, where string, ask func() (json.RawMessage, error)) {
	if _, err := ask(); err != nil {
		l.t.Errorf("reading what was written, at %s: %v", where, err)
	}
	l.mu.Lock()
	l.reads++
	l.mu.Unlock()
}

// next is how long after start the first command was acknowledged; it waits for
// that.
func (l *load) next(start time.Time) time.Duration {
	l.t.Helper()
	var at time.Time
	eventually(l.t, "a command is acknowledged", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i := len(l.times) - 1; i >= 0 && l.times[i].After(start); i-- {
			at = l.times[i]
		}
		return !at.IsZero()
	})
	return at.Sub(start)
}

// end stops the clients and returns what was acknowledged.
func (l *load) end() map[events.ID]uint64 {
	l.ended.Do(func() { close(l.stop) })
	l.wg.Wait()
	return l.acked
}

// verify reads the whole log: each acknowledged command is there once, whole, and
// where it was said to be; and at every sequence that was sampled, the fold is
// what the instances had.
func verify(t *testing.T, log *ledger.Log, acked map[events.ID]uint64, s *sampler) *projections.State {
	t.Helper()
	ctx := patiently(t)
	last, err := log.Last(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st, ends, at := projections.New(), map[events.ID][]uint64{}, 0
	for group, err := range log.Read(ctx, ledger.Position{}, last) {
		if err != nil {
			t.Fatal(err)
		}
		if err := st.ApplyCommand(group); err != nil {
			t.Fatal(err)
		}
		if group[0].K != 1 || group[len(group)-1].N != len(group) {
			t.Errorf("half a command at %d", group[0].Seq)
		}
		ends[group[0].Command] = append(ends[group[0].Command], group[len(group)-1].Seq)
		if s == nil || s.seen[st.Seq] == nil {
			continue
		}
		at++
		if want := digest(t, st); len(s.seen[st.Seq]) != 1 || s.seen[st.Seq][want] == nil {
			t.Errorf("at %d the fold is %s, the instances had %v", st.Seq, want, s.seen[st.Seq])
		}
	}
	if s != nil && at != len(s.seen) {
		t.Errorf("of %d sampled sequences %d are borders of commands", len(s.seen), at)
	}
	for id, seq := range acked {
		if got := ends[id]; len(got) != 1 || got[0] != seq {
			t.Errorf("command %s was acknowledged at %d and is in the log at %v", id, seq, got)
		}
	}
	for id, got := range ends {
		if len(got) != 1 {
			t.Errorf("command %s is in the log %d times", id, len(got))
		}
	}
	if f := log.Foreign(); f.Count > 0 {
		t.Errorf("foreign messages: %v", f)
	}
	return st
}

package ledger

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/events"
)

// follower collects what Follow yields.
type follower struct {
	mu   sync.Mutex
	got  []string // chain values
	errs []error
	cut  int // commands that were not whole
	done chan struct{}
}

func follow(ctx context.Context, l *Log, from Position) *follower {
	f := &follower{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for evs, err := range l.Follow(ctx, from) {
			f.mu.Lock()
			if err != nil {
				f.errs = append(f.errs, err)
			}
			for i := range evs {
				f.got = append(f.got, evs[i].Chain.String())
				if evs[i].K != i+1 || evs[i].N != len(evs) {
					f.cut++
				}
			}
			f.mu.Unlock()
		}
	}()
	return f
}

func (f *follower) wait(t *testing.T, want []string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		f.mu.Lock()
		n, cut := len(f.got), f.cut
		ok := n >= len(want)
		same := ok && slices.Equal(f.got, want)
		f.mu.Unlock()
		if cut > 0 {
			t.Fatalf("%d commands by pieces", cut)
		}
		if ok && !same {
			t.Fatalf("followed %d events, not the %d that were appended", n, len(want))
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("followed %d events of %d", n, len(want))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A follower sees 2,000 commands of one writer, while they are written, whole
// and in order, wherever it begins.
func TestFollow(t *testing.T) {
	s := quickStore(t)
	l := mustCreate(t, s)
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	second, err := s.srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	other, err := Open(ctx, second, testMesh)
	if err != nil {
		t.Fatal(err)
	}
	first := follow(ctx, other, Position{})
	w := newWriter()
	var want []string
	var later *follower
	var skip int
	for i := 0; i < 2000; {
		sizes := [][]int{{1}, {3}, {1, 1, 1}, {1, 12, 2, 1, 1}, slices.Repeat([]int{1, 2}, 40)}[i%5]
		after := w.seq
		cmds := w.commands(sizes...)
		if n, err := l.Append(ctx, after, cmds); err != nil || n != len(cmds) {
			t.Fatal(n, err)
		}
		want = append(want, chains(cmds)...)
		if i += len(sizes); later == nil && i > 700 {
			skip = len(want)
			later = follow(ctx, other, Position{Seq: w.seq, Chain: w.chain, Mesh: w.mesh})
		}
	}
	first.wait(t, want)
	later.wait(t, want[skip:])
	cancel()
	<-first.done
	if len(first.errs) != 1 || !errors.Is(first.errs[0], context.Canceled) {
		t.Errorf("it ended with %v", first.errs)
	}
}

// server is an embedded server that can be replaced under its connections.
type swapped struct {
	mu  sync.Mutex
	srv *Embedded
}

func (s *swapped) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil {
		return nil, errors.New("no server")
	}
	return s.srv.srv.InProcessConn()
}

func (s *swapped) restart(t *testing.T, dir string) {
	t.Helper()
	s.mu.Lock()
	old := s.srv
	s.srv = nil
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
	srv, err := StartEmbedded(context.Background(), EmbeddedConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.srv = srv
	s.mu.Unlock()
}

// A follower and a writer live through restarts of the server: nothing is
// missing, nothing comes twice, and what Append reports is what is stored.
func TestFollowAcrossRestart(t *testing.T) {
	dir := t.TempDir()
	sw := &swapped{}
	sw.restart(t, dir)
	nc, err := nats.Connect("", nats.InProcessServer(sw), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(time.Millisecond, time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { nc.Close(); sw.srv.Close() }()
	ctx, cancel := context.WithCancel(ctxT(t))
	l, err := Create(ctx, nc, testMesh, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.tun.watch, l.tun.attempt = 100*time.Millisecond, 100*time.Millisecond
	f := follow(ctx, l, Position{})
	defer func() { cancel(); <-f.done }()
	w := newWriter()
	var want []string
	write := func(n int) {
		for i := range n {
			after := w.seq
			cmds := w.commands([][]int{{1}, {3, 1}, {1, 1, 1}}[i%3]...)
			if n, err := l.Append(ctx, after, cmds); err != nil || n != len(cmds) {
				t.Error(n, err)
				return
			}
			want = append(want, chains(cmds)...)
		}
	}
	for range 3 {
		done := make(chan struct{})
		go func() { defer close(done); write(60) }()
		time.Sleep(20 * time.Millisecond)
		sw.restart(t, dir)
		<-done
		f.wait(t, want)
	}
	if got := readChains(readAll(t, l)); !reflect.DeepEqual(got, want) {
		t.Errorf("read %d events, want %d", len(got), len(want))
	}
}

// A follower reports damage at the tail, after having waited for it to be
// passed over.
func TestFollowDamage(t *testing.T) {
	s := quickStore(t)
	l := fastLog(t, s)
	w := newWriter()
	recs := flat(w.commands(1, 2, 1))
	publish(t, l, recs[:2])
	ctx := ctxT(t)
	f := follow(ctx, l, Position{})
	f.wait(t, []string{recs[0].Get(events.HeaderChain)})
	recs[3].Data = []byte(`{"name":"other"}`)
	publish(t, l, recs[2:])
	<-f.done
	var damage *DamageError
	if len(f.errs) != 1 || !errors.As(f.errs[0], &damage) || damage.Seq != 4 || len(f.got) != 3 {
		t.Errorf("followed %d events, then %v", len(f.got), f.errs)
	}
}

// A process that appends is killed: everything it was told is stored is there,
// no command by halves, and the ledger goes on.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		dir := dir + strconv.Itoa(round)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := child(t.Context(), "append", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acked, in := uint64(0), bufio.NewScanner(out)
		var timer *time.Timer
		for in.Scan() {
			// A line cut by the kill is no acknowledgement that was read.
			if n, err := strconv.ParseUint(strings.TrimSpace(in.Text()), 10, 64); err == nil && n > acked {
				acked = n
			}
			if timer == nil {
				timer = time.AfterFunc(time.Duration(100+170*round)*time.Millisecond, func() { cmd.Process.Kill() })
			}
		}
		if timer == nil {
			t.Fatal("the child appended nothing")
		}
		cmd.Wait()
		lock, err := AcquireLock(t.Context(), dir, LockConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s := startStore(t, dir)
		l, err := Open(ctxT(t), s.nc, "")
		if err != nil {
			t.Fatalf("round %d, %d acknowledged: %v", round, acked, err)
		}
		last, err := l.Last(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		var pos Position
		for evs, err := range l.Read(ctxT(t), Position{}, last) {
			if err != nil {
				t.Fatalf("round %d, %d acknowledged, %d stored: %v", round, acked, last, err)
			}
			pos = After(&evs[len(evs)-1])
		}
		if pos.Seq < acked || pos.Seq != last || acked == 0 {
			t.Errorf("round %d: read up to %d of %d, %d acknowledged", round, pos.Seq, last, acked)
		}
		w := newWriter()
		w.at(last, pos)
		if _, err := l.Append(ctxT(t), last, w.commands(1, 2)); err != nil {
			t.Errorf("going on: %v", err)
		}
		readAll(t, l)
		s.stop()
		lock.Unlock()
	}
}

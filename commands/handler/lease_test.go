package handler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bindery/commands"
	"bindery/ledger"
	"bindery/projections"
)

// fakeLease is held, or not, as a test says.
type fakeLease struct {
	ctx       context.Context
	cancel    context.CancelFunc
	held      atomic.Bool
	confirms  atomic.Int64
	confirm   func(ctx context.Context) error // nil: as held says
	confirmMu sync.Mutex
}

var errTaken = errors.New("another has it")

func newFakeLease(t *testing.T) *fakeLease {
	l := &fakeLease{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	t.Cleanup(l.cancel)
	l.held.Store(true)
	return l
}

func (l *fakeLease) Context() context.Context { return l.ctx }
func (l *fakeLease) Held() bool               { return l.held.Load() }
func (l *fakeLease) Confirm(ctx context.Context) error {
	l.confirms.Add(1)
	l.confirmMu.Lock()
	f := l.confirm
	l.confirmMu.Unlock()
	switch {
	case f != nil:
		return f(ctx)
	case !l.held.Load():
		return errTaken
	}
	return nil
}

func (l *fakeLease) onConfirm(f func(ctx context.Context) error) {
	l.confirmMu.Lock()
	defer l.confirmMu.Unlock()
	l.confirm = f
}

// Kind: an answer from the past. What brings no event of its own is answered only
// when the lease is confirmed, and a written command while it is held.
func TestConfirmedAnswers(t *testing.T) {
	s := newStore(t)
	lease := newFakeLease(t)
	h := open(t, Config{Log: s.log, Lease: lease})
	must(t, h, commands.RegisterNode{Name: "alpha"})
	if n := lease.confirms.Load(); n != 0 {
		t.Errorf("%d confirmations for what was written", n)
	}
	taken := request(commands.RegisterNode{Name: "alpha"})
	dry := request(commands.RegisterNode{Name: "beta"})
	dry.DryRun = true
	wrote := request(commands.RegisterNode{Name: "gamma"})
	if _, err := h.Do(t.Context(), wrote); err != nil {
		t.Fatal(err)
	}
	none := map[string]commands.Request{"refusal": taken, "dry run": dry, "repeat": wrote}
	for what, req := range none {
		before := lease.confirms.Load()
		_, err := h.Do(t.Context(), req)
		var r *commands.Refusal
		if what == "refusal" != errors.As(err, &r) {
			t.Errorf("%s: %v", what, err)
		}
		if lease.confirms.Load() == before {
			t.Errorf("%s: answered without a confirmation", what)
		}
	}
	if err := h.Confirm(t.Context()); err != nil {
		t.Error(err)
	}

	lease.held.Store(false)
	var other *NotWriterError
	for what, req := range none {
		if _, err := h.Do(t.Context(), req); !errors.As(err, &other) || other.MayBeDone || !errors.Is(err, errTaken) {
			t.Errorf("%s of one that is deposed: %v", what, err)
		}
	}
	// Nobody has written yet, so this is stored; but the next writer may not know
	// of it, so it is not acknowledged here.
	late := request(commands.RegisterNode{Name: "delta"})
	if _, err := h.Do(t.Context(), late); !errors.As(err, &other) || !other.MayBeDone || other.ID != late.ID {
		t.Errorf("a late write: %v", err)
	}
	if err := h.Confirm(t.Context()); !errors.As(err, &other) {
		t.Errorf("a read of one that is deposed: %v", err)
	}
}

// Kind: two writers. One that is deposed does not decide again what the next one
// has come before.
func TestDeposedWriterIsFenced(t *testing.T) {
	s := newStore(t)
	lease := newFakeLease(t)
	old := open(t, Config{Log: s.log, Lease: lease})
	log, err := ledger.Open(t.Context(), s.nc, "home")
	if err != nil {
		t.Fatal(err)
	}
	next := open(t, Config{Log: log})
	lease.held.Store(false)
	must(t, next, commands.RegisterNode{Name: "alpha"})
	var other *NotWriterError
	late := request(commands.RegisterNode{Name: "beta"})
	if _, err := old.Do(t.Context(), late); !errors.As(err, &other) || other.MayBeDone {
		t.Errorf("a late write: %v", err)
	}
	st, _ := fold(t, s.log)
	if _, there := st.Remembered(late.ID); there {
		t.Error("it is in the log")
	}
	// With the lease it would have been decided again.
	lease.held.Store(true)
	if r, err := old.Do(t.Context(), late); err != nil || r.Repeated {
		t.Errorf("again: %+v, %v", r, err)
	}
}

// One confirmation serves all who wait, and the writer does not wait for it.
func TestConfirmationsAreShared(t *testing.T) {
	s := newStore(t)
	lease := newFakeLease(t)
	h := open(t, Config{Log: s.log, Lease: lease})
	must(t, h, commands.RegisterNode{Name: "alpha"})
	let := make(chan struct{})
	lease.onConfirm(func(ctx context.Context) error {
		select {
		case <-let:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	const n = 200
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			var r *commands.Refusal
			if _, err := h.Do(context.Background(), request(commands.RegisterNode{Name: "alpha"})); !errors.As(err, &r) || r.Code != commands.NameTaken {
				t.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	must(t, h, commands.RegisterNode{Name: "beta"}) // while all others wait
	close(let)
	wg.Wait()
	if c := lease.confirms.Load(); c > n/10 {
		t.Errorf("%d refusals took %d confirmations", n, c)
	}
}

// Kind: a state that is not the fold of the log. It is handed from one handler to
// the next, over failures and events of others, and nothing is lost.
func TestStateIsHandedOver(t *testing.T) {
	s := newStore(t)
	var state *projections.State
	for i, name := range []string{"alpha", "beta", "gamma"} {
		lease := newFakeLease(t)
		h := open(t, Config{Log: s.log, Lease: lease, State: state})
		must(t, h, commands.RegisterNode{Name: name})
		if i == 1 {
			lease.cancel() // appends end with it
			lease.held.Store(false)
			var other *NotWriterError
			if _, err := h.Do(t.Context(), request(commands.RegisterNode{Name: "lost"})); !errors.As(err, &other) {
				t.Errorf("after the lease: %v", err)
			}
		}
		state = h.Take()
		other := open(t, Config{Log: s.log})
		must(t, other, commands.RegisterNode{Name: name + "-too"})
		other.Close()
	}
	h := open(t, Config{Log: s.log, State: state})
	if err := h.Reach(t.Context(), 1<<40); err != nil { // the log ends before that
		t.Error(err)
	}
	fresh, all := fold(t, s.log)
	h.View(func(live *projections.State) {
		if live.Seq != fresh.Seq || live.Chain != fresh.Chain || len(live.ListNodes().Items) != 6 || len(all) != 7 {
			t.Errorf("at %d with %d nodes, the log is at %d with %d events", live.Seq, len(live.ListNodes().Items), fresh.Seq, len(all))
		}
	})
}

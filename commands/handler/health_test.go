package handler

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"bindery/commands"
	"bindery/ledger"
	"bindery/projections"
)

// notes is a Meter that keeps what it is told.
type notes struct {
	mu       sync.Mutex
	decided  int
	appended []bool // each group: all of it is durable
	answered []bool // each command: without an error
}

func (n *notes) Decided(took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if took > 0 {
		n.decided++
	}
}

func (n *notes) Appended(_ int, _ time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.appended = append(n.appended, err == nil)
}

func (n *notes) Answered(_ commands.Request, _ commands.Result, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answered = append(n.answered, err == nil)
}

// A writer that cannot write is said to be unwell until it can again, and no
// longer; and what it does is measured.
func TestHealth(t *testing.T) {
	s := newStore(t)
	var next fault
	f := &faulty{Log: s.log, plan: func() fault { return next }}
	n := &notes{}
	h := open(t, Config{Log: f, Meter: n})
	well := func(want bool) {
		t.Helper()
		now := h.Health()
		var seq uint64
		h.View(func(s *projections.State) { seq = s.Seq })
		if (now.Err == nil) != want || now.Seq != seq || now.Head < seq || !now.Busy.IsZero() {
			t.Errorf("at sequence %d: %+v, want well: %t", seq, now, want)
		}
	}
	well(true)
	must(t, h, commands.RegisterNode{Name: "alpha"})
	well(true)

	next = refusedByDisk
	_, err := h.Do(t.Context(), request(commands.RegisterNode{Name: "beta"}))
	var full *ledger.StoreError
	if !errors.As(err, &full) {
		t.Fatalf("got %v", err)
	}
	well(false)
	// What needs no append does not make it well: the log is read again, not written.
	next = none
	if _, err := h.Do(t.Context(), request(commands.RegisterNode{Name: "alpha"})); err == nil {
		t.Fatal("it was not refused")
	}
	well(false)
	must(t, h, commands.RegisterNode{Name: "beta"})
	well(true)

	n.mu.Lock()
	defer n.mu.Unlock()
	if want := []bool{true, true, false, true}; !reflect.DeepEqual(n.appended, want) {
		t.Errorf("appended %t, want %t", n.appended, want)
	}
	if want := []bool{true, true, false, false, true}; !reflect.DeepEqual(n.answered, want) {
		t.Errorf("answered %t, want %t", n.answered, want)
	}
	if n.decided != 5 {
		t.Errorf("%d decided, want 5", n.decided)
	}
}

// While a group is on its way, that is said without waiting for it.
func TestHealthWhileAppending(t *testing.T) {
	s := newStore(t)
	var slow bool
	going, on := make(chan struct{}), make(chan struct{})
	f := &faulty{Log: s.log, plan: func() fault {
		if slow {
			close(going)
			<-on
		}
		return none
	}}
	h := open(t, Config{Log: f})
	slow = true
	before := time.Now()
	done := make(chan error, 1)
	h.Submit(t.Context(), request(commands.RegisterNode{Name: "alpha"}), func(_ commands.Result, err error) { done <- err })
	<-going
	if now := h.Health(); now.Busy.Before(before) || now.Busy.After(time.Now()) || now.Err != nil {
		t.Errorf("%+v, since %s", now, before)
	}
	close(on)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	h.Close()
	if now := h.Health(); !now.Busy.IsZero() || now.Seq != 2 {
		t.Errorf("%+v", now)
	}
}

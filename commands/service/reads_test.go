package service

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/ledger"
)

// Kind: a reader that does not see its own write. A follower that has not read it
// yet answers when it has, and says so when there is no time for that.
func TestReadYourWrites(t *testing.T) {
	s := serve(t)
	log, err := ledger.Open(t.Context(), s.nc, "home")
	if err != nil {
		t.Fatal(err)
	}
	behind, err := handler.Open(t.Context(), handler.Config{Log: log}) // it folds when it is told to
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(behind.Close)
	reads, err := ServeReads(Config{Conn: s.nc, Mesh: "home", Log: log, Version: "0.0.0"}, behind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reads.Stop(); err != nil {
			t.Error(err)
		}
	})
	show := commands.ShowNode{Node: "alpha"}
	c := s.client
	before := c.Seen()
	r, err := c.Do(t.Context(), newRequest(commands.RegisterNode{Name: "alpha"}))
	if err != nil || c.Seen() != r.Seq || before >= r.Seq {
		t.Fatalf("it wrote %d (%v), and has seen %d", r.Seq, err, c.Seen())
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var refused *commands.Refusal
	if _, err := c.AskFollower(short, show, 0); !errors.As(err, &refused) || refused.Code != commands.StillPending {
		t.Errorf("of a follower that is behind: %v", err)
	}
	// Who has not written sees what there is.
	stranger, err := NewClient(s.nc, "home")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.AskFollower(t.Context(), show, 0); !errors.As(err, &refused) || refused.Code != commands.NodeNotFound {
		t.Errorf("a stranger: %v", err)
	}
	soon := time.AfterFunc(50*time.Millisecond, func() { _ = behind.Reach(context.Background(), r.Seq) })
	defer soon.Stop()
	c.FromFollowers()
	if _, err := c.Ask(t.Context(), show); err != nil {
		t.Errorf("its own write: %v", err)
	}
	// What was read once is not unread.
	if page, err := stranger.Log(t.Context(), LogQuery{First: 1}); err != nil || stranger.Seen() != page.Seq || page.Seq != r.Seq {
		t.Errorf("the log to %d (%v), seen %d", page.Seq, err, stranger.Seen())
	}
	if n := behind.Health().Seq; n != r.Seq {
		t.Errorf("the follower is at %d", n)
	}
}

// stub answers a mesh's commands with what it is told, in order, and nothing where
// that is empty.
func stub(t *testing.T, nc *nats.Conn, mesh string, answers ...string) *atomic.Int64 {
	t.Helper()
	var n atomic.Int64
	if _, err := nc.Subscribe(CommandSubject(mesh), func(m *nats.Msg) {
		if a := answers[min(int(n.Add(1)), len(answers))-1]; a != "" {
			_ = m.Respond([]byte(a))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return &n
}

const notWriter = `{"error":{"code":"unreachable","message":"this process does not write the ledger any more","why":"","fix":"","candidates":[]}}`

// A client that fails over asks again, with the same id, where nobody answers, or
// one that is not the writer any more; another one is told at once.
func TestFailOver(t *testing.T) {
	s := serve(t)
	client := func(mesh string) *Client {
		c, err := NewClient(s.nc, mesh)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	req := newRequest(commands.RegisterNode{Name: "alpha"})
	done := `{"result":{"seq":7,"changed":true},"seq":7}`

	n := stub(t, s.nc, "moved", notWriter, notWriter, done)
	if r, err := client("moved").FailOver().Do(t.Context(), req); err != nil || r.Seq != 7 || n.Load() != 3 {
		t.Errorf("the third answers: %+v, %v, %d asked", r, err, n.Load())
	}
	n = stub(t, s.nc, "silent", "", done)
	if r, err := client("silent").FailOver().Do(t.Context(), req); err != nil || r.Seq != 7 || n.Load() != 2 {
		t.Errorf("the first is silent: %+v, %v, %d asked", r, err, n.Load())
	}
	time.AfterFunc(200*time.Millisecond, func() { stub(t, s.nc, "late", done) })
	if r, err := client("late").FailOver().Do(t.Context(), req); err != nil || r.Seq != 7 {
		t.Errorf("nobody is there at first: %+v, %v", r, err)
	}

	stub(t, s.nc, "never", notWriter)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client("never").FailOver().Do(short, req); AsRefusal(err).Code != commands.OutcomeUnknown || !strings.Contains(AsRefusal(err).Fix.String(), req.ID.String()) {
		t.Errorf("somebody may have done it: %v", err)
	}
	nobody, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client("nobody").FailOver().Do(nobody, req); AsRefusal(err).Code != commands.Unreachable {
		t.Errorf("nobody has heard it: %v", err)
	}
	start := time.Now()
	if _, err := client("nobody").Do(t.Context(), req); AsRefusal(err).Code != commands.Unreachable || time.Since(start) > patience {
		t.Errorf("a client that does not fail over: %v after %v", err, time.Since(start))
	}
	n = stub(t, s.nc, "refuses", `{"error":{"code":"name_taken","message":"taken","why":"","fix":"","candidates":[]}}`)
	if _, err := client("refuses").FailOver().Do(t.Context(), req); AsRefusal(err).Code != commands.NameTaken || n.Load() != 1 {
		t.Errorf("a refusal is an answer: %v, %d asked", err, n.Load())
	}
}

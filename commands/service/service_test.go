package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

type served struct {
	nc     *nats.Conn
	client *Client
}

// patience is how long a test waits for what will come; it says only that something
// hangs, since a machine may be slow and busy.
const patience = 3 * time.Minute

func serve(t *testing.T) served {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir()})
	must(err)
	t.Cleanup(srv.Close)
	connect := func() *nats.Conn {
		nc, err := srv.Connect()
		must(err)
		t.Cleanup(nc.Close)
		return nc
	}
	nc := connect()
	log, err := ledger.Create(t.Context(), nc, "home", ledger.CreateOptions{})
	must(err)
	h, err := handler.Open(t.Context(), handler.Config{Log: log})
	must(err)
	t.Cleanup(h.Close)
	s, err := Serve(Config{Conn: nc, Mesh: "home", Handler: h, Log: log, Version: "0.0.0"})
	must(err)
	t.Cleanup(func() { must(s.Stop()) })
	c, err := NewClient(connect(), "home")
	must(err)
	_, err = c.Do(t.Context(), newRequest(commands.CreateMesh{Name: "home"}))
	must(err)
	return served{connect(), c}
}

// An answer that does not fit one message comes whole.
func TestLongAnswer(t *testing.T) {
	s := serve(t)
	const nodes = 9000 // about 1.4 MB of JSON
	done := make(chan error, nodes)
	for i := range 200 {
		go func() {
			for k := range nodes / 200 {
				_, err := s.client.Do(context.Background(), newRequest(commands.RegisterNode{Name: fmt.Sprintf("node-%d-%d", i, k)}))
				done <- err
			}
		}()
	}
	for range nodes {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	data, err := s.client.Ask(t.Context(), commands.ListNodes{})
	if err != nil {
		t.Fatal(err)
	}
	var l projections.List[projections.NodeView]
	if err := json.Unmarshal(data, &l); err != nil || len(l.Items) != nodes || len(data) < maxPart {
		t.Fatalf("%d nodes in %d bytes: %v", len(l.Items), len(data), err)
	}
}

// Kind: half an answer taken for a whole one. A part that is missing is known,
// and the outcome of a command is then unknown, with its id.
func TestLostPart(t *testing.T) {
	s := serve(t)
	sub, err := s.nc.Subscribe(CommandSubject("other"), func(m *nats.Msg) {
		for _, part := range []string{"1/3", "3/3"} {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{HeaderPart: {part}}, Data: []byte(`{"result":{}}`)})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(s.nc, "other")
	if err != nil {
		t.Fatal(err)
	}
	req := newRequest(commands.RegisterNode{Name: "alpha"})
	var r *commands.Refusal
	if _, err := c.Do(t.Context(), req); !errors.As(err, &r) || r.Code != commands.OutcomeUnknown || !strings.Contains(r.Fix.String(), req.ID.String()) {
		t.Errorf("answer: %v", err)
	}
}

// What is asked wrongly is refused, and nothing else happens.
func TestBadRequests(t *testing.T) {
	s := serve(t)
	for _, bad := range []string{"", "{", `{"verb":"node.register","args":{"nme":"x"}}`, `{"verb":"no.such"}`, `[]`, `{"verb":"node.register","extra":1}`,
		`{"verb":"mesh.step-clock","args":{}}`} {
		m, err := s.nc.Request(CommandSubject("home"), []byte(bad), patience)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.Unmarshal(m.Data, &a); err != nil || a.Error == nil || a.Error.Code != commands.Usage {
			t.Errorf("%s: %s", bad, m.Data)
		}
	}
	if _, err := s.client.Ask(t.Context(), commands.ShowNode{Node: "none-such"}); AsRefusal(err).Code != commands.NodeNotFound {
		t.Errorf("asked for what is not there: %v", err)
	}
	nobody, err := NewClient(s.nc, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.Do(t.Context(), newRequest(commands.RegisterNode{Name: "x"})); AsRefusal(err).Code != commands.Unreachable {
		t.Errorf("nobody serves: %v", err)
	}
}

// A foreign message is skipped, counted and reported; it blocks nothing.
func TestForeignIsReported(t *testing.T) {
	s := serve(t)
	if _, err := s.nc.Request("bindery.home.stray", []byte("no event"), patience); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alpha", "beta"} {
		if _, err := s.client.Do(t.Context(), newRequest(commands.RegisterNode{Name: name})); err != nil {
			t.Fatal(err)
		}
	}
	data, err := s.client.Ask(t.Context(), commands.Status{})
	var v projections.StatusView
	if err != nil || json.Unmarshal(data, &v) != nil || v.Counts["nodes"] != 2 {
		t.Fatalf("status %s, %v", data, err)
	}
	if len(v.Attention) != 1 || v.Attention[0].Code != "foreign_event" {
		t.Errorf("attention: %+v", v.Attention)
	}
	page, err := s.client.Log(t.Context(), LogQuery{First: 1})
	if err != nil || len(page.Items) != 3 || page.Items[2].Type != (&events.NodeRegistered{}).EventType().String() {
		t.Errorf("log: %+v, %v", page, err)
	}
}

// A follower sees every event once, in order, as it comes, and a service that
// stops keeps nobody waiting.
func TestFollow(t *testing.T) {
	x := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seqs := make(chan uint64, 100)
	done := make(chan error, 1)
	go func() {
		done <- x.client.Follow(ctx, 1, func(p LogPage) error {
			for _, i := range p.Items {
				seqs <- i.Seq
			}
			return nil
		})
	}()
	for i := range 20 {
		if _, err := x.client.Do(t.Context(), newRequest(commands.RegisterNode{Name: fmt.Sprintf("n-%d", i)})); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	for want := uint64(1); want <= 21; want++ {
		select {
		case got := <-seqs:
			if got != want {
				t.Fatalf("got %d, want %d", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%d did not come", want)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

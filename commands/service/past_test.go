package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// replay folds the log from its beginning.
func replay(log *ledger.Log) Past {
	return func(ctx context.Context, seq uint64) (*projections.State, error) {
		s := projections.New()
		for group, err := range log.Read(ctx, ledger.Position{}, seq) {
			if err != nil {
				return nil, err
			}
			if group[len(group)-1].Seq > seq {
				break // the moment lies within a command
			}
			if err := s.ApplyCommand(group); err != nil {
				return nil, err
			}
		}
		return s, nil
	}
}

// pastWorld is a served ledger with some history.
func pastWorld(t *testing.T) (c *Client, log *ledger.Log) {
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
	nc, err := srv.Connect()
	must(err)
	t.Cleanup(nc.Close)
	log, err = ledger.Create(t.Context(), nc, "home", ledger.CreateOptions{})
	must(err)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	h, err := handler.Open(t.Context(), handler.Config{Log: log, Clock: func() time.Time { at = at.Add(time.Second); return at }})
	must(err)
	t.Cleanup(h.Close)
	s, err := Serve(Config{Conn: nc, Mesh: "home", Handler: h, Log: log, Version: "0.0.0", Past: replay(log)})
	must(err)
	t.Cleanup(func() { must(s.Stop()) })
	own, err := srv.Connect()
	must(err)
	t.Cleanup(own.Close)
	c, err = NewClient(own, "home")
	must(err)
	do := func(cmd commands.Command) error {
		req := newRequest(cmd)
		req.ID, req.Reason = handler.NewIDs(func() time.Time { return at })(), "a trial"
		_, err := c.Do(t.Context(), req)
		return err
	}
	for _, cmd := range []commands.Command{commands.CreateMesh{Name: "home"}, commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"},
		commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "pg-0", Provision: "pg", Node: "alpha", Endpoint: "a:1"},
		commands.RegisterProvider{Name: "pg-1", Provision: "pg", Node: "beta", Endpoint: "b:1"},
		commands.DeclareModule{Name: "app", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "pg"}, "more": {Provision: "pg"}}}}} {
		must(do(cmd))
	}
	rng := rand.New(rand.NewPCG(6, 6))
	for i := range 700 {
		name := fmt.Sprintf("app-%d", rng.IntN(8))
		var cmd commands.Command
		switch rng.IntN(6) {
		case 0, 1:
			cmd = commands.CreateAssignment{Module: "app", Node: "alpha", Name: name}
		case 2:
			cmd = commands.SetOverride{Slot: name + "/db", Provider: fmt.Sprintf("pg-%d", rng.IntN(2))}
		case 3:
			cmd = commands.RelocateProvider{Provider: "pg-0", To: "beta", Endpoint: fmt.Sprintf("h:%d", i+2)}
		case 4:
			cmd = commands.RenameAssignment{Assignment: name, To: fmt.Sprintf("app-%d", rng.IntN(8))}
		case 5:
			cmd = commands.EndAssignment{Assignment: name}
		}
		var r *commands.Refusal
		if err := do(cmd); err != nil && !errors.As(err, &r) {
			t.Fatal(err)
		}
	}
	return c, log
}

// An answer as of a moment is that of a fresh fold to there; a moment within a
// command is the one before it.
func TestAsOf(t *testing.T) {
	t.Parallel() // most of the time is the server's
	c, log := pastWorld(t)
	last, err := log.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last < 100 {
		t.Fatalf("%d events are too few", last)
	}
	var all [][]events.Event
	for group, err := range log.Read(t.Context(), ledger.Position{}, last) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, group)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		seq := 1 + rng.Uint64N(last)
		s := projections.New()
		for _, group := range all {
			if group[len(group)-1].Seq <= seq {
				if err := s.ApplyCommand(group); err != nil {
					t.Fatal(err)
				}
			}
		}
		ats := []AsOf{{Seq: seq}}
		if s.Seq == seq { // at a border: by its time and by its event, too
			ats = append(ats, AsOf{Time: s.Time.Format(time.RFC3339Nano)})
			for _, group := range all {
				if e := group[len(group)-1]; e.Seq == seq {
					ats = append(ats, AsOf{Event: e.ID.String()}, AsOf{Event: group[0].ID.String()})
				}
			}
		}
		for _, at := range ats {
			for _, q := range []commands.Query{commands.ListBindings{}, commands.ListProviders{}, commands.Status{}} {
				got, err := c.AskAsOf(t.Context(), q, at)
				if err != nil {
					t.Fatalf("%s as of %+v: %v", q.Name(), at, err)
				}
				v, err := commands.Answer(s, q, s.Time)
				if err != nil {
					t.Fatal(err)
				}
				want, _ := json.Marshal(v)
				if string(got) != string(withMoment(want, Moment{s.Seq, s.Time})) {
					t.Fatalf("%s as of %+v is\n%s\nwant\n%s", q.Name(), at, got, want)
				}
			}
		}
	}
}

// What is different at two moments is what their lists differ in.
func TestDiff(t *testing.T) {
	c, log := pastWorld(t)
	last, _ := log.Last(t.Context())
	list := func(at uint64) map[string]string {
		data, err := c.AskAsOf(t.Context(), commands.ListBindings{}, AsOf{Seq: at})
		if err != nil {
			t.Fatal(err)
		}
		var l projections.List[projections.BindingView]
		if err := json.Unmarshal(data, &l); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, v := range l.Items {
			data, _ := json.Marshal(v)
			out[v.ID.String()] = string(data)
		}
		return out
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		a := 8 + rng.Uint64N(last-8)
		b := a + rng.Uint64N(last-a+1)
		data, err := c.Diff(t.Context(), DiffQuery{AsOf{Seq: a}, AsOf{Seq: b}})
		if err != nil {
			t.Fatal(err)
		}
		var d Diff
		if err := json.Unmarshal(data, &d); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, i := range d.Items {
			if len(i.Kinds) == 0 || len(i.What) != len(i.Kinds) {
				t.Errorf("a difference that says nothing: %+v", i)
			}
			got[i.Binding.String()] = true
		}
		was, is := list(a), list(b)
		for id := range was {
			if (was[id] != is[id]) != got[id] {
				t.Errorf("%d..%d: binding %s: differs %t, is told %t\n%s\n%s", a, b, id, was[id] != is[id], got[id], was[id], is[id])
			}
		}
		for id := range is {
			if was[id] == "" && !got[id] {
				t.Errorf("%d..%d: binding %s is new, and is not told", a, b, id)
			}
		}
	}
}

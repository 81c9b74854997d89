package main

import (
	"errors"
	"log/slog"
	"testing"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/ledger"
)

// Kind: a ledger on a server that has lost its end is written by the next who gets
// the lease.
func TestRemoteAnchor(t *testing.T) {
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	log, err := ledger.Create(t.Context(), nc, "home", ledger.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := NewProgram()
	p.Getenv = func(key string) string {
		return map[string]string{"BINDERY_ANCHORS": dir, "BINDERY_ANCHOR": "sync"}[key]
	}
	r, err := (&cli{program: p}).remoteAnchor("nats://there", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h, err := handler.Open(t.Context(), handler.Config{Log: log, Durable: r.durable})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	done, err := r.taking(t.Context(), log, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []commands.Command{commands.CreateMesh{Name: "home"}, commands.RegisterNode{Name: "alpha"}} {
		res, err := h.Do(t.Context(), commands.Request{Command: c, ID: p.NewID(), Actor: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		// It is written before the answer.
		if a, ok, err := r.anchors.Load(log.Created()); !ok || err != nil || a.Seq != res.Seq {
			t.Fatalf("after sequence %d the anchor is %+v, %v, %v", res.Seq, a, ok, err)
		}
	}
	done()
	a, _, err := r.anchors.Load(log.Created())
	if err != nil {
		t.Fatal(err)
	}
	lost := a
	lost.Seq++
	other := a
	other.Chain[0]++
	grown := a // the stream says less, or more, than it did: then other events need no proof
	grown.Restored++
	for _, a := range []ledger.Anchor{lost, other, grown} {
		if err := r.anchors.Save(a); err != nil {
			t.Fatal(err)
		}
		var loss *ledger.LossError
		var refused *commands.Refusal
		if _, err := r.taking(t.Context(), log, h); !errors.As(err, &loss) || !errors.As(err, &refused) || refused.Code.Exit() != commands.ExitIntegrity {
			t.Errorf("with an anchor at %d: %v", a.Seq, err)
		}
	}
}

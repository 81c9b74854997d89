package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// fleet is a service with a mesh of two nodes behind it.
type fleet struct {
	t      testing.TB
	srv    *ledger.Embedded
	nc     *nats.Conn // the service's
	log    *ledger.Log
	h      *handler.Handler
	s      *Service
	client *Client
	keep   func() // starts the keeper
}

// newFleet serves a mesh, with a keeper of its documents or without.
func newFleet(t testing.TB, kept bool) *fleet {
	t.Helper()
	f := &fleet{t: t, keep: func() {}}
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir()})
	f.must(err)
	t.Cleanup(srv.Close)
	nc, err := srv.Connect()
	f.must(err)
	t.Cleanup(nc.Close)
	log, err := ledger.Create(t.Context(), nc, "home", ledger.CreateOptions{})
	f.must(err)
	f.srv, f.nc, f.log = srv, nc, log
	cfg := Config{Conn: nc, Mesh: "home", Log: log, Version: "0.0.0"}
	hc := handler.Config{Log: log}
	if kept {
		cfg.Keeper = readmodel.New(readmodel.Config{Log: log, Memory: true})
		hc.Observe = cfg.Keeper.Note
	}
	f.h, err = handler.Open(t.Context(), hc)
	f.must(err)
	t.Cleanup(f.h.Close)
	f.do(commands.CreateMesh{Name: "home"}, commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"},
		commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "pg-alpha", Provision: "pg", Node: "alpha", Endpoint: "alpha.mesh:5432"},
		commands.RegisterProvider{Name: "pg-beta", Provision: "pg", Node: "beta", Endpoint: "beta.mesh:5432"},
		commands.DeclareModule{Name: "app", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "pg"}}}})
	if kept {
		var keeping sync.WaitGroup
		ctx, stop := context.WithCancel(context.Background())
		t.Cleanup(func() { stop(); keeping.Wait() })
		f.keep = func() { keeping.Go(func() { _ = cfg.Keeper.Run(ctx, nc, f.h) }) }
	}
	cfg.Handler = f.h
	f.s, err = Serve(cfg)
	f.must(err)
	t.Cleanup(func() { f.must(f.s.Stop()) })
	own, err := srv.Connect()
	f.must(err)
	t.Cleanup(own.Close)
	f.client, err = NewClient(own, "home")
	f.must(err)
	return f
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) do(cs ...commands.Command) (r commands.Result) {
	f.t.Helper()
	for _, c := range cs {
		req := newRequest(c)
		req.Reason = "a trial"
		var err error
		r, err = f.h.Do(context.Background(), req)
		f.must(err)
	}
	return r
}

// assign makes a consumer on a node with a credential that it runs with.
func (f *fleet) assign(name, node, provider string) {
	f.t.Helper()
	r := f.do(commands.CreateAssignment{Module: "app", Node: node, Name: name, Bind: map[string]string{"db": provider}})
	r = f.do(commands.IssueCredential{Slot: name + "/db", Generation: r.Seq, SecretRef: "file:" + name})
	f.do(commands.AcknowledgeBinding{Slot: name + "/db", At: r.Seq})
}

// node is the id of a node.
func (f *fleet) node(name string) (id events.ID) {
	f.h.View(func(s *projections.State) { id = s.Node(s.NodeNamed(name)).ID })
	return id
}

func (f *fleet) ask(q DocumentsQuery) Documents {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	d, err := f.client.Documents(ctx, q)
	f.must(err)
	return d
}

// want are the documents of a node as the ledger says, by key, without their stamps.
func (f *fleet) want(node events.ID) map[string]string {
	out := map[string]string{}
	f.h.View(func(s *projections.State) {
		id := s.Node(projections.NodeRef(s.ByID(events.EntityNode, node))).ID
		for i := 1; i <= s.BindingCount(); i++ {
			r := projections.BindingRef(i)
			if s.HasDocument(r) {
				if d := s.BindingDocument(r); d.NodeID == id {
					d.Stamp = projections.Stamp{}
					out[d.Key()] = encoded(d)
				}
			}
			for _, d := range s.HolderDocuments(r) {
				if d.NodeID == id {
					d.Stamp = projections.Stamp{}
					out[d.Key()] = encoded(d)
				}
			}
		}
	})
	return out
}

func encoded(doc any) string {
	data, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// copied is what a reader keeps of the answers it got.
type copied map[string]string

func (c copied) take(d Documents) {
	if d.All {
		clear(c)
	}
	for _, k := range d.Bindings {
		delete(c, k.Key)
		if k.Document != nil {
			k.Document.Stamp = projections.Stamp{}
			c[k.Key] = encoded(k.Document)
		}
	}
	for _, k := range d.Holders {
		delete(c, k.Key)
		if k.Document != nil {
			k.Document.Stamp = projections.Stamp{}
			c[k.Key] = encoded(k.Document)
		}
	}
}

// changes are things that change documents in all the ways there are: in place, by a
// move away and back, by an end, and where nothing leads to the document any more.
func changes() []commands.Command {
	return []commands.Command{
		commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:5433"},
		commands.RelocateProvider{Provider: "pg-alpha", To: "alpha", Endpoint: "alpha.mesh:5433"},
		commands.RenameAssignment{Assignment: "a-0", To: "wiki"},
		commands.MoveAssignment{Assignment: "wiki", To: "beta"},
		commands.MoveAssignment{Assignment: "wiki", To: "alpha"},
		commands.SetOverride{Slot: "a-1/db", Provider: "pg-beta"},
		commands.ClearOverride{Slot: "a-1/db"},
		commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "pg-alpha"}},
		commands.AbortRotation{Rotation: "pg-alpha"},
		commands.RenameNode{Node: "beta", To: "delta"},
		commands.RenameNode{Node: "delta", To: "beta"},
		commands.EndAssignment{Assignment: "a-2"},
		commands.RetireProvider{Provider: "pg-beta", Force: true},
	}
}

// Kind: a reader of changes that misses one. Whoever takes every answer has the
// documents of the ledger, with a keeper and without, whatever changes.
func TestDocumentsFollow(t *testing.T) {
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("kept=%t", kept), func(t *testing.T) {
			f := newFleet(t, kept)
			for i := range 4 {
				f.assign(fmt.Sprintf("a-%d", i), "alpha", "pg-alpha")
				f.assign(fmt.Sprintf("b-%d", i), "beta", "pg-alpha")
			}
			f.keep()
			nodes := []events.ID{f.node("alpha"), f.node("beta")}
			copies, at := map[events.ID]copied{}, map[events.ID]Documents{}
			for _, n := range nodes {
				d := f.ask(DocumentsQuery{Node: n.String()})
				if !d.All || len(d.Bindings) != 4 || d.MeshID.IsZero() {
					t.Fatalf("at first: %+v", d)
				}
				copies[n], at[n] = copied{}, d
				copies[n].take(d)
				if diff := cmp.Diff(f.want(n), map[string]string(copies[n])); diff != "" {
					t.Fatalf("%s at first (-want +got):\n%s", n, diff)
				}
			}
			whole := 0
			for _, c := range changes() {
				r := f.do(c)
				for _, n := range nodes {
					d := f.ask(DocumentsQuery{Node: n.String(), After: at[n].Seq, Chain: at[n].Chain})
					if d.Seq < r.Seq {
						t.Fatalf("%s: the answer is of %d, the ledger is at %d", c.Verb(), d.Seq, r.Seq)
					}
					if d.All {
						whole++
					}
					copies[n].take(d)
					at[n] = d
					if diff := cmp.Diff(f.want(n), map[string]string(copies[n])); diff != "" {
						t.Fatalf("%s, after %s (-want +got):\n%s", n, c.Verb(), diff)
					}
				}
			}
			if kept == (whole > 0) {
				t.Errorf("%d answers listed everything", whole)
			}
			for _, n := range nodes { // what is asked for at once is the same
				d, c := f.ask(DocumentsQuery{Node: n.String()}), copied{}
				c.take(d)
				if diff := cmp.Diff(f.want(n), map[string]string(c)); diff != "" || !d.All {
					t.Errorf("%s at last (-want +got):\n%s", n, diff)
				}
			}
		})
	}
}

// Kind: a wait that ends too late, or for nothing. It ends with a change of the node's
// documents, within what the query is narrowed to, and with nothing else but its time.
func TestDocumentsWait(t *testing.T) {
	f := newFleet(t, true)
	f.assign("a-0", "alpha", "pg-alpha")
	f.assign("a-1", "alpha", "pg-alpha")
	f.assign("b-0", "beta", "pg-beta")
	f.keep()
	first := f.ask(DocumentsQuery{Node: "alpha"})
	var other events.ID
	for _, k := range first.Bindings {
		if k.Document.Assignment == "a-1" {
			other = k.Document.AssignmentID
		}
	}
	const long = int(MaxDocumentsWait / time.Millisecond)
	wait := func(q DocumentsQuery) <-chan Documents {
		got := make(chan Documents, 1)
		q.Node, q.After, q.Chain = "alpha", first.Seq, first.Chain
		go func() { got <- f.ask(q) }()
		return got
	}
	any, narrow := wait(DocumentsQuery{Wait: long}), wait(DocumentsQuery{Wait: long, Assignment: other})
	f.do(commands.RenameAssignment{Assignment: "b-0", To: "b-1"}, commands.RegisterNode{Name: "gamma"})
	// One whose time is over is answered with what it has: nothing.
	if d := <-wait(DocumentsQuery{Wait: 50}); d.All || len(d.Bindings)+len(d.Holders) > 0 || d.Seq < first.Seq+2 {
		t.Errorf("nothing of the node changed: %+v", d)
	}
	select {
	case d := <-any:
		t.Errorf("another node's change ended the wait: %+v", d)
	default:
	}
	f.do(commands.RenameAssignment{Assignment: "a-0", To: "wiki"})
	if d := <-any; d.All || len(d.Bindings) != 1 || d.Bindings[0].Document.Assignment != "wiki" || len(d.Holders) != 1 {
		t.Errorf("a rename: %+v", d)
	}
	select {
	case d := <-narrow:
		t.Errorf("another assignment's change ended the wait: %+v", d)
	default:
	}
	r := f.do(commands.RenameAssignment{Assignment: "a-1", To: "forum"})
	if d := <-narrow; d.All || len(d.Bindings) != 1 || d.Bindings[0].Document.Assignment != "forum" || d.Seq < r.Seq {
		t.Errorf("a narrow one: %+v", d)
	}
}

// A service that stops keeps nobody waiting, and one that has just begun lists all.
func TestDocumentsStop(t *testing.T) {
	f := newFleet(t, true)
	f.assign("a-0", "alpha", "pg-alpha")
	f.keep()
	first := f.ask(DocumentsQuery{Node: "alpha"})
	ended := make(chan error, 1)
	go func() {
		_, err := f.client.Documents(context.Background(), DocumentsQuery{Node: "alpha", After: first.Seq, Wait: 30_000})
		ended <- err
	}()
	for len(f.s.waits) == 0 {
		time.Sleep(time.Millisecond)
	}
	f.must(f.s.Stop())
	if err := <-ended; AsRefusal(err).Code != commands.Unreachable {
		t.Errorf("it ended with %v", err)
	}
}

// Kind: a reader that goes on over a ledger that is not the one it read.
func TestDocumentsOfAnotherLedger(t *testing.T) {
	f := newFleet(t, true)
	f.assign("a-0", "alpha", "pg-alpha")
	f.keep()
	d := f.ask(DocumentsQuery{Node: "alpha"})
	for what, q := range map[string]DocumentsQuery{
		"another chain value": {After: d.Seq, Chain: "00" + d.Chain[2:]},
		"beyond the end":      {After: d.Seq + 10, Chain: d.Chain},
	} {
		q.Node = "alpha"
		var r *commands.Refusal
		if _, err := f.client.Documents(t.Context(), q); !errors.As(err, &r) || r.Code != commands.LedgerRestored {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Who does not say what it read gets everything.
	if d := f.ask(DocumentsQuery{Node: "alpha", After: d.Seq + 10, Wait: 30_000}); !d.All || len(d.Bindings) != 1 {
		t.Errorf("beyond the end: %+v", d)
	}
	if _, err := f.client.Documents(t.Context(), DocumentsQuery{Node: "nowhere"}); AsRefusal(err).Code != commands.NodeNotFound {
		t.Errorf("a node that is not there: %v", err)
	}
}

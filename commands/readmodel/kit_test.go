package readmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// world is a ledger on a real server, with a keeper of its documents.
type world struct {
	t             testing.TB
	dir           string
	memory, quick bool
	srv           *ledger.Embedded
	nc            *nats.Conn
	log           *ledger.Log
	h             *handler.Handler
	k             *Keeper

	stop  context.CancelFunc
	ended chan error
	said  *saying
}

func newWorld(t testing.TB) *world { return newWorldWith(t, false, true) }

// newWorldWith says where the documents lie, and whether the server may acknowledge
// before it has written to disk.
func newWorldWith(t testing.TB, memory, quick bool) *world {
	w := &world{t: t, dir: t.TempDir(), memory: memory, quick: quick}
	w.start(func(ctx context.Context, nc *nats.Conn) (*ledger.Log, error) {
		return ledger.Create(ctx, nc, "home", ledger.CreateOptions{})
	})
	w.do(commands.CreateMesh{Name: "home"})
	w.keep()
	t.Cleanup(func() {
		w.stop()
		<-w.ended
		w.h.Close()
		w.nc.Close()
		w.srv.Close()
	})
	return w
}

func (w *world) start(open func(context.Context, *nats.Conn) (*ledger.Log, error)) {
	w.t.Helper()
	var err error
	w.srv, err = ledger.StartEmbedded(w.t.Context(), ledger.EmbeddedConfig{Dir: w.dir, Adjust: func(o *server.Options) { o.SyncAlways = !w.quick }})
	w.must(err)
	w.nc, err = w.srv.Connect()
	w.must(err)
	w.log, err = open(w.t.Context(), w.nc)
	w.must(err)
	w.said = &saying{}
	w.k = New(Config{Log: w.log, Memory: w.memory, Logger: slog.New(slog.NewTextHandler(w.said, nil))})
	w.h, err = handler.Open(w.t.Context(), handler.Config{Log: w.log, Observe: func(evs []events.Event) { w.k.Note(evs) }})
	w.must(err)
}

// keep runs the keeper.
func (w *world) keep() {
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.ended = stop, make(chan error, 1)
	k := w.k
	ended := w.ended
	go func() { ended <- k.Run(ctx, w.nc, w.h); close(ended) }()
}

// saying is what a keeper logs, while it does.
type saying struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// again stops the keeper and starts another one.
func (w *world) again() {
	w.t.Helper()
	w.stop()
	<-w.ended
	w.k = New(Config{Log: w.log, Memory: w.memory, Logger: slog.New(slog.NewTextHandler(w.said, nil))})
	w.keep()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// newID mints ids for several goroutines.
var newID = func() func() events.ID {
	var mu sync.Mutex
	mint := handler.NewIDs(time.Now)
	return func() events.ID {
		mu.Lock()
		defer mu.Unlock()
		return mint()
	}
}()

func (w *world) do(cs ...commands.Command) commands.Result {
	w.t.Helper()
	var r commands.Result
	var err error
	for _, c := range cs {
		r, err = w.h.Do(w.t.Context(), commands.Request{Command: c, ID: newID(), Actor: "ann", Reason: "a trial"})
		if err != nil {
			w.t.Fatalf("%s %+v: %v", c.Verb(), c, err)
		}
	}
	return r
}

// want are the documents as the ledger says, by bucket and key, without stamps.
func (w *world) want() map[string]string {
	out := map[string]string{}
	w.h.View(func(s *projections.State) {
		for i := 1; i <= s.BindingCount(); i++ {
			r := projections.BindingRef(i)
			if s.HasDocument(r) {
				d := s.BindingDocument(r)
				out["bindings "+d.Key()] = unstamped(w.t.Fatalf, encode(d))
			}
			for _, d := range s.HolderDocuments(r) {
				out["holders "+d.Key()] = unstamped(w.t.Fatalf, encode(d))
			}
		}
	})
	return out
}

// unstamped is a document without its stamp, with its fields in order.
func unstamped(fault func(string, ...any), doc []byte) string {
	var m map[string]any
	if err := json.Unmarshal(doc, &m); err != nil {
		fault("%v: %s", err, doc)
	}
	for _, name := range []string{"at", "chain", "mesh", "mesh_id"} {
		if _, ok := m[name]; !ok {
			fault("a document without %s: %s", name, doc)
		}
		delete(m, name)
	}
	data, _ := json.Marshal(m)
	return string(data)
}

// there are the documents as they lie in the buckets; each has been made at a
// sequence that was, with the chain value there.
func (w *world) there() map[string]string {
	w.t.Helper()
	out, faults := w.look()
	for _, f := range faults {
		w.t.Error(f)
	}
	return out
}

// look reads the buckets, and says what is wrong with what it finds.
func (w *world) look() (out map[string]string, faults []string) {
	w.t.Helper()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	out = map[string]string{}
	for name, bucket := range map[string]string{"bindings": Bindings("home"), "holders": Holders("home")} {
		b, err := ledger.OpenBucket(w.t.Context(), w.nc, ledger.BucketConfig{Name: bucket, Memory: w.memory})
		w.must(err)
		_, err = b.All(w.t.Context(), func(e ledger.Entry) {
			if e.Key == WholeKey {
				return
			}
			if e.Value == nil {
				if e.Header.Get(HeaderAt) == "" || e.Header.Get(HeaderChain) == "" {
					fault("%s was deleted without a stamp", e.Key)
				}
				return
			}
			var s projections.Stamp
			_ = json.Unmarshal(e.Value, &s) // its headers will not fit
			if e.Header.Get(HeaderAt) != fmt.Sprint(s.At) || e.Header.Get(HeaderChain) != s.Chain {
				fault("%s: its headers do not say what it says: %v, %+v", e.Key, e.Header, s)
			}
			recs, err := w.log.Get(w.t.Context(), s.At, s.At)
			if err != nil || recs[0].Get(events.HeaderChain) != s.Chain {
				fault("%s at %d: %v, %+v", e.Key, s.At, err, s)
			}
			out[name+" "+e.Key] = unstamped(fault, e.Value)
		})
		w.must(err)
	}
	return out, faults
}

// patience is how long a test waits for what will come; it says only that something
// hangs, since a machine may be slow and busy.
const patience = 3 * time.Minute

// agree waits until the documents are what the ledger says.
func (w *world) agree() {
	w.t.Helper()
	var seq uint64
	w.h.View(func(s *projections.State) { seq = s.Seq })
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.k.Synced(ctx, seq); err != nil {
		w.t.Fatalf("the documents are not at %d: %v\n%s", seq, err, w.said)
	}
	w.same()
}

func (w *world) same() {
	w.t.Helper()
	if d := cmp.Diff(w.want(), w.there()); d != "" {
		w.t.Fatalf("the documents are not what the ledger says (-want +got):\n%s", d)
	}
}

// eventually waits until the documents are put right.
func (w *world) eventually() {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now, faults := w.look(); faults == nil && maps.Equal(w.want(), now) {
			return
		}
	}
	w.t.Log(w.said)
	w.same()
}

// fleet is a mesh with n consumers of pg-alpha, each with a credential that it runs
// with.
func (w *world) fleet(n int) {
	w.t.Helper()
	w.do(commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"}, commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "pg-alpha", Provision: "pg", Node: "alpha", Endpoint: "alpha.mesh:5432"},
		commands.RegisterProvider{Name: "pg-beta", Provision: "pg", Node: "beta", Endpoint: "beta.mesh:5432"},
		commands.DeclareModule{Name: "app", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "pg"}}}})
	for i := range n {
		name := fmt.Sprintf("app-%d", i)
		w.do(commands.CreateAssignment{Module: "app", Node: "alpha", Name: name, Bind: map[string]string{"db": "pg-alpha"}})
		w.issue(name + "/db")
	}
}

// issue answers the open ask of a slot, and its consumer takes that up.
func (w *world) issue(slot string) {
	w.t.Helper()
	w.h.View(func(*projections.State) {})
	v := w.binding(slot)
	r := w.do(commands.IssueCredential{Slot: slot, Generation: v.Generation, SecretRef: "file:" + strings.ReplaceAll(slot, "/", "-")})
	w.do(commands.AcknowledgeBinding{Slot: slot, At: r.Seq})
}

func (w *world) binding(slot string) (v projections.BindingView) {
	w.t.Helper()
	w.h.View(func(s *projections.State) {
		a, err := commands.Answer(s, commands.ShowBinding{Slot: slot}, time.Now())
		w.must(err)
		data, _ := json.Marshal(a)
		w.must(json.Unmarshal(data, &v))
	})
	return v
}

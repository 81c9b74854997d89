package instance

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/commands/snapshot"
	"bindery/ledger"
	"bindery/projections"
)

// An instance that has a directory for snapshots leaves one when it ends in order,
// and begins with it the next time: with the state that it had.
func TestInstanceSnapshots(t *testing.T) {
	t.Parallel()
	srv, err := ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	dial := func() *nats.Conn {
		nc, err := srv.Connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	log := found(t, dial(), 1)
	store := snapshot.In(filepath.Join(t.TempDir(), snapshot.Dir), nil)
	run := func(name string, do func(*Instance)) {
		t.Helper()
		cfg := testConfig(dial, name)
		cfg.Snapshots = store
		i := New(cfg)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- i.Run(ctx) }()
		eventually(t, name+" writes", func() bool { return i.Status().Role == Writer })
		do(i)
		stop()
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var want string
	run("first", func(i *Instance) {
		for part := range 2 { // 1,100 events
			m := &manifest.Manifest{Mesh: testMesh}
			for n := range 550 {
				m.Nodes = append(m.Nodes, fmt.Sprintf("node-%d-%d", part, n))
			}
			if _, err := newClient(t, dial()).Do(patiently(t), request(commands.ApplyManifest{Manifest: m})); err != nil {
				t.Fatal(err)
			}
		}
		i.View(func(s *projections.State) { want = digest(t, s) })
	})
	last, err := log.Last(t.Context())
	if err != nil || last < 1100 || store.Last() != last {
		t.Fatalf("the ledger ends at %d (%v), the newest snapshot is at %d", last, err, store.Last())
	}
	run("second", func(i *Instance) {
		i.View(func(s *projections.State) {
			if got := digest(t, s); got != want {
				t.Errorf("it begins with another state: at %d", s.Seq)
			}
		})
		if _, err := newClient(t, dial()).Do(patiently(t), request(commands.RegisterNode{Name: "one-more"})); err != nil {
			t.Fatal(err)
		}
	})
}

package ledger

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// What somebody changed after a ledger was opened is seen.
func TestInspect(t *testing.T) {
	s := quickStore(t)
	l := mustCreate(t, s)
	in, err := l.Inspect(ctxT(t))
	if err != nil || len(in.Settings) != 0 || in.Replicas != 1 || in.Storage != "file" || in.Stream != StreamName(testMesh) || in.Last != 0 {
		t.Fatalf("%+v, %v", in, err)
	}
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg := streamConfig(testMesh)
	cfg.Replicas, cfg.MaxMsgs = 1, 10
	if _, err := js.UpdateStream(ctxT(t), cfg); err != nil {
		t.Fatal(err)
	}
	if in, err = l.Inspect(ctxT(t)); err != nil || len(in.Settings) != 1 || in.Settings[0] != (Setting{"max_msgs", "-1", "10"}) {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestSynced(t *testing.T) {
	for _, want := range []bool{true, false} {
		srv, err := StartEmbedded(ctxT(t), EmbeddedConfig{Dir: t.TempDir(), Adjust: func(o *server.Options) {
			if !want {
				o.SyncAlways = false
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := srv.Synced(); got != want {
			t.Errorf("synced: %t, want %t", got, want)
		}
		srv.Close()
	}
}

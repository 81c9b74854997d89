package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestCreateIsNotOpen(t *testing.T) {
	s := startStore(t, t.TempDir())
	ctx := ctxT(t)
	for _, mesh := range []string{"", testMesh} {
		_, err := Open(ctx, s.nc, mesh)
		var missing *MissingError
		if !errors.As(err, &missing) || missing.Mesh != mesh || len(missing.There) != 0 {
			t.Errorf("opening %q in an empty store: %v", mesh, err)
		}
	}
	if l := mustCreate(t, s); l.Mesh() != testMesh {
		t.Errorf("mesh %q", l.Mesh())
	}
	if _, err := Create(ctx, s.nc, testMesh, CreateOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("creating twice: %v", err)
	}
	_, err := Open(ctx, s.nc, "south")
	var missing *MissingError
	if !errors.As(err, &missing) || !reflect.DeepEqual(missing.There, []string{testMesh}) {
		t.Errorf("opening another mesh: %v", err)
	}
	if l, err := Open(ctx, s.nc, ""); err != nil || l.Mesh() != testMesh {
		t.Errorf("opening the only mesh: %v", err)
	}
	if _, err := Create(ctx, s.nc, "south", CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := Open(ctx, s.nc, ""); !errors.As(err, &missing) || len(missing.There) != 2 {
		t.Errorf("opening one of two: %v", err)
	}
	if _, err := Create(ctx, s.nc, "South", CreateOptions{}); err == nil {
		t.Error("created a mesh with a bad name")
	}
}

// Of several that create at once, one succeeds.
func TestCreateAtOnce(t *testing.T) {
	s := startStore(t, t.TempDir())
	ctx := ctxT(t)
	errs := make(chan error)
	const n = 8
	for range n {
		go func() {
			_, err := Create(ctx, s.nc, testMesh, CreateOptions{})
			errs <- err
		}()
	}
	made := 0
	for range n {
		switch err := <-errs; {
		case err == nil:
			made++
		case !errors.Is(err, ErrExists):
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d succeeded, want 1", made)
	}
}

func TestOpenVerifies(t *testing.T) {
	tests := []struct {
		setting string
		spoil   func(*jetstream.StreamConfig)
	}{
		{"deny_delete", func(c *jetstream.StreamConfig) { c.DenyDelete = false }},
		{"deny_purge", func(c *jetstream.StreamConfig) { c.DenyPurge = false }},
		{"allow_rollup_hdrs", func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = true, false }},
		{"max_msgs", func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }},
		{"max_bytes", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }},
		{"max_age", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		{"max_msgs_per_subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }},
		{"max_msg_size", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }},
		{"max_consumers", func(c *jetstream.StreamConfig) { c.MaxConsumers = 3 }},
		{"storage", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }},
		{"retention", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }},
		{"discard", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }},
		{"allow_atomic", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }},
		{"allow_batched", func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true }},
		{"allow_direct", func(c *jetstream.StreamConfig) { c.AllowDirect = false }},
		{"duplicate_window", func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute }},
		{"no_ack", func(c *jetstream.StreamConfig) { c.NoAck, c.AllowAtomicPublish = true, false }},
		{"allow_msg_ttl", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }},
		{"allow_msg_counter", func(c *jetstream.StreamConfig) { c.AllowMsgCounter, c.Discard = true, jetstream.DiscardOld }},
		{"allow_msg_schedules", func(c *jetstream.StreamConfig) { c.AllowMsgSchedules, c.Discard = true, jetstream.DiscardOld }},
		{"republish", func(c *jetstream.StreamConfig) { c.RePublish = &jetstream.RePublish{Destination: "copy.>"} }},
		{"subject_transform", func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "x.>", Destination: "y.>"}
		}},
		{"sources", func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "other"}} }},
		{"mirror", func(c *jetstream.StreamConfig) {
			c.Mirror, c.Subjects, c.AllowAtomicPublish = &jetstream.StreamSource{Name: "other"}, nil, false
		}},
		{"subjects", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "requests.>") }},
		{"first_seq", func(c *jetstream.StreamConfig) { c.FirstSeq = 100 }},
		{"persist_mode", func(c *jetstream.StreamConfig) {
			c.PersistMode, c.AllowAtomicPublish = jetstream.AsyncPersistMode, false
		}},
	}
	s := startStore(t, t.TempDir())
	js, _ := jetstream.New(s.nc)
	if _, err := js.CreateStream(ctxT(t), jetstream.StreamConfig{Name: "other", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.setting, func(t *testing.T) {
			ctx := ctxT(t)
			cfg := streamConfig(testMesh)
			test.spoil(&cfg)
			if _, err := js.CreateStream(ctx, cfg); err != nil {
				t.Fatal(err)
			}
			defer js.DeleteStream(ctx, cfg.Name)
			_, err := Open(ctx, s.nc, testMesh)
			var wrong *ConfigError
			if !errors.As(err, &wrong) {
				t.Fatalf("opened: %v", err)
			}
			found := false
			for _, s := range wrong.Settings {
				found = found || s.Name == test.setting
			}
			if !found || !strings.Contains(err.Error(), test.setting) {
				t.Errorf("it says %v", err)
			}
		})
	}
	t.Run("as created", func(t *testing.T) {
		if _, err := js.CreateStream(ctxT(t), streamConfig(testMesh)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(ctxT(t), s.nc, testMesh); err != nil {
			t.Error(err)
		}
	})
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"2.15.0": true, "2.15.3": true, "2.16.0-dev": true, "3.0.0": true, "2.15.0-RC.1": true,
		"2.14.9": false, "1.99.0": false, "": false, "2": false, "x.y.z": false,
	} {
		if got := atLeast(version, NeedVersion); got != want {
			t.Errorf("atLeast(%q) = %v", version, got)
		}
	}
}

// A server whose JetStream cannot start says why.
func TestEmbeddedSaysWhy(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := StartEmbedded(ctxT(t), EmbeddedConfig{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "storage directory is not a directory") {
		t.Errorf("started: %v", err)
	}
}

// When the context ends first, the server is gone when that is reported.
func TestEmbeddedGivesUp(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if srv, err := StartEmbedded(ctx, EmbeddedConfig{Dir: dir}); err == nil {
		srv.Close() // it was quicker
	} else if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	startStore(t, dir)
}

func TestEmbeddedListens(t *testing.T) {
	srv, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: t.TempDir(), Listen: true, Host: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	if !strings.HasPrefix(srv.URL(), "nats://127.0.0.1:") {
		t.Errorf("it listens at %q", srv.URL())
	}
}

func TestEmbeddedRestart(t *testing.T) {
	dir := t.TempDir()
	s := startStore(t, dir)
	l := mustCreate(t, s)
	w := newWriter()
	cmds := w.commands(1, 1, 5, 1)
	if n, err := l.Append(ctxT(t), 0, cmds); n != len(cmds) || err != nil {
		t.Fatal(n, err)
	}
	s.stop()
	s = startStore(t, dir)
	l, err := Open(ctxT(t), s.nc, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := readChains(readAll(t, l)), chains(cmds); !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if s.srv.URL() != "" || len(s.srv.Complaints()) != 0 {
		t.Errorf("it listens at %q and complains of %q", s.srv.URL(), s.srv.Complaints())
	}
}

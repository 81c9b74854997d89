package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A bucket is one that every client reads, and is written all or none.
func TestBucket(t *testing.T) {
	for _, memory := range []bool{false, true} {
		t.Run(fmt.Sprintf("memory=%t", memory), func(t *testing.T) {
			s, ctx := quickStore(t), ctxT(t)
			b, err := OpenBucket(ctx, s.nc, BucketConfig{Name: "docs", Memory: memory})
			if err != nil {
				t.Fatal(err)
			}
			if last, err := b.All(ctx, func(e Entry) { t.Errorf("%+v in an empty bucket", e) }); last != 0 || err != nil {
				t.Errorf("%d, %v", last, err)
			}
			entry := func(key, value string, revision uint64) Entry {
				e := Entry{Key: key, Header: nats.Header{"At": {"7"}}, Revision: revision}
				if value != "" {
					e.Value = []byte(value)
				}
				return e
			}
			write := func(want uint64, es ...Entry) {
				t.Helper()
				if first, err := b.Write(ctx, es); err != nil || first != want {
					t.Fatalf("first revision %d, %v, want %d", first, err, want)
				}
			}
			refused := func(es ...Entry) {
				t.Helper()
				if _, err := b.Write(ctx, es); !errors.Is(err, ErrRevision) {
					t.Fatalf("%v, want another revision", err)
				}
			}
			write(1, entry("a.x", "one", 0))
			write(2, entry("a.y", "two", 0), entry("b.x", "three", 0), entry("a.x", "four", 1))
			refused(entry("a.x", "five", 1))
			refused(entry("c.x", "new", 0), entry("a.x", "five", 1)) // none of it
			refused(entry("a.x", "five", 1), entry("c.x", "new", 0))
			write(5, entry("a.y", "", 2), entry("b.x", "six", 3))
			refused(entry("a.y", "again", 0)) // it was deleted, at 5
			write(7, entry("a.y", "again", 5))
			write(8, entry("a.y", "", 7))

			got := map[string]string{}
			last, err := b.All(ctx, func(e Entry) {
				got[e.Key] = fmt.Sprintf("%s %t %d %s", e.Value, e.Value == nil, e.Revision, e.Header.Get("At"))
			})
			if err != nil || last != 8 || len(got) != 3 || got["a.x"] != "four false 4 7" || got["b.x"] != "six false 6 7" || got["a.y"] != " true 8 7" {
				t.Errorf("%v up to %d, %v", got, last, err)
			}
			for key, want := range map[string]string{"a.x": "four false 4 7", "a.y": " true 8 7", "c.x": " true 0 "} {
				e, err := b.Get(ctx, key)
				if got := fmt.Sprintf("%s %t %d %s", e.Value, e.Value == nil, e.Revision, e.Header.Get("At")); err != nil || got != want || e.Key != key {
					t.Errorf("%s: %s, %v, want %s", e.Key, got, err, want)
				}
			}
			if e, err := b.At(ctx, 6); err != nil || e.Key != "b.x" || string(e.Value) != "six" {
				t.Errorf("%+v, %v", e, err)
			}
			if e, err := b.At(ctx, 1); err != nil || e.Revision != 0 || e.Value != nil { // it was replaced
				t.Errorf("%+v, %v", e, err)
			}
			js, err := jetstream.New(s.nc)
			if err != nil {
				t.Fatal(err)
			}
			kv, err := js.KeyValue(ctx, "docs")
			if err != nil {
				t.Fatal(err)
			}
			if e, err := kv.Get(ctx, "a.x"); err != nil || string(e.Value()) != "four" {
				t.Errorf("another client reads %v, %v", e, err)
			}
			if _, err := kv.Get(ctx, "a.y"); !errors.Is(err, jetstream.ErrKeyNotFound) {
				t.Errorf("another client reads what is deleted: %v", err)
			}
			if _, err := OpenBucket(ctx, s.nc, BucketConfig{Name: "docs", Memory: memory, MaxAge: time.Hour}); err != nil {
				t.Errorf("opened with another age: %v", err)
			}
		})
	}
}

// A thousand go in one batch, and a bucket in memory goes with its server.
func TestBucketBatch(t *testing.T) {
	dir := t.TempDir()
	s, ctx := startStore(t, dir), ctxT(t)
	b, err := OpenBucket(ctx, s.nc, BucketConfig{Name: "docs", Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	es := make([]Entry, MaxEvents)
	for i := range es {
		es[i] = Entry{Key: fmt.Sprintf("n.%d", i), Value: make([]byte, 1200)}
	}
	if first, err := b.Write(ctx, es); first != 1 || err != nil {
		t.Fatal(first, err)
	}
	if last, err := b.Last(ctx); last != MaxEvents || err != nil {
		t.Fatal(last, err)
	}
	s.stop()
	s = startStore(t, dir)
	b, err = OpenBucket(ctx, s.nc, BucketConfig{Name: "docs", Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	if last, err := b.Last(ctx); last != 0 || err != nil {
		t.Errorf("after a restart the last revision is %d, %v", last, err)
	}
}

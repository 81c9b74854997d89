package instance

import (
	"context"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/commands/readmodel"
	"bindery/ledger"
	"bindery/projections"
)

// documented waits until the documents in the buckets are what s says: whoever
// wrote the ledger, and whoever was deposed on the way.
func documented(t *testing.T, nc *nats.Conn, s *projections.State) {
	t.Helper()
	want := map[string]string{}
	plain := func(doc any) string {
		data, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return withoutStamp(t, data)
	}
	for i := 1; i <= s.BindingCount(); i++ {
		r := projections.BindingRef(i)
		if s.HasDocument(r) {
			d := s.BindingDocument(r)
			want[d.Key()] = plain(d)
		}
		for _, d := range s.HolderDocuments(r) {
			want[d.Key()] = plain(d)
		}
	}
	if len(want) == 0 {
		t.Error("the load made no binding")
	}
	var got map[string]string
	defer func() {
		for key := range want {
			if got[key] != want[key] {
				t.Errorf("%s is\n%s\nwant\n%s", key, got[key], want[key])
				return
			}
		}
	}()
	eventually(t, "the documents are what the ledger says", func() bool {
		got = map[string]string{}
		for _, name := range []string{readmodel.Bindings(s.Mesh.Name), readmodel.Holders(s.Mesh.Name)} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			b, err := ledger.OpenBucket(ctx, nc, ledger.BucketConfig{Name: name, Replicas: 3})
			if err == nil {
				_, err = b.All(ctx, func(e ledger.Entry) {
					if e.Value != nil && e.Key != readmodel.WholeKey {
						got[e.Key] = withoutStamp(t, e.Value)
					}
				})
			}
			cancel()
			if err != nil {
				return false
			}
		}
		return maps.Equal(got, want)
	})
}

func withoutStamp(t *testing.T, doc []byte) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(doc, &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "at")
	delete(m, "chain")
	data, _ := json.Marshal(m)
	return string(data)
}

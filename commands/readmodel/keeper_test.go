package readmodel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// The documents follow whatever happens to bindings, and to what they refer to.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	w.fleet(3)
	w.agree()
	steps := []struct {
		what string
		do   []commands.Command
	}{
		{"nothing that a document tells", []commands.Command{commands.RegisterNode{Name: "gamma"}}},
		{"a provider moves", []commands.Command{commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:5433"}}},
		{"names", []commands.Command{commands.RenameProvider{Provider: "pg-alpha", To: "pg-one"}, commands.RenameNode{Node: "beta", To: "delta"}, commands.RenameAssignment{Assignment: "app-0", To: "wiki"}}},
		{"a consumer moves", []commands.Command{commands.MoveAssignment{Assignment: "wiki", To: "gamma"}}},
		{"back, over the mark of its document", []commands.Command{commands.MoveAssignment{Assignment: "wiki", To: "alpha"}}},
		{"an override", []commands.Command{commands.SetOverride{Slot: "app-1/db", Provider: "pg-beta"}}},
		{"a rotation", []commands.Command{commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "pg-one"}}}},
		{"that is given up", []commands.Command{commands.AbortRotation{Rotation: "pg-one"}}},
		{"an agent", []commands.Command{commands.GrantAccess{Name: "root", Role: events.RoleOperator, NKey: someKey(t)}, commands.GrantAccess{Name: "hand", Role: events.RoleAgent, Node: "alpha", NKey: someKey(t)}}},
		{"a module", []commands.Command{commands.DeclareModule{Name: "app", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "pg", Version: ">=14"}, "more": {Provision: "pg", Optional: true}}}}}},
		{"an end", []commands.Command{commands.EndAssignment{Assignment: "app-2"}}},
	}
	for _, s := range steps {
		w.do(s.do...)
		t.Run(s.what, func(t *testing.T) { w.agree() })
	}
	if n := len(w.want()); n < 5 {
		t.Errorf("%d documents are too few for a test", n)
	}
	w.again()
	w.agree()
}

func someKey(t *testing.T) string {
	t.Helper()
	k, err := ledger.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k.Public
}

// A document that says what it said is not written again.
func TestWritesWhatChanged(t *testing.T) {
	w := newWorld(t)
	w.fleet(20)
	w.agree()
	before := w.revisions()
	w.do(commands.RegisterNode{Name: "gamma"}, commands.CordonProvider{Provider: "pg-alpha"})
	w.agree()
	w.again()
	w.agree()
	if now := w.revisions(); now != before {
		t.Errorf("the revisions are %v, and were %v", now, before)
	}
	w.do(commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:6000"})
	w.agree()
	if now := w.revisions(); now[0] != before[0]+20 || now[1] != before[1]+40 {
		t.Errorf("the revisions are %v, and were %v: 20 documents, and 20 keys of another node", now, before)
	}
}

func (w *world) revisions() (out [2]uint64) {
	w.t.Helper()
	for i, name := range []string{Bindings("home"), Holders("home")} {
		b, err := ledger.OpenBucket(w.t.Context(), w.nc, ledger.BucketConfig{Name: name, Memory: w.memory})
		w.must(err)
		out[i], err = b.Last(w.t.Context())
		w.must(err)
	}
	return out
}

// What somebody else writes into a bucket, or takes out of it, is put right.
func TestForeignWrites(t *testing.T) {
	w := newWorld(t)
	w.fleet(3)
	w.agree()
	b, err := ledger.OpenBucket(t.Context(), w.nc, ledger.BucketConfig{Name: Bindings("home")})
	w.must(err)
	var entries []ledger.Entry
	_, err = b.All(t.Context(), func(e ledger.Entry) { entries = append(entries, e) })
	w.must(err)
	forged := strings.Replace(string(entries[0].Value), "alpha.mesh:5432", "evil.example:5432", 1)
	for _, e := range []ledger.Entry{
		{Key: entries[0].Key, Value: []byte(forged), Header: entries[0].Header, Revision: entries[0].Revision},
		{Key: entries[1].Key, Revision: entries[1].Revision},
		{Key: "not.a.key", Value: []byte("{}")},
		{Key: newID().String() + "." + newID().String(), Value: []byte(forged)},
	} {
		_, err := b.Write(t.Context(), []ledger.Entry{e})
		w.must(err)
	}
	w.eventually()
	if !strings.Contains(w.said.String(), "another has written") {
		t.Errorf("nobody is told:\n%s", w.said)
	}
	// And what is written into the place of a document that changes just then.
	_, err = b.Write(t.Context(), []ledger.Entry{{Key: "not.a.key", Value: []byte("{}"), Revision: lastOf(t, b, "not.a.key")}})
	w.must(err)
	w.do(commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:6000"})
	w.eventually()
}

func lastOf(t *testing.T, b *ledger.Bucket, key string) (revision uint64) {
	t.Helper()
	_, err := b.All(t.Context(), func(e ledger.Entry) {
		if e.Key == key {
			revision = e.Revision
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// deposed is a source whose right to write is lost.
type deposed struct{ Source }

func (deposed) Confirm(context.Context) error {
	return fmt.Errorf("wrapped: %w", &ledger.LeaseLostError{Mesh: "home", By: "another"})
}

// frozen is a source that stands still: a writer that does not know that it is
// deposed.
type frozen struct{ s *projections.State }

func (f frozen) View(g func(*projections.State)) { g(f.s) }
func (frozen) Confirm(context.Context) error     { return nil }

// A writer that was deposed puts nothing old over what its successor wrote.
func TestDeposed(t *testing.T) {
	w := newWorld(t)
	w.fleet(3)
	w.agree()
	// The state as it is now, in other hands.
	old := projections.New()
	last, err := w.log.Last(t.Context())
	w.must(err)
	for group, err := range w.log.Read(t.Context(), ledger.Position{}, last) {
		w.must(err)
		w.must(old.ApplyCommand(group))
	}
	late := New(Config{Log: w.log})
	late.nc, late.src = w.nc, frozen{old}
	w.must(late.open(t.Context()))
	w.must(late.rebuild(t.Context()))

	w.do(commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:6000"}, commands.EndAssignment{Assignment: "app-2"})
	w.agree()
	// It wakes up in the middle of its work, with the revisions of then.
	for r := range late.held {
		for kind := range kinds {
			for i := range late.held[r][kind] {
				late.held[r][kind][i].sum = 0
			}
		}
	}
	if err := late.write(t.Context(), []projections.BindingRef{1, 2, 3}); !errors.Is(err, ledger.ErrRevision) {
		t.Errorf("it wrote: %v", err)
	}
	w.same()
	// It looks at what is there, and hears that it is deposed.
	late.src = deposed{frozen{old}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := late.Run(ctx, w.nc, deposed{frozen{old}}); !errors.Is(err, errDeposed) {
		t.Errorf("it ended with %v", err)
	}
	w.same()
}

// Documents of a ledger that was lost are all made anew, those that say the same
// among them: their stamps are of events that never were.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	w.fleet(3)
	w.agree()
	w.stop()
	<-w.ended
	b, err := ledger.OpenBucket(t.Context(), w.nc, ledger.BucketConfig{Name: Bindings("home")})
	w.must(err)
	var entries []ledger.Entry
	_, err = b.All(t.Context(), func(e ledger.Entry) { entries = append(entries, e) })
	w.must(err)
	other := strings.Repeat("ab", 32)
	for _, e := range entries {
		chain := e.Header.Get(HeaderChain)
		e.Value = []byte(strings.Replace(string(e.Value), chain, other, 1))
		e.Header = nats.Header{HeaderAt: e.Header[HeaderAt], HeaderChain: {other}}
		_, err := b.Write(t.Context(), []ledger.Entry{e})
		w.must(err)
	}
	w.again()
	w.agree() // which looks at the stamps
	if !strings.Contains(w.said.String(), "a ledger that was lost") {
		t.Errorf("nobody is told:\n%s", w.said)
	}
}

// More than one batch takes is written in several, and many commands at once make
// few.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.fleet(2)
	const n = 1500 // more than one batch
	done := make(chan struct{}, 64)
	for c := range cap(done) {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := c; i < n; i += cap(done) {
				w.do(commands.CreateAssignment{Module: "app", Node: "alpha", Name: fmt.Sprintf("many-%d", i), Bind: map[string]string{"db": "pg-alpha"}})
			}
		}()
	}
	for range cap(done) {
		<-done
	}
	w.agree()
	w.do(commands.RelocateProvider{Provider: "pg-alpha", To: "beta", Endpoint: "beta.mesh:6000"})
	w.agree()
}

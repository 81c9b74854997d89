package service

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/commands/manifest"
	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// field is a service for agents: alpha has a provider, and consumers of it are on both
// nodes. Each key is one that a signed request may come from.
type field struct {
	t     *testing.T
	srv   *ledger.Embedded
	nc    *nats.Conn
	log   *ledger.Log
	h     *handler.Handler
	s     *Service
	local ledger.Key
	keys  map[string]ledger.Key // by name of the grant: alpha, beta, ann, eve
	mesh  events.ID
	nodes map[string]string // ids
}

func newField(t *testing.T) *field {
	t.Helper()
	f := &field{t: t, keys: map[string]ledger.Key{}, nodes: map[string]string{}}
	var err error
	f.srv, err = ledger.StartEmbedded(t.Context(), ledger.EmbeddedConfig{Dir: t.TempDir(), Listen: true, Host: "127.0.0.1", Port: -1, Users: []ledger.User{}})
	f.must(err)
	t.Cleanup(f.srv.Close)
	f.nc = f.connect()
	f.log, err = ledger.Create(t.Context(), f.nc, "home", ledger.CreateOptions{})
	f.must(err)
	f.h, err = handler.Open(t.Context(), handler.Config{Log: f.log})
	f.must(err)
	t.Cleanup(f.h.Close)
	f.local, err = ledger.NewKey()
	f.must(err)
	guests := []ledger.Guest{GuestOf("home", f.local.Public)}
	for _, name := range []string{"alpha", "beta", "ann", "eve"} {
		f.keys[name], err = ledger.NewKey()
		f.must(err)
		guests = append(guests, GuestOf("home", f.keys[name].Public))
	}
	f.must(f.srv.SetGuests(guests))
	f.do(commands.CreateMesh{Name: "home"}, commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"},
		commands.GrantAccess{Name: "ann", Role: events.RoleOperator, NKey: f.keys["ann"].Public},
		commands.GrantAccess{Name: "alpha", Role: events.RoleAgent, Node: "alpha", NKey: f.keys["alpha"].Public},
		commands.GrantAccess{Name: "beta", Role: events.RoleAgent, Node: "beta", NKey: f.keys["beta"].Public},
		commands.DefineProvision{Name: "pg", Scope: events.ScopeNode},
		commands.RegisterProvider{Name: "pg-alpha", Provision: "pg", Node: "alpha", Endpoint: "alpha.mesh:5432"},
		commands.RegisterProvider{Name: "pg-beta", Provision: "pg", Node: "beta", Endpoint: "beta.mesh:5432"},
		commands.DeclareModule{Name: "app", Module: manifest.Module{Requires: map[string]manifest.Requirement{"db": {Provision: "pg", Provider: "pg-alpha"}}}},
		commands.CreateAssignment{Module: "app", Node: "alpha", Name: "app-alpha"},
		commands.CreateAssignment{Module: "app", Node: "beta", Name: "app-beta"})
	f.h.View(func(s *projections.State) {
		f.mesh = s.Mesh.ID
		for _, n := range s.ListNodes().Items {
			f.nodes[n.Name] = n.ID.String()
		}
	})
	f.serve()
	t.Cleanup(func() { _ = f.s.Stop() })
	return f
}

// serve begins to answer, as a new writer does.
func (f *field) serve() {
	f.t.Helper()
	var err error
	f.s, err = Serve(Config{Conn: f.nc, Mesh: "home", Handler: f.h, Log: f.log, Version: "0.0.0", Door: Door{Signed: true, Local: f.local.Public},
		Agents: NewAgentStore(f.nc, "home", readmodel.Where{})})
	f.must(err)
	keys := []string{f.local.Public}
	for _, key := range f.keys {
		keys = append(keys, key.Public)
	}
	f.must(f.s.Admit(keys))
}

func (f *field) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *field) connect(opts ...nats.Option) *nats.Conn {
	f.t.Helper()
	nc, err := f.srv.Connect(opts...)
	f.must(err)
	f.t.Cleanup(nc.Close)
	return nc
}

func (f *field) do(cs ...commands.Command) {
	f.t.Helper()
	for _, c := range cs {
		req := newRequest(c)
		req.Reason = "a trial"
		if _, err := f.h.Do(f.t.Context(), req); err != nil {
			f.t.Fatalf("%s: %v", c.Verb(), err)
		}
	}
}

// as is a client that signs with a key; "local" is whoever reads the store's files.
func (f *field) as(name string) *Client {
	f.t.Helper()
	key, ok := f.keys[name]
	if !ok {
		key = f.local
	}
	nc, err := nats.Connect(f.srv.URL(), key.Option(), nats.CustomInboxPrefix(InboxOf(key.Public)))
	f.must(err)
	f.t.Cleanup(nc.Close)
	c, err := NewClient(nc, "home")
	f.must(err)
	return c.SignWith(key, f.s.Identity())
}

// sealing is a sealing key of a node, signed by a key.
func (f *field) sealing(signer, node string) SealingKey {
	f.t.Helper()
	pair, err := nkeys.CreateCurveKeys()
	f.must(err)
	curve, err := pair.PublicKey()
	f.must(err)
	sig, err := f.keys[signer].Sign(SealingText(f.mesh.String(), f.nodes[node], curve))
	f.must(err)
	return SealingKey{Curve: curve, NKey: f.keys[signer].Public, Sig: base64.RawURLEncoding.EncodeToString(sig)}
}

// secret is the secret that answers the open ask of a slot.
func (f *field) secret(slot string) (out commands.Secret) {
	f.t.Helper()
	f.h.View(func(s *projections.State) {
		for _, c := range s.ListCredentials(projections.CredentialFilter{State: "asked"}).Items {
			if c.Assignment+"/"+c.Slot == slot {
				id, _ := events.ParseID(c.Binding.String())
				out = commands.Secret{Binding: id.String(), Generation: c.Generation, Tag: (commands.Finder{State: s}).TagOf(id, c.Generation)}
			}
		}
	})
	if out.Tag == "" {
		f.t.Fatalf("%s has no open ask", slot)
	}
	return out
}

// code checks that an error is a refusal of a code.
func (f *field) code(what string, err error, want commands.Code) {
	f.t.Helper()
	var r *commands.Refusal
	if !errors.As(err, &r) || r.Code != want {
		f.t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// Only the agent of a node leases it, publishes its key and fetches what is sealed for
// it, whatever else a key is granted.
func TestActingForAnotherNode(t *testing.T) {
	f := newField(t)
	ctx := t.Context()
	for _, who := range []string{"beta", "ann", "eve"} {
		c := f.as(who)
		alpha := f.nodes["alpha"]
		_, err := c.Lease(ctx, LeaseRequest{Node: alpha, LeaseHolder: LeaseHolder{Holder: "h", Tree: "t", Host: "x"}})
		f.code(who+" leases", err, commands.NotPermitted)
		f.code(who+" releases", c.Release(ctx, LeaseRequest{Node: alpha}), commands.NotPermitted)
		if who != "eve" {
			f.code(who+" publishes a key", c.PublishKey(ctx, KeyRequest{alpha, f.sealing(who, "alpha")}), commands.NotPermitted)
		}
		_, err = c.Sealed(ctx, SealedRequest{Node: alpha})
		f.code(who+" fetches", err, commands.NotPermitted)
		_, err = c.Wait(ctx, WaitRequest{Node: alpha, Wait: 1})
		f.code(who+" waits", err, commands.NotPermitted)
	}
	for _, who := range []string{"ann", "eve"} {
		_, err := f.as(who).Keys(ctx, KeysRequest{Nodes: []string{f.nodes["alpha"]}})
		f.code(who+" asks for keys", err, commands.NotPermitted)
	}
	_, err := f.as("local").Lease(ctx, LeaseRequest{Node: f.nodes["alpha"], LeaseHolder: LeaseHolder{Holder: "h", Tree: "t", Host: "x"}})
	f.must(err)
	for _, node := range []string{"", "alpha", "01M8P88V58TFQXDZHEJCG190XZ", f.nodes["alpha"] + ".x", ">"} {
		_, err := f.as("local").Lease(ctx, LeaseRequest{Node: node, LeaseHolder: LeaseHolder{Holder: "h", Tree: "t", Host: "x"}})
		if err == nil {
			t.Errorf("%q is leased", node)
		}
	}
	f.do(commands.RevokeAccess{Name: "beta"})
	_, err = f.as("beta").Sealed(ctx, SealedRequest{Node: f.nodes["beta"]})
	f.code("one that was revoked fetches", err, commands.NotPermitted)
}

// A sealing key is published by the key that signed it, for its own node.
func TestSealingKeyOfAnother(t *testing.T) {
	f := newField(t)
	ctx, alpha := t.Context(), f.nodes["alpha"]
	for what, k := range map[string]SealingKey{
		"another agent's":         f.sealing("beta", "alpha"),
		"a stranger's":            f.sealing("eve", "alpha"),
		"signed for another":      f.sealing("alpha", "beta"),
		"another's signature":     {Curve: f.sealing("alpha", "alpha").Curve, NKey: f.keys["alpha"].Public, Sig: f.sealing("alpha", "alpha").Sig},
		"another's name under it": func() SealingKey { k := f.sealing("beta", "alpha"); k.NKey = f.keys["alpha"].Public; return k }(),
		"none":                    {},
	} {
		f.code(what, f.as("alpha").PublishKey(ctx, KeyRequest{alpha, k}), commands.NotPermitted)
	}
	k := f.sealing("alpha", "alpha")
	f.must(f.as("alpha").PublishKey(ctx, KeyRequest{alpha, k}))
	keys := func() map[string]SealingKey {
		out, err := f.as("beta").Keys(ctx, KeysRequest{Nodes: []string{alpha, f.nodes["beta"], "none"}})
		f.must(err)
		return out.Keys
	}
	if got := keys(); len(got) != 1 || got[alpha] != k {
		t.Errorf("%+v", got)
	}
	f.do(commands.RevokeAccess{Name: "alpha"})
	if got := keys(); len(got) != 0 {
		t.Errorf("of one that was revoked: %+v", got)
	}
}

// A secret is stored for a credential that is issued at the asking agent's node, and
// nowhere else.
func TestSealForWhatIsNotOnesOwn(t *testing.T) {
	f := newField(t)
	ctx := t.Context()
	alpha, beta := f.as("alpha"), f.as("beta")
	s, value := f.secret("app-beta/db"), SealedBox{Sender: f.sealing("alpha", "alpha"), Box: "eA=="}
	change := func(c func(s *commands.Secret)) commands.Secret { n := s; c(&n); return n }
	for what, c := range map[string]struct {
		secret commands.Secret
		code   commands.Code
	}{
		"another tag":        {change(func(s *commands.Secret) { s.Tag = "00000000" }), commands.LedgerRestored},
		"no tag":             {change(func(s *commands.Secret) { s.Tag = "" }), commands.Usage},
		"a tag with more":    {change(func(s *commands.Secret) { s.Tag += "-x" }), commands.Usage},
		"another generation": {change(func(s *commands.Secret) { s.Generation++ }), commands.GenerationUnknown},
		"no generation":      {change(func(s *commands.Secret) { s.Generation = 0 }), commands.Usage},
		"no such binding":    {change(func(s *commands.Secret) { s.Binding = "01M8P88V58TFQXDZHEJCG190XZ" }), commands.BindingNotFound},
		"a name":             {change(func(s *commands.Secret) { s.Binding = "app-beta/db" }), commands.Usage},
		"a pattern":          {change(func(s *commands.Secret) { s.Binding = "*" }), commands.Usage},
	} {
		_, err := alpha.Seal(ctx, SealRequest{Secret: c.secret, Value: value})
		f.code(what, err, c.code)
	}
	_, err := beta.Seal(ctx, SealRequest{Secret: s, Value: SealedBox{Sender: f.sealing("beta", "beta"), Box: "eA=="}})
	f.code("on another node", err, commands.ProviderMoved)
	_, err = beta.Seal(ctx, SealRequest{Secret: s, Value: value, Maker: f.nodes["alpha"]})
	f.code("in another's name", err, commands.NotPermitted)
	_, err = f.as("ann").Seal(ctx, SealRequest{Secret: s, Value: value})
	f.code("an operator", err, commands.NotPermitted)
	_, err = alpha.Seal(ctx, SealRequest{Secret: s, Value: SealedBox{Sender: f.sealing("beta", "alpha"), Box: "eA=="}})
	f.code("sealed by another", err, commands.NotPermitted)
	_, err = alpha.Seal(ctx, SealRequest{Secret: s, Value: SealedBox{Sender: value.Sender, Box: strings.Repeat("x", maxSealedValue)}})
	f.code("too large", err, commands.TooLarge)
	if got, err := beta.Sealed(ctx, SealedRequest{Node: f.nodes["beta"]}); err != nil || len(got.Values) != 0 {
		t.Errorf("%+v, %v", got, err)
	}

	stored, err := alpha.Seal(ctx, SealRequest{Secret: s, Value: value})
	f.must(err)
	ref := strings.TrimPrefix(strings.Replace(strings.TrimPrefix(stored.Key, f.nodes["beta"]+"."), ".", "/", 1), ".")
	got, err := beta.Sealed(ctx, SealedRequest{Node: f.nodes["beta"], Refs: []string{ref, "none/1"}})
	f.must(err)
	if len(got.Values) != 1 {
		t.Fatalf("%s: %+v", ref, got)
	}
	if v := got.Values[0]; v.Ref != ref || v.Node != f.nodes["alpha"] || v.SealedBox != value || v.By != f.keys["alpha"].Public ||
		!slices.Equal(v.Keys, []string{f.keys["alpha"].Public}) || v.Tag != s.Tag {
		t.Errorf("%+v", v)
	}
	// Another maker's name leads to another key: it takes nothing away.
	f.must(beta.Unseal(ctx, UnsealRequest{Secret: s, Node: f.nodes["beta"]}))
	if got, err := beta.Sealed(ctx, SealedRequest{Node: f.nodes["beta"]}); err != nil || len(got.Values) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	f.do(commands.MoveAssignment{Assignment: "app-beta", To: "alpha"})
	f.must(alpha.Unseal(ctx, UnsealRequest{Secret: s, Node: f.nodes["beta"]}))
	if got, err := beta.Sealed(ctx, SealedRequest{Node: f.nodes["beta"]}); err != nil || len(got.Values) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// What a maker may store is bounded, and what is removed makes room.
func TestSealedIsBounded(t *testing.T) {
	h := &shelf{secret: map[string]map[string]placed{}, keys: map[string]placed{}, used: map[string]usage{}, grown: map[string]chan struct{}{}}
	value := func(maker string) []byte { return fmt.Appendf(nil, `{"node":%q,"by":"U"}`, maker) }
	for i := range maxSealedCount {
		h.note(fmt.Sprintf("n.b.%d", i), value("m"), uint64(i+1))
	}
	f := &field{t: t}
	f.code("one more", h.room("n", "b.new", "m", 10), commands.TooLarge)
	f.must(h.room("n", "b.7", "m", 10)) // in the place of one
	f.must(h.room("n", "b.new", "other", 10))
	f.code("another's", h.room("n", "b.7", "other", 10), commands.NotPermitted)
	h.forget("n.b.7")
	f.must(h.room("n", "b.new", "m", 10))
	h.used["m"] = usage{5, maxSealedBytes - 9}
	f.code("too many bytes", h.room("n", "b.new", "m", 10), commands.TooLarge)
	for i := range maxSealedCount {
		h.forget(fmt.Sprintf("n.b.%d", i))
	}
	h.note("n.b.1", []byte(`{"node":"m"}`), 9000) // nobody asked for that
	if len(h.secret) != 0 {
		t.Errorf("%+v", h.secret)
	}
}

// An agent that waits hears of what is for it, and of nothing else; a new writer says
// that everything may have changed.
func TestNewsForAnAgent(t *testing.T) {
	f := newField(t)
	ctx := t.Context()
	alpha, beta := f.as("alpha"), f.as("beta")
	long := int(MaxLogWait / time.Millisecond)
	first, err := beta.Wait(ctx, WaitRequest{Node: f.nodes["beta"], Wait: long}) // of now
	f.must(err)
	if first.All || first.Since == "" {
		t.Errorf("%+v", first)
	}
	waiting := func(since string) func() WaitAnswer {
		var out WaitAnswer
		var err error
		var done sync.WaitGroup
		done.Go(func() { out, err = beta.Wait(ctx, WaitRequest{Node: f.nodes["beta"], Since: since, Wait: long}) })
		return func() WaitAnswer { done.Wait(); f.must(err); return out }
	}
	news := waiting(first.Since)
	sender := f.sealing("alpha", "alpha")
	_, err = alpha.Seal(ctx, SealRequest{Secret: f.secret("app-alpha/db"), Value: SealedBox{Sender: sender, Box: "eA=="}}) // for alpha
	f.must(err)
	stored, err := alpha.Seal(ctx, SealRequest{Secret: f.secret("app-beta/db"), Value: SealedBox{Sender: sender, Box: "eA=="}})
	f.must(err)
	_, rest, _ := strings.Cut(stored.Key, ".")
	second := news()
	if second.All || !slices.Equal(second.Sealed, []string{refOf(rest)}) || len(second.Keys) != 0 {
		t.Errorf("%+v", second)
	}
	news = waiting(second.Since)
	f.must(alpha.PublishKey(ctx, KeyRequest{f.nodes["alpha"], f.sealing("alpha", "alpha")}))
	third := news()
	if third.All || len(third.Sealed) != 0 || !slices.Equal(third.Keys, []string{f.nodes["alpha"]}) {
		t.Errorf("%+v", third)
	}
	none, err := beta.Wait(ctx, WaitRequest{Node: f.nodes["beta"], Since: third.Since, Wait: 1})
	f.must(err)
	if none.All || len(none.Sealed)+len(none.Keys) != 0 {
		t.Errorf("%+v", none)
	}
	f.must(f.s.Stop())
	f.serve()
	after, err := beta.Wait(ctx, WaitRequest{Node: f.nodes["beta"], Since: third.Since, Wait: long})
	f.must(err)
	if !after.All {
		t.Errorf("%+v", after)
	}
}

// A service that stops keeps nobody waiting for news.
func TestNewsEndWithTheService(t *testing.T) {
	f := newField(t)
	beta := f.as("beta")
	first, err := beta.Wait(t.Context(), WaitRequest{Node: f.nodes["beta"]})
	f.must(err)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		_, err := beta.Wait(ctx, WaitRequest{Node: f.nodes["beta"], Since: first.Since, Wait: int(MaxLogWait / time.Millisecond)})
		ended <- err
	}()
	for len(f.s.waits) == 0 {
		time.Sleep(time.Millisecond)
	}
	f.must(f.s.Stop())
	f.code("it waited", <-ended, commands.Unreachable)
}

// All that is sealed for a node is listed in pages.
func TestSealedPages(t *testing.T) {
	f := newField(t)
	ctx, alpha := t.Context(), f.as("alpha")
	const n, size = 150, 48 << 10 // more than a page
	for i := range n {
		name := fmt.Sprintf("app-%d", i)
		f.do(commands.CreateAssignment{Module: "app", Node: "beta", Name: name})
		_, err := alpha.Seal(ctx, SealRequest{Secret: f.secret(name + "/db"),
			Value: SealedBox{Sender: f.sealing("alpha", "alpha"), Box: strings.Repeat("x", size)}})
		f.must(err)
	}
	seen, pages := map[string]bool{}, 0
	for after := ""; ; {
		page, err := f.as("beta").Sealed(ctx, SealedRequest{Node: f.nodes["beta"], After: after})
		f.must(err)
		pages++
		for _, v := range page.Values {
			if seen[v.Ref] {
				t.Errorf("%s comes twice", v.Ref)
			}
			seen[v.Ref] = true
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(seen) != n || pages < 2 {
		t.Errorf("%d in %d pages", len(seen), pages)
	}
}

// What an agent asks wrongly is refused.
func TestBadActions(t *testing.T) {
	f := newField(t)
	for _, bad := range []AgentMessage{{Do: "none"}, {Do: doLease}, {Do: doLease, Args: []byte(`{"nod":"x"}`)}, {Do: doWait, Args: []byte(`[]`)},
		{Do: doSealed, Args: []byte(`{"node":"x","more":1}`)}} {
		_, err := f.as("alpha").request(t.Context(), AgentSubject("home"), bad, silent)
		f.code(bad.Do, err, commands.Usage)
	}
	for _, h := range []LeaseHolder{{}, {Holder: "h", Tree: "t"}, {Holder: "h", Tree: "t", Host: strings.Repeat("x", maxLeaseText+1)}} {
		_, err := f.as("alpha").Lease(t.Context(), LeaseRequest{Node: f.nodes["alpha"], LeaseHolder: h})
		f.code("a holder", err, commands.Usage)
	}
	_, err := f.as("alpha").Sealed(t.Context(), SealedRequest{Node: f.nodes["alpha"], Refs: make([]string, maxRefs+1)})
	f.code("too many", err, commands.Usage)
}

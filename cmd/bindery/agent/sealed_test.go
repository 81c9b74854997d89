package agent

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"bindery/commands"
	"bindery/commands/readmodel"
	"bindery/commands/service"
	"bindery/ledger"
	"bindery/projections"
)

// toy binds a consumer on another node to the one provider there is.
var toy = map[string]string{"db": "toy"}

// twoNodes is a world with an agent on each of two nodes, which share nothing but
// the ledger and its buckets.
func twoNodes(t *testing.T) (w *world, alpha, beta *Agent, stop func()) {
	t.Helper()
	w = newWorld(t)
	w.grant("alpha")
	w.grant("beta")
	alpha, beta = w.agent(w.spec("alpha")), w.agent(w.spec("beta"))
	stopA, stopB := w.start(alpha), w.start(beta)
	return w, alpha, beta, func() { w.must(stopA()); w.must(stopB()) }
}

// A secret that is made on one node reaches a consumer on another, through its
// whole life: it is sealed anew when the consumer moves, and gone when it is over.
func TestSealedToAnotherNode(t *testing.T) {
	w, _, _, stop := twoNodes(t)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Bind: toy}, commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "shop"})
	w.eventually("both run", func() error { return w.exact("alpha", "beta") })
	w.do(commands.StartRotation{RotationTarget: commands.RotationTarget{Provider: "toy"}})
	w.eventually("their credentials are replaced", func() error { return w.exact("alpha", "beta") })
	w.do(commands.MoveAssignment{Assignment: "wiki", To: "alpha"})
	w.eventually("one has moved", func() error { return w.exact("alpha", "beta") })
	w.do(commands.MoveAssignment{Assignment: "shop", To: "beta"})
	w.eventually("the other one has moved", func() error { return w.exact("alpha", "beta") })
	if got := w.sealed(); len(got) != 2 {
		t.Errorf("there is sealed: %v", got)
	}
	w.do(commands.EndAssignment{Assignment: "shop"}, commands.EndAssignment{Assignment: "wiki"})
	w.eventually("both are over", func() error { return w.exact("alpha", "beta") })
	w.eventually("nothing is sealed", func() error {
		if got := w.sealed(); len(got) != 0 {
			return os.ErrExist
		}
		return nil
	})
	stop()
	w.sameSecretAgain()
	w.nothingLogged()
	w.nothingInTheStream()
}

// An agent whose tree is lost has another key: the secrets are sealed to that one,
// and its consumers run with the same ones as before.
func TestSealedAnew(t *testing.T) {
	w := newWorld(t)
	w.grant("alpha")
	w.grant("beta")
	w.start(w.agent(w.spec("alpha")))
	stop := w.start(w.agent(w.spec("beta")))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Bind: toy})
	w.eventually("it runs", func() error { return w.exact("beta") })
	before := w.logins()
	w.must(stop())
	w.must(os.RemoveAll(filepath.Join(w.home, "root-beta")))
	w.start(w.agent(w.spec("beta")))
	w.eventually("it runs again", func() error { return w.exact("beta") })
	for user, password := range w.logins() {
		if before[user] != password {
			t.Errorf("%s has another password", user)
		}
	}
}

// Nothing is sealed to a key that no agent of the node has signed, whatever somebody
// has put into the bucket.
func TestSealedToGrantedKeysOnly(t *testing.T) {
	curves, err := nkeys.CreateCurveKeys()
	if err != nil {
		t.Fatal(err)
	}
	curve, err := curves.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	type stored struct {
		service.SealingKey
		By string `json:"by,omitempty"`
	}
	forged := func(w *world, signer ledger.Key, nkey, by string) stored {
		sig, err := signer.Sign(service.SealingText(w.mesh.String(), w.node("beta").String(), curve))
		w.must(err)
		return stored{service.SealingKey{Curve: curve, NKey: nkey, Sig: base64.RawURLEncoding.EncodeToString(sig)}, by}
	}
	for name, forge := range map[string]func(w *world) stored{
		"a stranger's": func(w *world) stored { k := w.key(); return forged(w, k, k.Public, k.Public) },
		"another agent's": func(w *world) stored {
			k := w.keys["alpha"]
			return forged(w, k, k.Public, k.Public)
		},
		"signed by a stranger": func(w *world) stored { k := w.keys["beta"]; return forged(w, w.key(), k.Public, k.Public) },
		"stored by nobody":     func(w *world) stored { k := w.keys["beta"]; return forged(w, k, k.Public, "") },
		"stored by another":    func(w *world) stored { k := w.keys["beta"]; return forged(w, k, k.Public, w.keys["alpha"].Public) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.grant("alpha")
			w.grant("beta")
			data, err := json.Marshal(forge(w))
			w.must(err)
			w.putIn(readmodel.Sealed(testMesh), w.node("beta").String()+".key", data)
			w.start(w.agent(w.spec("alpha")))
			w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Bind: toy})
			w.eventually("it is not issued", func() error { return w.failing("node beta has no sealing key: its agent has not run yet") })
			if got := w.sealed(); len(got) != 0 {
				t.Errorf("there is sealed: %v", got)
			}
			w.start(w.agent(w.spec("beta"))) // it puts its own key there
			w.eventually("it is issued", func() error { return w.exact("beta") })
		})
	}
}

// What is sealed is opened for the slot's own credential alone, where an agent that is
// granted for the node that made it sealed and stored it.
func TestSealedForOneThing(t *testing.T) {
	w, _, beta, stop := twoNodes(t)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Bind: toy}, commands.CreateAssignment{Module: "wiki", Node: "beta", Name: "shop", Bind: toy})
	w.eventually("both run", func() error { return w.exact("beta") })
	needs := map[string]*need{}
	for _, id := range beta.docs.assignments() {
		n := beta.docs.needsOf(id)[0]
		needs[n.name] = n
	}
	wiki, shop := needs["wiki"], needs["shop"]
	stop()
	alpha := w.opener("alpha")
	beta = w.opener("beta")
	path := func(n *need) string { return strings.TrimPrefix(n.ref, "sealed:") }
	value := func(n *need) service.SealedValue {
		answer, err := beta.cfg.Ledger.Sealed(t.Context(), service.SealedRequest{Node: beta.nodeID, Refs: []string{path(n)}})
		w.must(err)
		return answer.Values[0]
	}
	ours, theirs := value(wiki), value(shop)
	if got, err := beta.open(t.Context(), wiki, path(wiki)); err != nil || got["password"] == "" {
		t.Errorf("%v", err)
	}
	stranger := w.key().Public
	var answer service.SealedValue
	bend(beta).sealed = func(s *service.SealedAnswer) { s.Values = []service.SealedValue{answer} }
	for what, c := range map[string]struct {
		change func(v *service.SealedValue)
		want   string
	}{
		"nothing":                 {func(v *service.SealedValue) {}, ""},
		"another's box":           {func(v *service.SealedValue) { v.Box = theirs.Box }, "the sealed secret is another one's"},
		"another's value":         {func(v *service.SealedValue) { *v = theirs; v.Ref = ours.Ref }, "not to the secret of the slot's own credential"},
		"no such credential":      {func(v *service.SealedValue) { v.Tag = "" }, "not to the secret of the slot's own credential"},
		"another tag":             {func(v *service.SealedValue) { v.Tag = "00000000" }, "not to the secret of the slot's own credential"},
		"another maker":           {func(v *service.SealedValue) { v.Node = beta.nodeID }, "not to the secret of the slot's own credential"},
		"stored by another":       {func(v *service.SealedValue) { v.By = w.keys["beta"].Public }, "was stored by another agent"},
		"stored by nobody":        {func(v *service.SealedValue) { v.By = "" }, "was stored by another agent"},
		"a key that was revoked":  {func(v *service.SealedValue) { v.Keys = nil }, "a key that is not granted"},
		"sealed by a stranger":    {func(v *service.SealedValue) { v.Sender.NKey, v.By = stranger, stranger }, "a key that is not granted"},
		"a stranger is granted":   {func(v *service.SealedValue) { v.Sender.NKey, v.By, v.Keys = stranger, stranger, []string{stranger} }, "its signature is wrong"},
		"another one's signature": {func(v *service.SealedValue) { v.Sender.Curve = beta.own.Curve }, "its signature is wrong"},
	} {
		answer = ours
		c.change(&answer)
		got, err := beta.open(t.Context(), wiki, path(wiki))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, %v", what, len(got), err)
		}
	}
	answer = theirs // it is sound, and another consumer's
	if got, err := beta.open(t.Context(), wiki, path(shop)); err == nil {
		t.Errorf("it opens: %d entries", len(got))
	}
	later := *wiki
	later.generation++
	answer = ours
	if got, err := beta.open(t.Context(), &later, path(wiki)); err == nil {
		t.Errorf("that of another generation opens: %d entries", len(got))
	}
	bend(alpha).sealed = func(s *service.SealedAnswer) { s.Values = []service.SealedValue{ours} }
	if got, err := alpha.open(t.Context(), wiki, path(wiki)); err == nil {
		t.Errorf("another's agent opens it: %d entries", len(got))
	}
}

// opener is the agent of a node, with its key, which does not run.
func (w *world) opener(node string) *Agent {
	w.t.Helper()
	a := w.agent(w.spec(node))
	w.t.Cleanup(a.hangUp)
	tree, err := openTree(a.cfg.Root, -1)
	w.must(err)
	w.t.Cleanup(tree.close)
	a.tree = tree
	w.must(a.ownKey())
	return a
}

// A consumer that is told to use the sealed secret of another one says why it does not.
func TestReferenceOfAnother(t *testing.T) {
	w := newWorld(t)
	w.grant("alpha")
	w.grant("beta")
	beta := w.agent(w.spec("beta"))
	w.start(w.agent(w.spec("alpha")))
	first := w.start(beta)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Bind: toy})
	w.eventually("it runs", func() error { return w.exact("beta") })
	w.must(first())
	var ref string
	w.h.View(func(s *projections.State) { ref = s.ListBindings(projections.BindingFilter{}).Items[0].Use.SecretRef })

	// The ledger does not take it.
	w.must(os.WriteFile(filepath.Join(w.home, "broken"), nil, 0o600))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Name: "shop", Bind: toy})
	var asked projections.CredentialView
	w.h.View(func(s *projections.State) {
		asked = s.ListCredentials(projections.CredentialFilter{State: "asked"}).Items[0]
	})
	alpha := w.agent(w.spec("alpha"))
	defer alpha.hangUp()
	err := alpha.cfg.Ledger.Do(t.Context(), commands.IssueCredential{Slot: "shop/db", Generation: asked.Generation, SecretRef: ref}, "")
	var r *commands.Refusal
	if !errors.As(err, &r) || r.Code != commands.SecretRefForeign {
		t.Fatalf("%v", err)
	}
	w.must(os.Remove(filepath.Join(w.home, "broken")))

	// One that was recorded in spite of that is not opened.
	beta = w.agent(w.spec("beta"))
	bend(beta).documents = func(d *service.Documents) {
		for _, k := range d.Bindings {
			if k.Document != nil && k.Document.Assignment == "shop" && k.Document.Use.SecretRef != "" {
				k.Document.Use.SecretRef = ref
			}
		}
	}
	w.start(beta)
	w.eventually("it says why", func() (err error) {
		w.h.View(func(s *projections.State) {
			for _, v := range s.ListBindings(projections.BindingFilter{}).Items {
				if v.Assignment == "shop" && v.Error != "the reference is to the sealed secret of another binding, and is not opened" {
					err = fmt.Errorf("%+v", v)
				}
			}
		})
		return err
	})
	if _, err := os.Stat(filepath.Join(w.home, "root-beta", "bindings", "by-name", "shop")); err == nil {
		t.Error("it has files")
	}
	w.nothingLogged()
}

// A file: reference of an agent to the secret of another binding is not read, either.
func TestFileOfAnother(t *testing.T) {
	w := newWorld(t)
	a := w.agent(w.spec("alpha"))
	w.start(a)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "alpha"})
	w.eventually("it runs", func() error { return w.exact("alpha") })
	n := a.docs.needsOf(a.docs.assignments()[0])[0]
	if _, err := a.resolve(t.Context(), n); err != nil {
		t.Errorf("%v", err)
	}
	other := *n
	other.binding = newID().String()
	if _, err := a.resolve(t.Context(), &other); err == nil || !strings.Contains(err.Error(), "another binding") {
		t.Errorf("%v", err)
	}
}

// putIn puts a value under a key of a bucket, past the service; none deletes it.
func (w *world) putIn(bucket, key string, value []byte) {
	w.t.Helper()
	nc, err := w.srv.Connect()
	w.must(err)
	defer nc.Close()
	m := &nats.Msg{Subject: "$KV." + bucket + "." + key, Data: value}
	if len(value) == 0 {
		m.Header = nats.Header{"KV-Operation": {"DEL"}}
	}
	w.eventually("the bucket takes it", func() error {
		_, err := nc.RequestMsg(m, patience)
		return err
	})
}

// jetstream is a connection to the server; the caller closes it.
func (w *world) jetstream() jetstream.JetStream {
	w.t.Helper()
	nc, err := w.srv.Connect()
	w.must(err)
	js, err := jetstream.New(nc)
	w.must(err)
	return js
}

// sealed are the keys of all sealed secrets.
func (w *world) sealed() (out []string) {
	w.t.Helper()
	js := w.jetstream()
	defer js.Conn().Close()
	kv, err := js.KeyValue(w.t.Context(), readmodel.Sealed(testMesh))
	w.must(err)
	keys, err := kv.ListKeys(w.t.Context())
	w.must(err)
	for k := range keys.Keys() {
		if !strings.HasSuffix(k, ".key") {
			out = append(out, k)
		}
	}
	return out
}

// nothingInTheStream checks that no password is in any stream of the server: in the
// ledger or in a bucket.
func (w *world) nothingInTheStream() {
	w.t.Helper()
	js := w.jetstream()
	defer js.Conn().Close()
	n := 0
	for name := range js.StreamNames(w.t.Context()).Name() {
		c, err := js.OrderedConsumer(w.t.Context(), name, jetstream.OrderedConsumerConfig{})
		w.must(err)
		info, err := c.Info(w.t.Context())
		w.must(err)
		for range info.NumPending {
			m, err := c.Next()
			w.must(err)
			n++
			for _, in := range w.runs() {
				if in.Password != "" && strings.Contains(string(m.Data())+nats.Header(m.Headers()).Get("ce-reason"), in.Password) {
					w.t.Errorf("%s has a password", m.Subject())
				}
			}
		}
	}
	if n == 0 {
		w.t.Error("no stream was read")
	}
}

// A bucket of sealed secrets that is lost, as with a restore of the ledger, is filled
// again by whoever has made them, and consumers that have lost their files have them
// again.
func TestSealedBucketIsLost(t *testing.T) {
	for name, running := range map[string]bool{"while they run": true, "while they do not": false} {
		t.Run(name, func(t *testing.T) {
			w, _, _, stop := twoNodes(t)
			w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Bind: toy}, commands.CreateAssignment{Module: "wiki", Node: "alpha", Name: "shop"})
			w.eventually("both run", func() error { return w.exact("alpha", "beta") })
			before := w.sealed()
			if !running {
				stop()
				for _, node := range []string{"alpha", "beta"} {
					w.must(os.RemoveAll(filepath.Join(w.home, "root-"+node, "bindings")))
				}
			}
			w.purge()
			w.otherService() // it does not know what there was
			if !running {
				w.start(w.agent(w.spec("alpha")))
				w.start(w.agent(w.spec("beta")))
			}
			w.eventually("they are there again", func() error {
				if got := w.sealed(); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(before))) {
					return fmt.Errorf("there is sealed: %v, not %v", got, before)
				}
				return w.exact("alpha", "beta")
			})
		})
	}
}

// purge deletes all keys of the bucket of sealed secrets, without a trace.
func (w *world) purge() {
	w.t.Helper()
	js := w.jetstream()
	defer js.Conn().Close()
	s, err := js.Stream(w.t.Context(), "KV_"+readmodel.Sealed(testMesh))
	w.must(err)
	w.must(s.Purge(w.t.Context()))
}

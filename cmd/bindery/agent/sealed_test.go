package agent

import (
	"encoding/base64"
	"encoding/json"
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

// Nothing is sealed to a key that no agent of the node has signed.
func TestSealedToGrantedKeysOnly(t *testing.T) {
	w := newWorld(t)
	w.grant("alpha")
	pair, err := nkeys.CreateCurveKeys()
	w.must(err)
	curve, err := pair.PublicKey()
	w.must(err)
	thief, err := nkeys.CreateUser()
	w.must(err)
	public, err := thief.PublicKey()
	w.must(err)
	beta := w.node("beta").String()
	sig, err := thief.Sign(sealingText(w.mesh.String(), beta, curve))
	w.must(err)
	put := func(k sealingKey) {
		data, err := json.Marshal(k)
		w.must(err)
		w.put(beta+".key", data)
	}
	put(sealingKey{Curve: curve, NKey: public, Sig: base64.RawURLEncoding.EncodeToString(sig)})
	w.start(w.agent(w.spec("alpha")))
	w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Bind: toy})
	w.eventually("it is not issued", func() error {
		return w.failing("the sealing key of node beta is not signed by an agent that is granted for it")
	})
	w.grant("beta")
	granted, err := nkeys.FromSeed([]byte(w.seeds["beta"]))
	w.must(err)
	public, err = granted.PublicKey()
	w.must(err)
	put(sealingKey{Curve: curve, NKey: public, Sig: base64.RawURLEncoding.EncodeToString(sig)}) // of the thief
	w.eventually("it is not issued", func() error { return w.failing("the sealing key of node beta: its signature is wrong") })
	if got := w.sealed(); len(got) != 0 {
		t.Errorf("there is sealed: %v", got)
	}
	w.start(w.agent(w.spec("beta"))) // it puts its own key there
	w.eventually("it is issued", func() error { return w.exact("beta") })
}

// What is sealed for one thing does not open for another, and not with another's
// key.
func TestSealedForOneThing(t *testing.T) {
	w, alpha, beta, _ := twoNodes(t)
	w.do(commands.CreateAssignment{Module: "wiki", Node: "beta", Bind: toy}, commands.CreateAssignment{Module: "wiki", Node: "beta", Name: "shop", Bind: toy})
	w.eventually("both run", func() error { return w.exact("beta") })
	beta.docs.mu.Lock()
	var refs []string
	for suffix := range beta.docs.sealed {
		refs = append(refs, strings.ReplaceAll(suffix, ".", "/"))
	}
	one, two := strings.ReplaceAll(refs[0], "/", "."), strings.ReplaceAll(refs[1], "/", ".")
	stolen := beta.docs.sealed[one]
	beta.docs.sealed[one] = beta.docs.sealed[two]
	beta.docs.mu.Unlock()
	if got, err := beta.open(refs[0]); err == nil {
		t.Errorf("it opens: %v", got)
	}
	if got, err := beta.open(refs[1]); err != nil || got["password"] == "" {
		t.Errorf("%v", err)
	}
	alpha.docs.mu.Lock()
	alpha.docs.sealed[one] = stolen
	alpha.docs.mu.Unlock()
	if got, err := alpha.open(refs[0]); err == nil {
		t.Errorf("another's agent opens it: %v", got)
	}
}

func (w *world) put(key string, value []byte) {
	w.t.Helper()
	nc, err := w.srv.Connect()
	w.must(err)
	defer nc.Close()
	w.eventually("the bucket takes it", func() error {
		_, err := nc.Request("$KV."+readmodel.Sealed(testMesh)+"."+key, value, patience)
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
			w, alpha, beta, stop := twoNodes(t)
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
			if running { // a watch that begins anew tells what is gone
				alpha.sawKey(entry{key: alpha.nodeID + ".key"})
				beta.sawKey(entry{key: beta.nodeID + ".key"})
			} else {
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

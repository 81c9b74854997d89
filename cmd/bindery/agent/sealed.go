package agent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/nats-io/nuid"

	"bindery/commands/readmodel"
	"bindery/projections"
)

// A secret that is made on one node and used on another goes through a bucket,
// sealed (X25519, XSalsa20, Poly1305: the box of NaCl) to a key that only the
// consumer's agent has. That key is made by the agent, stays in its tree, and its
// public half lies in the bucket, signed with the nkey that the node's agent was
// granted: so whoever may write the bucket cannot put another in its place.

// curveFile keeps the seed.
const curveFile = "curve.nk"

// sealingKey is what lies under <node id>.key.
type sealingKey struct {
	Curve string `json:"curve"` // public curve key, X…
	NKey  string `json:"nkey"`  // public key of the granted agent, U…
	Sig   string `json:"sig"`   // Ed25519 over sealingText, base64url without padding
}

// sealingText is what is signed.
func sealingText(meshID, nodeID, curve string) []byte {
	return []byte(strings.Join([]string{"bindery sealing key 1", meshID, nodeID, curve}, "\n"))
}

// verify reports whether the key was signed, for a node of a mesh, with NKey.
func (k *sealingKey) verify(meshID, nodeID string) error {
	sig, err := base64.RawURLEncoding.DecodeString(k.Sig)
	if err != nil || !nkeys.IsValidPublicCurveKey(k.Curve) || !nkeys.IsValidPublicUserKey(k.NKey) {
		return errors.New("it is malformed")
	}
	pub, err := nkeys.FromPublicKey(k.NKey)
	if err != nil {
		return errors.New("it is malformed")
	}
	if pub.Verify(sealingText(meshID, nodeID, k.Curve), sig) != nil {
		return errors.New("its signature is wrong")
	}
	return nil
}

// sealedValue is what lies under <consumer's node id>.<binding id>.<generation>-<tag>-<maker>.
type sealedValue struct {
	Node   string     `json:"node"`   // id of the node whose agent sealed it
	Sender sealingKey `json:"sender"` // its key
	Box    string     `json:"box"`    // base64
}

// boxed is what is in the box: the secret, and what it is for, so that one box
// cannot stand for another.
type boxed struct {
	For    string            `json:"for"` // the key it lies under
	Secret map[string]string `json:"secret"`
}

// sealedTo is to whom a copy was sealed last.
type sealedTo struct {
	Node  string `json:"node"` // id
	Curve string `json:"curve"`
	Seals string `json:"seals"` // the bucket's, as far as this agent can tell (see place)
}

// ownKey reads the agent's curve key, or makes it, and signs it.
func (a *Agent) ownKey() error {
	seed, err := a.tree.read(curveFile, 1024)
	if err != nil {
		return err
	}
	var pair nkeys.KeyPair
	if seed == nil {
		if pair, err = nkeys.CreateCurveKeys(); err != nil {
			return err
		}
		if seed, err = pair.Seed(); err == nil {
			err = a.tree.durably(curveFile, append(seed, '\n'))
		}
	} else {
		pair, err = nkeys.FromCurveSeed(bytes.TrimSpace(seed))
	}
	if err != nil {
		return fmt.Errorf("the agent's sealing key in %s: %w", curveFile, err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return err
	}
	sig, err := a.cfg.Key.Sign(sealingText(a.cfg.MeshID.String(), a.nodeID, public))
	if err != nil {
		return err
	}
	a.curve = pair
	a.own = sealingKey{Curve: public, NKey: a.cfg.Key.Public, Sig: base64.RawURLEncoding.EncodeToString(sig)}
	return nil
}

// put writes an entry of the bucket of sealed secrets, or deletes it where value
// is nil, and returns when the server has it.
func (a *Agent) put(ctx context.Context, key string, value []byte) error {
	m := &nats.Msg{Subject: "$KV." + readmodel.Sealed(a.cfg.Mesh) + "." + key, Data: value}
	if value == nil {
		m.Header = nats.Header{jetstreamOperation: {operationDelete}}
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	_, err := a.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	return err
}

// publishKey puts the agent's key into the bucket, where another or none lies there.
// Then the bucket may have been lost, which no backup of the ledger brings back: first
// it is noted that all that this agent has sealed must be sealed again.
func (a *Agent) publishKey(ctx context.Context) error {
	if err := a.sealAnew(); err != nil {
		return err
	}
	value, err := json.Marshal(a.own)
	if err != nil {
		return err
	}
	return a.put(ctx, a.nodeID+".key", value)
}

// sealAnew has all be sealed again that this agent has sealed.
func (a *Agent) sealAnew() error {
	a.curs.Lock()
	now := a.place
	now.Seals = nuid.Next()
	err := a.tree.writeRecord(placeFile, &now)
	if err == nil {
		a.place, a.kept = now, now
	}
	a.curs.Unlock()
	if err == nil && a.ready.Load() {
		err = a.touchAll()
	}
	return err
}

// seal seals a secret to the agent of the consumer's node.
func (a *Agent) seal(ctx context.Context, d *projections.HolderDocument, r *credentialRecord) error {
	to, err := a.keyOf(d)
	if err != nil {
		return err
	}
	suffix := r.sealedUnder()
	key := to.Node + "." + suffix
	data, err := json.Marshal(boxed{For: key, Secret: r.Secret})
	if err != nil {
		return err
	}
	box, err := a.curve.Seal(data, to.Curve)
	if err != nil {
		return fmt.Errorf("sealing to the agent of %s: %w", d.ConsumerNode, err)
	}
	value, err := json.Marshal(sealedValue{Node: a.nodeID, Sender: a.own, Box: base64.StdEncoding.EncodeToString(box)})
	if err != nil {
		return err
	}
	if err := a.put(ctx, key, value); err != nil {
		return fmt.Errorf("storing the sealed secret: %w", err)
	}
	if r.Sealed != nil && r.Sealed.Node != to.Node { // the consumer has moved
		if err := a.put(ctx, r.Sealed.Node+"."+suffix, nil); err != nil {
			return fmt.Errorf("removing the sealed secret from where it was: %w", err)
		}
	}
	r.Sealed = to
	return nil
}

// keyOf is the key to seal to: signed by an agent that is granted for the
// consumer's node now.
func (a *Agent) keyOf(d *projections.HolderDocument) (*sealedTo, error) {
	if a.curve == nil {
		return nil, errors.New("this agent has no key of its own, and so can seal nothing")
	}
	node := d.ConsumerNodeID.String()
	a.docs.mu.Lock()
	k, ok := a.docs.keys[node]
	a.docs.mu.Unlock()
	switch {
	case !ok:
		return nil, fmt.Errorf("node %s has no sealing key: its agent has not run yet", d.ConsumerNode)
	case !slices.Contains(d.ConsumerKeys, k.NKey):
		return nil, fmt.Errorf("the sealing key of node %s is not signed by an agent that is granted for it", d.ConsumerNode)
	}
	if err := k.verify(a.cfg.MeshID.String(), node); err != nil {
		return nil, fmt.Errorf("the sealing key of node %s: %w", d.ConsumerNode, err)
	}
	a.curs.Lock()
	defer a.curs.Unlock()
	return &sealedTo{Node: node, Curve: k.Curve, Seals: a.place.Seals}, nil
}

// sealedUnder is the key of a sealed secret, after the consumer's node.
func (r *credentialRecord) sealedUnder() string {
	binding, name := r.secretOf()
	return binding + "." + name
}

// unseal removes what was sealed.
func (a *Agent) unseal(ctx context.Context, r *credentialRecord) error {
	if err := a.put(ctx, r.Sealed.Node+"."+r.sealedUnder(), nil); err != nil {
		return fmt.Errorf("removing the sealed secret: %w", err)
	}
	return nil
}

// errNotArrived says that a secret is not there to be opened; the document that
// refers to it may have come first.
var errNotArrived = errors.New("no secret that is sealed to this node's key has arrived")

// open opens what was sealed to this agent under a reference, <binding
// id>/<generation>-<tag>-<maker>.
func (a *Agent) open(ref string) (map[string]string, error) {
	if a.curve == nil {
		return nil, errors.New("the secret is sealed to a node's agent, and this one has no key of its own")
	}
	suffix := strings.ReplaceAll(ref, "/", ".")
	a.docs.mu.Lock()
	data := a.docs.sealed[suffix]
	a.docs.mu.Unlock()
	if data == nil {
		return nil, errNotArrived
	}
	var v sealedValue
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, errors.New("the sealed secret is malformed")
	}
	if err := v.Sender.verify(a.cfg.MeshID.String(), v.Node); err != nil {
		return nil, fmt.Errorf("the key that the secret is sealed with: %w", err)
	}
	box, err := base64.StdEncoding.DecodeString(v.Box)
	if err != nil {
		return nil, errors.New("the sealed secret is malformed")
	}
	plain, err := a.curve.Open(box, v.Sender.Curve)
	if err != nil {
		return nil, errNotArrived // its sender has sealed it to another key, and will see this one
	}
	var b boxed
	if err := json.Unmarshal(plain, &b); err != nil || b.For != a.nodeID+"."+suffix {
		return nil, errors.New("the sealed secret is another one's")
	}
	a.log.Debug("opened a sealed secret", "ref", schemeSealed+":"+ref, "node", v.Node, "nkey", v.Sender.NKey)
	if b.Secret == nil {
		return nil, errors.New("the sealed secret is empty")
	}
	return b.Secret, checkSecret(b.Secret)
}

// sawSealed takes what the watch of this node's sealed secrets tells.
func (a *Agent) sawSealed(e entry) {
	suffix, ok := strings.CutPrefix(e.key, a.nodeID+".")
	if !ok || suffix == "key" {
		return
	}
	a.docs.mu.Lock()
	if e.value == nil {
		delete(a.docs.sealed, suffix)
	} else {
		a.docs.sealed[suffix] = bytes.Clone(e.value)
	}
	a.docs.mu.Unlock()
	if e.value == nil || !a.ready.Load() {
		return
	}
	binding, name, _ := strings.Cut(suffix, ".")
	for _, id := range a.docs.whoUses(reference(schemeSealed, binding, name)) {
		a.queue.touch(consumerKey+id, true)
	}
}

// sawKey takes what the watch of all nodes' sealing keys tells.
func (a *Agent) sawKey(e entry) {
	node, ok := strings.CutSuffix(e.key, ".key")
	if !ok {
		return
	}
	var k sealingKey
	a.docs.mu.Lock()
	before := a.docs.keys[node]
	if e.value == nil || json.Unmarshal(e.value, &k) != nil {
		delete(a.docs.keys, node)
	} else {
		a.docs.keys[node] = k
	}
	a.docs.mu.Unlock()
	if k == before || !a.ready.Load() {
		return
	}
	for _, group := range a.docs.groupsFor(node) {
		a.queue.touch(providerKey+group, true)
	}
	if node == a.nodeID && k != a.own {
		a.queue.touch(ownKeyKey, true) // somebody else wrote it, or deleted it
	}
}

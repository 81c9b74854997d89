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

	"github.com/nats-io/nkeys"
	"github.com/nats-io/nuid"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/projections"
)

// A secret that is made on one node and used on another goes through the ledger's
// writer, sealed (X25519, XSalsa20, Poly1305: the box of NaCl) to a key that only the
// consumer's agent has. That key is made by the agent, stays in its tree, and its
// public half is published, signed with the nkey that the node's agent was granted: so
// whoever keeps it cannot put another in its place.

// curveFile keeps the seed.
const curveFile = "curve.nk"

// boxed is what is in the box: the secret, and what it is for, so that one box
// cannot stand for another.
type boxed struct {
	For    string            `json:"for"` // the key it lies under: <consumer's node id>.<binding id>.<generation>-<tag>-<maker>
	Secret map[string]string `json:"secret"`
}

// sealedTo is to whom a copy was sealed last.
type sealedTo struct {
	Node  string `json:"node"` // id
	Curve string `json:"curve"`
	Seals string `json:"seals"` // of what was kept then, as far as this agent can tell (see place)
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
	sig, err := a.cfg.Key.Sign(service.SealingText(a.cfg.MeshID.String(), a.nodeID, public))
	if err != nil {
		return err
	}
	a.curve = pair
	a.own = service.SealingKey{Curve: public, NKey: a.cfg.Key.Public, Sig: base64.RawURLEncoding.EncodeToString(sig)}
	return nil
}

// seeToKey publishes the agent's key, where another or none is published. Then what was
// sealed may have been lost, which no backup of the ledger brings back: first it is
// noted that all that this agent has sealed must be sealed again.
func (a *Agent) seeToKey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := a.cfg.Ledger.Keys(ctx, service.KeysRequest{Nodes: []string{a.nodeID}})
	if err != nil {
		return a.refused(err)
	}
	if answer.Keys[a.nodeID] == a.own {
		return nil
	}
	if err := a.sealAnew(); err != nil {
		return err
	}
	return a.refused(a.cfg.Ledger.PublishKey(ctx, service.KeyRequest{Node: a.nodeID, SealingKey: a.own}))
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
		err = a.touchAll(false)
	}
	return err
}

// refused tells what the error of a request about sealed secrets says: that nobody
// answered, that the ledger has gone on, or that it is not permitted.
func (a *Agent) refused(err error) error {
	var r *commands.Refusal
	if err == nil || !errors.As(err, &r) {
		return err
	}
	switch {
	case r.Code == commands.LedgerRestored:
		a.stop(a.restored(r))
		return errors.Join(errNotSaid, err)
	case r.Code == commands.Unreachable, r.Code == commands.OutcomeUnknown, r.Code == commands.Interrupted:
		return errors.Join(errNotSaid, err)
	case r.Code == commands.ProviderMoved:
		return errMoved
	case isMoot(r.Code):
		return errMoot
	}
	return err
}

// seal seals a secret to the agent of the consumer's node.
func (a *Agent) seal(ctx context.Context, d *projections.HolderDocument, r *credentialRecord) error {
	to, err := a.keyOf(ctx, d)
	if err != nil {
		return err
	}
	key := to.Node + "." + r.sealedUnder()
	data, err := json.Marshal(boxed{For: key, Secret: r.Secret})
	if err != nil {
		return err
	}
	box, err := a.curve.Seal(data, to.Curve)
	if err != nil {
		return fmt.Errorf("sealing to the agent of %s: %w", d.ConsumerNode, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stored, err := a.cfg.Ledger.Seal(ctx, service.SealRequest{Secret: r.secret(),
		Value: service.SealedBox{Sender: a.own, Box: base64.StdEncoding.EncodeToString(box)}})
	if err != nil {
		return fmt.Errorf("storing the sealed secret: %w", a.refused(err))
	}
	if stored.Key != key {
		return fmt.Errorf("%w: the consumer is on another node than %s", errIncomplete, d.ConsumerNode)
	}
	if r.Sealed != nil && r.Sealed.Node != to.Node { // the consumer has moved
		if err := a.unseal(ctx, r); err != nil {
			return err
		}
	}
	r.Sealed = to
	return nil
}

// keyOf is the key to seal to: signed by an agent that is granted for the
// consumer's node now.
func (a *Agent) keyOf(ctx context.Context, d *projections.HolderDocument) (*sealedTo, error) {
	if a.curve == nil {
		return nil, errors.New("this agent has no key of its own, and so can seal nothing")
	}
	node := d.ConsumerNodeID.String()
	k, ok, renewed := a.docs.keyOf(node)
	if !ok || !slices.Contains(d.ConsumerKeys, k.NKey) { // the node's agent may have got another key
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		answer, err := a.cfg.Ledger.Keys(ctx, service.KeysRequest{Nodes: []string{node}})
		if err != nil {
			return nil, a.refused(err)
		}
		if k, ok = answer.Keys[node]; !ok {
			return nil, fmt.Errorf("node %s has no sealing key: its agent has not run yet", d.ConsumerNode)
		}
		a.docs.putKey(node, k, renewed)
	}
	if !slices.Contains(d.ConsumerKeys, k.NKey) {
		return nil, fmt.Errorf("the sealing key of node %s is not signed by an agent that is granted for it", d.ConsumerNode)
	}
	if err := k.Verify(a.cfg.MeshID.String(), node); err != nil {
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

// secret names the secret of a record.
func (r *credentialRecord) secret() commands.Secret {
	return commands.Secret{Binding: r.Input.Binding, Generation: r.Input.Generation, Tag: r.Input.Tag, Own: strings.HasSuffix(r.Ref, ownName)}
}

// unseal removes what was sealed.
func (a *Agent) unseal(ctx context.Context, r *credentialRecord) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := a.cfg.Ledger.Unseal(ctx, service.UnsealRequest{Secret: r.secret(), Node: r.Sealed.Node}); err != nil {
		return fmt.Errorf("removing the sealed secret: %w", a.refused(err))
	}
	return nil
}

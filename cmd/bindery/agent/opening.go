package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
)

// errNotArrived says that a secret is not there to be opened; the document that
// refers to it may have come first.
var errNotArrived = errors.New("no secret that is sealed to this node's key has arrived")

// open opens the sealed secret of a consumer's slot. It is opened only where its
// reference names the slot's own credential, and where an agent that may issue that has
// sealed it: whoever can have another reference recorded, or another value stored, has
// no consumer log in with it.
func (a *Agent) open(ctx context.Context, n *need, path string) (map[string]string, error) {
	if a.curve == nil {
		return nil, errors.New("the secret is sealed to a node's agent, and this one has no key of its own")
	}
	if err := n.owns(path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := a.cfg.Ledger.Sealed(ctx, service.SealedRequest{Node: a.nodeID, Refs: []string{path}})
	if err != nil {
		return nil, a.refused(err)
	}
	i := slices.IndexFunc(answer.Values, func(v service.SealedValue) bool { return v.Ref == path })
	if i < 0 {
		return nil, errNotArrived
	}
	v := &answer.Values[i]
	if err := a.isMakers(n, path, v); err != nil {
		return nil, err
	}
	secret, err := a.unbox(v, a.nodeID+"."+strings.ReplaceAll(path, "/", "."))
	if err == nil {
		a.log.Debug("opened a sealed secret", "ref", schemeSealed+":"+path, "node", v.Node, "nkey", v.By)
	}
	return secret, err
}

// owns reports whether the path of a reference begins with the binding and the
// generation of the slot's own credential.
func (n *need) owns(path string) error {
	binding, name, _ := strings.Cut(path, "/")
	generation, _, _ := strings.Cut(name, "-")
	switch {
	case binding != n.binding:
		return errors.New("the reference is to the sealed secret of another binding, and is not opened")
	case generation != strconv.FormatUint(n.generation, 10):
		return errors.New("the reference is to the sealed secret of another generation, and is not opened")
	}
	return nil
}

// isMakers holds a value against its reference, and against what the ledger says of
// the credential and its maker.
func (a *Agent) isMakers(n *need, path string, v *service.SealedValue) error {
	binding, err := events.ParseID(n.binding)
	if err != nil {
		return err
	}
	maker, err := events.ParseID(v.Node)
	if err != nil {
		return errors.New("the sealed secret is malformed")
	}
	name := commands.SealedName{Binding: binding, Generation: n.generation, Tag: v.Tag, Maker: maker, Own: strings.HasSuffix(path, ownName)}
	switch {
	case name.Path() != path:
		return errors.New("the reference is not to the secret of the slot's own credential, and is not opened")
	case v.Sender.NKey != v.By:
		return errors.New("the sealed secret was stored by another agent than the one that sealed it")
	case !slices.Contains(v.Keys, v.By):
		return errors.New("the sealed secret is of a key that is not granted for the node that made it any more")
	}
	if err := v.Sender.Verify(a.cfg.MeshID.String(), v.Node); err != nil {
		return fmt.Errorf("the key that the secret is sealed with: %w", err)
	}
	return nil
}

// unbox opens a box that lies under a key.
func (a *Agent) unbox(v *service.SealedValue, key string) (map[string]string, error) {
	box, err := base64.StdEncoding.DecodeString(v.Box)
	if err != nil {
		return nil, errors.New("the sealed secret is malformed")
	}
	plain, err := a.curve.Open(box, v.Sender.Curve)
	if err != nil {
		return nil, errNotArrived // its sender has sealed it to another key, and will see this one
	}
	var b boxed
	if err := json.Unmarshal(plain, &b); err != nil || b.For != key {
		return nil, errors.New("the sealed secret is another one's")
	}
	if b.Secret == nil {
		return nil, errors.New("the sealed secret is empty")
	}
	return b.Secret, checkSecret(b.Secret)
}

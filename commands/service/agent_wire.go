package service

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"bindery/commands"
)

// What an agent does beside commands and queries goes to a subject of its own: it
// leases its node, publishes the key that secrets for it are sealed to, and puts and
// fetches sealed secrets. The writer keeps them; an agent has no right to write or
// read a stream.

// AgentSubject is where the actions of a mesh's agents go.
func AgentSubject(mesh string) string { return SubjectRoot + "." + mesh + ".agent" }

// The actions.
const (
	doLease   = "lease"
	doRelease = "release"
	doKey     = "key"
	doSeal    = "seal"
	doUnseal  = "unseal"
	doSealed  = "sealed"
	doKeys    = "keys"
	doWait    = "wait"
)

// AgentMessage is an action on the wire.
type AgentMessage struct {
	Do   string          `json:"do"`
	Args json.RawMessage `json:"args,omitempty"`
}

// LeaseHolder says which process acts for a node.
type LeaseHolder struct {
	Holder string    `json:"holder"` // of one run of an agent
	Tree   string    `json:"tree"`   // whose lock it has
	Host   string    `json:"host"`
	PID    int       `json:"pid"`
	Since  time.Time `json:"since"`
}

// LeaseRequest acquires the lease of a node, renews it, or gives it up.
type LeaseRequest struct {
	Node string `json:"node"` // id
	LeaseHolder
	// Renew says that the holder has had the lease: it takes it over from nobody, also
	// not from the next one of its own tree.
	Renew bool `json:"renew,omitempty"`
}

// LeaseAnswer says who holds a lease.
type LeaseAnswer struct {
	Held bool `json:"held"` // by the holder that asked
	// By is who else holds it; without a holder where that is not known.
	By LeaseHolder `json:"by,omitzero"`
	// For is how long it is held unless it is renewed, in milliseconds.
	For int `json:"for,omitempty"`
}

// SealingKey is the key that secrets for a node are sealed to, signed by the node's
// agent.
type SealingKey struct {
	Curve string `json:"curve"` // public curve key, X…
	NKey  string `json:"nkey"`  // public key of the granted agent, U…
	Sig   string `json:"sig"`   // Ed25519 over SealingText, base64url without padding
}

// SealingText is what is signed.
func SealingText(meshID, nodeID, curve string) []byte {
	return []byte(strings.Join([]string{"bindery sealing key 1", meshID, nodeID, curve}, "\n"))
}

// Verify reports whether the key was signed, for a node of a mesh, with NKey.
func (k *SealingKey) Verify(meshID, nodeID string) error {
	sig, err := base64.RawURLEncoding.DecodeString(k.Sig)
	if err != nil || !nkeys.IsValidPublicCurveKey(k.Curve) || !nkeys.IsValidPublicUserKey(k.NKey) {
		return errors.New("it is malformed")
	}
	pub, err := nkeys.FromPublicKey(k.NKey)
	if err != nil {
		return errors.New("it is malformed")
	}
	if pub.Verify(SealingText(meshID, nodeID, k.Curve), sig) != nil {
		return errors.New("its signature is wrong")
	}
	return nil
}

// KeyRequest publishes the sealing key of a node.
type KeyRequest struct {
	Node string `json:"node"` // id
	SealingKey
}

// SealedBox is a secret, sealed, and the key that opens it beside the recipient's.
type SealedBox struct {
	Sender SealingKey `json:"sender"`
	Box    string     `json:"box"` // base64
}

// SealRequest stores a sealed secret for the consumer of its binding.
type SealRequest struct {
	commands.Secret
	Value SealedBox `json:"value"`
	// Maker is the id of the node that made it, where whoever reads the store's files
	// asks: a granted key is that of its node.
	Maker string `json:"maker,omitempty"`
}

// SealAnswer says under which key the secret is stored.
type SealAnswer struct {
	Key string `json:"key"`
}

// UnsealRequest removes a sealed secret.
type UnsealRequest struct {
	commands.Secret
	Node  string `json:"node"` // id of the node that it was sealed for
	Maker string `json:"maker,omitempty"`
}

// SealedRequest fetches the secrets that are sealed for a node.
type SealedRequest struct {
	Node string `json:"node"` // id
	// Refs are the paths of the references; empty: all, from After on.
	Refs  []string `json:"refs,omitempty"`
	After string   `json:"after,omitempty"`
}

// SealedAnswer has those that are there.
type SealedAnswer struct {
	Values []SealedValue `json:"values"`
	Next   string        `json:"next,omitempty"` // After of the next request; empty at the end
}

// SealedValue is a sealed secret, and what the ledger says of it now.
type SealedValue struct {
	Ref  string `json:"ref"`  // path of its reference
	Node string `json:"node"` // id of the node whose agent made it
	SealedBox
	By   string   `json:"by"`   // the key that asked to store it
	Keys []string `json:"keys"` // keys of the agents that are granted for Node, sorted
	Tag  string   `json:"tag"`  // of the credential that Ref names; empty: there is none
}

// KeysRequest fetches the sealing keys of nodes.
type KeysRequest struct {
	Nodes []string `json:"nodes"` // ids
}

// KeysAnswer has those that a key signed that is granted for the node now.
type KeysAnswer struct {
	Keys map[string]SealingKey `json:"keys"` // by node id
}

// WaitRequest waits until there is something new for an agent.
type WaitRequest struct {
	Node  string `json:"node"`            // id
	Since string `json:"since,omitempty"` // of the answer before; empty: of now
	Wait  int    `json:"wait,omitempty"`  // milliseconds, at most MaxLogWait
}

// WaitAnswer says what is new since then.
type WaitAnswer struct {
	Since  string   `json:"since"`
	All    bool     `json:"all,omitempty"`    // everything may be: nobody knows what came between
	Sealed []string `json:"sealed,omitempty"` // paths of references to secrets for the node
	Keys   []string `json:"keys,omitempty"`   // ids of nodes with another sealing key
}

// Bounds of what agents store.
const (
	maxSealedValue = 64 << 10 // bytes
	maxSealedCount = 4096     // of one maker
	maxSealedBytes = 16 << 20 // of one maker
	maxLeaseText   = 256      // bytes of each text in a lease
	maxRefs        = 1024     // in one request
	sealedPage     = 4 << 20  // bytes of values in one answer, about
)

package projections

import (
	"strconv"
	"strings"

	"bindery/events"
)

// The documents are what subscribers read: one for each binding, and one for each
// credential that the provider side has something to do with. Their JSON is a
// contract: fields are only ever added.

// Stamp says which state of the ledger a document tells of.
type Stamp struct {
	Mesh   string    `json:"mesh"`
	MeshID events.ID `json:"mesh_id"`
	At     uint64    `json:"at"`    // the ledger's sequence it was made at
	Chain  string    `json:"chain"` // the ledger's chain value there, 64 hexadecimal digits
}

// Stamp is the stamp of a document made now.
func (s *State) Stamp() Stamp {
	return Stamp{Mesh: s.Mesh.Name, MeshID: s.Mesh.ID, At: s.Seq, Chain: s.Chain.String()}
}

// BindingDocument is all a consumer needs to know of what serves one of its
// slots.
type BindingDocument struct {
	Stamp
	Module string    `json:"module"`
	NodeID events.ID `json:"node_id"` // the consumer's
	BindingView
}

// Key is the document's key among the bindings: <node id>.<binding id>.
func (d *BindingDocument) Key() string { return d.NodeID.String() + "." + d.ID.String() }

// HasDocument reports whether a binding has a document: it serves a slot, or the
// consumer has not taken note that it was released.
func (s *State) HasDocument(r BindingRef) bool {
	b := s.Binding(r)
	return !s.Assignment(b.Assignment).Ended && (!b.Released || s.Lingers(b))
}

// BindingDocument makes the document of a binding.
func (s *State) BindingDocument(r BindingRef) BindingDocument {
	a := s.Assignment(s.Binding(r).Assignment)
	return BindingDocument{Stamp: s.Stamp(), Module: s.Module(a.Module).Name, NodeID: s.Node(a.Node).ID, BindingView: s.BindingView(r)}
}

// Duty is what the provider side has to do with a credential.
type Duty string

// The duties.
const (
	DutyNone   Duty = ""       // nothing now
	DutyIssue  Duty = "issue"  // make it, keep its secret, and say so
	DutyRevoke Duty = "revoke" // make it log in no longer, and say so
	DutyClean  Duty = "clean"  // remove what was made of an ask that is withdrawn; nothing is to be said
)

// HolderDocument is what the provider side needs to know of one credential: of an
// ask, of a holder, or of an ask that was withdrawn.
type HolderDocument struct {
	Stamp
	Do     Duty      `json:"do"`
	Node   string    `json:"node"` // whose agent it is for: the provider's; of an embedded instance, the consumer's
	NodeID events.ID `json:"node_id"`

	Provision  string     `json:"provision"`
	Provider   string     `json:"provider,omitempty"`
	ProviderID *events.ID `json:"provider_id,omitempty"`
	Embedded   bool       `json:"embedded,omitempty"` // it logs in to the slot's own instance
	Endpoint   string     `json:"endpoint,omitempty"`
	Version    string     `json:"version,omitempty"`

	Binding        events.ID `json:"binding"`
	Assignment     string    `json:"assignment"`
	AssignmentID   events.ID `json:"assignment_id"`
	Module         string    `json:"module"`
	Slot           string    `json:"slot"`
	ConsumerNode   string    `json:"consumer_node"`
	ConsumerNodeID events.ID `json:"consumer_node_id"`
	ConsumerKeys   []string  `json:"consumer_keys"` // public nkeys of the agents granted for that node, sorted

	Generation uint64     `json:"generation"`
	Tag        string     `json:"tag"` // the first eight digits of the chain value at Generation
	State      string     `json:"state"`
	SecretRef  string     `json:"secret_ref"`
	InUse      bool       `json:"in_use"`
	Revocable  bool       `json:"revocable,omitempty"`
	Ended      bool       `json:"ended,omitempty"` // its assignment has, or its slot is pruned
	IssuedSeq  uint64     `json:"issued_seq"`
	Seq        uint64     `json:"seq"` // of the last change of State
	Rotation   *events.ID `json:"rotation,omitempty"`
	Attempts   uint64     `json:"attempts"`
	Error      string     `json:"error"`

	User     string     `json:"user,omitempty"`     // what it logs in as, where that is known
	Database string     `json:"database,omitempty"` // and to what
	ByHand   bool       `json:"by_hand,omitempty"`  // somebody made it who is no agent
	Maker    *MakerView `json:"maker,omitempty"`    // the agent that made it, where that is known
	Follows  *Followed  `json:"follows,omitempty"`  // of an ask: the login that it takes the place of
}

// Followed is the login that the consumer runs with at the same target, and that a new
// one is to follow: with its data and its rights.
type Followed struct {
	Generation uint64 `json:"generation"`
	SecretRef  string `json:"secret_ref"`
	User       string `json:"user"` // "" where that is not known
	Database   string `json:"database,omitempty"`
	ByHand     bool   `json:"by_hand,omitempty"`
}

// EmbeddedKey stands in a key for the provider's id where the credential is of an
// embedded instance.
const EmbeddedKey = "embedded"

// Key is the document's key among the holders:
// <node id>.<provider id>.<binding id>.<generation>.
func (d *HolderDocument) Key() string {
	provider := EmbeddedKey
	if d.ProviderID != nil {
		provider = d.ProviderID.String()
	}
	return strings.Join([]string{d.NodeID.String(), provider, d.Binding.String(), strconv.FormatUint(d.Generation, 10)}, ".")
}

// HolderDocuments makes the documents of a binding's credentials, the newest
// first: of those that are asked or live, and of those that were withdrawn since
// the one in use was issued: something may have been made of them. Who ends a
// binding ends those.
func (s *State) HolderDocuments(r BindingRef) []HolderDocument {
	var out []HolderDocument
	b := s.Binding(r)
	over := b.Released || s.Assignment(b.Assignment).Ended
	live := b.live
	for c := range s.Credentials(r) {
		since := b.use == 0 || c.Generation > s.Credential(b.use).Generation
		switch {
		case c.State.Live():
			live--
		case c.State == Asked, c.State == Withdrawn && !over && since:
		case live == 0 && !since:
			return out
		default:
			continue
		}
		out = append(out, s.holderDocument(&c))
	}
	return out
}

func (s *State) holderDocument(c *Credential) HolderDocument {
	b := s.Binding(c.Binding)
	a := s.Assignment(b.Assignment)
	v := s.CredentialView(c)
	consumer := s.Node(a.Node)
	d := HolderDocument{Stamp: s.Stamp(), Node: consumer.Name, NodeID: consumer.ID, Provision: s.provisionOf(c),
		Provider: v.Provider, ProviderID: v.ProviderID, Embedded: v.Embedded,
		Binding: b.ID, Assignment: a.Name, AssignmentID: a.ID, Module: s.Module(a.Module).Name, Slot: v.Slot,
		ConsumerNode: consumer.Name, ConsumerNodeID: consumer.ID, ConsumerKeys: s.AgentKeys(a.Node),
		Generation: c.Generation, Tag: s.Tag(c), State: v.State, SecretRef: v.SecretRef, InUse: v.InUse, Revocable: v.Revocable,
		Ended: b.Released || a.Ended, IssuedSeq: v.IssuedSeq, Seq: v.Seq, Rotation: v.Rotation, Attempts: v.Attempts, Error: v.Error,
		User: v.User, Database: v.Database, ByHand: v.ByHand, Maker: v.Maker, Follows: s.followed(c)}
	if c.State == Issued || c.State == Adopted {
		if _, failed := s.FailureOf(c.Binding, c.Generation); !failed {
			d.Attempts, d.Error = 0, "" // the consumer's trouble is not the provider side's
		}
	}
	retired := false
	if c.Provider != 0 {
		p := s.Provider(c.Provider)
		d.Node, d.NodeID, d.Endpoint, d.Version = s.Node(p.Node).Name, s.Node(p.Node).ID, p.Endpoint, p.Version
		retired = p.State == Retired
	}
	d.Do = duty(c.State, v.Revocable, retired)
	return d
}

// followed is the login that an ask's is to follow; nil where the consumer runs with none
// at the same target.
func (s *State) followed(ask *Credential) *Followed {
	use := s.Binding(ask.Binding).use
	if ask.State != Asked || use == 0 {
		return nil
	}
	c := s.Credential(use)
	if c.target() != ask.target() {
		return nil
	}
	login := s.Login(c)
	return &Followed{Generation: c.Generation, SecretRef: s.SecretRef(c), User: login.User, Database: login.Database, ByHand: c.ByHand}
}

// duty is what the provider side has to do with a credential. At a provider that
// is retired nothing is done any more.
func duty(state CredentialState, revocable, retired bool) Duty {
	switch {
	case retired:
	case state == Asked:
		return DutyIssue
	case state == ToRevoke, revocable:
		return DutyRevoke
	case state == Withdrawn:
		return DutyClean
	}
	return DutyNone
}

// provisionOf is the kind of service that a credential logs in to.
func (s *State) provisionOf(c *Credential) string {
	if c.Provider != 0 {
		return s.Provision(s.Provider(c.Provider).Provision).Name
	}
	if p := s.Binding(c.Binding).Provision; p != 0 {
		return s.Provision(p).Name
	}
	return ""
}

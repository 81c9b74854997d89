package projections

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"bindery/events"
)

// CredentialView is a credential as readers see it.
type CredentialView struct {
	Binding    events.ID  `json:"binding"`
	Assignment string     `json:"assignment"`
	Slot       string     `json:"slot"`
	Node       string     `json:"node"` // the consumer's
	Provider   string     `json:"provider,omitempty"`
	ProviderID *events.ID `json:"provider_id,omitempty"`
	Embedded   bool       `json:"embedded,omitempty"` // it logs in to the slot's own instance
	Generation uint64     `json:"generation"`
	SecretRef  string     `json:"secret_ref"`
	State      string     `json:"state"`
	InUse      bool       `json:"in_use"`
	Revocable  bool       `json:"revocable,omitempty"` // it may be revoked though the consumer may run with it
	Ended      bool       `json:"ended,omitempty"`     // its assignment has, or its slot is pruned
	IssuedSeq  uint64     `json:"issued_seq"`
	Seq        uint64     `json:"seq"`
	Since      time.Time  `json:"since"`
	Rotation   *events.ID `json:"rotation,omitempty"` // that asked for it
	Attempts   uint64     `json:"attempts"`
	Error      string     `json:"error"`
	User       string     `json:"user,omitempty"`     // what it logs in as, where that is known
	Database   string     `json:"database,omitempty"` // and to what
	ByHand     bool       `json:"by_hand,omitempty"`  // somebody made it who is no agent
	Maker      *MakerView `json:"maker,omitempty"`    // the agent that made it, where that is known
	Operator   bool       `json:"operator,omitempty"` // no agent can end it, or says that trying again does not help
}

// MakerView is who made a login: the agent of a node, by a hook.
type MakerView struct {
	Node   string    `json:"node"`
	NodeID events.ID `json:"node_id"`
	Hook   string    `json:"hook"`
}

// CredentialView makes the view of a credential.
func (s *State) CredentialView(c *Credential) CredentialView {
	b := s.Binding(c.Binding)
	a := s.Assignment(b.Assignment)
	v := CredentialView{Binding: b.ID, Assignment: a.Name, Slot: s.SlotName(b), Node: s.Node(a.Node).Name,
		Embedded: c.Provider == 0, Generation: c.Generation, SecretRef: s.SecretRef(c), State: c.State.String(),
		InUse:     b.use != 0 && s.Credential(b.use).Generation == c.Generation && c.State.Live() && c.State != ToRevoke,
		Revocable: s.Revocable(c), Ended: b.Released, IssuedSeq: c.Issued, Seq: c.Seq, Since: c.Since()}
	if c.Provider != 0 {
		p := s.Provider(c.Provider)
		id := p.ID
		v.Provider, v.ProviderID = p.Name, &id
	}
	login := s.Login(c)
	v.User, v.Database, v.ByHand = login.User, login.Database, c.ByHand
	if node, hook, known := s.Maker(c); known {
		v.Maker = &MakerView{Node: s.Node(node).Name, NodeID: s.Node(node).ID, Hook: hook}
	}
	if c.Rotation != 0 {
		id := s.Rotation(c.Rotation).ID
		v.Rotation = &id
	}
	f, failed := s.FailureOf(c.Binding, c.Generation)
	v.Operator = needsOperator(c, f)
	if failed && (c.State == Asked || c.State.Live()) {
		v.Attempts, v.Error = f.Attempts, f.Reason
	} else if f, ok := s.Trouble(c.Binding); ok && v.InUse {
		v.Attempts, v.Error = f.Attempts, f.Reason
	}
	return v
}

// needsOperator reports whether what is left to do for a credential is an operator's:
// no agent can know which login it is, or one says that trying again does not help.
// f is what the provider side could not do; zero where it has not said so.
func needsOperator(c *Credential, f Failure) bool {
	switch {
	case c.State.Live():
		return c.Unowned() || f.Operator
	case c.State == Asked:
		return f.Operator
	}
	return false
}

// ListHolders lists who can log in to a provider, by consumer; all adds those
// who could.
func (s *State) ListHolders(r ProviderRef, all bool) List[CredentialView] {
	h := &s.Provider(r).Holders
	var items []CredentialView
	for _, ref := range h.Live {
		items = append(items, s.CredentialView(s.Credential(ref)))
	}
	if all {
		for _, ref := range h.dead {
			items = append(items, s.CredentialView(s.Credential(ref)))
		}
	}
	return list(s, byConsumer(items))
}

func byConsumer(items []CredentialView) []CredentialView {
	slices.SortFunc(items, func(x, y CredentialView) int {
		return cmp.Or(strings.Compare(x.Assignment, y.Assignment), strings.Compare(x.Slot, y.Slot),
			cmp.Compare(x.Generation, y.Generation))
	})
	return items
}

// CredentialFilter narrows a list of credentials; the zero one gives every ask
// that is open and every holder.
type CredentialFilter struct {
	Provider    ProviderRef
	Assignments []AssignmentRef // of one name: live and ended ones
	State       string
	All         bool // those that are over, too
}

func (f *CredentialFilter) keeps(c *Credential) bool {
	switch {
	case f.Provider != 0 && c.Provider != f.Provider:
		return false
	case f.State != "":
		return c.State.String() == f.State
	}
	return f.All || c.State == Asked || c.State.Live()
}

// ListCredentials lists credentials by consumer. It reads what the filter leads
// to; of a provider, what is asked or live.
func (s *State) ListCredentials(f CredentialFilter) List[CredentialView] {
	var items []CredentialView
	add := func(c *Credential) {
		if f.keeps(c) {
			items = append(items, s.CredentialView(c))
		}
	}
	of := func(r BindingRef) {
		for c := range s.Credentials(r) {
			add(&c)
		}
	}
	over := f.All || slices.Contains([]string{Withdrawn.String(), Revoked.String(), WrittenOff.String(), Gone.String()}, f.State)
	switch {
	case f.Assignments != nil:
		for _, a := range f.Assignments {
			for r := s.Assignment(a).first; r != 0; r = s.Binding(r).next {
				of(r)
			}
		}
	case f.Provider != 0 && !over:
		for _, ref := range s.Provider(f.Provider).Holders.Live {
			add(s.Credential(ref))
		}
		for _, r := range s.Provider(f.Provider).Bindings {
			if c, ok := s.Ask(r); ok {
				add(&c)
			}
		}
	default:
		for i := 1; i <= s.bindings.len(); i++ {
			of(BindingRef(i))
		}
	}
	return list(s, byConsumer(items))
}

// UseView is what a consumer runs with, or shall: one set that belongs together.
type UseView struct {
	Provider   string     `json:"provider,omitempty"`
	ProviderID *events.ID `json:"provider_id,omitempty"`
	Embedded   bool       `json:"embedded,omitempty"`
	Node       string     `json:"node,omitempty"`
	Endpoint   string     `json:"endpoint,omitempty"`
	Version    string     `json:"version,omitempty"`
	Generation uint64     `json:"generation,omitempty"`
	SecretRef  string     `json:"secret_ref,omitempty"`
}

// useView makes the view of what a binding's consumer runs with.
func (s *State) useView(b *Binding) UseView {
	var v UseView
	provider, embedded := b.Provider, b.Embedded
	switch {
	case b.use != 0:
		c := s.Credential(b.use)
		provider, embedded = c.Provider, c.Provider == 0
		v.Generation, v.SecretRef = c.Generation, s.SecretRef(c)
	case s.Managed(b) || b.rule == 0:
		return v
	case b.Released:
		provider, embedded = b.left, b.left == 0
	}
	if provider != 0 {
		p := s.Provider(provider)
		id := p.ID
		v.Provider, v.ProviderID, v.Node, v.Endpoint, v.Version = p.Name, &id, s.Node(p.Node).Name, p.Endpoint, p.Version
	}
	if embedded {
		v.Embedded, v.Node = true, s.Node(s.Assignment(b.Assignment).Node).Name
		if d := s.Declared(b); d != nil && d.Embed != nil {
			v.Version = d.Embed.Version
		}
	}
	return v
}

package projections

import (
	"iter"
	"slices"
	"time"

	"bindery/events"
)

// CredentialState is how far a credential has come.
type CredentialState uint8

// The states of a credential, in their order. Issued, adopted and to-revoke are
// live: whoever has it can log in.
const (
	Asked      CredentialState = iota + 1 // the provider side shall issue it
	Withdrawn                             // it shall not
	Issued                                // it exists
	Adopted                               // the consumer runs with it
	ToRevoke                              // the consumer runs with a later one, or is over
	Revoked                               // it logs in no longer
	WrittenOff                            // nobody will revoke it
	Gone                                  // it went with its embedded instance
)

var credentialStates = [...]string{Asked: "asked", Withdrawn: "withdrawn", Issued: "issued", Adopted: "adopted",
	ToRevoke: "to-revoke", Revoked: "revoked", WrittenOff: "written-off", Gone: "gone"}

// CredentialStates lists the names of the states, in their order.
func CredentialStates() []string { return credentialStates[Asked:] }

func (c CredentialState) String() string { return credentialStates[c] }

// Live reports whether a credential of this state logs in: its binding is a
// holder.
func (c CredentialState) Live() bool { return c >= Issued && c <= ToRevoke }

// Credential is what one binding uses to log in at one target, or will. It
// holds no pointers: a mesh has many.
type Credential struct {
	Generation uint64 // the sequence of the event that asked for it
	Issued     uint64 // the sequence of its issue, 0 before
	Ended      uint64 // the sequence at which it ceased to be live, 0 before
	Seq        uint64 // of the last change of its state
	since      int64  // when that was, in milliseconds since 1970
	ref        textRef
	Binding    BindingRef
	Provider   ProviderRef // what it logs in to; 0: the binding's own embedded instance
	Rotation   RotationRef // whose start asked for it; 0: another event
	older      CredentialRef
	pos        uint32 // in its target's live ones
	tag        tag    // of its ask
	user       textRef
	database   textRef
	hook       textRef // of its maker
	madeOn     NodeRef // its maker's; 0: not an agent's that is known
	State      CredentialState
	Late       bool // issued after its ask was withdrawn: never in use
	ByHand     bool // somebody made it who is no agent
}

// Since is when the credential came into its state.
func (c *Credential) Since() time.Time { return time.UnixMilli(c.since).UTC() }

// ready reports whether the credential was in use when it was issued.
func (c *Credential) ready() bool { return c.Issued != 0 && !c.Late }

// Holders are the credentials of one target, and what rotates them.
type Holders struct {
	Live      []CredentialRef // in no order
	dead      []CredentialRef // by Ended
	rotations []RotationRef   // by Seq
	Open      RotationRef     // the rotation that is open, or 0
}

// Failure is why the other side could not do what was its turn.
type Failure struct {
	Operator bool // trying again does not help
	Reason   string
	Attempts uint64
	Seq      uint64
	Time     time.Time
}

// Credential returns the credential r refers to.
func (s *State) Credential(r CredentialRef) *Credential { return s.credentials.at(uint32(r)) }

// SecretRef is where the credential's secret lies, "" before its issue.
func (s *State) SecretRef(c *Credential) string { return s.texts.get(c.ref) }

// Login is what a credential logs in as; its user is "" where that is not known.
func (s *State) Login(c *Credential) events.Login {
	return events.Login{User: s.texts.get(c.user), Database: s.texts.get(c.database)}
}

// Maker is the agent and the hook that made a credential's login, or false.
func (s *State) Maker(c *Credential) (node NodeRef, hook string, known bool) {
	return c.madeOn, s.texts.get(c.hook), c.madeOn != 0
}

// Unowned reports whether a credential's login is nobody's to end but an operator's: it
// was made by hand, and which one it is was never said.
func (c *Credential) Unowned() bool { return c.ByHand && c.user == 0 }

// target names what a credential logs in to: a provider, or the embedded
// instance of a binding.
type target struct {
	provider ProviderRef
	binding  BindingRef // of an embedded instance
}

func (c *Credential) target() target {
	if c.Provider != 0 {
		return target{provider: c.Provider}
	}
	return target{binding: c.Binding}
}

// holders are those of a target; nil for an embedded instance that never had
// any.
func (s *State) holders(t target) *Holders {
	if t.provider != 0 {
		return &s.Provider(t.provider).Holders
	}
	return s.instances[t.binding]
}

// makeHolders is holders, made where there are none.
func (s *State) makeHolders(t target) *Holders {
	if h := s.holders(t); h != nil {
		return h
	}
	h := &Holders{}
	put(&s.j, s.instances, t.binding, h)
	return h
}

// Managed reports whether the binding's consumer logs in with a credential.
func (s *State) Managed(b *Binding) bool {
	return b.Provision != 0 && s.Provision(b.Provision).Credentials == events.CredentialsManaged
}

// InUse is the credential the consumer runs with, or shall: the highest
// generation issued while its ask was open. 0 before the first.
func (s *State) InUse(b *Binding) CredentialRef { return b.use }

func (s *State) useLive(b *Binding) bool { return b.use != 0 && s.Credential(b.use).State.Live() }

// A rotation asks for a credential of each binding it is about, and a mesh has
// many: its start touches none of them. What became of a binding's asks since an
// event last spoke of it is worked out when somebody looks, and kept when the
// next event does (settle).

// unsettled is what rotations and retirements did to the asks of a binding since
// an event last spoke of it.
type unsettled struct {
	withdrawn bool // the ask on record is
	seq       uint64
	since     int64
	asks      []Credential // of rotations since; the last one may be open
}

func (s *State) unsettled(r BindingRef) unsettled {
	var u unsettled
	b := s.Binding(r)
	open := b.ask != 0
	if open {
		c := s.Credential(b.ask)
		if c.Rotation != 0 {
			if o := s.Rotation(c.Rotation); o.State == Aborted && o.Closed > b.settled && s.useLive(b) {
				u.withdrawn, u.seq, u.since, open = true, o.Closed, o.ClosedTime.UnixMilli(), false
			}
		}
		if p := c.Provider; open && p != 0 && s.Provider(p).State == Retired {
			u.withdrawn, u.seq, u.since = true, s.Provider(p).StateSeq, s.Provider(p).StateTime.UnixMilli()
			return u // it was open until then, and nothing is asked of a provider that is retired
		}
	}
	if b.Released || !s.useLive(b) {
		return u
	}
	use := s.Credential(b.use)
	if use.Provider != b.Provider || b.Pending() {
		return u // it is on its way to another target
	}
	h := s.holders(use.target())
	for i := h.after(s, b.settled); i < len(h.rotations); i++ {
		o := s.Rotation(h.rotations[i])
		if open || !o.Has(use) {
			continue
		}
		c := Credential{Generation: o.Seq, Seq: o.Seq, since: o.Time.UnixMilli(), Binding: r, Provider: use.Provider,
			Rotation: h.rotations[i], State: Asked, tag: o.tag}
		if o.State == Aborted {
			c.State, c.Seq, c.since = Withdrawn, o.Closed, o.ClosedTime.UnixMilli()
		}
		open = c.State == Asked
		u.asks = append(u.asks, c)
	}
	return u
}

// after is the index of the first rotation that began after seq.
func (h *Holders) after(s *State, seq uint64) int {
	i := len(h.rotations)
	for i > 0 && s.Rotation(h.rotations[i-1]).Seq > seq {
		i--
	}
	return i
}

// Settle puts on record what is unsettled about a binding's asks. It changes
// nothing that readers see.
func (s *State) Settle(r BindingRef) { s.settle(r, s.Seq) }

func (s *State) settle(r BindingRef, seq uint64) {
	b := s.Binding(r)
	u := s.unsettled(r)
	if u.withdrawn {
		s.withdraw(b, u.seq, u.since)
	}
	for _, c := range u.asks {
		ref := s.addCredential(c)
		if c.State == Asked {
			set(&s.j, &b.ask, ref)
		}
	}
	set(&s.j, &b.settled, seq)
}

// addCredential puts an ask on record.
func (s *State) addCredential(c Credential) CredentialRef {
	b := s.Binding(c.Binding)
	i, p := s.credentials.add(&s.j)
	c.older = b.newest
	*p = c
	set(&s.j, &b.newest, CredentialRef(i))
	return CredentialRef(i)
}

// withdraw ends the binding's open ask, where there is one.
func (s *State) withdraw(b *Binding, seq uint64, since int64) {
	if b.ask == 0 {
		return
	}
	s.become(b.ask, Withdrawn, seq, since)
	set(&s.j, &b.ask, 0)
}

// Ask is the binding's open ask, or false.
func (s *State) Ask(r BindingRef) (Credential, bool) {
	u := s.unsettled(r)
	if n := len(u.asks); n > 0 && u.asks[n-1].State == Asked {
		return u.asks[n-1], true
	}
	if b := s.Binding(r); b.ask != 0 && !u.withdrawn {
		return *s.Credential(b.ask), true
	}
	return Credential{}, false
}

// Credentials gives all credentials that were ever asked of a binding, the newest
// first, each as it is now: who needs the newest alone stops there, since a binding
// may have had many. Those that are not on record yet have no reference.
func (s *State) Credentials(r BindingRef) iter.Seq[Credential] {
	return func(yield func(Credential) bool) {
		u := s.unsettled(r)
		for _, c := range slices.Backward(u.asks) {
			if !yield(c) {
				return
			}
		}
		b := s.Binding(r)
		for ref := b.newest; ref != 0; ref = s.Credential(ref).older {
			c := *s.Credential(ref)
			if ref == b.ask && u.withdrawn {
				c.State, c.Seq, c.since = Withdrawn, u.seq, u.since
			}
			if !yield(c) {
				return
			}
		}
	}
}

// untilLive gives the credentials of a binding that are on record, the newest first,
// down to the oldest one that logs in. What is done to one that was given does not
// change what is given.
func (s *State) untilLive(b *Binding) iter.Seq2[CredentialRef, *Credential] {
	return func(yield func(CredentialRef, *Credential) bool) {
		left := b.live
		for ref := b.newest; ref != 0 && left > 0; {
			c := s.Credential(ref)
			if c.State.Live() {
				left--
			}
			older := c.older
			if !yield(ref, c) {
				return
			}
			ref = older
		}
	}
}

// Live is how many of a binding's credentials log in.
func (s *State) Live(r BindingRef) int { return int(s.Binding(r).live) }

// CredentialOf is a binding's credential of a generation; 0 where that was never
// asked of it, or is not on record (see Settle).
func (s *State) CredentialOf(r BindingRef, generation uint64) CredentialRef {
	for ref := s.Binding(r).newest; ref != 0; ref = s.Credential(ref).older {
		if g := s.Credential(ref).Generation; g <= generation {
			if g == generation {
				return ref
			}
			return 0
		}
	}
	return 0
}

// WasAsked reports whether a generation was ever asked of a binding.
func (s *State) WasAsked(r BindingRef, generation uint64) bool {
	if s.CredentialOf(r, generation) != 0 {
		return true
	}
	for _, c := range s.unsettled(r).asks {
		if c.Generation == generation {
			return true
		}
	}
	return false
}

// next is the lowest generation above c's that its binding used: the one that
// took its place.
func (s *State) next(c *Credential) *Credential {
	var out *Credential
	for ref := s.Binding(c.Binding).newest; ref != 0; ref = s.Credential(ref).older {
		o := s.Credential(ref)
		if o.Generation <= c.Generation {
			break
		}
		if o.ready() {
			out = o
		}
	}
	return out
}

// Revocable reports whether a credential that the consumer may still run with
// may be revoked: an urgent rotation is about it, and the next one is issued.
func (s *State) Revocable(c *Credential) bool {
	if c.State != Issued && c.State != Adopted {
		return false
	}
	var next *Credential
	h := s.holders(c.target())
	for i := len(h.rotations) - 1; i >= 0; i-- {
		o := s.Rotation(h.rotations[i])
		if o.Seq < c.Issued {
			return false
		}
		if o.Urged == 0 || !o.Has(c) {
			continue
		}
		if next == nil {
			if next = s.next(c); next == nil {
				return false
			}
		}
		if o.State == Open || max(next.Issued, o.Urged) < o.Closed {
			return true
		}
	}
	return false
}

// UseSeq is the sequence of the last change of what the consumer is to run with:
// a switch, where that answers, where the consumer is, or that it is released. 0
// before there is anything to run with.
func (s *State) UseSeq(b *Binding) uint64 {
	p, seq := b.Provider, b.Seq
	switch {
	case b.use != 0:
		p, seq = s.Credential(b.use).Provider, s.Credential(b.use).Issued
	case s.Managed(b) || b.rule == 0: // nothing issued, or nothing bound
		return 0
	case b.Released:
		p = b.left
	}
	if b.Released {
		seq = max(seq, b.Seq)
	}
	seq = max(seq, s.Assignment(b.Assignment).MovedSeq)
	if p != 0 {
		seq = max(seq, s.Provider(p).ChangedSeq)
	}
	return seq
}

// ChangedSeq is UseSeq; while there is nothing to run with, the last change of
// what is decided, of where that answers, or of where the consumer is.
func (s *State) ChangedSeq(b *Binding) uint64 {
	if seq := s.UseSeq(b); seq != 0 {
		return seq
	}
	if b.Pending() {
		return b.Seq
	}
	seq := max(b.Seq, s.Assignment(b.Assignment).MovedSeq)
	if b.Provider != 0 {
		seq = max(seq, s.Provider(b.Provider).ChangedSeq)
	}
	return seq
}

// Outdated reports whether the consumer has not taken up what it is to run with.
func (s *State) Outdated(b *Binding) bool { return b.Applied < s.UseSeq(b) }

// Lingers reports whether a binding whose slot was pruned still has a document:
// its consumer has not said that it took note.
func (s *State) Lingers(b *Binding) bool {
	return b.Released && !s.Assignment(b.Assignment).Ended && s.UseSeq(b) != 0 && b.Applied < b.Seq
}

// Trouble is why the consumer could not take up what it is to run with, or
// false.
func (s *State) Trouble(r BindingRef) (Failure, bool) {
	f, ok := s.troubles[r]
	return f, ok
}

// FailureOf is why the provider side could not issue or revoke a credential of a
// binding, or false.
func (s *State) FailureOf(r BindingRef, generation uint64) (Failure, bool) {
	f, ok := s.failures[s.CredentialOf(r, generation)]
	return f, ok
}

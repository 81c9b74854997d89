package projections

import (
	"errors"
	"fmt"

	"bindery/events"
)

// credentialEvent finds the binding an event of a credential stands under, with
// its asks settled.
func (s *State) credentialEvent(e *events.Event) (BindingRef, *Binding, error) {
	i, err := s.find(kBinding, e.Entity)
	if err != nil {
		return 0, nil, err
	}
	s.settle(BindingRef(i), e.Seq)
	return BindingRef(i), s.bindings.at(i), nil
}

// become changes the state of a credential.
func (s *State) become(r CredentialRef, to CredentialState, seq uint64, since int64) {
	c := s.Credential(r)
	if b := s.Binding(c.Binding); c.State.Live() != to.Live() {
		if to.Live() {
			set(&s.j, &b.live, b.live+1)
		} else {
			set(&s.j, &b.live, b.live-1)
		}
	}
	set(&s.j, &c.State, to)
	set(&s.j, &c.Seq, seq)
	set(&s.j, &c.since, since)
	drop(&s.j, s.failures, r)
}

// ask opens an ask of the binding's present target, in place of an open one.
func (s *State) ask(e *events.Event, r BindingRef) {
	b := s.Binding(r)
	s.withdraw(b, e.Seq, e.Time.UnixMilli())
	set(&s.j, &b.ask, s.addCredential(Credential{Generation: e.Seq, Seq: e.Seq, since: e.Time.UnixMilli(),
		Binding: r, Provider: b.Provider, State: Asked, tag: tagOf(e.Chain)}))
}

func (s *State) credentialRequested(e *events.Event, p *events.CredentialRequested) error {
	r, b, err := s.credentialEvent(e)
	if err != nil {
		return err
	}
	if b.Released || b.Pending() || s.Target(b) != p.Target {
		return errors.New("it is not what the binding is decided on")
	}
	s.ask(e, r)
	return nil
}

// credentialOf finds the credential an event speaks of.
func (s *State) credentialOf(e *events.Event, generation uint64) (CredentialRef, *Credential, error) {
	r, _, err := s.credentialEvent(e)
	if err != nil {
		return 0, nil, err
	}
	ref := s.CredentialOf(r, generation)
	if ref == 0 {
		return 0, nil, fmt.Errorf("generation %d was never asked of the binding", generation)
	}
	return ref, s.Credential(ref), nil
}

func (s *State) credentialIssued(e *events.Event, p *events.CredentialIssued) error {
	ref, c, err := s.credentialOf(e, p.Generation)
	if err != nil {
		return err
	}
	to := Issued
	switch b := s.Binding(c.Binding); {
	case b.ask == ref:
		set(&s.j, &b.ask, 0)
		set(&s.j, &b.use, ref)
		drop(&s.j, s.troubles, c.Binding)
	case c.State == Withdrawn:
		to = ToRevoke
		set(&s.j, &c.Late, true)
	default:
		return errors.New("it is issued already")
	}
	set(&s.j, &c.Issued, e.Seq)
	set(&s.j, &c.ref, s.texts.add(string(p.SecretRef)))
	s.logsInAs(c, p.Login)
	if m := p.Maker; m != nil {
		node, err := s.find(kNode, m.Node)
		if err != nil {
			return err
		}
		set(&s.j, &c.madeOn, NodeRef(node))
		set(&s.j, &c.hook, s.textOfAnother(c, m.Hook, func(o *Credential) textRef { return o.hook }))
	}
	set(&s.j, &c.ByHand, p.ByHand)
	s.become(ref, to, e.Seq, e.Time.UnixMilli())
	enlist(&s.j, &s.makeHolders(c.target()).Live, ref, &c.pos)
	if c.Provider == 0 && s.Assignment(s.Binding(c.Binding).Assignment).Ended {
		s.die(e, ref, Gone)
	}
	return nil
}

// logsInAs puts on record what a credential logs in as.
func (s *State) logsInAs(c *Credential, l *events.Login) {
	if l == nil {
		return
	}
	set(&s.j, &c.user, s.texts.add(l.User))
	set(&s.j, &c.database, s.textOfAnother(c, l.Database, func(o *Credential) textRef { return o.database }))
}

// textOfAnother is a text that the binding's credential before had, too: it is kept once.
func (s *State) textOfAnother(c *Credential, text string, of func(*Credential) textRef) textRef {
	if c.older != 0 {
		if r := of(s.Credential(c.older)); s.texts.get(r) == text {
			return r
		}
	}
	return s.texts.add(text)
}

func (s *State) credentialLoginTold(e *events.Event, p *events.CredentialLoginTold) error {
	_, c, err := s.credentialOf(e, p.Generation)
	switch {
	case err != nil:
		return err
	case c.Issued == 0:
		return errors.New("it is not issued")
	case c.madeOn != 0:
		return errors.New("an agent made it")
	}
	set(&s.j, &c.ByHand, true)
	s.logsInAs(c, &p.Login)
	return nil
}

func (s *State) credentialFailed(e *events.Event, p *events.CredentialFailed) error {
	ref, _, err := s.credentialOf(e, p.Generation)
	if err != nil {
		return err
	}
	put(&s.j, s.failures, ref, Failure{Operator: p.Operator, Reason: e.Reason, Attempts: p.Attempts, Seq: e.Seq, Time: e.Time})
	return nil
}

func (s *State) credentialRevoked(e *events.Event, p *events.CredentialRevoked) error {
	ref, c, err := s.credentialOf(e, p.Generation)
	switch {
	case err != nil:
		return err
	case c.State == WrittenOff:
		s.become(ref, Revoked, e.Seq, e.Time.UnixMilli())
	case !c.State.Live():
		return errors.New("it is not live")
	default:
		s.die(e, ref, Revoked)
	}
	return nil
}

func (s *State) credentialWrittenOff(e *events.Event, p *events.CredentialWrittenOff) error {
	ref, c, err := s.credentialOf(e, p.Generation)
	if err != nil {
		return err
	}
	if !c.State.Live() {
		return errors.New("it is not live")
	}
	s.die(e, ref, WrittenOff)
	return nil
}

// die makes a live credential one that logs in no longer, and counts it for
// every rotation that is about it; those that were aborted go on being told of.
func (s *State) die(e *events.Event, ref CredentialRef, to CredentialState) {
	c := s.Credential(ref)
	h := s.holders(c.target())
	for i := h.after(s, c.Issued); i < len(h.rotations); i++ {
		if o := s.Rotation(h.rotations[i]); o.Has(c) {
			set(&s.j, &o.Done, o.Done+1)
			if o.State == Open {
				s.finish(h.rotations[i])
			}
		}
	}
	s.become(ref, to, e.Seq, e.Time.UnixMilli())
	set(&s.j, &c.Ended, e.Seq)
	delist(&s.j, &h.Live, &c.pos, func(o CredentialRef) *uint32 { return &s.Credential(o).pos })
	push(&s.j, &h.dead, ref)
}

func (s *State) bindingApplied(e *events.Event, p *events.BindingApplied) error {
	r, b, err := s.credentialEvent(e)
	if err != nil {
		return err
	}
	if p.At < b.Applied || p.At >= e.Seq {
		return fmt.Errorf("applied as of %d, after %d", p.At, b.Applied)
	}
	set(&s.j, &b.Applied, p.At)
	drop(&s.j, s.troubles, r)
	s.adopt(e, b, p.At)
	if b.Released && p.At >= b.Seq {
		s.retire(e, b)
	}
	return nil
}

// adopt follows a consumer that runs with what it was to use as of at.
func (s *State) adopt(e *events.Event, b *Binding, at uint64) {
	found := false
	for ref, c := range s.untilLive(b) {
		switch waiting := c.State == Issued || c.State == Adopted; {
		case found && waiting:
			s.become(ref, ToRevoke, e.Seq, e.Time.UnixMilli())
		case !found && c.ready() && c.Issued <= at:
			found = true
			if c.State == Issued {
				s.become(ref, Adopted, e.Seq, e.Time.UnixMilli())
			}
		}
	}
}

// retire marks what the consumer runs with no longer: its slot is over.
func (s *State) retire(e *events.Event, b *Binding) {
	for ref, c := range s.untilLive(b) {
		if c.State == Issued || c.State == Adopted {
			s.become(ref, ToRevoke, e.Seq, e.Time.UnixMilli())
		}
	}
}

// over ends what an assignment that ended leaves behind: at a provider it is to
// be revoked, an embedded instance took it along.
func (s *State) over(e *events.Event, r BindingRef) {
	b := s.Binding(r)
	s.settle(r, e.Seq)
	s.withdraw(b, e.Seq, e.Time.UnixMilli())
	s.retire(e, b)
	for ref, c := range s.untilLive(b) {
		if c.Provider == 0 && c.State.Live() {
			s.die(e, ref, Gone)
		}
	}
	drop(&s.j, s.troubles, r)
}

func (s *State) bindingFailed(e *events.Event, p *events.BindingFailed) error {
	i, err := s.find(kBinding, e.Entity)
	if err != nil {
		return err
	}
	put(&s.j, s.troubles, BindingRef(i), Failure{Reason: e.Reason, Attempts: p.Attempts, Seq: e.Seq, Time: e.Time})
	return nil
}

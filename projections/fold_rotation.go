package projections

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bindery/events"
)

func (s *State) rotationStarted(e *events.Event, p *events.RotationStarted) error {
	i, o := s.rotations.add(&s.j)
	*o = Rotation{ID: e.Entity, IssuedBefore: p.IssuedBefore, Deadline: time.Time(p.Deadline), State: Open,
		Seq: e.Seq, Time: e.Time, Actor: e.Actor, Reason: e.Reason, tag: tagOf(e.Chain)}
	if p.Urgent {
		o.Urged = e.Seq
	}
	if !p.Target.Embedded {
		v, err := s.find(kProvider, p.Target.Provider)
		if err != nil {
			return err
		}
		o.Provider = ProviderRef(v)
	}
	if !p.Binding.IsZero() {
		b, err := s.find(kBinding, p.Binding)
		if err != nil {
			return err
		}
		o.Binding = BindingRef(b)
	}
	h := s.makeHolders(o.target())
	if h.Open != 0 {
		return fmt.Errorf("rotation %s is open", s.Rotation(h.Open).ID)
	}
	o.Total = s.countMembers(o, h)
	set(&s.j, &h.Open, RotationRef(i))
	push(&s.j, &h.rotations, RotationRef(i))
	if o.Binding != 0 {
		put(&s.j, s.narrow, o.Binding, RotationRef(i))
	}
	s.finish(RotationRef(i))
	return s.index(e.Entity, kRotation, i)
}

// CountMembers counts what a rotation that began now would be about.
func (s *State) CountMembers(o Rotation) int {
	h := s.holders(o.target())
	if h == nil {
		return 0
	}
	o.Seq = s.Seq + 1
	return s.countMembers(&o, h)
}

// countMembers counts what a rotation that begins is about. All holders of a
// target are counted already; a narrower choice is looked for.
func (s *State) countMembers(o *Rotation, h *Holders) int {
	if o.IssuedBefore == 0 && (o.Binding == 0 || o.Provider == 0) {
		return len(h.Live)
	}
	n := 0
	count := func(c *Credential) {
		if c.State.Live() && o.Has(c) {
			n++
		}
	}
	if o.Binding == 0 {
		for _, ref := range h.Live {
			count(s.Credential(ref))
		}
		return n
	}
	for _, c := range s.untilLive(s.Binding(o.Binding)) {
		count(c)
	}
	return n
}

func (s *State) openRotation(e *events.Event) (RotationRef, *Rotation, error) {
	i, err := s.find(kRotation, e.Entity)
	if err != nil {
		return 0, nil, err
	}
	o := s.rotations.at(i)
	if o.State != Open {
		return 0, nil, errors.New("the rotation is " + string(o.State))
	}
	return RotationRef(i), o, nil
}

func (s *State) rotationUrged(e *events.Event) error {
	_, o, err := s.openRotation(e)
	if err == nil && o.Urged == 0 {
		set(&s.j, &o.Urged, e.Seq)
	}
	return err
}

func (s *State) rotationClosed(e *events.Event, to RotationState) error {
	r, o, err := s.openRotation(e)
	if err != nil {
		return err
	}
	if to == Completed && o.Done != o.Total {
		return fmt.Errorf("%d of its %d credentials are left", o.Total-o.Done, o.Total)
	}
	set(&s.j, &o.State, to)
	set(&s.j, &o.Closed, e.Seq)
	set(&s.j, &o.ClosedTime, e.Time)
	set(&s.j, &o.ClosedReason, e.Reason)
	set(&s.j, &s.holders(o.target()).Open, 0)
	if at := slices.Index(s.finished, r); at >= 0 {
		set(&s.j, &s.finished, slices.Delete(slices.Clone(s.finished), at, at+1))
	}
	return nil
}

// finish notes that an open rotation has nothing left to do.
func (s *State) finish(r RotationRef) {
	if o := s.Rotation(r); o.Done == o.Total {
		set(&s.j, &s.finished, append(slices.Clip(s.finished), r))
	}
}

package projections

import (
	"time"

	"bindery/events"
)

// RotationState is whether a rotation is under way.
type RotationState string

// The states of a rotation.
const (
	Open      RotationState = "open"
	Completed RotationState = "completed"
	Aborted   RotationState = "aborted"
)

// Rotation replaces the credentials that were live at one target when it began.
// Who they are is not copied: a credential says itself whether it was live then.
type Rotation struct {
	ID           events.ID
	Provider     ProviderRef // whose holders; 0: the embedded instance of Binding
	Binding      BindingRef  // this one's alone; 0: all
	IssuedBefore uint64      // only those issued at a lower sequence; 0: all
	Deadline     time.Time   // zero for none
	Total        int         // how many credentials it is about
	Done         int         // of them revoked, written off or gone
	State        RotationState
	Seq          uint64 // of its start
	Time         time.Time
	Actor        string
	Reason       string
	Urged        uint64 // the sequence that made it urgent, 0 for none
	Closed       uint64 // of its completion or abortion
	ClosedTime   time.Time
	ClosedReason string
	tag          tag
}

func (o *Rotation) target() target {
	if o.Provider != 0 {
		return target{provider: o.Provider}
	}
	return target{binding: o.Binding}
}

// Has reports whether the rotation is about c: it was live at the target when
// the rotation began, and is one of those asked for.
func (o *Rotation) Has(c *Credential) bool {
	return c.Provider == o.Provider && (o.Binding == 0 || c.Binding == o.Binding) &&
		c.Issued != 0 && c.Issued < o.Seq && (c.Ended == 0 || c.Ended > o.Seq) &&
		(o.IssuedBefore == 0 || c.Issued < o.IssuedBefore)
}

// Overdue reports whether the rotation should be over by now and is not.
func (o *Rotation) Overdue(now time.Time) bool {
	return o.State == Open && !o.Deadline.IsZero() && now.After(o.Deadline)
}

// Rotation returns the rotation r refers to.
func (s *State) Rotation(r RotationRef) *Rotation { return s.rotations.at(uint32(r)) }

// Rotations lists the rotations of a provider, the oldest first.
func (s *State) Rotations(p ProviderRef) []RotationRef { return s.Provider(p).Holders.rotations }

// RotationOf is the last rotation of a binding's own instance, or about that
// binding alone; 0 for none.
func (s *State) RotationOf(r BindingRef) RotationRef { return s.narrow[r] }

// OpenAt is the rotation that is open at the target of o, or 0.
func (s *State) OpenAt(o *Rotation) RotationRef {
	if h := s.holders(o.target()); h != nil {
		return h.Open
	}
	return 0
}

// eachOpen calls yield with each rotation that is open, in no order.
func (s *State) eachOpen(yield func(*Rotation)) {
	at := func(h *Holders) {
		if h.Open != 0 {
			yield(s.Rotation(h.Open))
		}
	}
	for i := 1; i <= s.providers.len(); i++ {
		at(&s.providers.at(uint32(i)).Holders)
	}
	for _, h := range s.instances {
		at(h)
	}
}

// Finished lists the open rotations that have nothing left to do; whoever ended
// the last of their credentials completes them with the same command.
func (s *State) Finished() []RotationRef { return s.finished }

// members calls yield with each credential the rotation is about, those that
// are live first.
func (s *State) members(o *Rotation, yield func(*Credential)) {
	h := s.holders(o.target())
	for _, ref := range h.Live {
		if c := s.Credential(ref); o.Has(c) {
			yield(c)
		}
	}
	for i := len(h.dead) - 1; i >= 0; i-- {
		c := s.Credential(h.dead[i])
		if c.Ended < o.Seq {
			return
		}
		if o.Has(c) {
			yield(c)
		}
	}
}

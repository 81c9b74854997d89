package commands

import (
	"bindery/events"
	"bindery/projections"
)

// ReportOf is the binding that the owner of a key reports on as an agent with a
// command; ok is false where the key is no agent's, or the command is no report, or
// nothing of the name exists. However the binding is named, its id is one.
func ReportOf(s *projections.State, key string, c Command) (binding events.ID, ok bool) {
	r := s.GrantOf(key)
	if r == 0 || s.Grant(r).Role != events.RoleAgent {
		return events.ID{}, false
	}
	f := Finder{s}
	var of projections.BindingRef
	var err error
	switch c := c.(type) {
	case AcknowledgeBinding:
		of, err = f.firstBinding(c.Slot)
	case FailBinding:
		of, err = f.firstBinding(c.Slot)
	case IssueCredential:
		of, err = f.HeldBinding(c.Slot, c.Generation)
	case FailCredential:
		of, err = f.HeldBinding(c.Slot, c.Generation)
	case RevokeCredential:
		of, err = f.HeldBinding(c.Slot, c.Generation)
	default:
		return events.ID{}, false
	}
	if err != nil {
		return events.ID{}, false
	}
	return f.Binding(of).ID, true
}

func (f Finder) firstBinding(slot string) (projections.BindingRef, error) {
	all, err := f.everyBinding(slot)
	if err != nil {
		return 0, err
	}
	return all[0], nil
}

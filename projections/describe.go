package projections

import (
	"fmt"
	"strings"

	"bindery/events"
)

// TargetName is what serves a slot, for people: a provider's name, "embedded",
// or "" for nothing.
func (s *State) TargetName(t events.Target) string {
	switch {
	case t.Embedded:
		return "embedded"
	case t.Provider.IsZero():
		return ""
	}
	return s.NameOf(t.Provider)
}

// NameOf is the present name of an entity (assignment/slot for a binding or an
// override), or the last eight characters of an id the state does not know.
func (s *State) NameOf(id events.ID) string {
	if id == s.Mesh.ID {
		return s.Mesh.Name
	}
	r, ok := s.byID[id]
	if !ok {
		text := id.String()
		return "…" + text[len(text)-8:]
	}
	switch r.kind {
	case kNode:
		return s.nodes.at(r.index).Name
	case kProvision:
		return s.provisions.at(r.index).Name
	case kProvider:
		return s.providers.at(r.index).Name
	case kModule:
		return s.modules.at(r.index).Name
	case kAssignment:
		return s.assignments.at(r.index).Name
	case kGrant:
		return s.grants.at(r.index).Name
	case kRotation:
		return s.rotationName(s.rotations.at(r.index))
	case kOverride:
		return s.SlotPath(s.Binding(s.overrides.at(r.index).Binding))
	}
	return s.SlotPath(s.bindings.at(r.index))
}

// Describe says in one line what an event that is folded into s did.
func (s *State) Describe(e *events.Event) string {
	name := s.NameOf(e.Entity)
	subject := string(e.Type.Entity) + " " + name
	switch p := e.Data.(type) {
	case *events.MeshClockStepped:
		return fmt.Sprintf("the writer's clock went back from %s to %s", p.From.Format("2006-01-02T15:04:05.000Z07:00"), p.To.Format("2006-01-02T15:04:05.000Z07:00"))
	case *events.NodeRenamed:
		return fmt.Sprintf("node %s renamed to %s", p.From, p.To)
	case *events.ProviderRenamed:
		return fmt.Sprintf("provider %s renamed to %s", p.From, p.To)
	case *events.AssignmentRenamed:
		return fmt.Sprintf("assignment %s renamed to %s", p.From, p.To)
	case *events.ProvisionDefined:
		return fmt.Sprintf("%s defined (scope %s, credentials %s)", subject, p.Scope, p.Credentials)
	case *events.ProvisionRescoped:
		return fmt.Sprintf("%s rescoped from %s to %s", subject, p.From, p.To)
	case *events.DefaultSet:
		was := ""
		if !p.Replaces.IsZero() {
			was = " (was " + s.NameOf(p.Replaces) + ")"
		}
		return fmt.Sprintf("default of %s%s set to %s%s", name, s.onNode(p.Node), s.NameOf(p.Provider), was)
	case *events.DefaultCleared:
		return fmt.Sprintf("default of %s%s cleared (was %s)", name, s.onNode(p.Node), s.NameOf(p.Provider))
	case *events.ProviderRegistered:
		state := ""
		if p.Cordoned {
			state = ", cordoned"
		}
		return fmt.Sprintf("%s registered on %s at %s%s", subject, s.NameOf(p.Node), p.Endpoint, state)
	case *events.ProviderUpdated:
		var what []string
		if p.Endpoint != nil {
			what = append(what, "endpoint "+*p.Endpoint)
		}
		if p.Version != nil {
			what = append(what, "version "+orUnknown(*p.Version))
		}
		if p.Features != nil {
			what = append(what, "features "+orUnknown(strings.Join(*p.Features, ",")))
		}
		return subject + " updated: " + strings.Join(what, ", ")
	case *events.ProviderRelocated:
		return fmt.Sprintf("%s relocated from %s to %s, now at %s", subject, s.NameOf(p.From), s.NameOf(p.To), p.Endpoint)
	case *events.ProviderRetired:
		return subject + " retired" + byForce(p.Forced)
	case *events.NodeRetired:
		return subject + " retired" + byForce(p.Forced)
	case *events.AssignmentCreated:
		return fmt.Sprintf("%s created: module %s on %s", subject, s.NameOf(p.Module), s.NameOf(p.Node))
	case *events.AssignmentMoved:
		return fmt.Sprintf("%s moved from %s to %s", subject, s.NameOf(p.From), s.NameOf(p.To))
	case *events.ChoiceSet:
		return fmt.Sprintf("%s/%s chooses %s", name, p.Slot, s.NameOf(p.Provider))
	case *events.ChoiceCleared:
		return fmt.Sprintf("%s/%s chooses %s no longer", name, p.Slot, s.NameOf(p.Provider))
	case *events.BindingBound:
		return fmt.Sprintf("%s bound to %s (%s)", name, s.TargetName(p.Target), p.Rule)
	case *events.BindingRebound:
		return fmt.Sprintf("%s rebound from %s to %s (%s)", name, s.TargetName(p.From), s.TargetName(p.To), p.Rule)
	case *events.BindingReleased:
		return fmt.Sprintf("%s released (%s)", name, p.Cause)
	case *events.OverrideSet:
		return fmt.Sprintf("override of %s set to %s", name, s.NameOf(p.Provider))
	case *events.OverrideCleared:
		return "override of " + name + " cleared"
	case *events.BindingApplied:
		if r := BindingRef(s.ByID(events.EntityBinding, e.Entity)); r != 0 && s.Binding(r).Released && p.At >= s.Binding(r).Seq {
			return fmt.Sprintf("%s took note at %d that its slot is gone", name, p.At)
		}
		return fmt.Sprintf("%s runs with what it was to use at %d", name, p.At)
	case *events.BindingFailed:
		return fmt.Sprintf("%s could not take up what it is to use (%s)", name, times(p.Attempts))
	case *events.CredentialRequested:
		return fmt.Sprintf("%s asks for a credential at %s", name, s.TargetName(p.Target))
	case *events.CredentialIssued:
		return fmt.Sprintf("%s was issued generation %d, its secret at %s", name, p.Generation, p.SecretRef)
	case *events.CredentialLoginTold:
		return fmt.Sprintf("generation %d of %s logs in as %s", p.Generation, name, loginText(p.Login))
	case *events.CredentialFailed:
		return fmt.Sprintf("generation %d of %s failed (%s)", p.Generation, name, times(p.Attempts))
	case *events.CredentialRevoked:
		return fmt.Sprintf("generation %d of %s revoked%s%s", p.Generation, name, byForce(p.Forced), didText(p.Did))
	case *events.CredentialWrittenOff:
		return fmt.Sprintf("generation %d of %s written off%s", p.Generation, name, byForce(p.Forced))
	case *events.RotationStarted:
		urgent := ""
		if p.Urgent {
			urgent = "urgent "
		}
		return fmt.Sprintf("%s%s started: credentials to replace: %d", urgent, name, p.Members)
	case *events.AccessGranted:
		where := ""
		if !p.Node.IsZero() {
			where = " of " + s.NameOf(p.Node)
		}
		return fmt.Sprintf("access granted to %s as %s%s", p.Name, p.Role, where)
	case *events.AccessRevoked:
		return "access of " + name + " revoked"
	case *events.RotationUrged:
		return name + " made urgent"
	case *events.RotationCompleted:
		return name + " completed"
	case *events.RotationAborted:
		return name + " aborted"
	}
	return subject + " " + e.Type.Name
}

func (s *State) onNode(id events.ID) string {
	if id.IsZero() {
		return ""
	}
	return " on " + s.NameOf(id)
}

func byForce(forced bool) string {
	if forced {
		return " by force"
	}
	return ""
}

func orUnknown(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// rotationName says what a rotation is about.
func (s *State) rotationName(o *Rotation) string {
	switch {
	case o.Provider == 0:
		return "rotation of the instance of " + s.SlotPath(s.Binding(o.Binding))
	case o.Binding != 0:
		return "rotation of " + s.SlotPath(s.Binding(o.Binding)) + " at " + s.Provider(o.Provider).Name
	}
	return "rotation of the holders of " + s.Provider(o.Provider).Name
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func loginText(l events.Login) string {
	if l.Database == "" {
		return l.User
	}
	return l.User + ", to " + l.Database
}

// didText is what was done so that a login is over, after a comma; "" where it was not
// said.
func didText(d events.Did) string {
	switch d {
	case events.DidDrop:
		return ", its login dropped"
	case events.DidAbsent:
		return ", its login was not there"
	}
	return ""
}

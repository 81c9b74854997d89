package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bindery/events"
	"bindery/projections"
)

// RotationTarget says whose credentials a rotation replaces: those of one
// provider's holders, of one binding, or of the holders of all providers of a
// provision on a node.
type RotationTarget struct {
	Provider     string `json:"provider,omitempty"`
	Binding      string `json:"binding,omitempty"` // assignment/slot
	Provision    string `json:"provision,omitempty"`
	Node         string `json:"node,omitempty"`
	IssuedBefore uint64 `json:"issued_before,omitempty"` // only those issued at a lower sequence; 0: all
}

// StartRotation begins to replace credentials.
type StartRotation struct {
	RotationTarget
	Deadline  string `json:"deadline,omitempty"` // a time from now: 72h, 3d
	Urgent    bool   `json:"urgent,omitempty"`
	Supersede bool   `json:"supersede,omitempty"` // abort the one that is open
}

// UrgeRotation lets the old credentials be revoked as soon as the new ones are
// issued.
type UrgeRotation struct {
	Rotation string `json:"rotation"`
}

// AbortRotation ends a rotation before it is complete.
type AbortRotation struct {
	Rotation string `json:"rotation"`
}

// Verb implements Command.
func (StartRotation) Verb() string { return "rotation.start" }

// Verb implements Command.
func (UrgeRotation) Verb() string { return "rotation.urge" }

// Verb implements Command.
func (AbortRotation) Verb() string { return "rotation.abort" }

// rotations finds what a rotation would be about: one for each target.
func (c RotationTarget) rotations(s *projections.State) ([]projections.Rotation, error) {
	one := "one of --provider, --binding, and --provision with --node says it"
	start := do("rotation start").With("--provider", "PROVIDER")
	byNode := c.Provision != "" || c.Node != ""
	switch n := boolCount(c.Provider != "", c.Binding != "", byNode); {
	case n == 0 || byNode && (c.Provision == "" || c.Node == ""):
		return nil, refuse(Usage, "whose credentials shall be rotated is not said", one, start)
	case n > 1:
		return nil, refuse(Usage, "whose credentials shall be rotated is said twice", one, start)
	case c.Binding != "":
		return c.ofBinding(s)
	case c.Provider != "":
		r, err := Finder{s}.Provider(c.Provider)
		if err != nil {
			return nil, err
		}
		return c.ofProviders(s, []projections.ProviderRef{r})
	}
	v, err := Finder{s}.Provision(c.Provision)
	if err != nil {
		return nil, err
	}
	node, err := Finder{s}.Node(c.Node)
	if err != nil {
		return nil, err
	}
	var refs []projections.ProviderRef
	for _, r := range s.Node(node).Providers {
		if s.Provider(r).Provision == v {
			refs = append(refs, r)
		}
	}
	if len(refs) == 0 {
		return nil, refuse(ProviderNotFound, "no provider of "+s.Provision(v).Name+" is on "+s.Node(node).Name, "", do("provider list"))
	}
	slices.SortFunc(refs, func(a, b projections.ProviderRef) int { return strings.Compare(s.Provider(a).Name, s.Provider(b).Name) })
	return c.ofProviders(s, refs)
}

func (c RotationTarget) ofProviders(s *projections.State, refs []projections.ProviderRef) ([]projections.Rotation, error) {
	out := make([]projections.Rotation, len(refs))
	for i, r := range refs {
		p := s.Provider(r)
		if v := s.Provision(p.Provision); v.Credentials != events.CredentialsManaged {
			return nil, refuse(NoCredentials, p.Name+" has no holders to rotate",
				"credentials of "+v.Name+" are not managed: its consumers need none", do("provision show", v.Name))
		}
		if p.State == projections.Retired {
			return nil, refuse(ProviderRetired, "provider "+p.Name+" is retired", "nobody issues or revokes there any more", s.FixRetired(p))
		}
		out[i] = projections.Rotation{Provider: r, IssuedBefore: c.IssuedBefore}
	}
	return out, nil
}

func (c RotationTarget) ofBinding(s *projections.State) ([]projections.Rotation, error) {
	f, err := Finder{s}.Slot(c.Binding)
	if err != nil {
		return nil, err
	}
	path := s.Assignment(f.Assignment).Name + "/" + f.Name
	if f.Binding == 0 || s.Binding(f.Binding).Pending() {
		return nil, refuse(BindingNotFound, "nothing serves "+path+" yet", "it has no credential to rotate", do("assignment resolve", s.Assignment(f.Assignment).Name))
	}
	b := s.Binding(f.Binding)
	provider, embedded := b.Provider, b.Embedded
	if r := s.InUse(b); r != 0 && s.Credential(r).State.Live() {
		// What it runs with is what has leaked, or is old: also while it is on its
		// way elsewhere.
		provider, embedded = s.Credential(r).Provider, s.Credential(r).Provider == 0
	}
	if embedded {
		if v := s.Provision(b.Provision); v.Credentials != events.CredentialsManaged {
			return nil, refuse(NoCredentials, path+" has no credentials", "those of "+v.Name+" are not managed", do("provision show", v.Name))
		}
		return []projections.Rotation{{Binding: f.Binding, IssuedBefore: c.IssuedBefore}}, nil
	}
	out, err := c.ofProviders(s, []projections.ProviderRef{provider})
	if err == nil {
		out[0].Binding = f.Binding
	}
	return out, err
}

// Decide implements Command.
func (c StartRotation) Decide(t *Tx) error {
	deadline, err := c.deadline(t.Now)
	if err != nil {
		return err
	}
	all, err := c.rotations(t.State)
	if err != nil {
		return err
	}
	for i := range all {
		if err := c.start(t, &all[i], deadline); err != nil {
			return err
		}
	}
	return nil
}

func (c StartRotation) start(t *Tx, o *projections.Rotation, deadline time.Time) error {
	if r := t.OpenAt(o); r != 0 {
		was := t.Rotation(r)
		if !c.Supersede {
			id := was.ID
			refusal := refuse(RotationOpen, t.NameOf(id)+" is open already",
				fmt.Sprintf("%s started it at sequence %d; done: %d of %d", was.Actor, was.Seq, was.Done, was.Total), do("rotation show", id.String()))
			refusal.Candidates = append(refusal.Candidates, Candidate{Name: id.String(), ID: &id, Why: "is open", Flag: "--supersede"})
			return refusal
		}
		if err := t.emit(was.ID, &events.RotationAborted{}); err != nil {
			return err
		}
	}
	e := &events.RotationStarted{IssuedBefore: c.IssuedBefore, Deadline: events.Moment(deadline), Urgent: c.Urgent,
		Members: uint64(t.CountMembers(*o))}
	if o.Provider != 0 {
		e.Target.Provider = t.Provider(o.Provider).ID
	} else {
		e.Target.Embedded = true
	}
	if o.Binding != 0 {
		e.Binding = t.Binding(o.Binding).ID
	}
	if e.Members == 0 {
		t.warn("nobody holds a credential that it would be about: there is nothing to replace")
	}
	return t.emit(t.NewID(), e)
}

// deadline is the instant that a duration from now means; zero for none.
func (c StartRotation) deadline(now time.Time) (time.Time, error) {
	if c.Deadline == "" {
		return time.Time{}, nil
	}
	d, err := ParseDuration(c.Deadline)
	if err != nil || d <= 0 {
		return time.Time{}, refuse(Usage, fmt.Sprintf("%q is no deadline", clip(c.Deadline)), "it is a time from now, like 72h, 3d or 1d12h",
			again().With("--deadline", "72h"))
	}
	return events.Instant(now.Add(d)), nil
}

// completeRotations ends the rotations that the command's events left nothing
// to do for.
func (t *Tx) completeRotations() error {
	for len(t.Finished()) > 0 {
		if err := t.emit(t.Rotation(t.Finished()[0]).ID, &events.RotationCompleted{}); err != nil {
			return err
		}
	}
	return nil
}

// openRotation finds a rotation that is open; done says that it is in the state
// wanted already.
func (t *Tx) openRotation(text string, wanted projections.RotationState) (o *projections.Rotation, done bool, err error) {
	r, err := Finder{t.State}.Rotation(text)
	if err != nil {
		return nil, false, err
	}
	o = t.Rotation(r)
	if o.State == projections.Open || o.State == wanted {
		return o, o.State == wanted, nil
	}
	return nil, false, refuse(RotationClosed, fmt.Sprintf("%s is %s", t.NameOf(o.ID), o.State), fmt.Sprintf("since sequence %d", o.Closed),
		do("rotation show", o.ID.String()))
}

// Decide implements Command.
func (c UrgeRotation) Decide(t *Tx) error {
	o, _, err := t.openRotation(c.Rotation, "")
	if err != nil {
		return err
	}
	if err := t.needReason("making a rotation urgent"); err != nil {
		return err
	}
	if o.Urged != 0 {
		return nil
	}
	return t.emit(o.ID, &events.RotationUrged{})
}

// Decide implements Command.
func (c AbortRotation) Decide(t *Tx) error {
	o, done, err := t.openRotation(c.Rotation, projections.Aborted)
	if err != nil || done {
		return err
	}
	if err := t.needReason("aborting a rotation"); err != nil {
		return err
	}
	return t.emit(o.ID, &events.RotationAborted{})
}

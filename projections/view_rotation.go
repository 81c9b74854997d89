package projections

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bindery/events"
)

// Step is what a member of a rotation waits for.
type Step string

// The steps, in the order an operator wants to see them.
const (
	StepStuck    Step = "stuck"    // nobody's turn but the operator's
	StepStranded Step = "stranded" // to be revoked at a retired provider
	StepIssue    Step = "issue"    // the next credential, at the same target
	StepLeaving  Step = "leaving"  // the next credential, elsewhere
	StepAdopt    Step = "adopt"    // the consumer shall take up the next one
	StepRevoke   Step = "revoke"   // the old one
	StepDone     Step = "done"
)

// Steps lists the steps in their order.
func Steps() []Step {
	return []Step{StepStuck, StepStranded, StepIssue, StepLeaving, StepAdopt, StepRevoke, StepDone}
}

// Turn is who has to act.
type Turn string

// The turns.
const (
	TurnProvider Turn = "provider"
	TurnConsumer Turn = "consumer"
	TurnOperator Turn = "operator"
	TurnNone     Turn = "none"
)

// Member is one credential that a rotation replaces.
type Member struct {
	Binding    events.ID `json:"binding"`
	Assignment string    `json:"assignment"`
	Slot       string    `json:"slot"`
	Node       string    `json:"node"` // the consumer's
	From       uint64    `json:"from"` // the generation that goes
	To         uint64    `json:"to"`   // the one in its place, 0 for none
	Step       Step      `json:"step"`
	Turn       Turn      `json:"turn"`
	Who        string    `json:"who"` // the node whose turn it is; "operator", or "" for nobody
	Since      time.Time `json:"since"`
	Overdue    bool      `json:"overdue"`
	Attempts   uint64    `json:"attempts"`
	Error      string    `json:"error"`
	Fix        Fix       `json:"fix,omitzero"`      // what an operator whose turn it is can type
	Outcome    string    `json:"outcome,omitempty"` // of one that is done: revoked, written-off or gone
}

// RotationView is a rotation as readers see it.
type RotationView struct {
	Seq          uint64       `json:"seq"` // of its start
	ID           events.ID    `json:"id"`
	Provider     string       `json:"provider,omitempty"`
	ProviderID   *events.ID   `json:"provider_id,omitempty"`
	Slot         string       `json:"slot,omitempty"` // assignment/slot, where it is about one binding
	Embedded     bool         `json:"embedded,omitempty"`
	State        string       `json:"state"`
	Total        int          `json:"total"`
	Done         int          `json:"done"`
	Urgent       bool         `json:"urgent"`
	IssuedBefore uint64       `json:"issued_before,omitempty"`
	Deadline     *time.Time   `json:"deadline"`
	Overdue      bool         `json:"overdue"`
	Started      time.Time    `json:"started"`
	Closed       *time.Time   `json:"closed"`
	ClosedSeq    uint64       `json:"closed_seq,omitempty"`
	Actor        string       `json:"actor"`
	Reason       string       `json:"reason"`
	ClosedReason string       `json:"closed_reason,omitempty"`
	Steps        map[Step]int `json:"steps,omitempty"` // how many members are at each
	Failing      int          `json:"failing"`
	WrittenOff   int          `json:"written_off,omitempty"` // of those done, nobody revoked
	Members      []Member     `json:"members,omitzero"`      // absent where they were not asked for
	At           uint64       `json:"at"`                    // the sequence this was read at
}

// RotationView makes the view of a rotation without its members.
func (s *State) RotationView(r RotationRef, now time.Time) RotationView {
	o := s.Rotation(r)
	v := RotationView{Seq: o.Seq, ID: o.ID, Embedded: o.Provider == 0, State: string(o.State), Total: o.Total, Done: o.Done,
		Urgent: o.Urged != 0, IssuedBefore: o.IssuedBefore, Overdue: o.Overdue(now), Started: o.Time, ClosedSeq: o.Closed,
		Actor: o.Actor, Reason: o.Reason, ClosedReason: o.ClosedReason, At: s.Seq}
	if o.Provider != 0 {
		p := s.Provider(o.Provider)
		id := p.ID
		v.Provider, v.ProviderID = p.Name, &id
	}
	if o.Binding != 0 {
		v.Slot = s.SlotPath(s.Binding(o.Binding))
	}
	if deadline := o.Deadline; !deadline.IsZero() {
		v.Deadline = &deadline
	}
	if closed := o.ClosedTime; o.Closed != 0 {
		v.Closed = &closed
	}
	return v
}

// RotationMembers makes the view of a rotation with its members, at most so many
// where limit is not 0: what is left to do first, in the order of Steps, then by
// consumer.
func (s *State) RotationMembers(r RotationRef, now time.Time, limit int) RotationView {
	v := s.RotationView(r, now)
	o := s.Rotation(r)
	rows := make([]Member, 0, o.Total)
	v.Steps = map[Step]int{}
	s.members(o, func(c *Credential) {
		m := s.member(c)
		if m.Step == StepStuck && o.State != Open {
			m.Turn, m.Who, m.Fix = TurnNone, "", Fix{} // nobody wants it replaced any more
		}
		m.Overdue = v.Overdue && m.Step != StepDone
		v.Steps[m.Step]++
		if m.Attempts > 0 {
			v.Failing++
		}
		if m.Outcome == WrittenOff.String() {
			v.WrittenOff++
		}
		rows = append(rows, m)
	})
	v.Members = sortedMembers(rows, limit)
	return v
}

// sortedMembers sorts what may be a hundred thousand rows by their places: a row
// is large to move.
func sortedMembers(rows []Member, limit int) []Member {
	order := map[Step]int{}
	for i, step := range Steps() {
		order[step] = i
	}
	type place struct{ step, row int }
	places := make([]place, len(rows))
	for i := range rows {
		places[i] = place{order[rows[i].Step], i}
	}
	slices.SortFunc(places, func(a, b place) int {
		x, y := &rows[a.row], &rows[b.row]
		return cmp.Or(a.step-b.step, strings.Compare(x.Assignment, y.Assignment), strings.Compare(x.Slot, y.Slot), cmp.Compare(x.From, y.From))
	})
	if limit > 0 {
		places = places[:min(limit, len(places))]
	}
	out := make([]Member, len(places))
	for i, p := range places {
		out[i] = rows[p.row]
	}
	return out
}

// member makes the row of one credential in the fan-out of a rotation.
func (s *State) member(c *Credential) Member {
	b := s.Binding(c.Binding)
	a := s.Assignment(b.Assignment)
	m := Member{Binding: b.ID, Assignment: a.Name, Slot: s.SlotName(b), Node: s.Node(a.Node).Name, From: c.Generation}
	next := s.next(c)
	if next != nil {
		m.To = next.Generation
	}
	waits := func(step Step, turn Turn, who string, since time.Time) {
		m.Step, m.Turn, m.Who, m.Since = step, turn, who, since
	}
	fails := func(f Failure, ok bool) {
		if ok {
			m.Attempts, m.Error = f.Attempts, f.Reason
		}
	}
	ask, asked := s.Ask(c.Binding)
	switch revocable := s.Revocable(c); {
	case !c.State.Live():
		waits(StepDone, TurnNone, "", c.Since())
		m.Outcome = c.State.String()
	case c.State == ToRevoke || revocable:
		since := c.Since()
		if revocable {
			since = next.Since()
		}
		f, failed := s.FailureOf(c.Binding, c.Generation)
		fails(f, failed)
		if c.Provider != 0 && s.Provider(c.Provider).State == Retired {
			waits(StepStranded, TurnOperator, string(TurnOperator), since)
			m.Fix = Do("credential write-off").With("--provider", s.Provider(c.Provider).ID.String()).With("--all").With("--reason", "TEXT")
			break
		}
		waits(StepRevoke, TurnProvider, s.Node(s.ProviderNode(c)).Name, since)
		if needsOperator(c, f) {
			m.Turn, m.Who, m.Fix = TurnOperator, string(TurnOperator), s.endByHand(c)
		}
	case asked:
		step := StepLeaving
		if ask.Provider == c.Provider {
			step = StepIssue
		}
		m.To = ask.Generation
		waits(step, TurnProvider, s.Node(s.ProviderNode(&ask)).Name, ask.Since())
		f, failed := s.FailureOf(c.Binding, ask.Generation)
		fails(f, failed)
		if needsOperator(&ask, f) {
			m.Turn, m.Who, m.Fix = TurnOperator, string(TurnOperator), s.issueByHand(&ask)
		}
	case next != nil && s.useLive(b) || s.Lingers(b):
		since := c.Since()
		if next != nil {
			use := s.Credential(b.use)
			m.To, since = use.Generation, use.Since()
		}
		waits(StepAdopt, TurnConsumer, m.Node, since)
		fails(s.Trouble(c.Binding))
	default:
		waits(StepStuck, TurnOperator, string(TurnOperator), c.Since())
		m.Fix = s.unstick(b)
	}
	return m
}

// ProviderNode is the node whose agent issues and revokes a credential: the
// provider's present one, or the consumer's for an embedded instance.
func (s *State) ProviderNode(c *Credential) NodeRef {
	if c.Provider != 0 {
		return s.Provider(c.Provider).Node
	}
	return s.Assignment(s.Binding(c.Binding).Assignment).Node
}

// issueByHand is what helps where no agent can answer an ask: which login it is to follow
// is said, or somebody makes one and says so.
func (s *State) issueByHand(ask *Credential) Fix {
	b := s.Binding(ask.Binding)
	if b.use != 0 && s.Credential(b.use).Unowned() {
		return s.endByHand(s.Credential(b.use))
	}
	return Do("credential issued", s.SlotPath(b)).With("--generation", strconv.FormatUint(ask.Generation, 10)).With("--secret-ref", "SCHEME:PATH")
}

// endByHand is what helps where no agent can know which login a credential is: somebody
// says which, or has ended it and says so.
func (s *State) endByHand(c *Credential) Fix {
	path := s.SlotPath(s.Binding(c.Binding))
	generation := strconv.FormatUint(c.Generation, 10)
	if c.Unowned() {
		return Do("credential adopt", path).With("--generation", generation).With("--user", "USER")
	}
	return Do("credential revoked", path).With("--generation", generation)
}

// unstick is what helps a consumer on that nobody is to give a credential to.
func (s *State) unstick(b *Binding) Fix {
	path, a, d := s.SlotPath(b), s.Assignment(b.Assignment), s.Declared(b)
	retired := b.Provider != 0 && s.Provider(b.Provider).State == Retired
	switch {
	case !retired:
		return Do("credential request", path).With("--reason", "TEXT")
	case d == nil:
		return Do("assignment resolve", a.Name).With("--prune")
	case b.Override != 0:
		return Do("override set", path).With("--provider", "OTHER").With("--reason", "TEXT")
	case d.Kind == Embeds:
		return Do("binding rebind", path).With("--re-resolve")
	}
	return Do("binding rebind", path).With("--provider", "OTHER")
}

// RotationFilter narrows a list of rotations; the zero one does not.
type RotationFilter struct {
	Overdue bool
}

// ListRotations lists the rotations, the newest first.
func (s *State) ListRotations(f RotationFilter, now time.Time) List[RotationView] {
	var items []RotationView
	for i := s.rotations.len(); i > 0; i-- {
		if v := s.RotationView(RotationRef(i), now); v.Overdue || !f.Overdue {
			items = append(items, v)
		}
	}
	return list(s, items)
}

// NodeCount is how many holders are on a node.
type NodeCount struct {
	Node    string `json:"node"`
	Holders int    `json:"holders"`
}

// Preview is what a rotation would be about.
type Preview struct {
	Provider   string           `json:"provider,omitempty"`
	ProviderID *events.ID       `json:"provider_id,omitempty"`
	Slot       string           `json:"slot,omitempty"`
	Total      int              `json:"total"`
	Nodes      []NodeCount      `json:"nodes"`
	Holders    []CredentialView `json:"holders"`
}

// Preview tells what a rotation that began now would be about: o says of which
// target, which binding and which credentials. Who holds them is listed on demand.
func (s *State) Preview(o Rotation, who bool) Preview {
	o.Seq, o.State = s.Seq+1, Open
	v := Preview{Nodes: []NodeCount{}, Holders: []CredentialView{}}
	if o.Provider != 0 {
		id := s.Provider(o.Provider).ID
		v.Provider, v.ProviderID = s.Provider(o.Provider).Name, &id
	}
	if o.Binding != 0 {
		v.Slot = s.SlotPath(s.Binding(o.Binding))
	}
	if s.holders(o.target()) == nil {
		return v
	}
	nodes := map[string]int{}
	s.members(&o, func(c *Credential) {
		v.Total++
		nodes[s.Node(s.Assignment(s.Binding(c.Binding).Assignment).Node).Name]++
		if who {
			v.Holders = append(v.Holders, s.CredentialView(c))
		}
	})
	byConsumer(v.Holders)
	for node, n := range nodes {
		v.Nodes = append(v.Nodes, NodeCount{node, n})
	}
	slices.SortFunc(v.Nodes, func(a, b NodeCount) int { return strings.Compare(a.Node, b.Node) })
	return v
}

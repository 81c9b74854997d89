package commands

import (
	"fmt"
	"slices"

	"bindery/events"
)

// This file is a second reading of DESIGN section 6, as naive as it can be: each
// event is taken up at once and every consequence written down where it happens,
// in maps and slices, where the real state derives it. It shares no code with
// the projections.

// What a credential can be.
const (
	mAsked      = "asked"
	mWithdrawn  = "withdrawn"
	mIssued     = "issued"
	mAdopted    = "adopted"
	mToRevoke   = "to-revoke"
	mRevoked    = "revoked"
	mWrittenOff = "written-off"
	mGone       = "gone"
)

// mCred is one generation of one binding.
type mCred struct {
	of        *mBinding
	gen       uint64
	target    events.Target // fixed by the ask
	asker     *mRotation    // nil where no rotation asked
	state     string
	issued    uint64
	ref       string
	wasInUse  bool // issued while its ask was open
	revocable bool // marked by an urgent rotation
	failure   mFailure
	user      string
	byHand    bool   // made by somebody who is no agent
	hook      string // of the agent that made it
}

// mFailure is what a side said last that it could not do.
type mFailure struct {
	attempts uint64
	reason   string
	operator bool // trying again does not help
}

// follows checks that a failure is news: for another reason, or tried twice as
// often.
func (m *model) follows(f *mFailure, attempts uint64, reason string) {
	if f.attempts != 0 && f.reason == reason && attempts < 2*f.attempts {
		m.fail("failed %d times after %d, for the same reason, is an event", attempts, f.attempts)
	}
	*f = mFailure{attempts: attempts, reason: reason}
}

func (c *mCred) replaceable() bool { return c.state == mIssued || c.state == mAdopted }
func (c *mCred) live() bool        { return c.replaceable() || c.state == mToRevoke }
func (c *mCred) over() bool {
	return c.state == mRevoked || c.state == mWrittenOff || c.state == mGone
}
func (c *mCred) inUse() bool     { return c.of.use == c && c.replaceable() }
func (c *mCred) mayRevoke() bool { return c.state == mToRevoke || c.revocable && c.replaceable() }

// needsOperator: no agent can know which login it is, or one says that trying again does
// not help.
func (c *mCred) needsOperator() bool {
	return c.live() && c.byHand && c.user == "" || (c.live() || c.state == mAsked) && c.failure.operator
}

func (c *mCred) String() string {
	return fmt.Sprintf("%s generation %d (%s)", c.of.path(), c.gen, c.state)
}

type mBinding struct {
	id         events.ID
	assignment *mAssignment
	slot       string
	decided    events.Target
	managed    bool
	creds      []*mCred // every generation ever asked, in order
	open       *mCred   // the open ask
	use        *mCred   // the highest generation issued while its ask was open
	hasUse     bool     // there is something to run with
	changed    uint64   // the last change of what there is to run with
	settled    uint64   // the last change of what is decided, until there is
	applied    uint64
	released   uint64 // the sequence, 0: not
	pruned     bool
	document   bool // a pruned slot's, until the consumer has taken note
	trouble    mFailure
}

func (b *mBinding) path() string  { return b.assignment.name + "/" + b.slot }
func (b *mBinding) useLive() bool { return b.use != nil && b.use.live() }

// runsWith is the target of what the consumer is to run with.
func (b *mBinding) runsWith() events.Target {
	switch {
	case !b.hasUse:
		return events.Target{}
	case b.use != nil:
		return b.use.target
	}
	return b.decided
}

func (b *mBinding) cred(gen uint64) *mCred {
	for _, c := range b.creds {
		if c.gen == gen {
			return c
		}
	}
	return nil
}

type mAssignment struct {
	id           events.ID
	name         string
	module, node events.ID
	ended        bool
	bindings     []*mBinding
}

type mProvider struct {
	id                events.ID
	name, endpoint    string
	provision, node   events.ID
	retired, cordoned bool
}

type mSlot struct {
	embeds    bool
	provision events.ID
}

type mRotation struct {
	id           events.ID
	seq          uint64
	target       events.Target
	binding      events.ID
	issuedBefore uint64
	deadline     events.Moment
	urgent       bool
	state        string
	set          []*mCred // C, copied when it began
	asked        []*mCred // the explicit list of its own asks
}

func (r *mRotation) done() int {
	n := 0
	for _, c := range r.set {
		if c.over() {
			n++
		}
	}
	return n
}

// model is the whole second ledger.
type model struct {
	seq         uint64
	nodes       map[events.ID]string
	managed     map[events.ID]bool // by provision
	provisions  map[events.ID]string
	providers   map[events.ID]*mProvider
	fleet       []*mProvider // the same, in order
	modules     map[events.ID]map[string]mSlot
	assignments map[events.ID]*mAssignment
	bindings    map[events.ID]*mBinding
	order       []*mBinding
	rotations   []*mRotation

	mustAsk []*mBinding // cut off by the present command
	last    string      // what last became of a credential
	seen    map[string]int
	fail    func(format string, args ...any)
}

func newModel(fail func(string, ...any)) *model {
	return &model{nodes: map[events.ID]string{}, managed: map[events.ID]bool{}, provisions: map[events.ID]string{},
		providers: map[events.ID]*mProvider{}, modules: map[events.ID]map[string]mSlot{},
		assignments: map[events.ID]*mAssignment{}, bindings: map[events.ID]*mBinding{}, seen: map[string]int{}, fail: fail}
}

// reached counts that a row of the table, or a step, was come by.
func (m *model) reached(what string) { m.seen[what]++ }

// command takes up the events of one whole command.
func (m *model) command(evs []events.Event) {
	m.mustAsk = nil
	for i := range evs {
		m.event(&evs[i])
		m.seq = evs[i].Seq
		m.markRevocable()
	}
	m.notable(evs)
	for _, b := range m.mustAsk {
		if b.open == nil {
			m.fail("%s was cut off and nothing was asked in the same batch", b.path())
		}
	}
	for _, r := range m.rotations {
		if r.state == "open" && r.done() == len(r.set) {
			m.fail("the last of rotation %d is over and it is not completed", r.seq)
		}
	}
	m.oneOpenRotation()
}

// notable counts what only the whole of a command shows.
func (m *model) notable(evs []events.Event) {
	aborted := false
	for _, e := range evs {
		switch e.Data.(type) {
		case *events.RotationAborted:
			aborted = true
		case *events.RotationStarted:
			if aborted {
				m.reached("rotation superseded")
			}
		case *events.ProviderRetired:
			if aborted {
				m.reached("rotation aborted by a retirement")
			}
		}
	}
}

func (m *model) oneOpenRotation() {
	type key struct {
		target  events.Target
		binding events.ID
	}
	open := map[key]bool{}
	for _, r := range m.rotations {
		if r.state != "open" {
			continue
		}
		k := key{target: r.target}
		if r.target.Embedded {
			k.binding = r.binding
		}
		if open[k] {
			m.fail("two rotations of one target are open")
		}
		open[k] = true
	}
}

// event takes up one event.
func (m *model) event(e *events.Event) {
	switch p := e.Data.(type) {
	case *events.NodeRegistered:
		m.nodes[e.Entity] = p.Name
	case *events.NodeRenamed:
		m.nodes[e.Entity] = p.To
	case *events.ProvisionDefined:
		m.managed[e.Entity], m.provisions[e.Entity] = p.Credentials == events.CredentialsManaged, p.Name
	case *events.ProviderRegistered:
		n := &mProvider{id: e.Entity, name: p.Name, endpoint: p.Endpoint, provision: p.Provision, node: p.Node, cordoned: p.Cordoned}
		m.providers[e.Entity], m.fleet = n, append(m.fleet, n)
	case *events.ProviderRenamed:
		m.providers[e.Entity].name = p.To
	case *events.ProviderUpdated:
		if p.Endpoint != nil && *p.Endpoint != m.providers[e.Entity].endpoint {
			m.providers[e.Entity].endpoint = *p.Endpoint
			m.useChanged(e.Entity, e.Seq)
		}
	case *events.ProviderRelocated:
		m.providers[e.Entity].node, m.providers[e.Entity].endpoint = p.To, p.Endpoint
		m.useChanged(e.Entity, e.Seq)
	case *events.ProviderCordoned:
		m.providers[e.Entity].cordoned = true
	case *events.ProviderUncordoned:
		m.providers[e.Entity].cordoned = false
	case *events.ProviderRetired:
		m.retired(e.Entity)
	case *events.ModuleDeclared:
		m.declared(e.Entity, p)
	default:
		m.consumerEvent(e)
	}
}

func (m *model) consumerEvent(e *events.Event) {
	switch p := e.Data.(type) {
	case *events.AssignmentCreated:
		a := &mAssignment{id: e.Entity, name: p.Name, module: p.Module, node: p.Node}
		m.assignments[e.Entity] = a
		for _, slot := range sortedKeys(p.Slots) {
			m.binding(p.Slots[slot], a.id, slot)
		}
	case *events.AssignmentRenamed:
		m.assignments[e.Entity].name = p.To
	case *events.AssignmentMoved:
		m.moved(m.assignments[e.Entity], p.To, e.Seq)
	case *events.AssignmentEnded:
		m.ended(m.assignments[e.Entity])
	case *events.ChoiceSet:
		m.binding(p.Binding, e.Entity, p.Slot)
	case *events.OverrideSet:
		m.binding(p.Binding, p.Assignment, p.Slot)
	case *events.BindingBound:
		m.decide(m.binding(e.Entity, p.Assignment, p.Slot), p.Target, e.Seq, "bound")
	case *events.BindingRebound:
		b := m.binding(e.Entity, p.Assignment, p.Slot)
		if b.decided != p.From {
			m.fail("%s is rebound from what did not serve it", b.path())
		}
		m.decide(b, p.To, e.Seq, "rebound")
	case *events.BindingReleased:
		m.release(m.bindings[e.Entity], p.Cause, e.Seq)
	case *events.BindingApplied:
		m.acknowledged(m.bindings[e.Entity], p.At)
	case *events.BindingFailed:
		b := m.bindings[e.Entity]
		m.follows(&b.trouble, p.Attempts, e.Reason)
		if b.use != nil && b.use.state == mIssued {
			m.reached("issued, binding.failed: issued")
		}
	default:
		m.credentialEvent(e)
	}
}

func (m *model) credentialEvent(e *events.Event) {
	switch p := e.Data.(type) {
	case *events.CredentialRequested:
		b := m.bindings[e.Entity]
		if b.decided != p.Target || b.released != 0 || !b.managed || m.gone(p.Target) {
			m.fail("a credential of %s is requested that cannot be", b.path())
		}
		m.ask(b, p.Target, e.Seq, "requested")
	case *events.CredentialIssued:
		c := m.known(e.Entity, p.Generation)
		m.issue(c, string(p.SecretRef), e.Seq)
		m.madeBy(c, p)
	case *events.CredentialLoginTold:
		c := m.known(e.Entity, p.Generation)
		if c.hook != "" || c.issued == 0 {
			m.fail("it is told which login %s is, made by %q", c, c.hook)
		}
		m.reached("login told, " + c.state)
		c.user, c.byHand = p.Login.User, true
	case *events.CredentialFailed:
		c := m.known(e.Entity, p.Generation)
		m.failed(c)
		m.follows(&c.failure, p.Attempts, e.Reason)
		c.failure.operator = p.Operator
	case *events.CredentialRevoked:
		m.revoke(m.known(e.Entity, p.Generation), p.Forced)
	case *events.CredentialWrittenOff:
		m.writeOff(m.known(e.Entity, p.Generation), p.Forced)
	case *events.RotationStarted:
		m.start(e.Entity, p, e.Seq)
	case *events.RotationUrged:
		r := m.rotation(e.Entity)
		if r.state != "open" || r.urgent {
			m.fail("rotation %d is urged, %s, urgent %t", r.seq, r.state, r.urgent)
		}
		r.urgent = true
		m.reached("rotation urged")
	case *events.RotationCompleted:
		r := m.rotation(e.Entity)
		if r.state != "open" || r.done() != len(r.set) {
			m.fail("rotation %d is completed, %s, with %d of %d", r.seq, r.state, r.done(), len(r.set))
		}
		r.state = "completed"
		if len(r.set) == 0 {
			m.reached("rotation completed: empty")
		} else {
			m.reached("rotation completed: " + m.last)
		}
	case *events.RotationAborted:
		m.abort(m.rotation(e.Entity))
	}
}

func (m *model) gone(t events.Target) bool { return !t.Embedded && m.providers[t.Provider].retired }

// known is a generation that an event speaks of.
func (m *model) known(id events.ID, gen uint64) *mCred {
	if b := m.bindings[id]; b != nil {
		if c := b.cred(gen); c != nil {
			return c
		}
	}
	m.fail("an event speaks of generation %d of %s, never asked", gen, id)
	return nil
}

func (m *model) rotation(id events.ID) *mRotation {
	for _, r := range m.rotations {
		if r.id == id {
			return r
		}
	}
	m.fail("an event speaks of rotation %s, never started", id)
	return nil
}

// binding is the binding of that id, made when it is first spoken of.
func (m *model) binding(id, assignment events.ID, slot string) *mBinding {
	b := m.bindings[id]
	if b == nil {
		a := m.assignments[assignment]
		b = &mBinding{id: id, assignment: a, slot: slot}
		a.bindings = append(a.bindings, b)
		m.bindings[id], m.order = b, append(m.order, b)
	}
	if b.released != 0 {
		m.fail("the binding of %s is released and used again", b.path())
	}
	return b
}

func (m *model) declared(id events.ID, p *events.ModuleDeclared) {
	slots := map[string]mSlot{}
	for name, r := range p.Requires {
		slots[name] = mSlot{provision: r.Provision}
	}
	for name, e := range p.Embeds {
		slots[name] = mSlot{embeds: true, provision: e.Provision}
	}
	m.modules[id] = slots
}

// useChanged notes that what runs at a provider is to be run otherwise.
func (m *model) useChanged(provider events.ID, seq uint64) {
	for _, b := range m.order {
		switch {
		case b.runsWith().Provider == provider:
			m.shown(b, seq)
		case !b.hasUse && b.decided.Provider == provider:
			b.settled = seq
		}
	}
}

func (m *model) moved(a *mAssignment, to events.ID, seq uint64) {
	a.node = to
	for _, b := range a.bindings {
		m.shown(b, seq)
		b.settled = seq
	}
}

// shown notes a change of what a document says to run with.
func (m *model) shown(b *mBinding, seq uint64) {
	switch {
	case b.document:
		m.reached("changed under a released document")
		b.changed = seq
	case b.released == 0 && b.hasUse:
		b.changed = seq
	}
}

// decide binds or rebinds.
func (m *model) decide(b *mBinding, to events.Target, seq uint64, how string) {
	b.decided, b.settled = to, seq
	if to.Embedded {
		if d, ok := m.modules[b.assignment.module][b.slot]; ok {
			b.managed = m.managed[d.provision]
		}
	} else {
		b.managed = m.managed[m.providers[to.Provider].provision]
	}
	if b.managed {
		m.ask(b, to, seq, how)
		return
	}
	if len(b.creds) > 0 {
		m.fail("%s left credentials for a target without", b.path())
	}
	b.hasUse, b.changed, b.trouble = true, seq, mFailure{}
	m.reached("none: switches at once, " + how)
}

// ask opens an ask in place of one that is open.
func (m *model) ask(b *mBinding, target events.Target, seq uint64, how string) *mCred {
	m.withdraw(b, "replaced")
	c := &mCred{of: b, gen: seq, target: target, state: mAsked}
	b.creds, b.open = append(b.creds, c), c
	m.reached("ask: " + how + where(target))
	return c
}

func where(t events.Target) string {
	if t.Embedded {
		return ", embedded"
	}
	return ""
}

func (m *model) withdraw(b *mBinding, why string) {
	if b.open == nil {
		return
	}
	b.open.state, b.open.failure = mWithdrawn, mFailure{}
	b.open = nil
	m.reached("asked: withdrawn, " + why)
}

func (m *model) issue(c *mCred, ref string, seq uint64) {
	b := c.of
	c.issued, c.ref, c.failure = seq, ref, mFailure{}
	switch {
	case c.state == mAsked:
		c.state, c.wasInUse = mIssued, true
		b.open, b.use = nil, c
		b.hasUse, b.changed, b.trouble = true, seq, mFailure{}
		m.reached("asked, issued: in use" + where(c.target))
	case c.state == mWithdrawn && c.target.Embedded && b.assignment.ended:
		c.state = mGone
		m.reached("withdrawn, issued: gone with the assignment")
	case c.state == mWithdrawn:
		c.state, c.failure = mToRevoke, mFailure{}
		m.reached("withdrawn, issued: to-revoke")
		if m.gone(c.target) {
			m.reached("withdrawn, issued: at a retired provider")
		}
	default:
		m.fail("%s is issued", c)
	}
}

// madeBy: whoever names a hook is an agent; anybody else has made it by hand.
func (m *model) madeBy(c *mCred, p *events.CredentialIssued) {
	if p.Login != nil {
		c.user = p.Login.User
	}
	if p.Maker != nil {
		c.hook = p.Maker.Hook
		m.reached("issued by an agent")
	}
	c.byHand = p.Maker == nil
	if p.ByHand != c.byHand {
		m.fail("%s is made by hand: %t, by the hook %q", c, p.ByHand, c.hook)
	}
}

func (m *model) failed(c *mCred) {
	switch {
	case c.state == mAsked:
		m.reached("asked, failed")
	case c.state == mToRevoke:
		m.reached("to-revoke, failed")
	case c.mayRevoke():
		m.reached("revocable, failed")
	default:
		m.fail("%s failed", c)
	}
}

func (m *model) acknowledged(b *mBinding, at uint64) {
	if at > m.seq || at < b.applied || b.released != 0 && !b.document {
		m.fail("%s is acknowledged at %d: head %d, before at %d, released at %d", b.path(), at, m.seq, b.applied, b.released)
	}
	b.applied, b.trouble = at, mFailure{}
	for _, c := range b.creds {
		if c.state == mIssued && c.wasInUse && c.issued <= at {
			c.state, c.failure = mAdopted, mFailure{}
			m.reached("issued, applied: adopted" + where(c.target))
		}
	}
	for i, c := range b.creds {
		higher := slices.ContainsFunc(b.creds[i+1:], func(h *mCred) bool { return h.wasInUse && h.issued <= at })
		if c.replaceable() && higher {
			c.state, c.failure = mToRevoke, mFailure{}
			m.reached("adopted, higher applied: to-revoke" + where(c.target))
		}
	}
	if b.document && at >= b.released {
		b.document = false
		m.leave(b, "pruned and applied")
		m.reached("released document: taken note of")
	}
}

// leave lets go of what the consumer of an ended binding ran with.
func (m *model) leave(b *mBinding, why string) {
	for _, c := range b.creds {
		if c.replaceable() {
			c.state, c.failure = mToRevoke, mFailure{}
			m.reached("live: to-revoke, " + why)
		}
	}
}

func (m *model) ended(a *mAssignment) {
	a.ended = true
	for _, b := range a.bindings {
		m.withdraw(b, "assignment ended")
		for _, c := range b.creds {
			if c.live() && c.target.Embedded {
				c.state, c.failure, m.last = mGone, mFailure{}, mGone
				m.reached("live, embedded: gone")
			}
		}
		b.document = false
		m.leave(b, "assignment ended")
	}
}

func (m *model) release(b *mBinding, cause events.ReleaseCause, seq uint64) {
	if b == nil {
		m.fail("a binding is released that never was")
	}
	if b.released != 0 {
		m.fail("%s is released twice", b.path())
	}
	b.released = seq
	if cause == events.ReleaseEnded {
		return // assignment.ended says the rest
	}
	m.withdraw(b, "slot pruned")
	b.pruned = true
	if b.hasUse {
		b.document, b.changed = true, seq
		m.reached("pruned: a document stays")
	}
}

func (m *model) retired(id events.ID) {
	m.providers[id].retired = true
	for _, b := range m.order {
		if b.open != nil && b.open.target.Provider == id {
			m.withdraw(b, "target retired")
		}
	}
}

func (m *model) revoke(c *mCred, forced bool) {
	switch {
	case c.state == mToRevoke:
		m.reached("to-revoke, revoked")
	case c.state == mWrittenOff:
		m.reached("written-off, revoked: taken")
	case c.mayRevoke():
		m.reached("revocable, revoked")
	case c.replaceable() && forced:
		m.cutOff(c, "revoked")
	default:
		m.fail("%s is revoked, forced %t", c, forced)
	}
	c.state, c.failure, m.last = mRevoked, mFailure{}, mRevoked
}

func (m *model) writeOff(c *mCred, forced bool) {
	switch {
	case c.state == mToRevoke && m.gone(c.target):
		m.reached("to-revoke, written-off, stranded")
	case c.state == mToRevoke:
		m.reached("to-revoke, written-off")
	case c.replaceable() && m.gone(c.target):
		m.reached("live, written-off: target retired")
		if c.inUse() {
			m.reached("in use, written-off: target retired")
		}
	case c.replaceable() && forced:
		m.cutOff(c, "written-off")
	default:
		m.fail("%s is written off, forced %t", c, forced)
	}
	c.state, c.failure, m.last = mWrittenOff, mFailure{}, mWrittenOff
}

// cutOff ends by force what is not replaced. What is in use is asked for anew,
// where an ask is not open already and can be.
func (m *model) cutOff(c *mCred, how string) {
	b := c.of
	switch {
	case !c.inUse():
		m.reached("forced, " + how + ": not in use")
	case b.open != nil:
		m.reached("forced, " + how + ": in use, asked already")
	case b.released != 0:
		m.reached("forced, " + how + ": in use, released")
	case m.gone(b.decided):
		m.reached("forced, " + how + ": in use, nothing can be asked")
	default:
		m.reached("forced, " + how + ": in use, asked anew")
		m.mustAsk = append(m.mustAsk, b)
	}
}

// at reports whether c logs in to the rotation's target.
func (r *mRotation) at(c *mCred) bool {
	return c.target == r.target && (r.binding.IsZero() || c.of.id == r.binding)
}

func (m *model) start(id events.ID, p *events.RotationStarted, seq uint64) {
	r := &mRotation{id: id, seq: seq, target: p.Target, binding: p.Binding, issuedBefore: p.IssuedBefore,
		deadline: p.Deadline, urgent: p.Urgent, state: "open"}
	for _, b := range m.order {
		for _, c := range b.creds {
			if c.live() && r.at(c) && (r.issuedBefore == 0 || c.issued < r.issuedBefore) {
				r.set = append(r.set, c)
			}
		}
	}
	if p.Members != uint64(len(r.set)) {
		m.fail("rotation %d says it is about %d, it is about %d", seq, p.Members, len(r.set))
	}
	for _, b := range m.order {
		switch {
		case b.released != 0 || b.decided != r.target || !slices.Contains(r.set, b.use):
		case b.open != nil:
			m.reached("ask: not by a rotation, one is open")
		case b.useLive() && !m.gone(r.target):
			c := m.ask(b, r.target, seq, "rotation")
			c.asker = r
			r.asked = append(r.asked, c)
		}
	}
	m.rotations = append(m.rotations, r)
	m.reached("rotation of " + map[bool]string{true: "a provider", false: "a binding"}[r.binding.IsZero()] + where(r.target))
	if r.issuedBefore != 0 && len(r.set) > 0 {
		m.reached("rotation with issued-before")
	}
}

func (m *model) abort(r *mRotation) {
	if r.state != "open" {
		m.fail("rotation %d is aborted, %s", r.seq, r.state)
	}
	r.state = "aborted"
	for _, c := range r.asked {
		switch {
		case c.state != mAsked:
		case c.of.useLive():
			m.withdraw(c.of, "rotation aborted")
		default:
			m.reached("rotation aborted: asked stays, what is in use is not live")
		}
	}
	for _, c := range r.set {
		if c.revocable && c.replaceable() {
			m.reached("rotation aborted: the mark outlives it")
		}
	}
}

// markRevocable marks what open urgent rotations may revoke: a higher generation
// is issued to the consumer. One issued late is never the consumer's, so it
// replaces nothing.
func (m *model) markRevocable() {
	for _, r := range m.rotations {
		if r.state != "open" || !r.urgent {
			continue
		}
		for _, c := range r.set {
			if !c.revocable && c.replaceable() && c.of.use.gen > c.gen {
				c.revocable = true
				m.reached("urgent, a higher one issued: revocable")
			}
		}
	}
}

// mMember is a row of the fan-out.
type mMember struct {
	step, turn, who string
	to              uint64
	failure         mFailure
}

func (m *model) unlessOperator(c *mCred, v mMember) mMember {
	if c.needsOperator() {
		v.turn, v.who = "operator", "operator"
		m.reached("step " + v.step + ", an operator's")
	}
	return v
}

// member is the first that fits.
func (m *model) member(r *mRotation, c *mCred) mMember {
	b := c.of
	consumer := m.nodes[b.assignment.node]
	switch {
	case c.over():
		return mMember{step: "done", turn: "none"}
	case c.mayRevoke() && m.gone(c.target):
		return mMember{step: "stranded", turn: "operator", who: "operator", failure: c.failure}
	case c.mayRevoke():
		return m.unlessOperator(c, mMember{step: "revoke", turn: "provider", who: m.side(c), failure: c.failure})
	case b.open != nil && b.open.target == r.target:
		return m.unlessOperator(b.open, mMember{step: "issue", turn: "provider", who: m.side(b.open), to: b.open.gen, failure: b.open.failure})
	case b.open != nil:
		return m.unlessOperator(b.open, mMember{step: "leaving", turn: "provider", who: m.side(b.open), to: b.open.gen, failure: b.open.failure})
	case b.use.gen > c.gen && b.use.state == mIssued:
		return mMember{step: "adopt", turn: "consumer", who: consumer, to: b.use.gen, failure: b.trouble}
	case b.document:
		return mMember{step: "adopt", turn: "consumer", who: consumer, failure: b.trouble}
	}
	if r.state != "open" {
		return mMember{step: "stuck", turn: "none"} // nobody wants it replaced any more
	}
	return mMember{step: "stuck", turn: "operator", who: "operator"}
}

// side is the node of the one who answers for a credential.
func (m *model) side(c *mCred) string {
	if c.target.Embedded {
		return m.nodes[c.of.assignment.node]
	}
	return m.nodes[m.providers[c.target.Provider].node]
}

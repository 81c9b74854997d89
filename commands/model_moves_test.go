package commands

import (
	"fmt"
	"strconv"

	"bindery/commands/manifest"
	"bindery/events"
)

// dice gives a number from 0 to n-1: rapid's, or a seeded source's.
type dice func(n int) int

func (roll dice) of(names ...string) string { return names[roll(len(names))] }

func (roll dice) oneIn(n int) bool { return roll(n) == n-1 }

func one[T any](roll dice, from []T) T { return from[roll(len(from))] }

// What a move is expected to come to, where the specification says it; else a
// code, which it is to be refused with.
const (
	noMatter Code = ""
	writes   Code = "(writes)"
	changes0 Code = "(unchanged)"
	silent   Code = "(writes nothing)" // refused or unchanged
)

// move is one command of the random play.
type move struct {
	cmd    Command
	reason string
	want   Code
}

// player draws commands, most of them about what the model knows there to be.
type player struct {
	m    *model
	w    *world
	roll dice
	refs int
}

var (
	modelNodes       = []string{"alpha", "beta", "gamma"}
	modelAssignments = []string{"wiki", "one", "two", "shop"}
	modelProviders   = []string{"p-a", "p-b", "p-c", "p-d", "d-a", "d-b", "c-a", "c-b"}
	provisionOf      = map[byte]string{'p': "pg", 'd': "dns", 'c': "ca"}
)

// furnish gives the mesh provisions with and without credentials, and consumers
// of all kinds.
func (p *player) furnish() []Command {
	cs := []Command{DefineProvision{Name: "pg", Scope: events.ScopeNode}, DefineProvision{Name: "ca", Scope: events.ScopeMesh},
		DefineProvision{Name: "dns", Scope: events.ScopeNode, Credentials: events.CredentialsNone}}
	for _, n := range modelNodes {
		cs = append(cs, RegisterNode{n})
	}
	for i, name := range modelProviders {
		cs = append(cs, RegisterProvider{Name: name, Provision: provisionOf[name[0]], Node: modelNodes[i%3],
			Endpoint: fmt.Sprintf("seed:%d", i+1), Cordoned: name == "c-b"})
	}
	return append(cs,
		DeclareModule{"wiki", manifest.Module{
			Requires: map[string]manifest.Requirement{"db": {Provision: "pg"}, "log": {Provision: "dns"}},
			Embeds:   map[string]manifest.Embed{"own": {Provision: "pg", Because: "fork", Replaceable: true}}}},
		DeclareModule{"shop", manifest.Module{
			Requires: map[string]manifest.Requirement{"db": {Provision: "pg"}, "aux": {Provision: "ca"}}}},
		CreateAssignment{Module: "wiki", Node: "alpha", Bind: map[string]string{"db": "p-a", "log": "d-a"}},
		CreateAssignment{Module: "wiki", Node: "beta", Name: "one", Bind: map[string]string{"db": "p-a", "log": "d-b"}},
		CreateAssignment{Module: "shop", Node: "gamma", Bind: map[string]string{"db": "p-b"}})
}

// next draws a move.
func (p *player) next() move {
	kinds := []struct {
		weight int
		draw   func() move
	}{
		{20, p.issue}, {16, p.acknowledge}, {12, p.revoke}, {4, p.writeOff}, {4, p.fail}, {3, p.failBinding}, {4, p.adopt},
		{4, p.request}, {7, p.startRotation}, {3, p.urge}, {2, p.abort},
		{14, p.rebind}, {8, p.consumer}, {9, p.fleet}, {3, p.declare}, {10, p.seldom},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := p.roll(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k.draw()
		}
	}
	panic("unreachable")
}

// creds are those that fit, of all bindings.
func (p *player) creds(fits func(*mCred) bool) []*mCred {
	var out []*mCred
	for _, b := range p.m.order {
		for _, c := range b.creds {
			if fits(c) {
				out = append(out, c)
			}
		}
	}
	return out
}

func (p *player) inState(states ...string) []*mCred {
	return p.creds(func(c *mCred) bool {
		for _, s := range states {
			if c.state == s {
				return true
			}
		}
		return false
	})
}

// anyCred is one of the first list that is not empty, or nil.
func (p *player) anyCred(lists ...[]*mCred) *mCred {
	for _, l := range lists {
		if len(l) > 0 {
			return one(p.roll, l)
		}
	}
	return nil
}

// name is how a command speaks of a credential's slot: by path where that can
// mean no other, else by the binding's id.
func (p *player) name(c *mCred) string {
	if p.roll(2) == 0 {
		return c.of.id.String()
	}
	for _, b := range p.m.order {
		if b != c.of && b.path() == c.of.path() && b.cred(c.gen) != nil {
			return c.of.id.String()
		}
	}
	return c.of.path()
}

func (p *player) reference() string {
	p.refs++
	return fmt.Sprintf("bao:some/%d", p.refs)
}

func (p *player) issue() move {
	c := p.anyCred(p.inState(mAsked), p.inState(mWithdrawn), p.inState(mIssued))
	switch p.roll(12) {
	case 0:
		return p.issueAgain()
	case 1:
		return p.issueUnknown()
	case 2, 3:
		if w := p.inState(mWithdrawn); len(w) > 0 {
			c = one(p.roll, w)
		}
	}
	if c == nil || c.state == mIssued {
		return p.acknowledge()
	}
	cmd := IssueCredential{Slot: p.name(c), Generation: c.gen, SecretRef: p.reference()}
	switch p.roll(4) {
	case 0:
		cmd.User = "wiki"
	case 1, 2:
		cmd.User, cmd.Hook = "b1_2", p.roll.of("provider/pg", "provider/default")
	}
	return move{cmd: cmd, want: writes}
}

// adopt says which login one is that was made by hand.
func (p *player) adopt() move {
	c := p.anyCred(p.creds(func(c *mCred) bool { return c.issued != 0 }))
	if c == nil {
		return p.issue()
	}
	mv := move{cmd: AdoptCredential{Slot: p.name(c), Generation: c.gen, User: p.roll.of("wiki", "shop")}, want: writes}
	switch user := mv.cmd.(AdoptCredential).User; {
	case c.hook != "":
		mv.want = MadeByAgent
		p.m.reached("adopted, and an agent made it")
	case c.user == user:
		mv.want = changes0
	}
	return mv
}

func (p *player) issueAgain() move {
	c := p.anyCred(p.inState(one(p.roll, []string{mIssued, mAdopted, mToRevoke, mRevoked, mWrittenOff, mGone})),
		p.creds(func(c *mCred) bool { return c.issued != 0 }))
	if c == nil {
		return p.request()
	}
	if p.roll(2) == 0 {
		p.m.reached("issued again, same: unchanged, " + c.state)
		return move{cmd: IssueCredential{Slot: p.name(c), Generation: c.gen, SecretRef: c.ref}, want: changes0}
	}
	p.m.reached("issued again, other: already_issued, " + c.state)
	return move{cmd: IssueCredential{Slot: p.name(c), Generation: c.gen, SecretRef: p.reference()}, want: AlreadyIssued}
}

func (p *player) issueUnknown() move {
	b := one(p.roll, p.m.order)
	gen := p.m.seq + uint64(p.roll(3))
	if c := p.anyCred(p.creds(func(*mCred) bool { return true })); c != nil && p.roll(2) == 0 {
		gen = c.gen
	}
	if b.cred(gen) != nil {
		return p.acknowledge()
	}
	p.m.reached("generation unknown")
	switch p.roll(4) {
	case 0:
		return move{RevokeCredential{Slot: b.id.String(), Generation: gen, Force: p.roll(2) == 0}, "because", GenerationUnknown}
	case 1:
		return move{FailCredential{Slot: b.id.String(), Generation: gen}, "because", GenerationUnknown}
	case 2:
		return move{WriteOffCredentials{Slot: b.id.String(), Generation: gen}, "because", GenerationUnknown}
	}
	return move{cmd: IssueCredential{Slot: b.id.String(), Generation: gen, SecretRef: p.reference()}, want: GenerationUnknown}
}

// acknowledge draws a consumer's word: mostly at the head, sometimes of what it
// read before, of less than it said, or of what is not there yet.
func (p *player) acknowledge() move {
	b := p.consumerOf()
	if b == nil {
		return p.issueUnknown()
	}
	at := p.m.seq
	switch p.roll(10) {
	case 0:
		at = b.applied
	case 1:
		at = b.applied - min(b.applied, 1+uint64(p.roll(3)))
	case 2:
		at += 1 + uint64(p.roll(2))
	case 3, 4:
		at = b.applied + uint64(p.roll(int(p.m.seq-b.applied)+1))
	case 5:
		if b.use != nil {
			at = b.use.issued - uint64(p.roll(2))
		}
	}
	if at == 0 {
		at = p.m.seq
	}
	return move{cmd: AcknowledgeBinding{Slot: p.slot(b), At: at}, want: p.wantAcknowledged(b, at)}
}

func (p *player) wantAcknowledged(b *mBinding, at uint64) Code {
	say := func(what string, want Code) Code {
		p.m.reached("acknowledged: " + what)
		return want
	}
	switch {
	case b.assignment.ended:
		return say("ended", BindingNotFound)
	case b.released != 0 && !b.document:
		return say("released", BindingNotFound)
	case b.decided.IsZero():
		return say("pending", BindingNotFound)
	case at > p.m.seq:
		return say("beyond the head", AtBeyondHead)
	case at < b.applied:
		return say("lower than before", AtRegressed)
	case at == b.applied && b.trouble.attempts > 0:
		return say("twice, after a failure", writes)
	case at == b.applied:
		return say("twice", changes0)
	case b.use != nil && at < b.use.issued:
		return say("before its issue", writes)
	case b.document && at < b.released:
		return say("before the release", writes)
	}
	return say("as it is", writes)
}

// consumerOf is a binding whose consumer may have something to say: mostly one
// that is outdated.
func (p *player) consumerOf() *mBinding {
	var due, rest []*mBinding
	for _, b := range p.m.order {
		if b.applied < b.changed && (b.released == 0 || b.document) {
			due = append(due, b)
		} else {
			rest = append(rest, b)
		}
	}
	if len(due) > 0 && (p.roll(4) > 0 || len(rest) == 0) {
		return one(p.roll, due)
	}
	if len(rest) == 0 {
		return nil
	}
	return one(p.roll, rest)
}

// slot is how a consumer or an operator speaks of a binding.
func (p *player) slot(b *mBinding) string {
	if p.roll(2) == 0 {
		return b.id.String()
	}
	for _, o := range p.m.order {
		if o != b && o.path() == b.path() && (b.released != 0 || o.document) {
			return b.id.String()
		}
	}
	return b.path()
}

func (p *player) revoke() move {
	due := p.creds((*mCred).mayRevoke)
	c := p.anyCred(due, p.inState(mWrittenOff), p.inState(mIssued, mAdopted))
	if p.roll(3) == 0 {
		c = p.anyCred(p.creds(func(*mCred) bool { return true }))
	}
	if c == nil {
		return p.issue()
	}
	force := p.roll(4) == 0
	mv := move{RevokeCredential{Slot: p.name(c), Generation: c.gen, Force: force}, "because", writes}
	switch {
	case c.replaceable() && !c.mayRevoke() && !force:
		mv.want = NotAdopted
		p.m.reached("not_adopted")
	case c.replaceable() && !c.mayRevoke() && p.oneIn(4):
		mv.reason, mv.want = "", silent
		p.m.reached("forced without a reason")
	case c.state == mRevoked || c.state == mGone || c.state == mAsked || c.state == mWithdrawn:
		mv.want = changes0
		p.m.reached("revoked again: unchanged, " + c.state)
	}
	if p.roll(3) == 0 {
		return p.revokedByAgent(c, mv)
	}
	return mv
}

// revokedByAgent is an agent's word that a login is over: refused where the agent cannot
// know.
func (p *player) revokedByAgent(c *mCred, mv move) move {
	cmd := mv.cmd.(RevokeCredential)
	cmd.Hook = p.roll.of("provider/pg", "provider/default")
	cmd.Did = []events.Did{"", events.DidDrop, events.DidAbsent}[p.roll(3)]
	mv.cmd = cmd
	if mv.want == changes0 {
		return mv
	}
	why := ""
	switch {
	case c.byHand && c.user == "":
		why = "by hand, unknown"
	case c.hook != "" && c.hook != cmd.Hook:
		why = "another hook"
	case cmd.Did == "":
		why = "not said"
	case cmd.Did == events.DidAbsent && c.hook == "":
		why = "absent, and not this agent's"
	}
	if why != "" {
		mv.want = RevocationUnproven
		p.m.reached("unproven: " + why)
	} else if mv.want == writes {
		p.m.reached("proven: " + string(cmd.Did))
	}
	return mv
}

func (p *player) oneIn(n int) bool { return p.roll.oneIn(n) }

func (p *player) writeOff() move {
	if p.roll(4) == 0 {
		return move{WriteOffCredentials{Provider: p.anyProvider(), Force: p.oneIn(6)}, "because", noMatter}
	}
	c := p.anyCred(p.inState(mToRevoke), p.inState(mIssued, mAdopted))
	if p.roll(3) == 0 {
		c = p.anyCred(p.creds(func(*mCred) bool { return true }))
	}
	if c == nil {
		return p.rebind()
	}
	force := p.roll(4) == 0
	mv := move{WriteOffCredentials{Slot: p.name(c), Generation: c.gen, Force: force}, "because", silent}
	switch {
	case c.state == mToRevoke, c.replaceable() && (force || p.m.gone(c.target)):
		mv.want = writes
		if p.oneIn(6) {
			mv.reason, mv.want = "", silent
		}
	}
	return mv
}

// anyProvider is a provider, mostly by name; one that is retired by id.
func (p *player) anyProvider() string {
	v := one(p.roll, p.m.fleet)
	if v.retired || p.oneIn(4) {
		return v.id.String()
	}
	return v.name
}

func (p *player) fail() move {
	c := p.anyCred(p.creds(func(c *mCred) bool { return c.state == mAsked || c.mayRevoke() }))
	if p.roll(4) == 0 {
		c = p.anyCred(p.creds(func(*mCred) bool { return true }))
	}
	if c == nil {
		return p.failBinding()
	}
	want := noMatter
	if c.state != mAsked && !c.mayRevoke() {
		want = silent
	}
	return move{FailCredential{Slot: p.name(c), Generation: c.gen, Attempts: uint64(p.roll(4)), Operator: p.roll(3) == 0}, p.roll.of("no route", "disk full"), want}
}

func (p *player) failBinding() move {
	b := one(p.roll, p.m.order)
	return move{FailBinding{p.slot(b), uint64(p.roll(4))}, p.roll.of("no route", "disk full"), noMatter}
}

func (p *player) request() move {
	b := one(p.roll, p.m.order)
	want := writes
	switch {
	case b.released != 0:
		want = silent
	case b.decided.IsZero(), p.m.gone(b.decided):
		want = silent
	case !b.managed:
		want = NoCredentials
	}
	return move{RequestCredential{p.slot(b)}, "because", want}
}

func (p *player) startRotation() move {
	c := StartRotation{Urgent: p.roll(3) == 0, Supersede: p.roll(3) == 0}
	if p.oneIn(4) {
		c.Deadline = p.roll.of("5s", "1h")
	}
	if p.oneIn(4) {
		c.IssuedBefore = 1 + uint64(p.roll(int(p.m.seq)))
	}
	want := noMatter
	switch p.roll(6) {
	case 0:
		c.Provision, c.Node = "pg", p.roll.of(modelNodes...)
	case 1, 2:
		b := one(p.roll, p.m.order)
		c.Binding = p.slot(b)
	default:
		v := one(p.roll, p.m.fleet)
		for p.roll(3) > 0 && (v.retired || !p.m.managed[v.provision]) {
			v = one(p.roll, p.m.fleet)
		}
		c.Provider = v.id.String()
		want = p.wantStarted(v, c)
	}
	return move{c, "because", want}
}

func (p *player) wantStarted(v *mProvider, c StartRotation) Code {
	if v.retired {
		return noMatter
	}
	if !p.m.managed[v.provision] {
		return NoCredentials
	}
	if c.Supersede {
		return writes
	}
	for _, r := range p.m.rotations {
		if r.state == "open" && r.target.Provider == v.id {
			return RotationOpen
		}
	}
	return writes
}

func (p *player) someRotation() *mRotation {
	var open []*mRotation
	for _, r := range p.m.rotations {
		if r.state == "open" {
			open = append(open, r)
		}
	}
	if len(open) > 0 && p.roll(5) > 0 {
		return one(p.roll, open)
	}
	if len(p.m.rotations) == 0 {
		return nil
	}
	return one(p.roll, p.m.rotations)
}

func (p *player) urge() move {
	r := p.someRotation()
	if r == nil {
		return p.startRotation()
	}
	want := writes
	if r.state != "open" {
		want = silent
	} else if r.urgent {
		want = changes0
	}
	return move{UrgeRotation{r.id.String()}, "because", want}
}

func (p *player) abort() move {
	r := p.someRotation()
	if r == nil {
		return p.startRotation()
	}
	want := writes
	if r.state != "open" {
		want = silent
	}
	return move{AbortRotation{r.id.String()}, "because", want}
}

// seldom draws what chance alone comes by too rarely.
func (p *player) seldom() move {
	scenes := []func() (move, bool){p.prune, p.takeNote, p.retire, p.cutOffAsked, p.cutOffOld, p.abortCutOff, p.cutOffStranded, p.overrideOntoRotated, p.endRotated}
	first := p.roll(len(scenes))
	for i := range scenes {
		if mv, ok := scenes[(first+i)%len(scenes)](); ok {
			return mv
		}
	}
	return p.declare()
}

// bound are the bindings that fit.
func (p *player) bound(fits func(*mBinding) bool) []*mBinding {
	var out []*mBinding
	for _, b := range p.m.order {
		if fits(b) {
			out = append(out, b)
		}
	}
	return out
}

// prune lets go of slots that are no longer declared.
func (p *player) prune() (move, bool) {
	due := p.bound(func(b *mBinding) bool {
		_, declared := p.m.modules[b.assignment.module][b.slot]
		return b.released == 0 && !declared
	})
	if len(due) == 0 {
		return move{}, false
	}
	return move{ResolveAssignment{one(p.roll, due).assignment.name, false, true}, "because", noMatter}, true
}

// takeNote acknowledges a released document, or what came before its release.
func (p *player) takeNote() (move, bool) {
	due := p.bound(func(b *mBinding) bool { return b.document })
	if len(due) == 0 {
		return move{}, false
	}
	b := one(p.roll, due)
	at := p.m.seq
	if p.roll(2) == 0 {
		at = b.released - 1
	}
	return move{AcknowledgeBinding{Slot: p.slot(b), At: at}, "", p.wantAcknowledged(b, at)}, true
}

// retire forces out a provider that has holders, while others are left.
func (p *player) retire() (move, bool) {
	var active, held []*mProvider
	for _, v := range p.m.fleet {
		if v.retired || !p.m.managed[v.provision] {
			continue
		}
		active = append(active, v)
		if len(p.creds(func(c *mCred) bool { return c.live() && c.target.Provider == v.id })) > 1 {
			held = append(held, v)
		}
	}
	if len(active) < 4 || len(held) == 0 || p.roll(3) > 0 {
		return move{}, false
	}
	return move{RetireProvider{one(p.roll, held).name, true}, "because", writes}, true
}

// cutOffAsked revokes by force what is in use, where a rotation asks for another.
func (p *player) cutOffAsked() (move, bool) {
	return p.forced(p.creds(func(c *mCred) bool {
		return c.inUse() && c.of.open != nil && c.of.open.asker != nil && c.of.open.asker.state == "open"
	}))
}

// cutOffOld revokes by force what the consumer may run with still.
func (p *player) cutOffOld() (move, bool) {
	return p.forced(p.creds(func(c *mCred) bool { return c.replaceable() && !c.mayRevoke() && !c.inUse() }))
}

// cutOffStranded gives up what is in use where nothing can be asked.
func (p *player) cutOffStranded() (move, bool) {
	return p.forced(p.creds(func(c *mCred) bool { return c.inUse() && (p.m.gone(c.of.decided) || c.of.document) }))
}

func (p *player) forced(due []*mCred) (move, bool) {
	if len(due) == 0 || p.roll(3) > 0 {
		return move{}, false
	}
	c := one(p.roll, due)
	if p.roll(2) == 0 {
		return move{WriteOffCredentials{Slot: p.name(c), Generation: c.gen, Force: true}, "because", writes}, true
	}
	return move{RevokeCredential{Slot: p.name(c), Generation: c.gen, Force: true}, "because", writes}, true
}

// abortCutOff aborts a rotation that is the only way on for a binding.
func (p *player) abortCutOff() (move, bool) {
	for _, r := range p.m.rotations {
		for _, c := range r.asked {
			if r.state == "open" && c.state == mAsked && !c.of.useLive() {
				return move{AbortRotation{r.id.String()}, "because", writes}, true
			}
		}
	}
	return move{}, false
}

// overrideOntoRotated moves a consumer onto a provider whose holders are being
// replaced, by override.
func (p *player) overrideOntoRotated() (move, bool) {
	for _, r := range p.m.rotations {
		if r.state == "open" && !r.target.Embedded {
			return move{SetOverride{p.somePath(), p.m.providers[r.target.Provider].name}, "because", noMatter}, true
		}
	}
	return move{}, false
}

// endRotated ends an assignment whose own instance is being rotated.
func (p *player) endRotated() (move, bool) {
	for _, r := range p.m.rotations {
		if r.state == "open" && r.target.Embedded && p.roll(2) == 0 {
			return move{EndAssignment{p.m.bindings[r.binding].assignment.name}, "because", writes}, true
		}
	}
	return move{}, false
}

// somePath is the path of a slot, mostly of one there is.
func (p *player) somePath() string {
	var live []*mBinding
	for _, b := range p.m.order {
		if b.released == 0 {
			live = append(live, b)
		}
	}
	if len(live) > 0 && p.roll(6) > 0 {
		return one(p.roll, live).path()
	}
	return p.roll.of(modelAssignments...) + "/" + p.roll.of("db", "own", "log", "aux")
}

// providerFor is a provider's name, mostly one that fits the slot.
func (p *player) providerFor(path string) string {
	slot := path[len(path)-2:]
	switch {
	case p.oneIn(12):
		return p.anyProvider()
	case slot == "og":
		return p.roll.of("d-a", "d-b")
	case slot == "ux":
		return p.roll.of("c-a", "c-b")
	}
	return p.roll.of("p-a", "p-b", "p-c", "p-d")
}

func (p *player) rebind() move {
	path := p.somePath()
	to := p.providerFor(path)
	cs := []Command{
		RebindSlot{Slot: path, Provider: to}, RebindSlot{Slot: path, Provider: to}, RebindSlot{Slot: path, Provider: to},
		RebindSlot{Slot: path, ReResolve: true}, RebindSlot{Slot: path, ForgetChoice: true},
		SetOverride{path, to}, SetOverride{path, to},
		ClearOverride{Slot: path}, ClearOverride{Slot: path, ReResolve: true}, ClearOverride{Slot: path, Keep: true},
		ClearOverride{Slot: path, Provider: to},
		DrainProvider{Provider: to, To: p.providerFor(path), Step: p.roll(2)},
	}
	return move{one(p.roll, cs), "because", noMatter}
}

func (p *player) consumer() move {
	a := p.roll.of(modelAssignments...)
	node := p.roll.of(modelNodes...)
	cs := []Command{
		CreateAssignment{Module: p.roll.of("wiki", "shop"), Node: node, Name: a,
			Bind: map[string]string{"db": p.roll.of("p-a", "p-b", "p-c")}},
		CreateAssignment{Module: p.roll.of("wiki", "shop"), Node: node, Name: a},
		EndAssignment{a},
		MoveAssignment{a, node, p.roll(2) == 0},
		RenameAssignment{a, p.roll.of(modelAssignments...)},
		ResolveAssignment{a, p.roll(2) == 0, p.roll(2) == 0},
		ResolveAssignment{a, true, true},
		ResolveAssignment{a, false, true},
	}
	return move{one(p.roll, cs), "because", noMatter}
}

func (p *player) fleet() move {
	name := p.roll.of(modelProviders...)
	node := p.roll.of(modelNodes...)
	at := "host:" + strconv.Itoa(1+p.roll(9))
	version := p.roll.of("14", "16.4")
	register := RegisterProvider{Name: name, Provision: provisionOf[name[0]], Node: node, Endpoint: at, Cordoned: p.roll(4) == 0}
	cs := []Command{
		register, register, register, register,
		UpdateProvider{Provider: name, Endpoint: &at}, UpdateProvider{Provider: name, Version: &version},
		RelocateProvider{Provider: name, To: node, Endpoint: at}, RelocateProvider{Provider: name, To: node, KeepEndpoint: true},
		CordonProvider{name}, UncordonProvider{name}, UncordonProvider{name},
		RenameProvider{name, p.roll.of(modelProviders...)},
		RetireProvider{name, false}, RetireProvider{name, p.roll(2) == 0},
		DrainProvider{Provider: name, To: p.roll.of(modelProviders...)},
		RescopeProvision{"ca", events.ScopeNode}, RescopeProvision{"ca", events.ScopeMesh},
		SetDefault{Provision: provisionOf[name[0]], Provider: name}, ClearDefault{Provision: provisionOf[name[0]]},
		RegisterNode{node}, RegisterNode{node}, RenameNode{node, p.roll.of(modelNodes...)}, RetireNode{node, p.oneIn(3)},
	}
	return move{one(p.roll, cs), "because", noMatter}
}

// declare draws a module whose slots are required, embedded or gone.
func (p *player) declare() move {
	d := manifest.Module{Requires: map[string]manifest.Requirement{}, Embeds: map[string]manifest.Embed{}}
	for _, slot := range []string{"db", "own", "log", "aux"} {
		provision := map[string]string{"db": "pg", "own": "pg", "log": "dns", "aux": "ca"}[slot]
		switch p.roll(5) {
		case 0:
		case 1:
			d.Embeds[slot] = manifest.Embed{Provision: provision, Because: "fork", Replaceable: p.roll(3) > 0}
		default:
			d.Requires[slot] = manifest.Requirement{Provision: provision, Optional: p.roll(2) == 0}
		}
	}
	return move{DeclareModule{p.roll.of("wiki", "shop"), d}, "because", noMatter}
}

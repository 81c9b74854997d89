package commands

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"bindery/events"
	"bindery/projections"

	gocmp "github.com/google/go-cmp/cmp"
)

// agrees compares everything the model says with what readers see.
func (m *model) agrees(s *projections.State, now time.Time) {
	m.credentialsAgree(s)
	m.holdersAgree(s)
	m.bindingsAgree(s)
	m.rotationsAgree(s, now)
	m.countsAgree(s, now)
}

// same fails where what is got is not what the model has.
func (m *model) same(what string, got, want any) {
	if got != want {
		m.fail("%s: %v, the model has %v", what, got, want)
	}
}

type credKey struct {
	binding events.ID
	gen     uint64
}

func (m *model) credentialsAgree(s *projections.State) {
	got := map[credKey]projections.CredentialView{}
	for _, v := range s.ListCredentials(projections.CredentialFilter{All: true}).Items {
		k := credKey{v.Binding, v.Generation}
		if _, twice := got[k]; twice {
			m.fail("generation %d of %s/%s is listed twice", v.Generation, v.Assignment, v.Slot)
		}
		got[k] = v
	}
	for _, b := range m.order {
		for _, c := range b.creds {
			v, ok := got[credKey{b.id, c.gen}]
			if !ok {
				m.fail("%s is not listed", c)
			}
			m.credentialAgrees(c, v)
			delete(got, credKey{b.id, c.gen})
		}
	}
	for _, v := range got {
		m.fail("generation %d of %s/%s is listed (%s), it was never asked", v.Generation, v.Assignment, v.Slot, v.State)
	}
}

func (m *model) credentialAgrees(c *mCred, v projections.CredentialView) {
	b := c.of
	m.same(c.String()+" state", v.State, c.state)
	m.same(c.String()+" in use", v.InUse, c.inUse())
	m.same(c.String()+" revocable", v.Revocable, c.revocable && c.replaceable())
	m.same(c.String()+" issued", v.IssuedSeq, c.issued)
	m.same(c.String()+" reference", v.SecretRef, c.ref)
	m.same(c.String()+" target", targetOf(v.ProviderID, v.Embedded), c.target)
	m.same(c.String()+" ended", v.Ended, b.released != 0)
	m.same(c.String()+" slot", v.Assignment+"/"+v.Slot, b.path())
	m.same(c.String()+" node", v.Node, m.nodes[b.assignment.node])
	m.same(c.String()+" asker", v.Rotation != nil, c.asker != nil)
	m.failureAgrees(c, v)
	if v.InUse && v.Revocable {
		m.fail("%s is in use and revocable", c)
	}
}

// failureAgrees compares what the provider side last said it could not do; of a
// credential in use, what its consumer said.
func (m *model) failureAgrees(c *mCred, v projections.CredentialView) {
	if c.state == mWithdrawn {
		return // nobody's to mend, whether it is shown or not
	}
	want := c.failure
	if want.attempts == 0 && c.inUse() {
		want = c.of.trouble
	}
	m.same(c.String()+" attempts", v.Attempts, want.attempts)
	m.same(c.String()+" error", v.Error, want.reason)
}

func targetOf(provider *events.ID, embedded bool) events.Target {
	t := events.Target{Embedded: embedded}
	if provider != nil {
		t.Provider = *provider
	}
	return t
}

func (m *model) holdersAgree(s *projections.State) {
	live, ever := map[events.ID][]string{}, map[events.ID][]string{}
	for _, b := range m.order {
		for _, c := range b.creds {
			if c.live() {
				live[c.target.Provider] = append(live[c.target.Provider], holder(b.id, c.gen))
			}
			if c.issued != 0 {
				ever[c.target.Provider] = append(ever[c.target.Provider], holder(b.id, c.gen))
			}
		}
	}
	for _, p := range m.fleet {
		id := p.id
		r := projections.ProviderRef(s.ByID(events.EntityProvider, id))
		m.sameHolders("holders of "+p.name, s.ListHolders(r, false).Items, live[id])
		m.sameHolders("holders ever of "+p.name, s.ListHolders(r, true).Items, ever[id])
		v := s.ProviderView(r)
		m.same("holders counted of "+p.name, v.Holders, len(live[id]))
		var open *mRotation
		for _, o := range m.rotations {
			if o.state == "open" && o.target.Provider == id {
				open = o
			}
		}
		m.same("open rotation of "+p.name, v.Rotation != nil, open != nil)
		if open != nil {
			m.same("open rotation of "+p.name, *v.Rotation, open.id)
		}
	}
}

func holder(id events.ID, gen uint64) string { return fmt.Sprintf("%s %d", id, gen) }

func (m *model) sameHolders(what string, got []projections.CredentialView, want []string) {
	names := collect(got, func(v projections.CredentialView) string { return holder(v.Binding, v.Generation) })
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		m.fail("%s: %v, the model has %v", what, names, want)
	}
}

func (m *model) bindingsAgree(s *projections.State) {
	got := map[events.ID]projections.BindingView{}
	for _, v := range s.ListBindings(projections.BindingFilter{}).Items {
		if v.ID != nil {
			got[*v.ID] = v
		}
	}
	for _, b := range m.order {
		v, listed := got[b.id]
		if want := b.released == 0 || b.document; listed != want {
			m.fail("%s is listed: %t, the model has %t (released at %d, applied %d)", b.path(), listed, want, b.released, b.applied)
		}
		if listed {
			m.bindingAgrees(b, v)
		}
		if b.released == 0 {
			m.hasWay(b, v)
		}
		delete(got, b.id)
	}
	if len(got) > 0 {
		m.fail("bindings the model does not know: %v", got)
	}
}

func (m *model) bindingAgrees(b *mBinding, v projections.BindingView) {
	gen, ref := uint64(0), ""
	switch {
	case b.open != nil:
		gen = b.open.gen
	case b.use != nil:
		gen, ref = b.use.gen, b.use.ref
	}
	m.same(b.path()+" released", v.Released, b.document)
	m.same(b.path()+" generation", v.Generation, gen)
	m.same(b.path()+" reference", v.SecretRef, ref)
	m.same(b.path()+" applied", v.AppliedSeq, b.applied)
	switch {
	case b.hasUse:
		m.same(b.path()+" changed", v.ChangedSeq, b.changed)
	case !b.decided.IsZero():
		m.same(b.path()+" decided", v.ChangedSeq, b.settled)
	}
	m.useAgrees(b, v.Use)
	want := m.flags(b)
	ours := []projections.Flag{projections.FlagStranded, projections.FlagSwitching, projections.FlagOutdated, projections.FlagCutOff}
	flags := slices.DeleteFunc(slices.Clone(v.Flags), func(f projections.Flag) bool { return !slices.Contains(ours, f) })
	if !slices.Equal(flags, want) {
		m.fail("%s flags: %v, the model has %v", b.path(), flags, want)
	}
	for _, f := range want {
		m.reached("flag " + string(f))
	}
}

// flags are those that section 6 speaks of.
func (m *model) flags(b *mBinding) []projections.Flag {
	var out []projections.Flag
	add := func(on bool, f projections.Flag) {
		if on {
			out = append(out, f)
		}
	}
	live := b.released == 0
	add(live && m.stranded(b), projections.FlagStranded)
	add(live && b.hasUse && b.runsWith() != b.decided, projections.FlagSwitching)
	add(b.applied < b.changed, projections.FlagOutdated)
	add(live && b.use != nil && !b.useLive(), projections.FlagCutOff)
	return out
}

func (m *model) stranded(b *mBinding) bool {
	return !b.decided.IsZero() && m.gone(b.decided)
}

func (m *model) useAgrees(b *mBinding, v projections.UseView) {
	want := projections.UseView{}
	if b.hasUse {
		t := b.runsWith()
		want.Embedded, want.Node = t.Embedded, m.nodes[b.assignment.node]
		if !t.Embedded {
			p := m.providers[t.Provider]
			want.Provider, want.Node, want.Endpoint = p.name, m.nodes[p.node], p.endpoint
		}
		if b.use != nil {
			want.Generation, want.SecretRef = b.use.gen, b.use.ref
		}
		m.same(b.path()+" runs with", targetOf(v.ProviderID, v.Embedded), t)
	}
	v.ProviderID, v.Version = nil, ""
	m.same(b.path()+" use", v, want)
}

// hasWay checks that a binding has a live credential, an ask, or says why not.
func (m *model) hasWay(b *mBinding, v projections.BindingView) {
	ok := b.decided.IsZero() || !b.managed || b.useLive() || b.open != nil ||
		slices.Contains(v.Flags, projections.FlagStranded) || slices.Contains(v.Flags, projections.FlagCutOff)
	if !ok {
		m.fail("%s has no credential, no ask, and no flag says so", b.path())
	}
}

func (m *model) rotationsAgree(s *projections.State, now time.Time) {
	for _, r := range m.rotations {
		m.rotationAgrees(r, s.RotationMembers(m.ref(s, r), now, 0), now)
	}
	m.same("rotations", len(s.ListRotations(projections.RotationFilter{}, now).Items), len(m.rotations))
}

func (m *model) ref(s *projections.State, r *mRotation) projections.RotationRef {
	return projections.RotationRef(s.ByID(events.EntityRotation, r.id))
}

func (m *model) rotationAgrees(r *mRotation, v projections.RotationView, now time.Time) {
	what := fmt.Sprintf("rotation %d", r.seq)
	m.same(what+" seq", v.Seq, r.seq)
	m.same(what+" state", v.State, r.state)
	m.same(what+" total", v.Total, len(r.set))
	m.same(what+" done", v.Done, r.done())
	m.same(what+" urgent", v.Urgent, r.urgent)
	m.same(what+" issued before", v.IssuedBefore, r.issuedBefore)
	m.same(what+" target", targetOf(v.ProviderID, v.Embedded), r.target)
	m.same(what+" overdue", v.Overdue, r.state == "open" && !r.deadline.IsZero() && now.After(time.Time(r.deadline)))
	m.same(what+" members", len(v.Members), len(r.set))
	steps := map[projections.Step]int{}
	for _, c := range r.set {
		i := slices.IndexFunc(v.Members, func(x projections.Member) bool { return x.Binding == c.of.id && x.From == c.gen })
		if i < 0 {
			m.fail("%s: %s is no member", what, c)
		}
		m.memberAgrees(r, c, v.Members[i], v.Overdue)
		steps[v.Members[i].Step]++
	}
	for _, step := range projections.Steps() {
		m.same(what+" at "+string(step), v.Steps[step], steps[step])
	}
}

func (m *model) memberAgrees(r *mRotation, c *mCred, v projections.Member, overdue bool) {
	want := m.member(r, c)
	what := fmt.Sprintf("rotation %d of %s, %s: ", r.seq, m.targetName(r.target), c)
	m.same(what+"step", string(v.Step), want.step)
	m.same(what+"turn", string(v.Turn), want.turn)
	m.same(what+"who", v.Who, want.who)
	m.same(what+"failure", mFailure{v.Attempts, v.Error, want.failure.operator}, want.failure)
	m.same(what+"overdue", v.Overdue, overdue && want.step != "done")
	if want.to != 0 {
		m.same(what+"to", v.To, want.to)
	}
	if v.Fix.IsZero() == (want.turn == "operator") {
		m.fail("%sfix %q at step %s", what, v.Fix, v.Step)
	}
	m.reached("step " + want.step + where(c.target))
	if want.step == "adopt" && c.of.document {
		m.reached("step adopt, of a released document")
	}
}

func (m *model) targetName(t events.Target) string {
	if t.Embedded {
		return "embedded"
	}
	return m.providers[t.Provider].name
}

func (m *model) countsAgree(s *projections.State, now time.Time) {
	asked, live, open := 0, 0, 0
	for _, b := range m.order {
		if b.open != nil {
			asked++
		}
		for _, c := range b.creds {
			if c.live() {
				live++
			}
		}
	}
	for _, r := range m.rotations {
		if r.state == "open" {
			open++
		}
	}
	counts := s.Status(now).Counts
	m.same("status asked", counts["asked"], asked)
	m.same("status holders", counts["holders"], live)
	m.same("status rotations", counts["rotations"], open)
}

// exits tries, for each member that is not done, the command of the party whose
// turn it is: it must be taken and bring the member on. Then it is taken back.
func (m *model) exits(w *world) {
	for _, r := range m.rotations {
		for _, c := range r.set {
			if !c.over() && m.member(r, c).turn != "none" {
				m.exit(w, r, c)
			}
		}
	}
}

func (m *model) exit(w *world, r *mRotation, c *mCred) {
	before := memberOf(w, m.ref(w.s, r), c)
	var tried []string
	for i, cmd := range m.waysOn(before, c) {
		why := m.attempt(w, r, c, before, cmd)
		if why == "" {
			m.reached("exit from " + string(before.Step) + " by " + cmd.Verb())
			return
		}
		if i == 0 && before.Step == projections.StepStuck {
			m.reached("stuck, and the fix does not help: " + why)
			if m.otherThan(c.of) != "" {
				m.fail("rotation %d, %s: the fix %q does not help: %s", r.seq, c, before.Fix, why)
			}
		}
		tried = append(tried, fmt.Sprintf("%s %+v: %s", cmd.Verb(), cmd, why))
	}
	m.fail("rotation %d, %s: no way on from %s (fix %q):\n%s", r.seq, c, before.Step, before.Fix, strings.Join(tried, "\n"))
}

// attempt gives a command and takes it back; it says why that did not bring the
// member on.
func (m *model) attempt(w *world, r *mRotation, c *mCred, before projections.Member, cmd Command) string {
	seq, ids := w.s.Seq, w.ids
	w.reason = "because"
	mark := w.s.Begin()
	d, err := Decide(w.s, cmd, w.env())
	after := memberOf(w, m.ref(w.s, r), c)
	w.s.Rollback(mark)
	w.s.Commit()
	w.ids = ids
	switch {
	case w.s.Seq != seq:
		m.fail("taking back %s left the ledger at %d, it was at %d", cmd.Verb(), w.s.Seq, seq)
	case err != nil:
		return string(codeOf(err))
	case len(d.Events) == 0:
		return "unchanged"
	case after.Step == before.Step && after.To == before.To:
		return "no progress"
	}
	return ""
}

func memberOf(w *world, r projections.RotationRef, c *mCred) projections.Member {
	for _, v := range w.s.RotationMembers(r, w.now, 0).Members {
		if v.Binding == c.of.id && v.From == c.gen {
			return v
		}
	}
	return projections.Member{}
}

// waysOn is the command of the party whose turn it is: of an operator, what the
// fix says, then what a refusal of that leads to.
func (m *model) waysOn(v projections.Member, c *mCred) []Command {
	id := c.of.id.String()
	switch v.Step {
	case projections.StepRevoke:
		return []Command{RevokeCredential{Slot: id, Generation: c.gen}}
	case projections.StepIssue, projections.StepLeaving:
		return []Command{IssueCredential{Slot: id, Generation: c.of.open.gen, SecretRef: "bao:way/on"}}
	case projections.StepAdopt:
		return []Command{AcknowledgeBinding{Slot: id, At: m.seq}}
	}
	fix := m.typed(v.Fix)
	if fix == nil {
		m.fail("%s: the fix %q is no command", c, v.Fix)
	}
	if v.Step != projections.StepStuck {
		return []Command{fix}
	}
	out := []Command{fix}
	if other := m.otherThan(c.of); other != "" {
		out = append(out, SetOverride{c.of.path(), other})
	}
	return append(out, ResolveAssignment{Assignment: c.of.assignment.name, Prune: true}, ClearOverride{Slot: c.of.path(), ReResolve: true},
		WriteOffCredentials{Slot: id, Generation: c.gen}, WriteOffCredentials{Slot: id, Generation: c.gen, Force: true})
}

// typed is the command a fix tells the operator to type.
func (m *model) typed(fix Fix) Command {
	flag := func(name string) string {
		for _, f := range fix.Flags {
			if f.Name == name && f.Value != nil {
				return *f.Value
			}
		}
		return ""
	}
	has := func(name string) bool {
		return slices.ContainsFunc(fix.Flags, func(f projections.FixFlag) bool { return f.Name == name })
	}
	arg := strings.Join(fix.Args, " ")
	var gen uint64
	_, _ = fmt.Sscan(flag("--generation"), &gen)
	force := has("--force")
	switch fix.Verb {
	case "credential request":
		return RequestCredential{Slot: arg}
	case "credential adopt":
		return AdoptCredential{Slot: arg, Generation: gen, User: "somebody"}
	case "credential issued":
		return IssueCredential{Slot: arg, Generation: gen, SecretRef: "bao:typed/1"}
	case "credential write-off":
		if p := flag("--provider"); p != "" {
			return WriteOffCredentials{Provider: p, Force: force}
		}
		return WriteOffCredentials{Slot: arg, Generation: gen, Force: force}
	case "credential revoked":
		return RevokeCredential{Slot: arg, Generation: gen, Force: force}
	case "binding rebind":
		if has("--re-resolve") {
			return RebindSlot{Slot: arg, ReResolve: true}
		}
		return RebindSlot{Slot: arg, Provider: m.somewhere(arg, flag("--provider"))}
	case "override set":
		return SetOverride{arg, m.somewhere(arg, flag("--provider"))}
	case "assignment resolve":
		return ResolveAssignment{Assignment: arg, Prune: has("--prune"), Rebind: has("--rebind")}
	}
	return nil
}

// somewhere fills in the provider a fix leaves to the operator.
func (m *model) somewhere(slot, provider string) string {
	for _, b := range m.order {
		if provider != strings.ToLower(provider) && b.released == 0 && b.path() == slot {
			return m.otherThan(b)
		}
	}
	return provider
}

// otherThan is an active provider that could serve in place of a binding's, or "".
func (m *model) otherThan(b *mBinding) string {
	if b.decided.Embedded {
		return ""
	}
	now := m.providers[b.decided.Provider]
	for _, p := range m.fleet {
		if p != now && !p.retired && !p.cordoned && p.provision == now.provision {
			return p.name
		}
	}
	return ""
}

// foldsAgain checks that the log gives the live state.
func (w *world) foldsAgain(fail func(string, ...any)) {
	fresh := projections.New()
	for i := range w.log {
		if err := fresh.Apply(&w.log[i]); err != nil {
			fail("folding again: %v", err)
		}
	}
	if got, want := dump(fresh), w.dump(); !reflect.DeepEqual(got, want) {
		fail("the fold of the log is not the live state:\n%s", gocmp.Diff(want, got))
	}
}

func codeOf(err error) Code {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

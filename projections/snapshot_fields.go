package projections

import (
	"cmp"
	"slices"

	"bindery/events"
)

// The fields of a snapshot, one function a type, each in the order they stand in
// the file. What is missing here is worked out anew (State.derive); a test goes
// through all fields of all types and fails where one is neither.

func (x *archive) state(s *State) {
	x.texts = &s.texts
	x.meta(s)
	for t, n := range [...]*uint32{tNode: &s.nodes.n, tProvision: &s.provisions.n, tProvider: &s.providers.n, tModule: &s.modules.n,
		tAssignment: &s.assignments.n, tBinding: &s.bindings.n, tOverride: &s.overrides.n, tCredential: &s.credentials.n,
		tRotation: &s.rotations.n, tGrant: &s.grants.n} {
		x.counts[t] = max(*n, 1) - 1
		num(x, &x.counts[t])
	}
	listOf(x, &s.slotNames, func(v *string) { text(x, v) })
	x.counts[tSlotName] = uint32(len(s.slotNames))

	every(x, &s.nodes, tNode, x.node)
	every(x, &s.provisions, tProvision, x.provision)
	every(x, &s.providers, tProvider, x.provider)
	every(x, &s.modules, tModule, x.module)
	every(x, &s.assignments, tAssignment, x.assignment)
	every(x, &s.bindings, tBinding, x.binding)
	every(x, &s.overrides, tOverride, x.override)
	every(x, &s.credentials, tCredential, x.credential)
	every(x, &s.rotations, tRotation, x.rotation)
	every(x, &s.grants, tGrant, x.grant)

	num(x, &s.pendingLive)
	num(x, &s.live)
	num(x, &s.operators)
	refs(x, &s.finished, tRotation)
	mapOf(x, &s.instances, cmp.Compare[BindingRef], func(k *BindingRef, v **Holders) {
		x.bindingKey(k)
		if *v == nil {
			*v = &Holders{}
		}
		x.holders(*v)
	})
	mapOf(x, &s.failures, cmp.Compare[CredentialRef], func(k *CredentialRef, v *Failure) { refTo(x, k, tCredential); x.failure(v) })
	mapOf(x, &s.troubles, cmp.Compare[BindingRef], func(k *BindingRef, v *Failure) { x.bindingKey(k); x.failure(v) })
	mapOf(x, &s.narrow, cmp.Compare[BindingRef], func(k *BindingRef, v *RotationRef) { x.bindingKey(k); refTo(x, v, tRotation) })
	mapOf(x, &s.manifest, compareFields, func(k *FieldKey, v *diverged) {
		x.id(&k.Entity)
		text(x, &k.Field)
		text(x, &v.value)
		text(x, &v.by)
		num(x, &v.seq)
	})
	mapOf(x, &s.gone, compareGone, func(k *goneKey, v *Bygone) {
		num(x, &k.kind)
		text(x, &k.name)
		x.id(&v.ID)
		text(x, &v.By)
		num(x, &v.Seq)
	})
	for k := range s.names {
		mapOf(x, &s.names[k].former, cmp.Compare[string], func(name *string, who *[]uint32) {
			text(x, name)
			refs(x, who, table(k))
		})
	}
	x.commands(&s.commands)
}

// meta is which state it is.
func (x *archive) meta(s *State) {
	m := &s.Mesh
	x.id(&m.ID)
	text(x, &m.Name)
	x.instant(&m.Created)
	x.flag(&m.Sealed)
	text(x, &m.Successor)
	num(x, &s.Seq)
	x.raw(s.Chain[:])
	x.instant(&s.Time)
}

func (x *archive) node(n *Node) {
	x.id(&n.ID)
	text(x, &n.Name)
	x.flag(&n.Retired)
	num(x, &n.Seq)
	num(x, &n.fromManifest)
	refs(x, &n.Providers, tProvider)
	refs(x, &n.Assignments, tAssignment)
	num(x, &n.Defaults)
	refs(x, &n.Agents, tGrant)
}

func (x *archive) deflt(d *Default) {
	refTo(x, &d.Provider, tProvider)
	num(x, &d.Seq)
	x.flag(&d.fromManifest)
}

func (x *archive) provision(v *Provision) {
	x.id(&v.ID)
	text(x, &v.Name)
	text(x, &v.Scope)
	text(x, &v.Credentials)
	x.flag(&v.Removed)
	num(x, &v.Seq)
	num(x, &v.fromManifest)
	refs(x, &v.Providers, tProvider)
	x.deflt(&v.Default)
	mapOf(x, &v.NodeDefaults, cmp.Compare[NodeRef], func(k *NodeRef, d *Default) { refTo(x, k, tNode); x.deflt(d) })
	refs(x, &v.Modules, tModule)
	num(x, &v.Bindings)
}

func (x *archive) provider(p *Provider) {
	x.id(&p.ID)
	text(x, &p.Name)
	refTo(x, &p.Provision, tProvision)
	refTo(x, &p.Node, tNode)
	text(x, &p.Endpoint)
	text(x, &p.Version)
	x.features(&p.Features)
	text(x, &p.State)
	num(x, &p.StateSeq)
	x.instant(&p.StateTime)
	num(x, &p.Seq)
	num(x, &p.ChangedSeq)
	num(x, &p.fromManifest)
	refs(x, &p.Bindings, tBinding)
	refs(x, &p.Choices, tBinding)
	refs(x, &p.Overrides, tBinding)
	refs(x, &p.Memories, tBinding)
	refs(x, &p.Modules, tModule)
	num(x, &p.Defaults)
	x.holders(&p.Holders)
}

func (x *archive) features(f *[]string) { listOf(x, f, func(v *string) { text(x, v) }) }

func (x *archive) holders(h *Holders) {
	refs(x, &h.Live, tCredential)
	refs(x, &h.dead, tCredential)
	refs(x, &h.rotations, tRotation)
	refTo(x, &h.Open, tRotation)
}

func (x *archive) module(m *Module) {
	x.id(&m.ID)
	text(x, &m.Name)
	if m.Decl == nil {
		m.Decl = &events.ModuleDeclared{}
	}
	x.declaration(m.Decl)
	x.flag(&m.Removed)
	num(x, &m.Seq)
	x.flag(&m.fromManifest)
	num(x, &m.made)
	refs(x, &m.Assignments, tAssignment)
}

func (x *archive) declaration(d *events.ModuleDeclared) {
	text(x, &d.Name)
	mapOf(x, &d.Requires, cmp.Compare[string], func(slot *string, r *events.Requirement) {
		text(x, slot)
		x.id(&r.Provision)
		text(x, &r.Version)
		x.features(&r.Features)
		x.id(&r.Provider)
		x.flag(&r.Optional)
	})
	mapOf(x, &d.Embeds, cmp.Compare[string], func(slot *string, m *events.Embed) {
		text(x, slot)
		x.id(&m.Provision)
		text(x, &m.Version)
		x.features(&m.Features)
		text(x, &m.Because)
		x.flag(&m.Replaceable)
		if has(x, &m.Needs) {
			text(x, &m.Needs.Version)
			x.features(&m.Needs.Features)
		}
		if has(x, &m.Composition) {
			text(x, &m.Composition.File)
			text(x, &m.Composition.Service)
		}
	})
}

// has is whether there is something behind a pointer.
func has[T any](x *archive, p **T) bool {
	there := *p != nil
	x.flag(&there)
	if there && *p == nil {
		*p = new(T)
	}
	return there
}

func (x *archive) assignment(a *Assignment) {
	x.id(&a.ID)
	text(x, &a.Name)
	refTo(x, &a.Module, tModule)
	refTo(x, &a.Node, tNode)
	refTo(x, &a.first, tBinding)
	num(x, &a.Seq)
	num(x, &a.MovedSeq)
	x.flag(&a.Ended)
	num(x, &a.fromManifest)
}

func (x *archive) binding(b *Binding) {
	x.id(&b.ID)
	num(x, &b.Seq)
	num(x, &b.Basis)
	num(x, &b.ChoiceSeq)
	num(x, &b.Applied)
	num(x, &b.settled)
	refTo(x, &b.Assignment, tAssignment)
	refTo(x, &b.Provision, tProvision)
	refTo(x, &b.Provider, tProvider)
	refTo(x, &b.Choice, tProvider)
	refTo(x, &b.Override, tOverride)
	refTo(x, &b.next, tBinding)
	refTo(x, &b.newest, tCredential)
	refTo(x, &b.use, tCredential)
	refTo(x, &b.ask, tCredential)
	refTo(x, &b.left, tProvider)
	num(x, &b.slot)
	num(x, &b.rule)
	if b.slot >= x.counts[tSlotName] || int(b.rule) >= len(rules) {
		x.fail("a binding has no such slot or rule")
	}
	x.flag(&b.Embedded)
	x.flag(&b.Released)
	x.flag(&b.choiceFromManifest)
	x.flag(&b.overrideFromManifest)
}

// bindingKey is a reference to a binding as a key.
func (x *archive) bindingKey(r *BindingRef) {
	if refTo(x, r, tBinding); *r == 0 {
		x.fail("a reference leads nowhere")
	}
}

func (x *archive) override(o *Override) {
	x.id(&o.ID)
	refTo(x, &o.Binding, tBinding)
	refTo(x, &o.Provider, tProvider)
	x.id(&o.Under.Target.Provider)
	x.flag(&o.Under.Target.Embedded)
	text(x, &o.Under.Rule)
	num(x, &o.Under.Basis)
	refTo(x, &o.under, tProvider)
	num(x, &o.Seq)
	text(x, &o.Actor)
	text(x, &o.Reason)
	x.instant(&o.Time)
	x.flag(&o.Cleared)
}

func (x *archive) credential(c *Credential) {
	num(x, &c.Generation)
	num(x, &c.Issued)
	num(x, &c.Ended)
	num(x, &c.Seq)
	x.signed(&c.since)
	x.secretRef(&c.ref)
	refTo(x, &c.Binding, tBinding)
	refTo(x, &c.Provider, tProvider)
	refTo(x, &c.Rotation, tRotation)
	refTo(x, &c.older, tCredential)
	num(x, &c.tag)
	num(x, &c.State)
	if c.State > Gone {
		x.fail("a credential has no such state")
	}
	x.flag(&c.Late)
	x.flag(&c.ByHand)
	x.secretRef(&c.user)
	x.secretRef(&c.database)
	x.secretRef(&c.hook)
	refTo(x, &c.madeOn, tNode)
}

// secretRef is a text that stands among others.
func (x *archive) secretRef(r *textRef) {
	if x.saving {
		secret := x.texts.get(*r)
		text(x, &secret)
		return
	}
	n := x.uvarint()
	if n > maxTextRef {
		x.fail("a reference is too long")
	}
	if x.err == nil {
		*r = addText(x.texts, x.take(int(n)))
	}
}

func (x *archive) rotation(o *Rotation) {
	x.id(&o.ID)
	refTo(x, &o.Provider, tProvider)
	refTo(x, &o.Binding, tBinding)
	num(x, &o.IssuedBefore)
	x.instant(&o.Deadline)
	num(x, &o.Total)
	num(x, &o.Done)
	text(x, &o.State)
	num(x, &o.Seq)
	x.instant(&o.Time)
	text(x, &o.Actor)
	text(x, &o.Reason)
	num(x, &o.Urged)
	num(x, &o.Closed)
	x.instant(&o.ClosedTime)
	text(x, &o.ClosedReason)
	num(x, &o.tag)
}

func (x *archive) grant(g *Grant) {
	x.id(&g.ID)
	text(x, &g.Name)
	text(x, &g.Role)
	refTo(x, &g.Node, tNode)
	text(x, &g.Key)
	num(x, &g.Seq)
	x.instant(&g.Time)
	text(x, &g.Actor)
	x.flag(&g.Revoked)
}

func (x *archive) failure(f *Failure) {
	text(x, &f.Reason)
	num(x, &f.Attempts)
	num(x, &f.Seq)
	x.instant(&f.Time)
	x.flag(&f.Operator)
}

// commands are those that are remembered, the oldest first.
func (x *archive) commands(c *commandLog) {
	n := len(c.order) - c.head
	num(x, &n)
	if !x.saving {
		c.order, c.saved = make([]events.ID, 0, min(n, 4*archiveBuffer)), make([]savedCommand, 0, min(n, 4*archiveBuffer))
	}
	for i := range n {
		var v savedCommand
		if x.saving {
			v.id = c.order[c.head+i]
			v.record, _ = c.known(v.id)
		}
		x.id(&v.id)
		x.raw(v.record.Hash[:])
		num(x, &v.record.First)
		num(x, &v.record.Last)
		if x.err != nil {
			return
		}
		if x.saving {
			continue
		}
		c.order = append(c.order, v.id)
		if v.place = i; v.record.Last != 0 {
			c.saved = append(c.saved, v)
		}
	}
	x.signed(&c.horizon)
	if !x.saving { // they almost are sorted: an id begins with an instant
		slices.SortFunc(c.saved, func(a, b savedCommand) int { return cmp.Or(compareIDs(a.id, b.id), cmp.Compare(a.place, b.place)) })
	}
}

package projections

import (
	"slices"
	"time"

	"bindery/events"
)

// ChangeKind says what became different for a binding. The list is only ever
// added to.
type ChangeKind string

// The kinds, in the order in which those of one binding at one sequence are told.
const (
	ChangePresent     ChangeKind = "present"
	ChangeBound       ChangeKind = "bound"
	ChangePending     ChangeKind = "pending"
	ChangeRebound     ChangeKind = "rebound"
	ChangeDecided     ChangeKind = "decided"
	ChangeReleased    ChangeKind = "released"
	ChangeMoved       ChangeKind = "moved"
	ChangeRenamed     ChangeKind = "renamed"
	ChangeRedeclared  ChangeKind = "redeclared"
	ChangeRelocated   ChangeKind = "relocated"
	ChangeEndpoint    ChangeKind = "endpoint-changed"
	ChangeUpdated     ChangeKind = "updated"
	ChangeRequested   ChangeKind = "credential-requested"
	ChangeWithdrawn   ChangeKind = "credential-withdrawn"
	ChangeIssued      ChangeKind = "credential-issued"
	ChangeSwitched    ChangeKind = "switched"
	ChangeIssueFailed ChangeKind = "credential-failed"
	ChangeRevoked     ChangeKind = "credential-revoked"
	ChangeWrittenOff  ChangeKind = "credential-written-off"
	ChangeApplied     ChangeKind = "applied"
	ChangeFailed      ChangeKind = "failed"
	ChangeFlagged     ChangeKind = "flagged"
	ChangeOther       ChangeKind = "changed"
	ChangeEnded       ChangeKind = "ended"
	ChangeGone        ChangeKind = "gone"
)

// changeKinds are the kinds in their order, and what each says.
var changeKinds = []struct {
	kind    ChangeKind
	meaning string
}{
	{ChangePresent, "no change: so it is when a subscriber begins that asks for it"},
	{ChangeBound, "a slot that nothing served is served by `to`"},
	{ChangePending, "a slot is there, and nothing serves it yet"},
	{ChangeRebound, "it was decided that `to` serves the slot in place of `from`; what the consumer runs with is another matter: `switched`"},
	{ChangeDecided, "the same serves it, by rule `to` in place of `from`"},
	{ChangeReleased, "the slot is no longer there; `from` served it"},
	{ChangeMoved, "the consumer moved from node `from` to `to`"},
	{ChangeRenamed, "`of` (assignment, provider or node) was called `from` and is called `to`"},
	{ChangeRedeclared, "the module declares the slot otherwise"},
	{ChangeRelocated, "its provider moved from node `from` to `to`"},
	{ChangeEndpoint, "its provider answers at `to` in place of `from`"},
	{ChangeUpdated, "what it runs with is of version `to`; before, of `from`"},
	{ChangeRequested, "a credential was asked for: `generation`"},
	{ChangeWithdrawn, "that credential is asked for no longer"},
	{ChangeIssued, "that credential was issued"},
	{ChangeSwitched, "what the consumer is to run with is `to` in place of `from`, `generation` in place of `from_generation`"},
	{ChangeIssueFailed, "the provider side could not issue or revoke that credential"},
	{ChangeRevoked, "that credential logs in no longer"},
	{ChangeWrittenOff, "an operator wrote that credential off"},
	{ChangeApplied, "the consumer said that it runs with what it is to, or that it took note"},
	{ChangeFailed, "the consumer could not take up what it is to run with"},
	{ChangeFlagged, "one of `drift`, `unsatisfied`, `stranded`, `cut-off` came or went: `from`, `to`"},
	{ChangeOther, "something else in the document is different"},
	{ChangeEnded, "it has no document any more: its assignment ended, or its consumer took note of the release"},
	{ChangeGone, "only through documents: its document is no longer under this node, for it ended or moved to another one"},
}

// ChangeKinds lists the kinds in their order.
func ChangeKinds() []ChangeKind {
	out := make([]ChangeKind, len(changeKinds))
	for i, k := range changeKinds {
		out[i] = k.kind
	}
	return out
}

// Meaning says what a kind says, in a sentence.
func (k ChangeKind) Meaning() string {
	if i := k.rank(); i >= 0 {
		return changeKinds[i].meaning
	}
	return ""
}

// rank is the kind's place in the order.
func (k ChangeKind) rank() int {
	return slices.IndexFunc(changeKinds, func(o struct {
		kind    ChangeKind
		meaning string
	}) bool {
		return o.kind == k
	})
}

// What a name that changed is of.
const (
	OfAssignment = "assignment"
	OfProvider   = "provider"
	OfNode       = "node"
)

// Change is one thing that became different for one binding. Its JSON is a
// contract: fields are only ever added.
type Change struct {
	Kind   ChangeKind `json:"kind"`                    // what became different
	Seq    uint64     `json:"seq"`                     // the ledger's sequence as of which it is so: the last of the command that did it
	Time   time.Time  `json:"time,omitempty,omitzero"` // of the command; through the documents of a node, when the subscriber heard of it; absent of what is present
	Chain  string     `json:"chain"`                   // the ledger's chain value at seq
	Mesh   string     `json:"mesh"`                    // the mesh's name
	MeshID events.ID  `json:"mesh_id"`                 // its id

	Binding      events.ID `json:"binding"`       // id of the binding
	Assignment   string    `json:"assignment"`    // the consumer; names are those after the change
	AssignmentID events.ID `json:"assignment_id"` // its id
	Slot         string    `json:"slot"`          // the slot's name
	Node         string    `json:"node"`          // the consumer's
	NodeID       events.ID `json:"node_id"`       // its id

	Provider   string     `json:"provider,omitempty"`    // whom it is about: of a credential, where it logs in; else what is decided
	ProviderID *events.ID `json:"provider_id,omitempty"` // its id
	Embedded   bool       `json:"embedded,omitempty"`    // that is the slot's own instance
	Generation uint64     `json:"generation,omitempty"`  // of the credential it is about

	Of             string `json:"of,omitempty"`              // of a new name, whose: assignment, provider or node
	From           string `json:"from,omitempty"`            // what it was; see the kinds
	To             string `json:"to,omitempty"`              // what it is
	FromGeneration uint64 `json:"from_generation,omitempty"` // of the credential before

	Cause   string     `json:"cause,omitempty"`   // the type of the event that did it: "provider.relocated"
	Actor   string     `json:"actor,omitempty"`   // who
	Reason  string     `json:"reason,omitempty"`  // why, where it was given
	Command *events.ID `json:"command,omitempty"` // id of the command

	Document *BindingDocument `json:"document,omitempty"` // as it is after the change; absent where there is none
}

// Occasion is what made documents different, as far as it is known.
type Occasion struct {
	Stamp
	Time time.Time

	// Of the event, where that is known.
	Cause   events.Type
	Actor   string
	Reason  string
	Command events.ID

	// Narrow says that the documents of one node are seen and no others: what is
	// not there may be elsewhere, and what is new may have been.
	Narrow bool
}

// DocumentFilter narrows whose documents and changes are of interest; the zero
// one does not.
type DocumentFilter struct {
	Provider events.ID   // decided on it, or running with it; of a credential, logging in to it
	Node     events.ID   // the consumer's
	Bindings []events.ID // these alone; nil for all
}

// Keeps reports whether a document, which may be nil, is of interest.
func (f *DocumentFilter) Keeps(d *BindingDocument) bool {
	if d == nil {
		return false
	}
	is := func(id *events.ID) bool { return id != nil && *id == f.Provider }
	return f.near(*d.ID, d.NodeID) && (f.Provider.IsZero() || is(d.ProviderID) || is(d.Use.ProviderID))
}

// near reports whether a binding on a node can be of interest.
func (f *DocumentFilter) near(binding, node events.ID) bool {
	return (f.Node.IsZero() || f.Node == node) && (f.Bindings == nil || slices.Contains(f.Bindings, binding))
}

// keepsChange reports whether a change is of interest by itself.
func (f *DocumentFilter) keepsChange(c *Change) bool {
	return f.near(c.Binding, c.NodeID) && (f.Provider.IsZero() || c.ProviderID != nil && *c.ProviderID == f.Provider)
}

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"bindery/commands/service"
	"bindery/events"
	"bindery/projections"
)

// need is what is kept of a projections.BindingDocument: what a consumer of this
// node shall run with in one slot.
type need struct {
	binding, assignment string // ids
	name, module, slot  string
	provision           string
	released            bool
	provider, endpoint  string // of what is to be used
	ref                 string // to its secret
	generation          uint64
	usable              bool // there is something to run with
	changed, applied    uint64
	failed              bool // a failure is on record
	at                  uint64
	chain               string
}

// essence is what another try is worth for: not what the agent itself has said.
func (n *need) essence() string {
	return fmt.Sprint(n.assignment, n.slot, n.provision, n.released, n.provider, n.endpoint, n.ref, n.generation, n.usable, n.changed)
}

// source is what a slot's files are made of.
func (n *need) source() string {
	return digest(map[string]string{"type": n.provision, "provider": n.provider, "endpoint": n.endpoint, "ref": n.ref})
}

// errDocument is wrapped by what is wrong with a document.
var errDocument = errors.New("the document cannot be used")

// readNeed reads a document of a node. Whoever wrote it is not trusted with a path: its
// names become names of files.
func readNeed(node, key string, d *projections.BindingDocument) (*need, error) {
	if d.ID == nil || d.Key() != key || d.NodeID.String() != node {
		return nil, fmt.Errorf("%w: it lies under another key than its own", errDocument)
	}
	for _, name := range []string{d.Assignment, d.Slot, d.Module} {
		if err := plainName(name); err != nil {
			return nil, err
		}
	}
	u := &d.Use
	return &need{binding: d.ID.String(), assignment: d.AssignmentID.String(), name: d.Assignment, module: d.Module, slot: d.Slot,
		provision: d.Provision, released: d.Released, provider: u.Provider, endpoint: u.Endpoint, ref: u.SecretRef, generation: u.Generation,
		usable:  !d.Released && (u.Provider != "" || u.Embedded),
		changed: d.ChangedSeq, applied: d.AppliedSeq, failed: d.Error != "" || d.Attempts > 0, at: d.At, chain: d.Chain}, nil
}

// plainName reports whether a name can be that of a file: it is one that the
// ledger gives, and so has neither a slash nor a dot.
func plainName(name string) error {
	if !ledgerName.MatchString(name) {
		return fmt.Errorf("%w: a name in it is none", errDocument)
	}
	return nil
}

// Names that older ledgers have may be reserved by now.
var (
	ledgerName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	askTag     = regexp.MustCompile(`^[0-9a-f]{8}$`)
)

// checkHolder looks whether a document of a node's provider side can be used.
func checkHolder(node, key string, d *projections.HolderDocument) error {
	if d.Key() != key || d.NodeID.String() != node {
		return fmt.Errorf("%w: it lies under another key than its own", errDocument)
	}
	for _, name := range []string{d.Assignment, d.Slot, d.Module, d.Provision} {
		if err := plainName(name); err != nil {
			return err
		}
	}
	if !d.Embedded {
		if err := plainName(d.Provider); err != nil {
			return err
		}
	}
	if !askTag.MatchString(d.Tag) {
		return fmt.Errorf("%w: its tag is none", errDocument)
	}
	return nil
}

// holderEssence is what another try is worth for.
func holderEssence(d *projections.HolderDocument) string {
	return fmt.Sprint(d.Do, d.State, d.SecretRef, d.InUse, d.Revocable, d.Ended, d.Endpoint, d.ConsumerNodeID, d.ConsumerKeys, d.Tag)
}

// documents are what the ledger said last, as far as the agent was told: they wake it,
// and say what a consumer here may still fetch. The documents themselves are never
// changed.
type documents struct {
	mu      sync.Mutex
	needs   map[string]map[string]*need                       // by assignment id, by key
	homes   map[string]string                                 // assignment id, by key of a need
	holders map[string]map[string]*projections.HolderDocument // by group, by key
	keys    map[string]service.SealingKey                     // by node id, as far as they were asked for
	renewed uint64                                            // how often keys were forgotten
	waiting map[string]string                                 // groups, by the reference that they wait for (see awaits)
}

func newDocuments() *documents {
	return &documents{needs: map[string]map[string]*need{}, homes: map[string]string{},
		holders: map[string]map[string]*projections.HolderDocument{}, keys: map[string]service.SealingKey{},
		waiting: map[string]string{}}
}

// putNeed takes a document, or with nil that it is gone, and returns the
// assignments it is about, and whether it is another thing than before.
func (d *documents) putNeed(key string, n *need) (about []string, anew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.homes[key]
	var old *need
	if before != "" {
		old = d.needs[before][key]
		about = append(about, before)
	}
	if n != nil && old != nil && n.at < old.at {
		return about, false // an answer that was overtaken
	}
	anew = n == nil || old == nil || n.essence() != old.essence()
	if n == nil || n.assignment != before {
		delete(d.needs[before], key)
		if len(d.needs[before]) == 0 {
			delete(d.needs, before)
		}
		delete(d.homes, key)
	}
	if n == nil {
		return about, anew
	}
	if n.assignment != before {
		about = append(about, n.assignment)
	}
	if d.needs[n.assignment] == nil {
		d.needs[n.assignment] = map[string]*need{}
	}
	d.needs[n.assignment][key] = n
	d.homes[key] = n.assignment
	return about, anew
}

// needsOf are the needs of an assignment, sorted.
func (d *documents) needsOf(assignment string) []*need {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*need
	for _, n := range d.needs[assignment] {
		out = append(out, n)
	}
	sortNeeds(out)
	return out
}

// sortNeeds sorts by slot; where one is left of an earlier slot of the name, what
// serves the slot comes last.
func sortNeeds(needs []*need) {
	slices.SortFunc(needs, func(a, b *need) int {
		if a.slot != b.slot {
			return strings.Compare(a.slot, b.slot)
		}
		if a.released != b.released {
			if a.released {
				return -1
			}
			return 1
		}
		return strings.Compare(a.binding, b.binding)
	})
}

// awaits reports whether a consumer of this node is to use a reference; if so it is
// noted that a group waits until none does (see released).
func (d *documents) awaits(ref, group string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.refersTo(ref) {
		return false
	}
	d.waiting[ref] = group
	return true
}

// released takes the groups out of those that wait whose reference no consumer of
// this node is to use any more.
func (d *documents) released() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for ref, group := range d.waiting {
		if !d.refersTo(ref) {
			delete(d.waiting, ref)
			out = append(out, group)
		}
	}
	return out
}

// refersTo is called with d.mu held.
func (d *documents) refersTo(ref string) bool {
	for _, needs := range d.needs {
		for _, n := range needs {
			if n.ref == ref {
				return true
			}
		}
	}
	return false
}

// assignments lists the ids of those that have needs.
func (d *documents) assignments() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for id := range d.needs {
		out = append(out, id)
	}
	return out
}

// groupOf is what no two hooks of the provider side run for at once: a provider
// and a binding. It is a middle part of a document's key.
func groupOf(key string) string {
	parts := strings.Split(key, ".")
	if len(parts) != 4 {
		return ""
	}
	return parts[1] + "." + parts[2]
}

// putHolder takes a document, or with nil that it is gone, and reports whether it
// is another thing than before.
func (d *documents) putHolder(key string, h *projections.HolderDocument) (anew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	group := groupOf(key)
	old := d.holders[group][key]
	if h == nil {
		delete(d.holders[group], key)
		if len(d.holders[group]) == 0 {
			delete(d.holders, group)
		}
		return true
	}
	if d.holders[group] == nil {
		d.holders[group] = map[string]*projections.HolderDocument{}
	}
	d.holders[group][key] = h
	return old == nil || holderEssence(old) != holderEssence(h)
}

// holdersOf are a group's documents, the newest first.
func (d *documents) holdersOf(group string) []*projections.HolderDocument {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*projections.HolderDocument
	for _, h := range d.holders[group] {
		out = append(out, h)
	}
	sortHolders(out)
	return out
}

// sortHolders puts the newest first.
func sortHolders(holders []*projections.HolderDocument) {
	slices.SortFunc(holders, func(a, b *projections.HolderDocument) int {
		return cmp.Compare(b.Generation, a.Generation)
	})
}

// hasAnother reports whether a generation is among holders that was asked for by
// another event than the one of a record: the ledger has lost that.
func hasAnother(holders []*projections.HolderDocument, in *hookInput) bool {
	return slices.ContainsFunc(holders, func(h *projections.HolderDocument) bool {
		return h.Generation == in.Generation && h.Tag != in.Tag
	})
}

// keysOfDocuments are the keys of all documents.
func (d *documents) keysOfDocuments() (needs, holders []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.homes {
		needs = append(needs, key)
	}
	for _, group := range d.holders {
		for key := range group {
			holders = append(holders, key)
		}
	}
	return needs, holders
}

// keepNeeds forgets the needs of an assignment that are not there any more.
func (d *documents) keepNeeds(assignment string, there map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.needs[assignment] {
		if !there[key] {
			delete(d.needs[assignment], key)
			delete(d.homes, key)
		}
	}
	if len(d.needs[assignment]) == 0 {
		delete(d.needs, assignment)
	}
}

// keepHolders forgets the holders of a group that are not there any more.
func (d *documents) keepHolders(group string, there map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.holders[group] {
		if !there[key] {
			delete(d.holders[group], key)
		}
	}
	if len(d.holders[group]) == 0 {
		delete(d.holders, group)
	}
}

// groupsFor lists the groups with a holder on a node; of all nodes where that is "".
func (d *documents) groupsFor(consumerNode string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for group, holders := range d.holders {
		for _, h := range holders {
			if consumerNode == "" || h.ConsumerNodeID.String() == consumerNode {
				out = append(out, group)
				break
			}
		}
	}
	return out
}

// whoUses lists the assignments with a need of a sealed secret.
func (d *documents) whoUses(ref string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for id, needs := range d.needs {
		for _, n := range needs {
			if n.ref == ref {
				out = append(out, id)
				break
			}
		}
	}
	return out
}

// isID reports whether text is an id, as a name of a file or a part of a key.
func isID(text string) bool {
	_, err := events.ParseID(text)
	return err == nil
}

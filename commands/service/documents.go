package service

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"bindery/commands"
	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/projections"
)

// DocumentsQuery asks for the documents of a node: what its consumers run with, and
// what its provider side has to do. The service itself answers it, for the node's
// agent, operators and auditors.
type DocumentsQuery struct {
	Node string `json:"node"` // name or id
	// After is the sequence of an earlier answer. It asks for the documents that
	// changed since; 0: for all.
	After uint64 `json:"after,omitempty"`
	// Chain is the chain value of that answer. Where the ledger has another one at
	// After, the query is refused with ledger_restored. Empty: nobody compares.
	Chain string `json:"chain,omitempty"`
	// Wait, in milliseconds, asks with After to answer only when a document changed,
	// or that time is over; at most MaxDocumentsWait.
	Wait int `json:"wait,omitempty"`
	// Assignment and Binding narrow the answer, and what is waited for, to one
	// assignment or one binding.
	Assignment events.ID `json:"assignment,omitzero"`
	Binding    events.ID `json:"binding,omitzero"`
}

// DocumentsQueryName is the name of DocumentsQuery.
const DocumentsQueryName = "documents"

// MaxDocumentsWait is how long a DocumentsQuery may wait for changes.
const MaxDocumentsWait = 30 * time.Second

// Documents is the answer to a DocumentsQuery.
type Documents struct {
	Mesh   string    `json:"mesh"`
	MeshID events.ID `json:"mesh_id"`
	// Seq is the sequence up to which nothing is missing. A document may be newer
	// than that; it then comes again.
	Seq   uint64 `json:"seq"`
	Chain string `json:"chain"` // the ledger's chain value at Seq
	// All says that everything is listed: what is not, is gone. Otherwise what changed
	// since DocumentsQuery.After is listed.
	All      bool           `json:"all"`
	Bindings []KeyedBinding `json:"bindings"`
	Holders  []KeyedHolder  `json:"holders"`
}

// KeyedBinding is a binding's document under its key.
type KeyedBinding struct {
	Key      string                       `json:"key"`
	Document *projections.BindingDocument `json:"document"` // null: it is gone from this node
}

// KeyedHolder is a holder's document under its key.
type KeyedHolder struct {
	Key      string                      `json:"key"`
	Document *projections.HolderDocument `json:"document"` // null: it is gone from this node
}

// Documents asks for the documents of a node. The writer answers it, also for a client
// of followers.
func (c *Client) Documents(ctx context.Context, q DocumentsQuery) (Documents, error) {
	var out Documents
	data, err := c.query(ctx, DocumentsQueryName, q, silent+time.Duration(q.Wait)*time.Millisecond, false, 0)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(data, &out)
}

// documents is one DocumentsQuery under way.
type documents struct {
	s    *Service
	key  string // of the caller
	q    DocumentsQuery
	node events.ID
}

// documentsQuery answers a DocumentsQuery.
func (s *Service) documentsQuery(req micro.Request, key string, m QueryMessage) {
	d := &documents{s: s, key: key}
	err := strict(m.Args, &d.q)
	if err != nil {
		err = badRequest(err)
	} else {
		err = d.admit()
	}
	if err != nil {
		s.running.Done()
		s.refuse(req, err)
		return
	}
	var conditions []condition
	if d.q.After > 0 && d.q.Chain != "" {
		conditions = append(conditions, func(context.Context) error { return s.onChain(d.q.After, d.q.Chain) })
	}
	if d.q.After > 0 && d.q.Wait > 0 {
		conditions = append(conditions, d.changed)
	}
	conditions = append(conditions, s.readiness(m)...)
	if s.cfg.Keeper != nil {
		conditions = append(conditions, d.kept)
	}
	s.when(req, conditions, true, d.answer)
}

// admit refuses who may not read the documents of the node, and finds its id.
func (d *documents) admit() error {
	if err := d.s.authorize(d.key, commands.DocumentsOf{Node: d.q.Node}); err != nil {
		return err
	}
	var err error
	d.s.state.View(func(st *projections.State) {
		var r projections.NodeRef
		if r, err = (commands.Finder{State: st}).Node(d.q.Node); err == nil {
			d.node = st.Node(r).ID
		}
	})
	return err
}

// changed is met when documents of the node changed, or the time to wait is over.
func (d *documents) changed(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, min(time.Duration(d.q.Wait)*time.Millisecond, MaxDocumentsWait))
	defer cancel()
	if k := d.s.cfg.Keeper; k != nil {
		err = k.AwaitChange(ctx, d.node, d.q.After, d.wanted)
	} else {
		_, err = d.s.state.Await(ctx, d.q.After)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return closedBy(err)
}

// wanted reports whether changes are among what the query is narrowed to.
func (d *documents) wanted(changes []readmodel.Changed) (some bool) {
	d.s.state.View(func(st *projections.State) {
		some = slices.ContainsFunc(changes, func(c readmodel.Changed) bool { return d.keeps(st, c.Binding) })
	})
	return some
}

// keeps reports whether a binding is one that the query is narrowed to.
func (d *documents) keeps(st *projections.State, r projections.BindingRef) bool {
	if d.q.Assignment.IsZero() && d.q.Binding.IsZero() {
		return true
	}
	b := st.Binding(r)
	return (d.q.Binding.IsZero() || b.ID == d.q.Binding) &&
		(d.q.Assignment.IsZero() || st.Assignment(b.Assignment).ID == d.q.Assignment)
}

// kept is met when the keeper knows of all that the state does.
func (d *documents) kept(ctx context.Context) error {
	var seq uint64
	d.s.state.View(func(st *projections.State) { seq = st.Seq })
	ctx, cancel := context.WithTimeout(ctx, MaxReadWait)
	defer cancel()
	err := d.s.cfg.Keeper.AwaitKept(ctx, seq)
	if errors.Is(err, context.DeadlineExceeded) {
		return &commands.Refusal{Code: commands.Unreachable, Message: "the documents are not up to date yet",
			Why: "the server brings them up to what the ledger says", Fix: projections.Again(), Candidates: []commands.Candidate{}}
	}
	return closedBy(err)
}

// answer makes the answer. The documents are made in several parts, so that the writer
// of the ledger does not wait for all of them: what changes meanwhile comes again, since
// the answer's sequence is that of before.
func (d *documents) answer() (any, uint64, error) {
	if err := d.s.authorize(d.key, commands.DocumentsOf{Node: d.q.Node}); err != nil {
		return nil, 0, err
	}
	out := Documents{Bindings: []KeyedBinding{}, Holders: []KeyedHolder{}}
	d.s.state.View(func(st *projections.State) {
		out.Mesh, out.MeshID, out.Seq, out.Chain = st.Mesh.Name, st.Mesh.ID, st.Seq, st.Chain.String()
	})
	switch k := d.s.cfg.Keeper; {
	case k == nil:
		if d.q.After == 0 || d.q.After != out.Seq {
			d.everything(&out, d.allBindings())
		}
	case d.q.After == 0:
		d.here(&out)
	default:
		changes, at, ok := k.After(d.node, d.q.After)
		if !ok {
			d.here(&out)
			break
		}
		out.Seq, out.Chain = at.Seq, at.Chain
		d.since(&out, changes)
	}
	sortDocuments(&out)
	return out, out.Seq, nil
}

// chunk is how many bindings are looked at in one View.
const chunk = 256

// here lists everything that the keeper knows of the node.
func (d *documents) here(out *Documents) {
	refs, at := d.s.cfg.Keeper.Here(d.node)
	out.Seq, out.Chain = at.Seq, at.Chain
	d.everything(out, refs)
}

// allBindings are all there ever were.
func (d *documents) allBindings() (refs []projections.BindingRef) {
	d.s.state.View(func(st *projections.State) {
		for i := 1; i <= st.BindingCount(); i++ {
			refs = append(refs, projections.BindingRef(i))
		}
	})
	return refs
}

// everything lists the documents of some bindings that are on the node.
func (d *documents) everything(out *Documents, refs []projections.BindingRef) {
	out.All = true
	for part := range slices.Chunk(refs, chunk) {
		d.s.state.View(func(st *projections.State) {
			for _, r := range part {
				if d.keeps(st, r) {
					d.add(out, st, r)
				}
			}
		})
	}
}

// add lists the documents of a binding that are on the node.
func (d *documents) add(out *Documents, st *projections.State, r projections.BindingRef) {
	if st.HasDocument(r) && st.Node(st.Assignment(st.Binding(r).Assignment).Node).ID == d.node {
		doc := st.BindingDocument(r)
		out.Bindings = append(out.Bindings, KeyedBinding{doc.Key(), &doc})
	}
	holders := st.HolderDocuments(r)
	for i := range holders {
		if holders[i].NodeID == d.node {
			out.Holders = append(out.Holders, KeyedHolder{holders[i].Key(), &holders[i]})
		}
	}
}

// since lists what changed, as it is now.
func (d *documents) since(out *Documents, changes []readmodel.Changed) {
	for part := range slices.Chunk(changes, chunk) {
		d.s.state.View(func(st *projections.State) {
			for i := range part {
				if d.keeps(st, part[i].Binding) {
					addChange(out, st, &part[i])
				}
			}
		})
	}
}

// addChange lists the document under a key, or that it is gone.
func addChange(out *Documents, st *projections.State, c *readmodel.Changed) {
	if c.Holder {
		holders := st.HolderDocuments(c.Binding)
		at := slices.IndexFunc(holders, func(h projections.HolderDocument) bool { return h.Key() == c.Key })
		k := KeyedHolder{Key: c.Key}
		if at >= 0 {
			k.Document = &holders[at]
		}
		out.Holders = append(out.Holders, k)
		return
	}
	k := KeyedBinding{Key: c.Key}
	if st.HasDocument(c.Binding) {
		if doc := st.BindingDocument(c.Binding); doc.Key() == c.Key {
			k.Document = &doc
		}
	}
	out.Bindings = append(out.Bindings, k)
}

// sortDocuments puts an answer in the order of its keys.
func sortDocuments(out *Documents) {
	slices.SortFunc(out.Bindings, func(x, y KeyedBinding) int { return strings.Compare(x.Key, y.Key) })
	slices.SortFunc(out.Holders, func(x, y KeyedHolder) int { return strings.Compare(x.Key, y.Key) })
}

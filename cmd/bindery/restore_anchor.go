package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"bindery/commands"
	"bindery/commands/handler"
	"bindery/ledger"
)

// proofs are the anchors that a backup is held against: each says how far the
// ledger had come, in this store or in another.
type proofs struct {
	anchors []ledger.Anchor // still to come, by sequence
	lost    *ledger.Anchor  // the first one that the backup has not
}

// proofsOf are the anchors of the mesh of a backup.
func (c *cli) proofsOf(h ledger.BackupHead) (*proofs, error) {
	all, err := c.anchors()
	if errors.Is(err, errNoAnchors) {
		return &proofs{}, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(all.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unreadAnchor(all, err)
	}
	p := &proofs{}
	for _, e := range entries {
		id, is := strings.CutSuffix(e.Name(), ".json")
		if !is || strings.HasPrefix(id, ".") {
			continue
		}
		a, ok, err := all.Load(id)
		if err != nil {
			return nil, unreadAnchor(all, err)
		}
		if ok && a.MeshID == h.MeshID && a.Seq > 0 {
			p.anchors = append(p.anchors, a)
		}
	}
	slices.SortFunc(p.anchors, func(a, b ledger.Anchor) int { return cmp.Compare(a.Seq, b.Seq) })
	return p, nil
}

// reach holds the anchors against how far a backup has been read; both are at the
// ends of commands.
func (p *proofs) reach(at ledger.Position) {
	for p.lost == nil && len(p.anchors) > 0 && p.anchors[0].Seq <= at.Seq {
		if a := p.anchors[0]; a.Seq < at.Seq || a.Chain != at.Chain {
			p.lost = &a
		}
		p.anchors = p.anchors[1:]
	}
}

// held refuses a backup, once it is read, that has not what an anchor proves.
func (p *proofs) held(h ledger.BackupHead, accept bool) error {
	a := p.lost
	if a == nil && len(p.anchors) > 0 {
		a = &p.anchors[len(p.anchors)-1]
	}
	if a == nil || accept {
		return nil
	}
	where := a.Path
	if where == "" {
		where = "a ledger on a server"
	}
	why := fmt.Sprintf("it ends at sequence %d, and the ledger in %s had reached %d", h.Seq, where, a.Seq)
	if a.Seq <= h.Seq {
		why = fmt.Sprintf("the ledger in %s had another chain value at sequence %d", where, a.Seq)
	}
	return refusal(commands.LedgerRestored, "the backup has not all that was there", why, again().With("--accept-loss"))
}

// identify gives a restored store an id and an anchor of its own, before it gets
// its place. The anchors of what was in that place before are set aside.
func (c *cli) identify(grows, dir string, h ledger.BackupHead) error {
	id := ledger.StoreID{ID: handler.NewIDs(c.program.Clock)(), Mesh: h.Mesh, Secrets: ledger.Secrets{ledger.NewSecret(h.Seq + 1)}} // not the program's: nobody chooses it
	if err := ledger.WriteStoreID(grows, id); err != nil {
		return storeError(grows, err)
	}
	anchors, err := c.anchorsFor(dir)
	if errors.Is(err, errNoAnchors) {
		return nil
	}
	if err != nil {
		return err
	}
	path := ledger.RealPath(dir)
	for {
		old, ok, err := anchors.At(path)
		if err == nil && ok {
			var kept string
			if kept, err = anchors.SetAside(old, "restored"); err == nil && !c.ui.machine() {
				c.ui.note("the anchor of what was in " + dir + " before is kept: " + kept)
			}
		}
		if err != nil {
			return unreadAnchor(anchors, err)
		}
		if !ok {
			break
		}
	}
	return anchors.Save(ledger.Anchor{ID: id.ID.String(), Mesh: h.Mesh, MeshID: h.MeshID, Seq: h.Seq, Chain: h.Chain, Path: path, Time: c.program.Clock().UTC()})
}

// anchorRestored keeps an anchor of a ledger that was restored on a server, as whoever
// serves it from this machine looks for it.
func (c *cli) anchorRestored(log *ledger.Log, h ledger.BackupHead) error {
	anchors, err := c.anchors()
	if errors.Is(err, errNoAnchors) {
		return nil
	}
	if err != nil {
		return err
	}
	return anchors.Save(ledger.Anchor{ID: log.Created(), Mesh: h.Mesh, MeshID: h.MeshID, Seq: h.Seq, Chain: h.Chain, Restored: log.Restored(), Time: c.program.Clock().UTC()})
}

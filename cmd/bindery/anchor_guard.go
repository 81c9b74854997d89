package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"bindery/commands/snapshot"
	"bindery/ledger"
)

// guard is what is known of a store before a server is started on it, which may
// cut what it cannot read, and give sequences out again.
type guard struct {
	c       *cli
	dir     string // the store
	path    string // the same, as anchors name it
	mode    anchorMode
	anchors ledger.Anchors // Dir is empty where nobody says
	store   ledger.StoreID // its ID is zero where the store does not say
	anchor  ledger.Anchor  // what stands; its Seq is 0 where none does
	files   *ledger.Files  // nil: there is no ledger
	damage  *damage        // nil: nothing is wrong, as far as is known yet
	mint    bool           // the store gets an id
	kept    string         // where the files of before a recovery are
	news    string         // what is said of the anchor, once
}

// guardStore looks at a store that is locked. Nothing is changed.
//
// With whole all files are read. Else those before the newest snapshot are not: it
// vouches for what is in them, and the server does not touch them.
func (c *cli) guardStore(dir string, whole bool) (*guard, error) {
	mode, err := c.anchorMode()
	if err != nil {
		return nil, err
	}
	g := &guard{c: c, dir: dir, path: ledger.RealPath(dir), mode: mode}
	if g.anchors, err = c.anchorsFor(dir); err != nil && !errors.Is(err, errNoAnchors) {
		return nil, err
	}
	if err := g.find(); err != nil {
		return nil, unreadAnchor(g.anchors, err)
	}
	from := uint64(0)
	if !whole {
		from = min(snapshot.In(filepath.Join(dir, snapshot.Dir), nil).Last(), g.anchor.Seq)
	}
	if g.files, err = ledger.ReadFiles(dir, from); err != nil {
		return nil, storeError(dir, err)
	}
	if g.damage == nil {
		g.damage = g.judge()
	}
	return g, nil
}

// find finds which store this is, and its anchor.
func (g *guard) find() error {
	store, known, err := ledger.ReadStoreID(g.dir)
	if err != nil { // the anchor of this place tells which store it is
		known = false
	}
	if g.anchors.Dir == "" {
		g.store, g.mint = store, !known
		return nil
	}
	here, ok, err := g.anchors.At(g.path)
	var bad *ledger.AnchorError
	if known && errors.As(err, &bad) { // its own is looked at below
		err = nil
	}
	if err != nil {
		return err
	}
	switch {
	case known:
		g.store = store
		own, stands, err := g.anchors.Load(store.ID.String())
		if err != nil {
			return err
		}
		if stands {
			g.anchor = own
			g.moved()
		}
		if ok && here.ID != store.ID.String() {
			g.damage = &damage{dir: g.dir, anchor: here, err: &ledger.LossError{Anchor: here, Why: "another ledger is there, of the store " + store.ID.String() + ", not " + here.ID}}
		}
	case ok: // what the store said is lost, or it is a copy of before
		g.anchor = here
		if err := g.store.ID.UnmarshalText([]byte(here.ID)); err != nil {
			return err
		}
		g.mint = true
	default:
		g.mint = true
	}
	return nil
}

// moved looks whether the store is where its anchor says. A copy of a store that
// is still there is another store: its anchor would be moved by what is written to
// the copy.
func (g *guard) moved() {
	if g.anchor.Path == g.path {
		return
	}
	if other, ok, err := ledger.ReadStoreID(g.anchor.Path); err == nil && ok && other.ID == g.store.ID {
		g.news = fmt.Sprintf("the store %s is a copy of %s: it gets an id and an anchor of its own", g.dir, g.anchor.Path)
		g.store, g.anchor, g.mint = ledger.StoreID{Secrets: g.store.Secrets}, ledger.Anchor{}, true
	}
}

// judge holds the files against the anchor.
func (g *guard) judge() *damage {
	a, f := g.anchor, g.files
	d := func(err error) *damage { return &damage{dir: g.dir, anchor: a, err: err} }
	switch {
	case f == nil && a.Seq > 0:
		return gone(g.dir, g.anchors, a)
	case f == nil:
		return nil
	case f.Damage != nil:
		return d(f.Damage)
	case !f.Packed && f.Last < a.Seq:
		return d(&ledger.LossError{Anchor: a, Last: f.Last, Why: fmt.Sprintf("the log ends at sequence %d", f.Last)})
	case f.Described != nil:
		return d(f.Described)
	}
	return nil
}

// check holds the open log against the anchor.
func (g *guard) check(ctx context.Context, log *ledger.Log) error {
	err := g.anchor.Check(ctx, log)
	var loss *ledger.LossError
	if errors.As(err, &loss) {
		g.damage, err = &damage{dir: g.dir, anchor: g.anchor, err: loss}, nil
	}
	return err
}

// copied copies a store's files, cut behind what is whole, so that a server can
// read them and nothing happens to those that are damaged.
func (g *guard) copied(within string) (string, error) {
	to, err := os.MkdirTemp(within, "bindery-salvage-")
	if err != nil {
		return "", err
	}
	err = ledger.CopyFiles(g.dir, to)
	if err == nil {
		err = prepare(to, g.files.Last)
	}
	if err != nil {
		_ = os.RemoveAll(to)
		return "", err
	}
	return to, nil
}

// prepare makes of a copy what a server takes: messages up to one that is whole.
func prepare(copied string, end uint64) error {
	f, err := ledger.ReadFiles(copied, 0)
	if err != nil || f == nil || f.Packed {
		return err
	}
	// The index goes in any case: it may know of more than there is.
	return errors.Join(f.CutAfter(end), f.Undescribe())
}

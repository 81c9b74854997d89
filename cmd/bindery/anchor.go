package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"bindery/commands"
	"bindery/ledger"
)

// anchorFlags say where anchors are kept, and when they are written.
type anchorFlags struct {
	dir  string
	mode anchorMode
}

func (a *anchorFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&a.dir, "anchors", "", "`dir` of the anchors, outside every store (BINDERY_ANCHORS; $XDG_STATE_HOME/bindery/anchors, else ~/.local/state/bindery/anchors)")
	f.Var(&a.mode, "anchor", "`when` the anchor is written: second (at most that far behind) or sync (before each answer) (BINDERY_ANCHOR)")
}

// anchorMode is when an anchor is written.
type anchorMode string

// The modes.
const (
	anchorSecond anchorMode = "second"
	anchorSync   anchorMode = "sync"
)

// String implements pflag.Value.
func (m *anchorMode) String() string { return string(*m) }

// Set implements pflag.Value.
func (m *anchorMode) Set(s string) error {
	switch anchorMode(s) {
	case anchorSecond, anchorSync:
		*m = anchorMode(s)
		return nil
	}
	return fmt.Errorf("it is %s or %s", anchorSecond, anchorSync)
}

// Type implements pflag.Value.
func (m *anchorMode) Type() string { return "when" }

// anchorMode is what was asked for.
func (c *cli) anchorMode() (anchorMode, error) {
	if m := c.globals.anchor.mode; m != "" {
		return m, nil
	}
	m := anchorSecond
	if text := c.program.Getenv("BINDERY_ANCHOR"); text != "" {
		if err := m.Set(text); err != nil {
			return m, usage(fmt.Sprintf("BINDERY_ANCHOR is %q", clip(text)), err.Error(), commands.Fix{})
		}
	}
	return m, nil
}

// errNoAnchors says that nothing says where anchors are to be kept.
var errNoAnchors = errors.New("neither --anchors nor BINDERY_ANCHORS, XDG_STATE_HOME or HOME says where anchors are kept")

// anchors is where the anchors are; errNoAnchors where nobody says.
func (c *cli) anchors() (ledger.Anchors, error) {
	for _, dir := range []string{c.globals.anchor.dir, c.program.Getenv("BINDERY_ANCHORS")} {
		if dir != "" {
			return ledger.Anchors{Dir: filepath.Clean(dir)}, nil
		}
	}
	if state := c.program.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) { // its specification: a relative one is ignored
		return ledger.Anchors{Dir: filepath.Join(state, "bindery", "anchors")}, nil
	}
	if home := c.program.Getenv("HOME"); home != "" {
		return ledger.Anchors{Dir: filepath.Join(home, ".local", "state", "bindery", "anchors")}, nil
	}
	return ledger.Anchors{}, errNoAnchors
}

// anchorsFor are the anchors for a store, which must not have them in itself:
// what takes the one would take the other.
func (c *cli) anchorsFor(dir string) (ledger.Anchors, error) {
	anchors, err := c.anchors()
	if err == nil && ledger.Within(anchors.Dir, dir) {
		return anchors, usage("the anchors would lie in the store "+dir, "what harms the store would harm them, too", do("status").With("--anchors", "DIR"))
	}
	if err == nil {
		err = checkAnchors(anchors.Dir)
	}
	return anchors, err
}

// unreadAnchor refuses to go on without knowing what the anchor says.
func unreadAnchor(anchors ledger.Anchors, err error) *commands.Refusal {
	r := refusal(commands.StoreUnusable, "the anchor cannot be read", err.Error()+"; without it nobody knows whether the ledger has lost something", program("ls", "-la", anchors.Dir))
	var bad *ledger.AnchorError
	if errors.As(err, &bad) {
		r.Why += ". Where a backup or a checkpoint tells that it has not, the file is put aside, and another one is kept from then on"
		r.Fix = program("mv", bad.Path, bad.Path+".bad")
	}
	return r
}

// noStore says that there is none in a directory, or none any more.
func (c *cli) noStore(dir string) error {
	if err := c.isGone(dir); err != nil {
		return err
	}
	if err := notRestored(dir); err != nil {
		return err
	}
	return missing(dir, "there is no store")
}

// isGone looks whether a ledger was in a directory where there is no store: its
// anchor tells.
func (c *cli) isGone(dir string) error {
	anchors, err := c.anchorsFor(dir)
	if errors.Is(err, errNoAnchors) {
		return nil
	}
	if err != nil {
		return err
	}
	a, ok, err := anchors.At(ledger.RealPath(dir))
	if err != nil {
		return unreadAnchor(anchors, err)
	}
	if !ok {
		return nil
	}
	return gone(dir, anchors, a)
}

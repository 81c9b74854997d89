package main

import (
	"fmt"

	"bindery/projections"
)

// The widths of the columns of a watch: what comes later is not known.
const (
	seqWidth  = 7
	kindWidth = 22
	slotWidth = 24
)

// line shows a change: a line for people, a JSON object a line for machines.
func (w *watchRun) line(ch *projections.Change) error {
	u := w.c.ui
	if u.machine() {
		data, err := marshal(ch)
		if err == nil {
			_, err = u.out.Write(append(shownJSON(data), '\n'))
		}
		return err
	}
	const layout = "2006-01-02T15:04:05Z"
	when := fmt.Sprintf("%-*s", len(layout), "-")
	if !ch.Time.IsZero() {
		when = ch.Time.UTC().Format(layout)
	}
	p := &paper{ui: u, color: u.color}
	kind := fmt.Sprintf("%-*s", kindWidth, ch.Kind)
	text := ch.Text()
	if ch.Reason != "" && ch.Kind != projections.ChangeIssueFailed {
		text += p.paint(faint, "  ("+shownLine(ch.Reason)+")")
	}
	p.linef("%*d  %s  %s  %-*s  %s", seqWidth, ch.Seq, p.paint(faint, when), p.kind(ch.Kind, kind), slotWidth, changedSlot(ch), text)
	_, err := u.out.Write(p.bytes())
	return err
}

// changedSlot is the slot, or the end of the binding's id where nobody knows it
// any more.
func changedSlot(ch *projections.Change) string {
	if ch.Slot == "" {
		return tail(ch.Binding.String())
	}
	return ch.Assignment + "/" + ch.Slot
}

// kind paints the word of a kind.
func (p *paper) kind(k projections.ChangeKind, word string) string {
	switch k {
	case projections.ChangeFailed, projections.ChangeIssueFailed:
		return p.paint(red, word)
	case projections.ChangeFlagged, projections.ChangeReleased, projections.ChangeEnded, projections.ChangeGone, projections.ChangePending,
		projections.ChangeWrittenOff, projections.ChangeWithdrawn:
		return p.paint(yellow, word)
	case projections.ChangeBound, projections.ChangeRebound, projections.ChangeSwitched, projections.ChangeRelocated:
		return p.paint(bold, word)
	}
	return word
}

// mark says that it has caught up.
func (w *watchRun) mark(seq uint64) error {
	u := w.c.ui
	if !u.machine() || w.v.exec {
		u.note(fmt.Sprintf("-- caught up at %d --", seq))
		return nil
	}
	data, err := marshal(caughtUp{Kind: "caught-up", Seq: seq, Mesh: w.me.Mesh, MeshID: w.me.MeshID})
	if err == nil {
		_, err = u.out.Write(append(shownJSON(data), '\n'))
	}
	return err
}

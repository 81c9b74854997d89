package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/projections"
)

type rotationShow struct{ all bool }

func (*rotationShow) help() *cobra.Command {
	return &cobra.Command{
		Use: "show ROTATION",
		Example: `  bindery rotation show pg-alpha
  bindery rotation show pg-alpha --all`,
		Short: "Show how far a rotation is, and who is missing",
		Long: `Shows a rotation and each credential it has still to replace: what is to be done, by whom, since when,
and what failed, of the first thousand. With --all all of them, those that are done, too; so does JSON.
` + rotationNaming,
	}
}

func (v *rotationShow) flags(f *flags) {
	f.args(rotationNames)
	f.BoolVar(&v.all, "all", false, "those that are done, too")
}

func (v *rotationShow) run(ctx context.Context, c *cli, args []string) error {
	q := commands.ShowRotation{Rotation: args[0]}
	if !v.all && !c.ui.machine() {
		q.Limit = mostRows
	}
	return printItem(ctx, c, q, rotationID, v.page)
}

// mostRows is how many members people are shown: nobody reads more, and what is
// to be done first stands first.
const mostRows = 1000

func (v *rotationShow) page(p *paper, r rotationView) {
	p.line(p.paint(bold, rotationOf(r)))
	p.fields("id", rotationID(r), "state", rotationState(p, r), "started", at(p, r.Started)+" by "+r.Actor, "reason", r.Reason,
		"issued before", atSeq(r.IssuedBefore), "deadline", deadlineText(p, r), "ended", endText(p, r))
	p.line("")
	p.line(p.progress(r))
	members := r.Members
	if !v.all {
		members = left(r)
	}
	if len(members) > 0 {
		p.line("")
		itemTable(p, members, memberColumns(r))
	}
	if more := r.Total - r.Steps[projections.StepDone] - len(members); !v.all && more > 0 {
		p.linef("and %d more: --all or -o json lists them", more)
	}
}

// deadlineText is when a rotation should be over; "" for no deadline.
func deadlineText(p *paper, r rotationView) string {
	switch {
	case r.Deadline == nil:
		return ""
	case r.Overdue:
		return at(p, *r.Deadline) + ", " + p.state("overdue")
	}
	return at(p, *r.Deadline)
}

// at is an instant with how far it is from now.
func at(p *paper, t time.Time) string {
	return t.UTC().Format(time.RFC3339) + " (" + p.ago(t) + ")"
}

// endText is when a rotation was over, and why it was aborted.
func endText(p *paper, r rotationView) string {
	if r.Closed == nil {
		return ""
	}
	out := at(p, *r.Closed) + ", " + atSeq(r.ClosedSeq)
	if r.ClosedReason != "" && r.State == string(projections.Aborted) {
		out += ": " + r.ClosedReason
	}
	return out
}

// The bar of a rotation that is shown: as wide as the line has room for.
const (
	leastBar = 5
	mostBar  = 30
)

// progress is "[######----] 7 of 12 done · issue 2 · adopt 2 · revoke 1".
func (p *paper) progress(r rotationView) string {
	if r.Total == 0 {
		return "there was nothing to replace"
	}
	parts := []string{fmt.Sprintf("%d of %d done", r.Done, r.Total)}
	for _, step := range projections.Steps() {
		if n := r.Steps[step]; n > 0 && step != projections.StepDone {
			parts = append(parts, fmt.Sprintf("%s %d", p.state(stepWord(r, step)), n))
		}
	}
	if r.Failing > 0 {
		parts = append(parts, fmt.Sprintf("%s %d", p.state("failing"), r.Failing))
	}
	line := strings.Join(parts, " · ")
	room := mostBar
	if p.width > 0 {
		room = min(room, p.width-len("[] ")-text.StringWidthWithoutEscSequences(line))
	}
	if room < leastBar {
		return line
	}
	return drawn(r.Done, r.Total, room) + " " + line
}

// drawn is how much is done, in a bar of n characters; it is full only where all
// is.
func drawn(done, total, n int) string {
	full := n * done / total
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", n-full) + "]"
}

type member = projections.Member

func memberSlot(m member) string { return m.Assignment + "/" + m.Slot }

// left are the members that are not done.
func left(r rotationView) []member {
	var out []member
	for _, m := range r.Members {
		if m.Step != projections.StepDone {
			out = append(out, m)
		}
	}
	return out
}

// stepWord is what a member waits for. Whom nobody was to give anything any more
// when the rotation was aborted keeps what it has.
func stepWord(r rotationView, step projections.Step) string {
	if step == projections.StepStuck && r.State == string(projections.Aborted) {
		return "kept"
	}
	return string(step)
}

func memberColumns(r rotationView) []column[member] {
	kept := func(m member) bool { return stepWord(r, m.Step) != string(m.Step) }
	return []column[member]{
		painted("STEP", func(p *paper, m member) string { return p.state(stepWord(r, m.Step)) }),
		plain("SLOT", memberSlot),
		plain("NODE", func(m member) string { return m.Node }),
		plain("FROM", func(m member) string { return number(m.From) }),
		plain("TO", func(m member) string { return number(m.To) }),
		plain("WHO", func(m member) string {
			if kept(m) {
				return ""
			}
			return memberTurn(m)
		}),
		painted("SINCE", func(p *paper, m member) string {
			if m.Overdue {
				return p.ago(m.Since) + ", " + p.state("overdue")
			}
			return p.ago(m.Since)
		}),
		rare("ERROR", func(m member) string { return trouble(m.Error, m.Attempts) }),
		below(func(m member) string {
			if kept(m) {
				return ""
			}
			return m.Fix.Text()
		}),
		wide("BINDING", func(m member) string { return tail(m.Binding.String()) }),
	}
}

// memberTurn is who has to act: "alpha (provider)", "beta (consumer)", "operator".
// The node is first: it is what a narrow table leaves.
func memberTurn(m member) string {
	switch m.Turn {
	case projections.TurnNone:
		return ""
	case projections.TurnOperator:
		return string(m.Turn)
	}
	return fmt.Sprintf("%s (%s)", m.Who, m.Turn)
}

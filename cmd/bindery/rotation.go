package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/projections"
)

func (c *cli) rotations() *cobra.Command {
	return c.group("rotation", "  bindery rotation start --provider pg-alpha --deadline 72h", "The replacement of what consumers log in with",
		&rotationStart{}, &rotationShow{}, &rotationWait{}, &rotationUrge{}, &rotationAbort{}, &rotationList{})
}

type rotationUrge struct{ write }

func (*rotationUrge) help() *cobra.Command {
	return &cobra.Command{
		Use:     "urge ROTATION",
		Example: `  bindery rotation urge pg-alpha --reason "the old passwords are in a public log"`,
		Short:   "Let old credentials be revoked before the new ones are taken up",
		Long: `Makes a rotation urgent: each old credential may be revoked as soon as the new one is issued, although
the consumer may still run with it. It needs --reason.
` + rotationNaming,
	}
}

// rotationNaming says what a rotation is called on the command line.
const rotationNaming = `A rotation is named by its id, a unique end of it, or the provider it is or was last about.`

func (v *rotationUrge) flags(f *flags) { v.bind(f); f.openRotations() }

func (v *rotationUrge) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "rotation "+args[0], commands.UrgeRotation{Rotation: args[0]})
}

type rotationAbort struct{ write }

func (*rotationAbort) help() *cobra.Command {
	return &cobra.Command{
		Use:     "abort ROTATION",
		Example: `  bindery rotation abort pg-alpha --reason "the wrong server"`,
		Short:   "End a rotation before it is complete",
		Long: `Withdraws what the rotation asked for and nobody has issued yet. What is issued is taken up, and what
it replaces is revoked. It needs --reason.
` + rotationNaming,
	}
}

func (v *rotationAbort) flags(f *flags) { v.bind(f); f.openRotations() }

func (v *rotationAbort) run(ctx context.Context, c *cli, args []string) error {
	return c.change(ctx, &v.write, "rotation "+args[0], commands.AbortRotation{Rotation: args[0]})
}

type rotationList struct{ overdue bool }

func (*rotationList) help() *cobra.Command {
	return &cobra.Command{
		Use: "list",
		Example: `  bindery rotation list
  bindery rotation list --overdue`,
		Short: "List the rotations",
		Long:  "Lists the rotations, the newest first. -o name prints their ids.",
	}
}

func (v *rotationList) flags(f *flags) {
	f.BoolVar(&v.overdue, "overdue", false, "only those that are past their deadline")
}

type rotationView = projections.RotationView

func (v *rotationList) run(ctx context.Context, c *cli, _ []string) error {
	none := "no rotations"
	if v.overdue {
		none = "no rotation is overdue"
	}
	return printList(ctx, c, commands.ListRotations{Overdue: v.overdue}, none, rotationID, []column[rotationView]{
		plain("ID", func(v rotationView) string { return tail(rotationID(v)) }),
		plain("PROVIDER", func(v rotationView) string {
			if v.Embedded {
				return "embedded"
			}
			return v.Provider
		}),
		rare("SLOT", func(v rotationView) string { return v.Slot }),
		painted("STATE", rotationState),
		plain("DONE", func(v rotationView) string { return fmt.Sprintf("%d of %d", v.Done, v.Total) }),
		painted("DEADLINE", func(p *paper, v rotationView) string {
			if v.Deadline == nil {
				return ""
			}
			return p.ago(*v.Deadline)
		}),
		painted("STARTED", func(p *paper, v rotationView) string { return p.ago(v.Started) }),
		plain("BY", func(v rotationView) string { return v.Actor }),
		plain("REASON", func(v rotationView) string { return v.Reason }),
		seqColumn(func(v rotationView) uint64 { return v.Seq }),
	})
}

func rotationID(v rotationView) string { return v.ID.String() }

// rotationState is whether it is open, and what is special about it then.
func rotationState(p *paper, v rotationView) string {
	words := []string{v.State}
	if v.State == string(projections.Open) {
		if v.Urgent {
			words = append(words, "urgent")
		}
		if v.Overdue {
			words = append(words, "overdue")
		}
	}
	return states(p, words)
}

// rotationOf says what a rotation is about.
func rotationOf(v rotationView) string {
	switch {
	case v.Embedded:
		return "rotation of the instance of " + v.Slot
	case v.Slot != "":
		return "rotation of " + v.Slot + " at " + v.Provider
	}
	return "rotation of the holders of " + v.Provider
}

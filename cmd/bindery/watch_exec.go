package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger/owned"
	"bindery/projections"
)

// caughtUp is the mark of a watch for machines.
type caughtUp struct {
	Kind   string    `json:"kind"` // caught-up
	Seq    uint64    `json:"seq"`
	Mesh   string    `json:"mesh"`
	MeshID events.ID `json:"mesh_id"`
}

// lingering is how long a command that runs when the watching is stopped may take
// to end.
const lingering = 10 * time.Second

// execute runs the command of --exec for a change and waits for its end.
func (w *watchRun) execute(ctx context.Context, ch *projections.Change) error {
	data, err := marshal(ch)
	if err != nil {
		return err
	}
	program, err := owned.Find(w.command[0])
	if err != nil {
		return w.cannotRun(err)
	}
	defer program.Close()
	cmd := program.Command(ctx, w.command[1:]...)
	cmd.Stdin = bytes.NewReader(append(data, '\n'))
	cmd.Stdout, cmd.Stderr = w.c.streams.Out, w.c.streams.Err
	cmd.Env = append(append(os.Environ(), environment(ch)...), program.Environment())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = lingering
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return refusal(commands.CommandFailed, fmt.Sprintf("%s failed at sequence %d", quoteAll(w.command), ch.Seq),
			fmt.Sprintf("%v; it was given %s of %s, which is not handled", err, ch.Kind, changedSlot(ch)), w.resume())
	}
	return nil
}

// cannotRun refuses to go on where the command of --exec cannot be run, or others
// could change it: a watch often runs as a service, with that service's rights.
func (w *watchRun) cannotRun(err error) error {
	r := refusal(commands.CommandFailed, w.command[0]+" is not run", err.Error(), w.resume())
	var problem *owned.Problem
	if errors.As(err, &problem) && problem.Fix != nil {
		r.Fix = program(problem.Fix...)
	}
	return r
}

// environment is what a command finds of a change beside its standard input.
func environment(ch *projections.Change) []string {
	return []string{
		"BINDERY_KIND=" + string(ch.Kind),
		"BINDERY_SEQ=" + strconv.FormatUint(ch.Seq, 10),
		"BINDERY_MESH=" + ch.Mesh,
		"BINDERY_BINDING=" + ch.Binding.String(),
		"BINDERY_ASSIGNMENT=" + ch.Assignment,
		"BINDERY_SLOT=" + ch.Slot,
		"BINDERY_NODE=" + ch.Node,
		"BINDERY_PROVIDER=" + ch.Provider,
		"BINDERY_GENERATION=" + strconv.FormatUint(ch.Generation, 10),
	}
}

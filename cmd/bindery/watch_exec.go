package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"bindery/commands"
	"bindery/events"
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
	cmd := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	cmd.Stdin = bytes.NewReader(append(data, '\n'))
	cmd.Stdout, cmd.Stderr = w.c.streams.Out, w.c.streams.Err
	cmd.Env = append(os.Environ(), environment(ch)...)
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

package projections

import (
	"slices"
	"time"

	"bindery/events"
)

// How long a command id is remembered: until it is both older than
// CommandMemory and CommandsKept commands back.
const (
	CommandMemory = 7 * 24 * time.Hour
	CommandsKept  = 100_000
)

// CommandRecord is what is remembered of a command that wrote.
type CommandRecord struct {
	Hash  events.CommandHash
	First uint64 // sequence of its first event
	Last  uint64 // of its last
}

// commandLog remembers the ids of commands that wrote, so that a repeated one
// has its effect once.
type commandLog struct {
	byID    map[events.ID]CommandRecord
	saved   []savedCommand // of a snapshot, by id: a map of them all takes long to make
	order   []events.ID    // as written; those before head are forgotten
	head    int
	gone    int   // how many were before the first of order
	horizon int64 // the newest instant (ms) in an id that was forgotten; 0 for none
	kept    int
}

// savedCommand is a command that a snapshot remembered.
type savedCommand struct {
	id     events.ID
	record CommandRecord
	place  int // how many were written before it
}

func newCommandLog() commandLog {
	return commandLog{byID: map[events.ID]CommandRecord{}, kept: CommandsKept}
}

func (c *commandLog) remember(j *journal, id events.ID, r CommandRecord, now time.Time) {
	put(j, c.byID, id, r)
	push(j, &c.order, id)
	for len(c.order)-c.head > c.kept {
		oldest := c.order[c.head]
		if oldest.Milli() >= now.Add(-CommandMemory).UnixMilli() {
			return
		}
		drop(j, c.byID, oldest)
		set(j, &c.head, c.head+1)
		set(j, &c.horizon, max(c.horizon, oldest.Milli()))
	}
}

// compact gives the room of what is forgotten back; never under a journal.
func (c *commandLog) compact() {
	if c.head > 1024 && c.head > len(c.order)/2 {
		c.order = append([]events.ID(nil), c.order[c.head:]...)
		c.gone += c.head
		c.head = 0
		if c.gone >= len(c.saved) {
			c.saved = nil
		}
	}
}

// known is what is remembered of a command.
func (c *commandLog) known(id events.ID) (CommandRecord, bool) {
	if r, ok := c.byID[id]; ok {
		return r, true
	}
	i, ok := slices.BinarySearchFunc(c.saved, id, func(s savedCommand, id events.ID) int { return compareIDs(s.id, id) })
	if !ok || c.saved[i].place < c.gone+c.head {
		return CommandRecord{}, false
	}
	return c.saved[i].record, true
}

// Remembered is what is known of the command with that id.
func (s *State) Remembered(id events.ID) (CommandRecord, bool) {
	return s.commands.known(id)
}

// CommandForgotten reports whether a command with that id may have been
// forgotten: it is no newer than one that was.
func (s *State) CommandForgotten(id events.ID) bool {
	return s.commands.horizon > 0 && id.Milli() <= s.commands.horizon
}

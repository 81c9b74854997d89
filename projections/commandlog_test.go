package projections

import (
	"encoding/binary"
	"testing"
	"time"

	"bindery/events"
)

func idAt(t time.Time, n uint64) (id events.ID) {
	ms := uint64(t.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

// An id is forgotten when it is both seven days old and too many commands back,
// and what is forgotten is refused, not run again.
func TestCommandMemory(t *testing.T) {
	s := New()
	s.commands.kept = 3
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	remember := func(n uint64, at time.Time) events.ID {
		id := idAt(at, n)
		s.commands.remember(&s.j, id, CommandRecord{First: n, Last: n}, at)
		return id
	}
	known := func(id events.ID) bool { _, ok := s.Remembered(id); return ok }

	var old []events.ID
	for n := range uint64(5) {
		old = append(old, remember(n, start.Add(time.Duration(n)*time.Second)))
	}
	for _, id := range old {
		if !known(id) || s.CommandForgotten(id) {
			t.Fatal("forgotten while it is young")
		}
	}
	later := start.Add(CommandMemory + time.Hour)
	mark := s.Begin()
	fresh := remember(9, later)
	if known(old[0]) || !known(old[3]) || !known(fresh) {
		t.Fatalf("remembered: %d", len(s.commands.byID))
	}
	if !s.CommandForgotten(old[0]) || !s.CommandForgotten(idAt(start.Add(-time.Hour), 99)) || s.CommandForgotten(fresh) {
		t.Error("the horizon is wrong")
	}
	s.Rollback(mark)
	s.Commit()
	if !known(old[0]) || known(fresh) || s.CommandForgotten(old[0]) {
		t.Error("taking it back did not bring the memory back")
	}
	for n := range uint64(5000) {
		remember(100+n, later.Add(CommandMemory*2+time.Duration(n)*time.Millisecond))
	}
	s.Commit()
	if n := len(s.commands.order); n > 5005 {
		t.Errorf("%d ids are kept", n)
	}
}

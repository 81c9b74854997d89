package ledger

import (
	"testing"

	"bindery/events"
)

func TestAppendRead(t *testing.T) {
	s := startStore(t, t.TempDir())
	l := mustCreate(t, s)
	w := newWriter()
	var all []events.Group
	for _, sizes := range [][]int{{1}, {1}, {3}, {1, 1, 1}, {1, 4, 1}, {1000}, {999, 1, 1}, {600, 600, 600}} {
		cmds := w.commands(sizes...)
		after := cmds[0][0].Seq - 1
		n, err := l.Append(ctxT(t), after, cmds)
		if err != nil || n != len(cmds) {
			t.Fatalf("appending %v: %d, %v", sizes, n, err)
		}
		all = append(all, cmds...)
	}
	got := readAll(t, l)
	if len(got) != len(all) {
		t.Fatalf("%d commands, want %d", len(got), len(all))
	}
	for i := range got {
		if len(got[i]) != len(all[i]) {
			t.Fatalf("command %d has %d events, want %d", i, len(got[i]), len(all[i]))
		}
	}
}

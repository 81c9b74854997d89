package ledger

import (
	"context"
	"iter"

	"bindery/events"
)

// Follow yields the commands after from like Read, and goes on with what is
// appended, each once and none left out, until ctx ends, the connection is
// closed or the log turns out to be damaged: then the last thing yielded is the
// error. It survives restarts of the server and changes of leader: it does not
// rely on its consumer, which may fall silent, but compares with the stream's
// last sequence about every second.
//
// A command is yielded when its last event is seen, which on a cluster may be
// just before the writer has its acknowledgement.
func (l *Log) Follow(ctx context.Context, from Position) iter.Seq2[[]events.Event, error] {
	return func(yield func([]events.Event, error) bool) {
		a := newAssembler(l, from, false, func(evs []events.Event, _ []events.Record) bool { return yield(evs, nil) })
		if err := l.run(ctx, a, 0, true); err != nil {
			yield(nil, err)
		}
	}
}

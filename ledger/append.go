package ledger

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"bindery/events"
)

// MaxEvents is the greatest number of events of one command: the server takes
// no more in an atomic batch (server/stream.go, streamMaxAtomicBatchSize).
const MaxEvents = 1000

// MaxCommandBytes bounds the size of one command, headers and payloads.
const MaxCommandBytes = 64 << 20

const (
	// maxPipelined is the greatest number of publishes sent before their
	// answers are in. Beyond it a batch is cheaper everywhere.
	maxPipelined = 256
	// batchBytes is where a batch is cut, at the next border of a command: the
	// server holds it in memory while it commits.
	batchBytes = 4 << 20
	// maxHeader is the greatest header the server stores, in bytes
	// (server/jetstream_batching.go, checkMsgHeadersPreClusteredProposal).
	maxHeader = 1<<16 - 1
	// headerRoom is kept free for the headers that are added to a record's.
	headerRoom = 512
)

// Headers the server acts on (server/stream.go).
//
// The msg-id headers fence a pipeline. The expected sequence alone does not
// (measured): when somebody else's message takes the place of ours, ours is
// refused, but the next one of ours finds the sequence it expects.
//
// They are for streams of one replica only. On a replicated stream 2.15.3
// checks the expected id when an entry is applied, and the mismatch counts as a
// failed write there: every replica stops the stream (measured;
// server/jetstream_cluster.go, applyStreamEntries). There, more than one event
// is always a batch.
const (
	hExpectSeq = "Nats-Expected-Last-Sequence"
	hMsgID     = "Nats-Msg-Id"
	hExpectID  = "Nats-Expected-Last-Msg-Id"
	hBatchID   = "Nats-Batch-Id"
	hBatchSeq  = "Nats-Batch-Sequence"
	hBatchEnd  = "Nats-Batch-Commit"
)

// Append stores cmds in order after the sequence after, which must be the
// stream's last, and returns how many of them, from the front, are stored:
// acknowledged by the stream, which on an embedded server and on a cluster
// with sync_interval "always" means fsynced. Each command has 1 to MaxEvents
// records, whose Seq goes up by one from after+1 and which are chained; each is
// stored whole or not at all.
//
// If not all are stored, the error says why the first one that is not stored is
// not: *ConflictError, *TooLargeError, *StoreError, or ErrBadGroup; or ctx's
// own error, if it ended before that one was sent. Lost answers, changes of
// leader and the like are settled inside, by sending the same again with the
// same expectation and by reading what lies there, for as long as ctx allows;
// only then an *UnknownError is returned. Without a deadline there is no end to
// it. A caller that waits for its turn behind another waits no longer than ctx.
func (l *Log) Append(ctx context.Context, after uint64, cmds []events.Group) (stored int, err error) {
	if l.src != nil {
		return 0, errElsewhere
	}
	if err := l.check(after, cmds); err != nil {
		return 0, err
	}
	if err := l.prove(cmds); err != nil {
		return 0, err
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0, fmt.Errorf("appending after sequence %d: %w", after, ctx.Err())
	}
	// If we die here, nothing is stored.
	for stored < len(cmds) {
		n, err := l.fly(ctx, l.plan(cmds[stored:]))
		stored += n
		// If we die here, what is stored is whole commands.
		if err != nil {
			if u, ok := err.(*UnknownError); ok {
				u.Stored = stored
			}
			return stored, err
		}
	}
	return stored, nil
}

// check looks at the form of a group, so that nothing half-sent is found to be
// impossible.
func (l *Log) check(after uint64, cmds []events.Group) error {
	limit := l.nc.MaxPayload()
	next := after + 1
	for i, cmd := range cmds {
		if len(cmd) == 0 {
			return fmt.Errorf("appending after sequence %d: command %d is empty: %w", after, i, ErrBadGroup)
		}
		if len(cmd) > MaxEvents {
			return &TooLargeError{Size: int64(len(cmd)), Limit: MaxEvents, Unit: "events"}
		}
		total := int64(0)
		for j := range cmd {
			r := &cmd[j]
			if r.Seq != next {
				return fmt.Errorf("appending after sequence %d: command %d has sequence %d where %d follows: %w", after, i, r.Seq, next, ErrBadGroup)
			}
			next++
			if r.Get(events.HeaderChain) == "" || r.Get(events.HeaderID) == "" {
				return fmt.Errorf("appending sequence %d: no %s or no %s: %w", r.Seq, events.HeaderChain, events.HeaderID, ErrBadGroup)
			}
			header := headerSize(r)
			size := header + int64(len(r.Data))
			if header > maxHeader {
				return &TooLargeError{Seq: r.Seq, Size: header, Limit: maxHeader, Unit: "bytes of header"}
			}
			if limit > 0 && size > limit {
				return &TooLargeError{Seq: r.Seq, Size: size, Limit: limit, Unit: "bytes"}
			}
			total += size
		}
		if total > MaxCommandBytes {
			return &TooLargeError{Size: total, Limit: MaxCommandBytes, Unit: "bytes"}
		}
	}
	return nil
}

// headerSize is the size of a record's header in the stream, with room for ours.
func headerSize(r *events.Record) int64 {
	n := headerRoom
	for name, v := range r.Header {
		for _, s := range v {
			n += len(name) + len(s) + len(": \r\n")
		}
	}
	return int64(n)
}

// flight is what is sent to the stream in one go: one batch, stored as a whole,
// or publishes that are stored up to any of them.
type flight struct {
	cmds  []events.Group
	recs  []*events.Record // all of cmds
	batch bool
}

// BUG(ledger): whether a stream is replicated is learnt when it is opened and
// whenever its last sequence is asked for. Between a change from one replica to
// three and the next such question, a foreign message in the middle of a
// pipeline can stop the stream.

// plan takes the next flight from the front of cmds. A command of several
// events needs a batch; then everything beside it is cheapest in that batch.
func (l *Log) plan(cmds []events.Group) *flight {
	f := &flight{}
	size, several := int64(0), false
	for i, cmd := range cmds {
		if i > 0 && (len(f.recs)+len(cmd) > MaxEvents || size >= batchBytes) {
			break
		}
		for j := range cmd {
			f.recs = append(f.recs, &cmd[j])
			size += headerSize(&cmd[j]) + int64(len(cmd[j].Data))
		}
		f.cmds = cmds[:i+1]
		several = several || len(cmd) > 1
	}
	switch n := len(f.recs); {
	case n == 1:
	case several, l.replicas.Load() != 1:
		f.batch = true
	default:
		f.batch = l.costs.useBatch(n)
		if n > maxPipelined && !f.batch {
			f.cmds, f.recs = f.cmds[:maxPipelined], f.recs[:maxPipelined]
		}
	}
	return f
}

// msgPool keeps messages and their header maps from one flight to the next.
type msgPool struct{ msgs []*nats.Msg }

// messages makes the messages for f's records from the done-th on.
func (p *msgPool) messages(f *flight, done int) []*nats.Msg {
	recs := f.recs[done:]
	for len(p.msgs) < len(recs) {
		p.msgs = append(p.msgs, &nats.Msg{Header: make(nats.Header, 16)})
	}
	msgs := p.msgs[:len(recs)]
	var batchID []string
	if f.batch {
		batchID = []string{nuid.Next()}
	}
	for i, r := range recs {
		m := msgs[i]
		m.Subject, m.Reply, m.Data = r.Subject, "", r.Data
		clear(m.Header)
		for name, v := range r.Header {
			m.Header[name] = v
		}
		if i == 0 || !f.batch {
			m.Header[hExpectSeq] = []string{strconv.FormatUint(r.Seq-1, 10)}
		}
		switch {
		case f.batch:
			m.Header[hBatchID] = batchID
			m.Header[hBatchSeq] = []string{strconv.Itoa(i + 1)}
			if i == len(recs)-1 {
				m.Header[hBatchEnd] = []string{"1"}
			}
		case len(recs) > 1:
			m.Header[hMsgID] = r.Header[events.HeaderID]
			if i > 0 {
				m.Header[hExpectID] = recs[i-1].Header[events.HeaderID]
			}
		}
	}
	return msgs
}

// fly sends f until it is settled and returns how many of its commands are stored.
func (l *Log) fly(ctx context.Context, f *flight) (int, error) {
	s := settling{l: l, f: f}
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return s.giveUp(err)
		}
		from := 0
		msgs := l.msgs.messages(f, s.done)
		if f.batch {
			from = len(msgs) - 1
		}
		start := time.Now()
		actx, cancel := context.WithTimeout(ctx, l.tun.attempt)
		answers := l.tr.exchange(actx, msgs, from)
		cancel()
		if s.take(answers) {
			if try == 0 {
				l.costs.learn(f.batch, len(f.recs), time.Since(start))
			}
			return len(f.cmds), nil
		}
		if settled, n, err := s.settle(ctx, try); settled {
			return n, err
		}
	}
}

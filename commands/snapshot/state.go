package snapshot

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Log is what is needed of a ledger; *ledger.Log is one.
type Log interface {
	Read(ctx context.Context, from ledger.Position, to uint64) iter.Seq2[[]events.Event, error]
	Get(ctx context.Context, first, last uint64) ([]events.Record, error)
	Last(ctx context.Context) (uint64, error)
	Skip(ledger.Skipped)
	Skipped(to uint64) ledger.Skipped
}

var _ Log = (*ledger.Log)(nil)

// Open folds the whole log, from the newest snapshot on. Where many events were
// folded, it leaves a snapshot. The errors are those of StateAt.
func Open(ctx context.Context, log Log, store *Store) (*projections.State, error) {
	state, folded, err := stateAt(ctx, log, store, math.MaxUint64)
	if err == nil && store != nil && folded >= store.tun.opening {
		store.write(state)
	}
	return state, err
}

// StateAt is the state as the events up to seq made it: where seq lies within a
// command, as those before that command did; where it is beyond the log's end, as all
// did. It is folded from the newest snapshot at or before seq, and leaves one at each
// 100,000 events that it comes by. The errors are those of Log.Read; events that do
// not fit those before them are a *ledger.DamageError.
func StateAt(ctx context.Context, log Log, store *Store, seq uint64) (*projections.State, error) {
	state, _, err := stateAt(ctx, log, store, seq)
	return state, err
}

// Past is StateAt of one log.
func (s *Store) Past(log Log) func(ctx context.Context, seq uint64) (*projections.State, error) {
	return func(ctx context.Context, seq uint64) (*projections.State, error) { return StateAt(ctx, log, s, seq) }
}

// stateAt tells, too, how many events were folded.
func stateAt(ctx context.Context, log Log, store *Store, seq uint64) (state *projections.State, folded uint64, err error) {
	store.of(log)
	last, err := log.Last(ctx)
	if err != nil {
		return nil, 0, err
	}
	for {
		state, from := store.newest(ctx, log, min(seq, last))
		began := state.Seq
		err := fold(ctx, log, store, state, min(seq, last))
		if err == nil {
			return state, state.Seq - began, nil
		}
		var misfit *projections.FoldError
		if from == nil || !errors.As(err, &misfit) {
			return nil, 0, err
		}
		// The snapshot may be what is wrong.
		store.discard(*from, err)
	}
}

// fold brings a state to where the log is at to.
func fold(ctx context.Context, log Log, store *Store, state *projections.State, to uint64) error {
	if to <= state.Seq {
		return nil
	}
	from := ledger.Position{Seq: state.Seq, Chain: state.Chain, Mesh: state.Mesh.ID, Writers: ledger.NewWriters(state.WriterKeys())}
	for group, err := range log.Read(ctx, from, to) {
		if err != nil {
			return err
		}
		if group[len(group)-1].Seq > to {
			return nil // to lies within it
		}
		before := state.Seq
		if err := state.ApplyCommand(group); err != nil {
			return &ledger.DamageError{Seq: group[0].Seq, Why: "an event does not fit those before it", Err: err}
		}
		if store != nil && state.Seq/store.tun.spacing != before/store.tun.spacing {
			store.write(state)
		}
	}
	return nil
}

// newest loads the newest snapshot at or before a sequence that agrees with the log;
// nil and the state before the first event where there is none.
func (s *Store) newest(ctx context.Context, log Log, atOrBefore uint64) (*projections.State, *Entry) {
	all, err := s.List()
	if err != nil {
		s.logger.Warn("looking for snapshots", "error", err)
	}
	for _, e := range slices.Backward(all) {
		if e.Seq > atOrBefore {
			continue
		}
		if state := s.load(ctx, log, e); state != nil {
			return state, &e
		}
	}
	return projections.New(), nil
}

// load loads a snapshot that agrees with the log; else it is nil, and the snapshot is
// removed where it is of no use to anybody.
func (s *Store) load(ctx context.Context, log Log, e Entry) *projections.State {
	chain, err := chainAt(ctx, log, e.Seq)
	if err != nil {
		var missing *ledger.NotFoundError
		if errors.As(err, &missing) {
			s.discard(e, err)
		}
		return nil // the log cannot be read now, or at that place: others will say so
	}
	if !strings.HasPrefix(chain.String(), e.digits) {
		s.discard(e, errDisagrees)
		return nil
	}
	skipped, err := s.authentic(e)
	if err != nil {
		s.discard(e, err)
		return nil
	}
	state, err := s.take(e)
	switch {
	case removable(err):
		s.discard(e, err)
	case err != nil:
		s.logger.Debug("leaving a snapshot alone", "path", e.Path, "cause", err)
	case state.Seq != e.Seq || state.Chain != chain:
		s.discard(e, errDisagrees)
	default:
		log.Skip(skipped)
		return state
	}
	return nil
}

var errDisagrees = errors.New("the log has another chain value there")

// discard removes a snapshot that is wrong.
func (s *Store) discard(e Entry, cause error) {
	level := slog.LevelWarn
	if errors.Is(cause, errNotSealed) { // an earlier version of this program made it
		level = slog.LevelDebug
	}
	s.logger.Log(context.Background(), level, "removing a snapshot", "path", e.Path, "cause", cause)
	if err := s.Remove(e); err != nil {
		s.logger.Warn("removing a snapshot", "error", err)
	}
}

// ahead is a snapshot that is being loaded.
type ahead struct {
	entry Entry
	done  chan struct{}
	state *projections.State
	err   error
}

// Ahead begins to load the newest snapshot, for who opens the ledger next: while its
// server starts. Whether it agrees with the log is looked at then.
func (s *Store) Ahead() {
	all, err := s.List()
	if err != nil || len(all) == 0 {
		return
	}
	a := &ahead{entry: all[len(all)-1], done: make(chan struct{})}
	s.mu.Lock()
	s.ahead = a
	s.mu.Unlock()
	go func() {
		defer close(a.done)
		a.state, a.err = read(a.entry)
	}()
}

// take loads a snapshot, or waits for it where that has begun.
func (s *Store) take(e Entry) (*projections.State, error) {
	s.mu.Lock()
	a := s.ahead
	s.ahead = nil
	s.mu.Unlock()
	if a == nil || a.entry != e {
		return read(e)
	}
	<-a.done
	return a.state, a.err
}

func read(e Entry) (*projections.State, error) {
	f, err := os.Open(e.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read
	return projections.Load(f)
}

// chainAt is the chain value of the record of a sequence, as it is stored.
func chainAt(ctx context.Context, log Log, seq uint64) (events.Chain, error) {
	records, err := log.Get(ctx, seq, seq)
	if err != nil {
		return events.Chain{}, err
	}
	chain, err := events.ParseChain(records[0].Get(events.HeaderChain))
	if err != nil {
		return events.Chain{}, &ledger.NotFoundError{Seq: seq} // it is no event
	}
	return chain, nil
}

// Keep writes snapshots of a growing log until ctx ends: about one in 10,000 events,
// of a large state fewer, so that they cost little an event. durable tells how far
// the log has come. The state that the ledger is served from is neither asked nor
// held up: another one is folded, from the newest snapshot.
func (s *Store) Keep(ctx context.Context, log Log, durable func() uint64) {
	tick := time.NewTicker(s.tun.look)
	defer tick.Stop()
	written, pause := s.Last(), s.tun.opening
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := durable()
		if now < written+pause {
			continue
		}
		state, err := StateAt(ctx, log, s, now)
		switch {
		case err == nil:
			s.write(state)
			pause = max(s.tun.opening, uint64(state.BindingCount())/bindingsAnEvent)
		case ctx.Err() == nil:
			s.logger.Warn("making a snapshot", "seq", now, "error", err)
		}
		written = now // also where it failed: not again at once
	}
}

// bindingsAnEvent bounds how many bindings are written for one event, on the average.
const bindingsAnEvent = 10

// Stop keeps a snapshot of the last state of a process, where the next one would have
// much to fold.
func (s *Store) Stop(state *projections.State) {
	if s != nil && state.Seq >= s.Last()+s.tun.stopping {
		s.write(state)
	}
}

package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"bindery/ledger"
)

// entry is what a bucket holds under one key now.
type entry struct {
	key      string
	value    []byte // nil: it was deleted
	revision uint64
}

// watch reads what a bucket holds under the keys of a pattern, and what changes
// there, until its context ends. It needs no right but to make a consumer that is
// filtered to that pattern: not to ask about the stream, and not to read it
// directly.
//
// What is gone is told as deleted, whether its deletion was seen or not: each
// time the watch has begun anew it is told what there is, and then that this is
// all (listed). Of one key older entries may be left out.
type watch struct {
	nc      *nats.Conn
	bucket  string
	pattern string // of keys: "<node id>.>"
	entry   func(entry)
	listed  func()
	logger  *slog.Logger

	known map[string]bool // keys that were told of and not deleted
}

const (
	watchAgain = time.Second
	// opening is how long making a consumer may take.
	opening = 5 * time.Second
)

// run watches until ctx ends, or the connection is closed for good.
func (w *watch) run(ctx context.Context) error {
	w.known = map[string]bool{}
	for said := ""; ; {
		err := w.once(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if w.nc.IsClosed() {
			return errGone
		}
		if text := err.Error(); text != said { // the same once
			w.logger.Warn("watching begins anew", "bucket", w.bucket, "error", text)
			said = text
		}
		if !sleep(ctx, watchAgain) {
			return ctx.Err()
		}
	}
}

// once watches from a fresh list on, until something is wrong.
func (w *watch) once(ctx context.Context) error {
	made, cancel := context.WithTimeout(ctx, opening)
	f, err := ledger.FeedBucket(made, w.nc, w.bucket, w.pattern)
	cancel()
	if err != nil {
		return err
	}
	defer f.Close()
	seen := map[string]bool{} // of the list; nil when it is told
	if f.Pending == 0 {
		w.endList(seen)
		seen = nil
	}
	for {
		m, err := f.Next(ctx, opening)
		if errors.Is(err, ledger.ErrFeedNothing) {
			continue
		}
		if err != nil {
			return err
		}
		e := entry{m.Key, m.Value, m.Revision}
		if seen != nil {
			seen[e.key] = true
		}
		w.tell(e)
		if seen != nil && m.Left == 0 {
			w.endList(seen)
			seen = nil
		}
	}
}

// jetstreamOperation is the header of a message that deletes a key (ADR-8 of the
// NATS architecture).
const (
	jetstreamOperation = "KV-Operation"
	operationDelete    = "DEL"
)

func (w *watch) tell(e entry) {
	if e.value == nil {
		delete(w.known, e.key)
	} else {
		w.known[e.key] = true
	}
	w.entry(e)
}

// endList tells of what is gone since the list before, and that the list is whole.
func (w *watch) endList(seen map[string]bool) {
	for key := range w.known {
		if !seen[key] {
			w.tell(entry{key: key})
		}
	}
	w.listed()
}

// sleep reports whether ctx still stands after a while.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

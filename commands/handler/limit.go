package handler

import (
	"fmt"
	"time"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

// An agent reports what was done: applied, failed, issued, revoked. Each report that
// says something new is an event for ever, and an agent could always say something
// new: another reason, a later sequence, a failure after each success. So each agent
// may report on one binding reportBurst times at once, and once each reportEvery after
// that. A report that writes nothing counts nothing.
const (
	reportBurst = 60
	reportEvery = time.Minute
)

// sweepAt is the number of entries from which on those are forgotten that say nothing
// any more.
const sweepAt = 4096

// report is who reports on what.
type report struct {
	key     string // the agent's
	binding events.ID
}

// reports remembers how much each agent reported of late. The writer owns it. It is
// not a part of the state: another writer begins with none.
type reports struct {
	// whole is when the whole burst is there again; who is not in it has it.
	whole   map[report]time.Time
	sweepAt int
}

func newReports() *reports { return &reports{whole: map[report]time.Time{}, sweepAt: sweepAt} }

// isSpent reports whether no report is left.
func (r *reports) isSpent(of report, now time.Time) bool {
	return r.whole[of].Sub(now) > (reportBurst-1)*reportEvery
}

// spend takes one report.
func (r *reports) spend(of report, now time.Time) {
	whole := r.whole[of]
	if whole.Before(now) {
		whole = now
	}
	r.whole[of] = whole.Add(reportEvery)
	if len(r.whole) < r.sweepAt {
		return
	}
	for of, whole := range r.whole {
		if !whole.After(now) {
			delete(r.whole, of)
		}
	}
	r.sweepAt = max(sweepAt, 2*len(r.whole)) // else each report would sweep
}

// limit refuses a report of an agent that reports too often. It returns what is spent
// when the report is written, nil where it is none.
func (h *Handler) limit(req commands.Request, now time.Time) (*report, error) {
	if req.Key == "" {
		return nil, nil
	}
	binding, is := commands.ReportOf(h.state, req.Key, req.Command)
	if !is {
		return nil, nil
	}
	of := report{req.Key, binding}
	if h.reports.isSpent(of, now) {
		return nil, &commands.Refusal{Code: commands.TooOften, Message: "too many reports on binding " + binding.String(),
			Why: fmt.Sprintf("an agent may report on one %d times at once, and then once each %s", reportBurst, reportEvery),
			Fix: projections.Do("log").With("--entity", binding.String()), Candidates: []commands.Candidate{}}
	}
	return &of, nil
}

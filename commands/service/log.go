package service

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// log answers a LogQuery: one page of events, as they are stored.
func (s *Service) log(q LogQuery) (LogPage, error) {
	page := LogPage{Items: []LogItem{}}
	s.state.View(func(st *projections.State) { page.Mesh, page.Seq = st.Mesh.Name, st.Seq })
	end := page.Seq
	if q.Until > 0 {
		end = min(end, q.Until)
	}
	first, err := s.firstOf(q, page.Seq)
	if err != nil {
		return page, err
	}
	if q.Limit <= 0 || q.Limit > MaxLogPage {
		q.Limit = MaxLogPage
	}
	last := min(end, first+uint64(q.Limit)-1)
	if first > last {
		return page, nil
	}
	evs, err := s.read(first, last)
	if err != nil {
		return page, missingInside(err)
	}
	s.state.View(func(st *projections.State) {
		for i := range evs {
			if q.wants(&evs[i].Event) {
				page.Items = append(page.Items, item(st, &evs[i].Event, evs[i].data))
			}
		}
	})
	if last < end {
		page.Next = last + 1
	}
	return page, nil
}

// wants reports whether an event is one of those asked for.
func (q *LogQuery) wants(e *events.Event) bool {
	short := e.Type.Short()
	return (q.Entity == "" || e.Entity.String() == q.Entity) && (q.Actor == "" || e.Actor == q.Actor) &&
		(q.Command == "" || e.Command.String() == q.Command) &&
		(q.Type == "" || short == q.Type || strings.HasPrefix(short, q.Type+"."))
}

type read struct {
	events.Event
	data []byte
}

// read decodes a range of the log and leaves out what is no event.
func (s *Service) read(first, last uint64) ([]read, error) {
	records, err := s.cfg.Log.Get(s.ctx, first, last)
	if err != nil {
		return nil, err
	}
	out := make([]read, 0, len(records))
	for i := range records {
		e, err := events.Decode(&records[i])
		if err != nil || s.cfg.Log.IsForeign(e.Seq) {
			continue // whoever verifies the log counts them
		}
		out = append(out, read{e, records[i].Data})
	}
	return out, nil
}

// missingInside makes a message that is not there, up to where the ledger is, what it
// is: damage.
func missingInside(err error) error {
	var none *ledger.NotFoundError
	if errors.As(err, &none) {
		return &ledger.DamageError{Seq: none.Seq, Why: "no message is there"}
	}
	return err
}

func item(st *projections.State, e *events.Event, data []byte) LogItem {
	return LogItem{Seq: e.Seq, Time: timeOf(e.Time), ID: e.ID, Type: e.Type.String(),
		Subject: events.SubjectFor(e.MeshName, e.Type, e.Entity), Actor: e.Actor, Command: e.Command, Origin: e.Origin,
		Reason: e.Reason, Batch: strconv.Itoa(e.K) + "/" + strconv.Itoa(e.N), Chain: e.Chain.String(),
		What: st.Describe(e), Data: data}
}

// firstOf finds the sequence a LogQuery begins at.
func (s *Service) firstOf(q LogQuery, head uint64) (uint64, error) {
	switch {
	case q.Event != "":
		return s.findEvent(q.Event, head)
	case q.Time != "":
		t, err := time.Parse(time.RFC3339, q.Time)
		if err != nil {
			return 0, badRequest(err)
		}
		return s.findTime(head, func(at time.Time) bool { return !at.Before(t) })
	}
	return max(q.First, 1), nil
}

// findTime is the first sequence whose event's time satisfies after, head+1 for
// none. Time ascends with the sequence, except where the clock was set back by
// more than a minute: there it finds one of the crossings.
func (s *Service) findTime(head uint64, after func(time.Time) bool) (uint64, error) {
	var failed error
	at := sort.Search(int(head), func(i int) bool {
		if failed != nil {
			return true
		}
		e, err := s.eventFrom(uint64(i)+1, head)
		if err != nil {
			failed = err
			return true
		}
		return e == nil || after(e.Time)
	})
	return uint64(at) + 1, failed
}

// eventFrom is the first event at or after seq; foreign messages are passed.
func (s *Service) eventFrom(seq, head uint64) (*events.Event, error) {
	for ; seq <= head; seq++ {
		evs, err := s.read(seq, seq)
		var none *ledger.NotFoundError
		if err != nil && !errors.As(err, &none) {
			return nil, err
		}
		if len(evs) == 1 {
			return &evs[0].Event, nil
		}
	}
	return nil, nil
}

// idSlack is how far the instant in an event's id may lie from its time: the id
// is minted while the event is decided.
const idSlack = 2 * time.Minute

// findEvent looks for an event by its id, near the instant that the id holds.
func (s *Service) findEvent(text string, head uint64) (uint64, error) {
	id, err := events.ParseID(text)
	if err != nil {
		return 0, badRequest(err)
	}
	from := time.UnixMilli(id.Milli()).Add(-idSlack)
	first, err := s.findTime(head, func(at time.Time) bool { return !at.Before(from) })
	if err != nil {
		return 0, err
	}
	until := from.Add(2 * idSlack)
	for ; first <= head; first += MaxLogPage {
		evs, err := s.read(first, min(head, first+MaxLogPage-1))
		if err != nil {
			return 0, missingInside(err)
		}
		for i := range evs {
			if evs[i].ID == id {
				return evs[i].Seq, nil
			}
			if evs[i].Time.After(until) {
				first = head
				break
			}
		}
	}
	return 0, &commands.Refusal{Code: commands.EventNotFound, Message: fmt.Sprintf("no event has the id %s", id),
		Why: "the ledger has none near the instant in it", Fix: projections.Do("log"), Candidates: []commands.Candidate{}}
}

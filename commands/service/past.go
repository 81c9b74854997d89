package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"

	"bindery/commands"
	"bindery/projections"
)

// AsOf is a moment of the ledger: the last command that was whole there. One of its
// fields says which.
type AsOf struct {
	Seq   uint64 `json:"seq,omitempty"`
	Time  string `json:"time,omitempty"`  // an instant in RFC 3339: the last event at or before it
	Event string `json:"event,omitempty"` // an event's id: when its command was done
}

// Moment is the moment that an answer is of.
type Moment struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"` // of the last event then
}

// Past gives the state as of a sequence: of the last command that ends at or before
// it. Nobody may change it.
type Past func(ctx context.Context, seq uint64) (*projections.State, error)

// keptPasts is how many past states are kept: who compares two asks for both again
// and again.
const keptPasts = 2

// pasts keeps the past states that were asked for last.
type pasts struct {
	make Past
	mu   sync.Mutex // held while one is made: another is likely to ask for the same
	kept []past
}

type past struct {
	seq   uint64
	state *projections.State
}

func (p *pasts) at(ctx context.Context, seq uint64) (*projections.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(p.kept, func(k past) bool { return k.seq == seq }); i >= 0 {
		return p.kept[i].state, nil
	}
	s, err := p.make(ctx, seq)
	if err != nil {
		return nil, err
	}
	p.kept = append(p.kept[max(0, len(p.kept)+1-keptPasts):], past{seq, s})
	return s, nil
}

// errNoPast says that whoever answers keeps no past.
var errNoPast = errors.New("the past cannot be asked for here")

// thePast is what Authorize is asked about: it is no matter of one node.
const thePast = "the past"

// queryPast answers a query as of a moment, or what is different at two. The states
// are made before it takes a place among the queries: that may take a while.
func (s *Service) queryPast(req micro.Request, key string, m QueryMessage) {
	if s.cfg.Past == nil {
		s.running.Done()
		s.refuse(req, errNoPast)
		return
	}
	if m.Query == MomentQueryName {
		s.when(req, s.readiness(m), true, func() (any, uint64, error) { return s.momentQuery(key, *m.AsOf) })
		return
	}
	conditions := append(s.readiness(m), func(context.Context) error { return s.authorize(key, thePast) })
	if m.AsOf != nil {
		var st *projections.State
		conditions = append(conditions, func(context.Context) (err error) { st, err = s.stateAt(*m.AsOf); return err })
		s.when(req, conditions, true, func() (any, uint64, error) { return askPast(st, m) })
		return
	}
	var from, to *projections.State
	conditions = append(conditions, func(context.Context) (err error) { from, to, err = s.bothStates(m.Args); return err })
	s.when(req, conditions, true, func() (any, uint64, error) { return diff(from, to) })
}

// askPast answers a query from a state of the past, with the names of then. The
// moment stands in the answer as "as_of".
func askPast(st *projections.State, m QueryMessage) (any, uint64, error) {
	q, err := commands.ParseQuery(m.Query, m.Args)
	if err != nil {
		return nil, 0, err
	}
	v, err := commands.Answer(st, q, st.Time)
	if err != nil {
		return nil, 0, asOf(err, Moment{st.Seq, st.Time})
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, 0, err
	}
	return withMoment(data, Moment{st.Seq, st.Time}), st.Seq, nil
}

// asOf says of a refusal as of which moment it is: that of the last command that was
// whole then, which may lie far before the sequence that was asked for.
func asOf(err error, at Moment) error {
	var r *commands.Refusal
	if !errors.As(err, &r) {
		return err
	}
	out := *r
	out.Why = strings.TrimPrefix(fmt.Sprintf("%s; this is as of sequence %d, %s", out.Why, at.Seq, at.Time.UTC().Format(time.RFC3339)), "; ")
	return &out
}

// withMoment adds the moment to an answer that is an object.
func withMoment(data []byte, at Moment) json.RawMessage {
	rest, ok := bytes.CutPrefix(data, []byte("{"))
	if !ok {
		return data
	}
	moment, err := json.Marshal(at)
	if err != nil {
		return data
	}
	out := append([]byte(`{"as_of":`), moment...)
	if !bytes.HasPrefix(rest, []byte("}")) {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// stateAt finds a moment and the state then.
func (s *Service) stateAt(at AsOf) (*projections.State, error) {
	var head uint64
	s.state.View(func(st *projections.State) { head = st.Seq })
	seq, err := s.moment(at, head)
	if err != nil {
		return nil, err
	}
	st, err := s.past.at(s.ctx, seq)
	if err == nil && st.Seq == 0 {
		return nil, noMoment("the ledger is not that old", "its first event is later")
	}
	return st, err
}

func noMoment(message, why string) *commands.Refusal {
	return &commands.Refusal{Code: commands.EventNotFound, Message: message, Why: why, Fix: projections.Do("log").With("--limit", "1"), Candidates: []commands.Candidate{}}
}

// moment finds the sequence of a moment.
func (s *Service) moment(at AsOf, head uint64) (uint64, error) {
	switch {
	case at.Event != "":
		seq, err := s.findEvent(at.Event, head)
		if err != nil {
			return 0, err
		}
		return s.endOf(seq)
	case at.Time != "":
		t, err := time.Parse(time.RFC3339, at.Time)
		if err != nil {
			return 0, badRequest(err)
		}
		first, err := s.findTime(head, func(when time.Time) bool { return when.After(t) })
		if err == nil && first == 1 {
			err = noMoment("the ledger is not that old", "its first event is after "+at.Time)
		}
		return first - 1, err
	case at.Seq > head:
		return 0, noMoment(fmt.Sprintf("the ledger has no sequence %d", at.Seq), fmt.Sprintf("it is at %d", head))
	case at.Seq == 0:
		return 0, noMoment("the ledger has no sequence 0", "its first event is at 1")
	}
	return at.Seq, nil
}

// endOf is the last sequence of the command that an event is of.
func (s *Service) endOf(seq uint64) (uint64, error) {
	evs, err := s.read(seq, seq)
	if err != nil {
		return 0, err
	}
	if len(evs) == 0 {
		return 0, errors.New("the event is not where it was")
	}
	return seq + uint64(evs[0].N-evs[0].K), nil
}

// DiffQuery asks what is different for each binding at two moments.
type DiffQuery struct {
	From AsOf `json:"from"`
	To   AsOf `json:"to"` // empty: now
}

// DiffQueryName is the name of DiffQuery; it is answered by the service itself.
const DiffQueryName = "diff"

// Diff is the answer to a DiffQuery: what became different, by assignment and slot.
type Diff struct {
	Mesh  string                   `json:"mesh"`
	Seq   uint64                   `json:"seq"` // To's
	Time  time.Time                `json:"time"`
	From  Moment                   `json:"from"`
	To    Moment                   `json:"to"`
	Items []projections.Difference `json:"items"`
}

// bothStates are those of a DiffQuery.
func (s *Service) bothStates(args json.RawMessage) (from, to *projections.State, err error) {
	var q DiffQuery
	if err := strict(args, &q); err != nil {
		return nil, nil, badRequest(err)
	}
	if from, err = s.stateAt(q.From); err != nil {
		return nil, nil, err
	}
	if q.To == (AsOf{}) {
		s.state.View(func(st *projections.State) { q.To.Seq = st.Seq })
	}
	if to, err = s.stateAt(q.To); err != nil {
		return nil, nil, err
	}
	if from.Seq > to.Seq {
		err = &commands.Refusal{Code: commands.Usage, Message: "the first moment is after the second",
			Why: fmt.Sprintf("they are at sequences %d and %d", from.Seq, to.Seq), Fix: projections.Do("status").With("--diff", "EARLIER..LATER"), Candidates: []commands.Candidate{}}
	}
	return from, to, err
}

func diff(from, to *projections.State) (any, uint64, error) {
	return Diff{Mesh: to.Mesh.Name, Seq: to.Seq, Time: to.Time, From: Moment{from.Seq, from.Time}, To: Moment{to.Seq, to.Time},
		Items: projections.Differences(from, to)}, to.Seq, nil
}

// MomentQueryName is the name of the query where a moment is; it is answered by the
// service itself.
const MomentQueryName = "moment"

// momentQuery finds a moment without the state then.
func (s *Service) momentQuery(key string, at AsOf) (any, uint64, error) {
	if err := s.authorize(key, thePast); err != nil {
		return nil, 0, err
	}
	var head uint64
	s.state.View(func(st *projections.State) { head = st.Seq })
	seq, err := s.moment(at, head)
	if err != nil {
		return nil, 0, err
	}
	evs, err := s.read(seq, seq)
	if err != nil {
		return nil, 0, err
	}
	m := Moment{Seq: seq}
	if len(evs) > 0 {
		m.Time = evs[0].Time
	}
	return m, head, nil
}

package service

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/micro"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// StoredQuery asks for the messages of the ledger's stream as they lie there, also
// those that are no part of the ledger: for who proves the record or copies it. The
// service itself answers it, for operators and auditors.
type StoredQuery struct {
	First uint64 `json:"first"`           // from 1; 0: only how far the stream goes
	Limit int    `json:"limit,omitempty"` // 0: MaxRecords
}

// StoredQueryName is the name of StoredQuery.
const StoredQueryName = "stored"

// StoredPage is the answer to a StoredQuery.
type StoredPage struct {
	Last  uint64         `json:"last"` // the stream's last sequence
	Seq   uint64         `json:"seq"`  // that of the last event of the ledger
	Items []StoredRecord `json:"items"`
}

// Name implements what a refusal calls the query by.
func (StoredQuery) Name() string { return StoredQueryName }

// Reader reads the ledger through the service, for operators and auditors.
func (c *Client) Reader() *ledger.Log {
	return ledger.ReadFrom(storedSource{c}, c.mesh, c.who.Ledger)
}

// storedSource is the stream as the service gives it.
type storedSource struct{ c *Client }

var _ ledger.Source = storedSource{}

func (s storedSource) ask(ctx context.Context, q StoredQuery) (page StoredPage, err error) {
	data, err := s.c.ask(ctx, StoredQueryName, q)
	if err != nil {
		return page, err
	}
	return page, json.Unmarshal(data, &page)
}

// Last implements ledger.Source.
func (s storedSource) Last(ctx context.Context) (uint64, error) {
	page, err := s.ask(ctx, StoredQuery{})
	return page.Last, err
}

// Sound implements ledger.Source.
func (s storedSource) Sound(ctx context.Context) (uint64, error) {
	page, err := s.ask(ctx, StoredQuery{})
	return page.Seq, err
}

// Stored implements ledger.Source.
func (s storedSource) Stored(ctx context.Context, first, last uint64) ([]events.Record, error) {
	page, err := s.ask(ctx, StoredQuery{First: first, Limit: int(min(last-first+1, MaxRecords))})
	var r *commands.Refusal
	if errors.As(err, &r) && r.Code == commands.EventNotFound {
		return nil, &ledger.NotFoundError{Seq: first}
	}
	if err != nil {
		return nil, err
	}
	out := make([]events.Record, len(page.Items))
	for i := range page.Items {
		out[i] = page.Items[i].Record()
	}
	if len(out) == 0 || out[0].Seq != first {
		return nil, &ledger.NotFoundError{Seq: first}
	}
	return out, nil
}

// storedQuery answers a StoredQuery.
func (s *Service) storedQuery(req micro.Request, key string, m QueryMessage) {
	q, ok := asked[StoredQuery](s, req, key, m)
	if !ok {
		return
	}
	s.when(req, s.readiness(m), s.cfg.Handler == nil, func() (any, uint64, error) {
		page, err := s.stored(q)
		return page, 0, err
	})
}

// stored makes one page.
func (s *Service) stored(q StoredQuery) (page StoredPage, err error) {
	page.Items = []StoredRecord{}
	s.state.View(func(st *projections.State) { page.Seq = st.Seq })
	if page.Last, err = s.cfg.Log.Last(s.ctx); err != nil || q.First == 0 {
		return page, err
	}
	if q.Limit <= 0 || q.Limit > MaxRecords {
		q.Limit = MaxRecords
	}
	if q.First > page.Last {
		return page, &ledger.NotFoundError{Seq: q.First}
	}
	records, err := s.cfg.Log.Stored(s.ctx, q.First, min(page.Last, q.First+uint64(q.Limit)-1))
	size := 0
	for i := range records {
		r := &records[i]
		page.Items = append(page.Items, StoredRecord{r.Seq, r.Subject, r.Header, r.Data})
		if size += sizeOf(r); size >= maxRecordsSize {
			break
		}
	}
	return page, err
}

package service

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/micro"

	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// RecordsQuery asks for events as they are stored, for a client that folds the ledger
// itself. The service itself answers it, for operators and auditors. It gives no event
// that its own state has not folded, and no message that is no part of the ledger.
type RecordsQuery struct {
	First uint64 `json:"first"` // from 1
	// Chain is the chain value at First-1, as the client has it. Where the ledger has
	// another one there, the query is refused with ledger_restored. Empty: nobody
	// compares.
	Chain string `json:"chain,omitempty"`
	// Limit is how many events are wanted; 0: MaxRecords. The command that the last one
	// belongs to comes whole.
	Limit int `json:"limit,omitempty"`
	// Wait, in milliseconds, asks to answer only when there are events from First on, or
	// that time is over; at most MaxLogWait.
	Wait int `json:"wait,omitempty"`
}

// RecordsQueryName is the name of RecordsQuery.
const RecordsQueryName = "records"

// MaxRecords is the greatest Limit of a RecordsQuery.
const MaxRecords = 1000

// maxRecordsSize is how many bytes of records an answer holds before it ends with the
// next command.
const maxRecordsSize = 2 << 20

// RecordsPage is the answer to a RecordsQuery: whole commands, but for events before
// First.
type RecordsPage struct {
	Mesh   string    `json:"mesh"`
	MeshID events.ID `json:"mesh_id,omitzero"`
	Seq    uint64    `json:"seq"`   // the ledger's last
	Next   uint64    `json:"next"`  // to go on with; 0 at the end
	Chain  string    `json:"chain"` // the chain value of the last item: what to ask with from Next on
	// The items come last: a client may ask for the next page before it reads them.
	Items []StoredRecord `json:"items"`
}

// StoredRecord is one event as it is stored.
type StoredRecord struct {
	Seq     uint64              `json:"seq"`
	Subject string              `json:"subject"`
	Headers map[string][]string `json:"headers"` // without those of the NATS server
	Data    []byte              `json:"data"`    // in base64, so that every byte stays
}

// Record is it as the package events reads it.
func (r *StoredRecord) Record() events.Record {
	return events.Record{Seq: r.Seq, Subject: r.Subject, Header: r.Headers, Data: r.Data}
}

// Records reads one page of the log as it is stored.
func (c *Client) Records(ctx context.Context, q RecordsQuery) (RecordsPage, error) {
	var page RecordsPage
	data, err := c.rawRecords(ctx, q)
	if err != nil {
		return page, err
	}
	return page, json.Unmarshal(data, &page)
}

func (c *Client) rawRecords(ctx context.Context, q RecordsQuery) (json.RawMessage, error) {
	return c.query(ctx, RecordsQueryName, q, silent+time.Duration(q.Wait)*time.Millisecond, c.followers, 0)
}

// recordsQuery answers a RecordsQuery.
func (s *Service) recordsQuery(req micro.Request, key string, m QueryMessage) {
	q, ok := asked[RecordsQuery](s, req, key, m)
	if !ok {
		return
	}
	q.First = max(q.First, 1)
	if q.Limit <= 0 || q.Limit > MaxRecords {
		q.Limit = MaxRecords
	}
	var conditions []condition
	if q.Chain != "" && q.First > 1 {
		conditions = append(conditions, func(context.Context) error { return s.onChain(q.First-1, q.Chain) })
	}
	if q.Wait > 0 {
		conditions = append(conditions, s.growth(LogQuery{First: q.First, Wait: q.Wait}))
	}
	s.when(req, append(conditions, s.readiness(m)...), len(conditions) > 0 || s.cfg.Handler == nil, func() (any, uint64, error) {
		page, err := s.records(q)
		return page, page.Seq, err
	})
}

// Name implements what a refusal calls the query by.
func (RecordsQuery) Name() string { return RecordsQueryName }

// records makes one page.
func (s *Service) records(q RecordsQuery) (RecordsPage, error) {
	page := RecordsPage{Items: []StoredRecord{}}
	s.state.View(func(st *projections.State) { page.Mesh, page.MeshID, page.Seq = st.Mesh.Name, st.Mesh.ID, st.Seq })
	if q.First > page.Seq {
		return page, nil
	}
	from, err := s.before(q, page.MeshID)
	for try := 0; err == nil; try++ {
		err = s.fill(&page, q, from)
		var damage *ledger.DamageError
		if q.Chain != "" || try >= maxBack || from.Seq == 0 || len(page.Items) > 0 || !errors.As(err, &damage) {
			break
		}
		// What it began after may be no event of the ledger.
		from, err = s.before(RecordsQuery{First: from.Seq}, page.MeshID)
	}
	if err != nil && len(page.Items) == 0 {
		return page, err
	}
	if n := len(page.Items); n > 0 {
		last := page.Items[n-1].Record()
		page.Chain = last.Get(events.HeaderChain)
		if last.Seq < page.Seq {
			page.Next = last.Seq + 1
		}
	}
	return page, nil
}

// maxBack is how many messages before the first one are looked at to find the end of a
// command.
const maxBack = 2 * ledger.MaxEvents

// before is the place of the last command that ends before q.First, as far as the
// messages say.
func (s *Service) before(q RecordsQuery, mesh events.ID) (ledger.Position, error) {
	for seq, n := q.First-1, 0; seq > 0; seq, n = seq-1, n+1 {
		records, err := s.cfg.Log.Get(s.ctx, seq, seq)
		if err != nil {
			return ledger.Position{}, missingInside(err)
		}
		chain, err := events.ParseChain(records[0].Get(events.HeaderChain))
		k, of, batch := events.ParseBatch(records[0].Get(events.HeaderBatch))
		if err == nil && batch == nil && k == of {
			return ledger.Position{Seq: seq, Chain: chain, Mesh: mesh, Writers: s.writersAt(&records[0])}, nil
		}
		if n >= maxBack {
			return ledger.Position{}, &ledger.DamageError{Seq: seq, Why: "no command ends before it"}
		}
	}
	return ledger.Position{}, nil
}

// writersAt are the keys that could prove what follows an event, on a server.
func (s *Service) writersAt(r *events.Record) (w *ledger.Writers) {
	at, _ := time.Parse(time.RFC3339, r.Get("ce-time")) // else it is no event
	s.state.View(func(st *projections.State) { w = ledger.NewWriters(st.WriterKeysAt(r.Seq, at)) })
	return w
}

// fill puts the commands after a place into a page, from q.First on. It reads on where
// everything up to q.Limit is no part of the ledger.
func (s *Service) fill(page *RecordsPage, q RecordsQuery, from ledger.Position) error {
	size := 0
	for last := from.Seq; last < page.Seq && len(page.Items) == 0; {
		last = min(page.Seq, max(last, q.First-1)+uint64(q.Limit))
		for group, err := range s.cfg.Log.Records(s.ctx, from, last) {
			if err != nil {
				return err
			}
			for i := range group {
				if group[i].Seq < q.First {
					continue
				}
				page.Items = append(page.Items, StoredRecord{group[i].Seq, group[i].Subject, group[i].Header, group[i].Data})
				size += sizeOf(&group[i])
			}
			if len(page.Items) >= q.Limit || size >= maxRecordsSize {
				return nil
			}
		}
	}
	return nil
}

// sizeOf is about how many bytes a record has.
func sizeOf(r *events.Record) int {
	n := len(r.Subject) + len(r.Data)
	for name, values := range r.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

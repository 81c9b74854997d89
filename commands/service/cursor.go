package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

// Cursor is a place in the ledger that somebody has read up to. The chain value
// tells one ledger from another that has the same sequences.
type Cursor struct {
	MeshID events.ID `json:"mesh_id"`
	Seq    uint64    `json:"seq"`
	Chain  string    `json:"chain"` // at Seq, 64 hexadecimal digits
}

// CursorQueryName is the name of the query whether a cursor is of this ledger. It
// is answered by the service itself, from the log, to everybody who is granted
// anything.
const CursorQueryName = "cursor"

// CheckCursor asks whether the ledger still has what a cursor was read from. Where
// it has not, the error is a refusal with ledger_restored.
func (c *Client) CheckCursor(ctx context.Context, at Cursor) error {
	_, err := c.ask(ctx, CursorQueryName, at)
	return err
}

// cursorQuery answers a query about a cursor.
func (s *Service) cursorQuery(key string, args json.RawMessage) error {
	var at Cursor
	if err := strict(args, &at); err != nil {
		return badRequest(err)
	}
	if err := s.authorize(key, commands.WhoAmI{}); err != nil {
		return err
	}
	var mesh projections.Mesh
	s.state.View(func(st *projections.State) { mesh = st.Mesh })
	if at.MeshID != mesh.ID {
		return commands.Restored("the ledger is not the one that was read", "its mesh has the id "+mesh.ID.String()+", not "+at.MeshID.String())
	}
	return s.onChain(at.Seq, at.Chain)
}

// onChain refuses a chain value that the ledger has not at that sequence.
func (s *Service) onChain(seq uint64, chain string) error {
	what := fmt.Sprintf("sequence %d is not what was read there", seq)
	if _, err := events.ParseChain(chain); err != nil {
		return badRequest(err)
	}
	records, err := s.cfg.Log.Get(s.ctx, seq, seq)
	var none *ledger.NotFoundError
	if errors.As(err, &none) {
		return commands.Restored(what, "the ledger ends before it")
	}
	if err != nil {
		return err
	}
	if now := records[0].Get(events.HeaderChain); now != chain {
		return commands.Restored(what, "its chain value begins with "+clipChain(now)+", not "+clipChain(chain))
	}
	return nil
}

func clipChain(s string) string { return s[:min(8, len(s))] }

// readOf tells what a command says it was read from; no chain value where it says
// nothing of that.
func readOf(c commands.Command) (seq uint64, chain string) {
	if a, ok := c.(commands.AcknowledgeBinding); ok {
		return a.At, a.Chain
	}
	return 0, ""
}

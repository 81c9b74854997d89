package service

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"bindery/commands"
	"bindery/events"
)

// A cursor, or an acknowledgement, of a ledger that has lost what was read is told
// from one that is merely old.
func TestCursor(t *testing.T) {
	s := serve(t)
	ctx := t.Context()
	for _, c := range []commands.Command{commands.RegisterNode{Name: "alpha"}, commands.RegisterNode{Name: "beta"}} {
		if _, err := s.client.Do(ctx, newRequest(c)); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.client.Log(ctx, LogQuery{First: 1})
	if err != nil {
		t.Fatal(err)
	}
	mesh, err := events.ParseID(strings.Split(page.Items[0].Subject, ".")[3])
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range page.Items {
		if err := s.client.CheckCursor(ctx, Cursor{MeshID: mesh, Seq: i.Seq, Chain: i.Chain}); err != nil {
			t.Errorf("sequence %d: %v", i.Seq, err)
		}
	}
	other := strings.Repeat("0", 64)
	for what, c := range map[string]Cursor{
		"another chain value": {mesh, 2, other},
		"its neighbour's":     {mesh, 2, page.Items[2].Chain},
		"beyond the end":      {mesh, 4, other},
		"another mesh":        {events.ID{1}, 2, page.Items[1].Chain},
	} {
		var r *commands.Refusal
		if err := s.client.CheckCursor(ctx, c); !errors.As(err, &r) || r.Code != commands.LedgerRestored {
			t.Errorf("%s: %v", what, err)
		}
		if what == "another mesh" {
			continue
		}
		_, err := s.client.Do(ctx, newRequest(commands.AcknowledgeBinding{Slot: "wiki/db", At: c.Seq, Chain: c.Chain}))
		if !errors.As(err, &r) || r.Code != commands.LedgerRestored {
			t.Errorf("acknowledging %s: %v", what, err)
		}
	}
	// The right one gets as far as the decision.
	var r *commands.Refusal
	_, err = s.client.Do(ctx, newRequest(commands.AcknowledgeBinding{Slot: "wiki/db", At: 2, Chain: page.Items[1].Chain}))
	if !errors.As(err, &r) || r.Code != commands.AssignmentNotFound {
		t.Errorf("acknowledging what was read: %v", err)
	}
}

func TestWhoAmI(t *testing.T) {
	s := serve(t)
	data, err := s.client.Ask(t.Context(), commands.WhoAmI{})
	var v commands.WhoAmIView
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil || v.Mesh != "home" || v.Role != events.RoleOperator || v.Name != "" || v.MeshID.IsZero() {
		t.Errorf("%+v, %v", v, err)
	}
}

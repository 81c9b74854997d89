package handler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"bindery/commands"
	"bindery/events"
	"bindery/projections"
)

// granted grants a new key.
func granted(t *testing.T, h *Handler, name string, role events.Role, node string) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	must(t, h, commands.GrantAccess{Name: name, Role: role, Node: node, NKey: key})
	return key
}

// However an agent varies what it reports on a binding, and however it names that, its
// events are bounded. Others, and its other bindings, are as free as before, and so is
// the agent after a while.
func TestReportsOfAnAgentAreBounded(t *testing.T) {
	now := time.Now().UTC()
	h := open(t, Config{Log: newStore(t).log, NewID: newID, Clock: func() time.Time { return now }})
	must(t, h, commands.DefineProvision{Name: "pg", Scope: events.ScopeNode}, commands.RegisterNode{Name: "alpha"},
		commands.RegisterProvider{Name: "pg-alpha", Provision: "pg", Node: "alpha", Endpoint: "alpha.mesh:5432"},
		commands.DeclareModule{Name: "app", Module: requires("db", "pg")},
		commands.CreateAssignment{Module: "app", Node: "alpha", Name: "one"}, commands.CreateAssignment{Module: "app", Node: "alpha", Name: "two"})
	agent, operator := granted(t, h, "on-alpha", events.RoleAgent, "alpha"), granted(t, h, "ann", events.RoleOperator, "")
	binding := func(slot string) (id events.ID, seq uint64) {
		h.View(func(s *projections.State) {
			v, err := commands.Answer(s, commands.ListBindings{}, now)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range v.(projections.List[projections.BindingView]).Items {
				if b.Assignment+"/"+b.Slot == slot {
					id = *b.ID
				}
			}
			seq = s.Seq
		})
		return id, seq
	}
	id, generation := binding("one/db")
	h.View(func(s *projections.State) {
		for _, c := range s.ListCredentials(projections.CredentialFilter{}).Items {
			if c.Assignment == "one" {
				generation = c.Generation
			}
		}
	})
	n := 0
	tell := func(key string, c commands.Command) (wrote bool, code commands.Code) {
		t.Helper()
		n++
		req := request(c)
		req.Key, req.Reason = key, fmt.Sprintf("reason %d", n)
		res, err := h.Do(t.Context(), req)
		var r *commands.Refusal
		if errors.As(err, &r) {
			return false, r.Code
		} else if err != nil {
			t.Fatal(err)
		}
		return res.Changed, ""
	}
	names := []string{"one/db", id.String(), id.String()[10:], id.String()[16:]}
	written := 0
	for range 3 * reportBurst {
		_, head := binding("one/db")
		name := names[n%len(names)]
		for _, c := range []commands.Command{commands.FailBinding{Slot: name}, commands.AcknowledgeBinding{Slot: name, At: head},
			commands.FailCredential{Slot: name, Generation: generation}} {
			wrote, code := tell(agent, c)
			if wrote {
				written++
			} else if code != commands.TooOften && code != "" {
				t.Fatalf("%T: %s", c, code)
			}
		}
	}
	if written != reportBurst {
		t.Errorf("%d events were written, want %d", written, reportBurst)
	}
	for _, c := range []struct {
		key   string
		about commands.Command
	}{{agent, commands.FailBinding{Slot: "two/db"}}, {operator, commands.FailBinding{Slot: "one/db"}}, {"", commands.FailBinding{Slot: "one/db"}}} {
		if wrote, code := tell(c.key, c.about); !wrote {
			t.Errorf("%+v: %s", c, code)
		}
	}
	now = now.Add(reportEvery)
	if wrote, code := tell(agent, commands.FailBinding{Slot: "one/db"}); !wrote {
		t.Errorf("after a while: %s", code)
	}
	if wrote, code := tell(agent, commands.FailBinding{Slot: "one/db"}); wrote || code != commands.TooOften {
		t.Errorf("at once after that: %v %s", wrote, code)
	}
}

// What is remembered of reports is bounded by what is spent.
func TestReportsAreForgotten(t *testing.T) {
	r, now := newReports(), time.Now()
	for i := range 10 * sweepAt {
		r.spend(report{key: fmt.Sprint(i)}, now)
		now = now.Add(reportEvery / 100)
	}
	if len(r.whole) > 2*sweepAt {
		t.Errorf("%d are remembered", len(r.whole))
	}
	if of := (report{key: fmt.Sprint(10*sweepAt - 1)}); r.whole[of].IsZero() {
		t.Error("the last one is forgotten")
	}
}

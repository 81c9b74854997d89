package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

type history struct{ all bool }

func (*history) help() *cobra.Command {
	return &cobra.Command{
		Use: "history (ASSIGNMENT/SLOT | NOUN NAME)",
		Example: `  bindery history wiki/db
  bindery history provider pg-alpha
  bindery history assignment wiki --as-of 2026-11-01 -o jsonl`,
		Short: "Tell what made something what it is",
		Long: `Tells the events that made a binding, or something else, what it is: when, who, by which rule and why,
through renames, moves, overrides and rotations, with the names of then. Of a binding they are those about
it, its consumer and its credentials, and of its provider those that changed what the consumer runs with.
With --all what merely refers to it comes, too: who was bound to a provider, what moved to a node. What has
ended is found by its last name. It reads the whole log.`,
		Args: cobra.RangeArgs(1, 2),
	}
}

func (v *history) flags(f *flags) {
	f.BoolVar(&v.all, "all", false, "what merely refers to it, too")
	f.args(slotNames)
}

// historyItem is one event of a history.
type historyItem struct {
	Seq     uint64        `json:"seq"`
	Time    time.Time     `json:"time"`
	ID      events.ID     `json:"id"`
	Type    string        `json:"type"`
	What    string        `json:"what"` // in one line, with the names of then
	Rule    events.Rule   `json:"rule"` // of what was decided; "" where nothing was
	Actor   string        `json:"actor"`
	Reason  string        `json:"reason"`
	Command events.ID     `json:"command"`
	Origin  events.Origin `json:"origin"`
}

// historyAnswer is a list as every list is.
type historyAnswer struct {
	Mesh  string        `json:"mesh"`
	Seq   uint64        `json:"seq"`
	Time  time.Time     `json:"time"`
	Of    string        `json:"of"`
	Name  string        `json:"name"`
	IDs   []events.ID   `json:"ids"`
	Items []historyItem `json:"items"`

	AsOf *service.Moment `json:"as_of,omitempty"`
}

func (v *history) run(ctx context.Context, c *cli, args []string) error {
	q := commands.ResolveTrace{Named: args[len(args)-1]}
	if len(args) == 2 {
		q.Noun = args[0]
	}
	var all historyAnswer
	err := c.with(ctx, func(s *session) error {
		t, err := read[commands.TraceView](ctx, limited{c, s}, q)
		if err != nil {
			return err
		}
		byName := strings.ToUpper(q.Named) != q.Named // ids are in upper case
		if t.Name != q.Named && byName && !c.ui.machine() {
			c.ui.note(q.Named + " is " + t.Name + " now: this is its history")
		}
		all = historyAnswer{Of: t.Noun, Name: t.Name, IDs: t.IDs, Items: []historyItem{}}
		return v.trace(ctx, c, s, t.Seq, &all)
	})
	if err != nil {
		return err
	}
	data, err := marshal(all)
	if err != nil {
		return err
	}
	a, err := listAnswer(data, "nothing happened to it", func(i historyItem) string { return i.ID.String() }, []column[historyItem]{
		plain("SEQ", func(i historyItem) string { return strconv.FormatUint(i.Seq, 10) }),
		painted("TIME", func(p *paper, i historyItem) string { return p.ago(i.Time) }),
		plain("ACTOR", func(i historyItem) string { return i.Actor }),
		plain("WHAT", func(i historyItem) string { return i.What }),
		plain("RULE", func(i historyItem) string { return string(i.Rule) }),
		plain("REASON", func(i historyItem) string { return i.Reason }),
		wide("TYPE", func(i historyItem) string { return i.Type }),
		wide("ORIGIN", func(i historyItem) string { return string(i.Origin) }),
		wide("COMMAND", func(i historyItem) string { return tail(i.Command.String()) }),
		idColumn(func(i historyItem) events.ID { return i.ID }),
	})
	if err != nil {
		return err
	}
	return c.ui.print(a)
}

// trace reads the log up to a sequence and keeps what belongs to the history.
func (v *history) trace(ctx context.Context, c *cli, s *session, to uint64, all *historyAnswer) error {
	log, err := s.readLog(ctx, c)
	if err != nil {
		return err
	}
	t := projections.NewTrace(all.IDs, v.all)
	b := &bar{ui: c.ui, what: "reading the log", total: int(to)}
	b.start()
	defer b.stop()
	for group, err := range log.Read(ctx, ledger.Position{}, to) {
		if err != nil {
			return err
		}
		found, err := t.Apply(group)
		if err != nil {
			return &ledger.DamageError{Seq: group[0].Seq, Why: "an event does not fit those before it", Err: err}
		}
		for _, i := range found {
			all.Items = append(all.Items, historyItemOf(t.State(), &group[i]))
		}
		if n := group[0].Seq; n%1000 < uint64(len(group)) {
			b.at(int(n), fmt.Sprintf("sequence %d of %d", n, to))
		}
	}
	st := t.State()
	all.Mesh, all.Seq, all.Time = st.Mesh.Name, st.Seq, st.Time
	if c.globals.asOf != "" {
		all.AsOf = &service.Moment{Seq: st.Seq, Time: st.Time}
	}
	return nil
}

func historyItemOf(st *projections.State, e *events.Event) historyItem {
	i := historyItem{Seq: e.Seq, Time: e.Time, ID: e.ID, Type: e.Type.String(), What: st.Describe(e), Actor: e.Actor, Reason: e.Reason,
		Command: e.Command, Origin: e.Origin}
	switch p := e.Data.(type) {
	case *events.BindingBound:
		i.Rule = p.Rule
	case *events.BindingRebound:
		i.Rule = p.Rule
	}
	return i
}

// momentAt finds where a moment is.
func (c *cli) momentAt(ctx context.Context, s *session, text string, fix commands.Fix) (service.Moment, error) {
	at, err := c.momentOf(text, fix)
	if err != nil {
		return service.Moment{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	return s.client.Moment(ctx, at)
}

package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
)

type logList struct {
	from, until                  string
	actor, kind, command, entity string
	limit                        int
	follow                       bool

	last uint64 // the sequence that --until means
}

func (*logList) help() *cobra.Command {
	return &cobra.Command{
		Use: "log",
		Example: `  bindery log
  bindery log --from 2h
  bindery log --from seq:120 --limit 20 -o jsonl
  bindery log --from 2026-11-01 --until 2026-11-30 --actor ann --type provider
  bindery log --entity provider/pg-alpha
  bindery log --follow`,
		Short: "List the events",
		Long: `Lists what happened, in order. --from is an instant in RFC 3339, a date (2026-11-30, in UTC), a time
ago (2h, 3d), seq:N, or an event's id. --follow goes on with what happens from now on, or from --from,
a line an event, until it is stopped: others must be able to write, so that it needs a bindery serve.

--entity takes NOUN/NAME (provider/pg-alpha) or an id, and lists what stands under it, whatever it was
called; history tells what made something what it is. --type takes a noun (provider) or a type
(provider.relocated).`,
	}
}

func (v *logList) flags(f *flags) {
	f.args()
	f.StringVar(&v.from, "from", "", "begin at `T`")
	f.IntVar(&v.limit, "limit", 0, "at most `N` events; 0: all")
	f.StringVar(&v.until, "until", "", "end at `T`")
	f.StringVar(&v.actor, "actor", "", "only what `NAME` did")
	f.StringVar(&v.kind, "type", "", "only events of a `TYPE`: provider, or provider.relocated")
	f.StringVar(&v.command, "command", "", "only what the command with this `ULID` did")
	f.StringVar(&v.entity, "entity", "", "only events that stand under `NOUN/NAME`, or an id")
	for _, name := range []string{"until", "actor", "command", "entity"} {
		f.values(name)
	}
	f.values("type", eventNouns()...)
	f.BoolVar(&v.follow, "follow", false, "go on with the events to come")
	f.cmd.MarkFlagsMutuallyExclusive("follow", "limit")
	f.cmd.MarkFlagsMutuallyExclusive("follow", "until")
	f.values("from")
	f.values("limit")
}

// logList is a list as every list is.
type logAnswer struct {
	Mesh  string            `json:"mesh"`
	Seq   uint64            `json:"seq"`
	Time  time.Time         `json:"time"`
	Items []service.LogItem `json:"items"`
	AsOf  *service.Moment   `json:"as_of,omitempty"`
}

func (v *logList) run(ctx context.Context, c *cli, _ []string) error {
	if v.limit < 0 {
		return usage("--limit is less than 0", "", do("log").With("--help"))
	}
	if c.globals.asOf != "" {
		if v.until != "" || v.follow {
			return usage("--as-of is given, and --until or --follow", "as of a moment the log ends there", again().But("--as-of"))
		}
		v.until = c.globals.asOf
	}
	q, err := logFrom(v.from, c.program.Clock(), do("log").With("--from", "2h"))
	if err != nil {
		return err
	}
	if err := v.checkFilter(); err != nil {
		return err
	}
	var all logAnswer
	err = c.with(ctx, func(s *session) error {
		narrow, err := v.filter(ctx, c, s)
		if err != nil {
			return err
		}
		q := narrow(q)
		if v.follow {
			return v.followed(ctx, c, s, q)
		}
		return v.read(ctx, c, s, q, narrow, &all)
	})
	if err != nil || v.follow {
		return err
	}
	data, err := marshal(all)
	if err != nil {
		return err
	}
	a, err := listAnswer(data, "no events", func(i service.LogItem) string { return i.ID.String() }, []column[service.LogItem]{
		plain("SEQ", func(i service.LogItem) string { return strconv.FormatUint(i.Seq, 10) }),
		painted("TIME", func(p *paper, i service.LogItem) string { return p.agoText(i.Time) }),
		plain("ACTOR", func(i service.LogItem) string { return i.Actor }),
		plain("WHAT", func(i service.LogItem) string { return i.What }),
		plain("REASON", func(i service.LogItem) string { return i.Reason }),
		wide("TYPE", func(i service.LogItem) string { return i.Type }),
		wide("ORIGIN", func(i service.LogItem) string { return string(i.Origin) }),
		wide("BATCH", func(i service.LogItem) string { return i.Batch }),
		wide("COMMAND", func(i service.LogItem) string { return tail(i.Command.String()) }),
		idColumn(func(i service.LogItem) events.ID { return i.ID }),
	})
	if err != nil {
		return err
	}
	return c.ui.print(a)
}

// read reads page after page until the end, or the limit.
func (v *logList) read(ctx context.Context, c *cli, s *session, q service.LogQuery, narrow narrowing, all *logAnswer) error {
	all.Items = []service.LogItem{}
	left := v.limit
	if left == 0 {
		left = math.MaxInt
	}
	if v.last == 0 { // before there was anything
		page, err := v.page(ctx, c, s, service.LogQuery{First: 1, Limit: 1})
		if all.Mesh, all.Seq = page.Mesh, page.Seq; err != nil {
			return err
		}
		return v.head(ctx, c, s, all)
	}
	for {
		q.Limit = service.MaxLogPage
		if !v.filtered() {
			q.Limit = min(left, q.Limit)
		}
		page, err := v.page(ctx, c, s, q)
		if err != nil {
			return err
		}
		all.Mesh, all.Seq = page.Mesh, page.Seq
		items := page.Items[:min(left, len(page.Items))]
		all.Items = append(all.Items, items...)
		left -= len(items)
		if page.Next == 0 || left <= 0 {
			break
		}
		q = narrow(service.LogQuery{First: page.Next})
	}
	if c.globals.asOf == "" {
		return v.head(ctx, c, s, all)
	}
	all.Seq = v.last
	err := v.head(ctx, c, s, all)
	all.AsOf = &service.Moment{Seq: all.Seq, Time: all.Time}
	c.sayAsOf(*all.AsOf)
	return err
}

func (*logList) page(ctx context.Context, c *cli, s *session, q service.LogQuery) (service.LogPage, error) {
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	return s.client.Log(ctx, q)
}

// head finds the time of the ledger's last event, which a list bears.
func (v *logList) head(ctx context.Context, c *cli, s *session, all *logAnswer) error {
	last := all.Items
	if n := len(last); n == 0 || last[n-1].Seq != all.Seq {
		page, err := v.page(ctx, c, s, service.LogQuery{First: all.Seq, Limit: 1})
		if err != nil {
			return err
		}
		last = page.Items
	}
	if n := len(last); n > 0 {
		all.Time, _ = time.Parse(time.RFC3339, last[n-1].Time) // the service wrote it
	}
	return nil
}

func (p *paper) agoText(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return p.ago(t)
}

// logFrom reads T: RFC 3339, a date, a time ago, seq:N, or an event's id. fix is
// what to type where it is none of these.
func logFrom(text string, now time.Time, fix commands.Fix) (service.LogQuery, error) {
	bad := func(why string) (service.LogQuery, error) {
		return service.LogQuery{}, usage(fmt.Sprintf("%q is no point in time", clip(text)), why, fix)
	}
	if text == "" {
		return service.LogQuery{First: 1}, nil
	}
	if n, ok := strings.CutPrefix(text, "seq:"); ok {
		seq, err := strconv.ParseUint(n, 10, 64)
		if err != nil {
			return bad("seq: is followed by a number")
		}
		return service.LogQuery{First: seq}, nil
	}
	if id, err := events.ParseID(text); err == nil {
		return service.LogQuery{Event: id.String()}, nil
	}
	t, ok := instant(text, now)
	if !ok {
		return bad("it is an instant in RFC 3339, a date like 2026-11-30, a time ago like 2h, seq:N, or an event's id")
	}
	return service.LogQuery{Time: t.UTC().Format(time.RFC3339Nano)}, nil
}

// instant reads what is an instant, a date in UTC, or a time before now.
func instant(text string, now time.Time) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	d, err := commands.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, false
	}
	return now.Add(-d), true
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"bindery/commands"
	"bindery/commands/service"
)

// followed prints events as they come, until ctx ends.
func (v *logList) followed(ctx context.Context, c *cli, s *session, q service.LogQuery) error {
	if !s.served() {
		return refusal(commands.NeedsServe, "nothing would ever come",
			"nobody else can write while this process holds the store: no bindery serve runs on it", do("log"))
	}
	first, err := v.firstToFollow(ctx, c, s, q)
	if err != nil {
		return err
	}
	p, err := c.patientWith(s)
	if err != nil {
		return err
	}
	defer p.close()
	for {
		err := p.now.client.FollowOnly(ctx, first, q, func(page service.LogPage) error {
			for _, i := range page.Items {
				if err := v.line(c, i); err != nil {
					return err
				}
				first = i.Seq + 1
			}
			return nil
		})
		if ctx.Err() == nil && !isUnreachable(err) {
			return err
		}
		if p.another(ctx) {
			continue
		}
		if p.err != nil {
			return p.err
		}
		return refusal(commands.Interrupted, "stopped following", "nothing else is stopped", do("log").With("--follow").With("--from", "seq:"+fmt.Sprint(first)))
	}
}

// firstToFollow is the sequence to begin at: where --from says, else what comes
// next.
func (v *logList) firstToFollow(ctx context.Context, c *cli, s *session, q service.LogQuery) (uint64, error) {
	q = service.LogQuery{First: q.First, Time: q.Time, Event: q.Event, Limit: 1}
	page, err := v.page(ctx, c, s, q)
	switch {
	case err != nil:
		return 0, err
	case v.from == "":
		return page.Seq + 1, nil
	case len(page.Items) > 0:
		return page.Items[0].Seq, nil
	}
	return max(page.Seq+1, q.First), nil
}

// line prints one event: a line for people, a JSON object a line for machines.
func (v *logList) line(c *cli, i service.LogItem) error {
	if c.ui.machine() {
		data, err := json.Marshal(i)
		if err == nil {
			_, err = fmt.Fprintln(c.streams.Out, string(shownJSON(data)))
		}
		return err
	}
	text := strconv.FormatUint(i.Seq, 10) + "  " + i.Time + "  " + i.Actor + "  " + i.What
	if i.Reason != "" {
		text += "  (" + i.Reason + ")"
	}
	_, err := fmt.Fprintln(c.streams.Out, shownLine(text))
	return err
}

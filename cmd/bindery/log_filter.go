package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
)

// narrowing puts what narrows a log into a query.
type narrowing func(service.LogQuery) service.LogQuery

// filtered reports whether anything narrows it.
func (v *logList) filtered() bool {
	return v.actor != "" || v.kind != "" || v.command != "" || v.entity != ""
}

// checkFilter refuses what no event can have.
func (v *logList) checkFilter() error {
	if v.command != "" {
		if _, err := events.ParseID(v.command); err != nil {
			return usage(fmt.Sprintf("%q is no id of a command", clip(v.command)), "it is a whole ULID: 26 characters, upper case", do("log").With("-o", "wide"))
		}
	}
	if v.kind == "" {
		return nil
	}
	noun, _, _ := strings.Cut(v.kind, ".")
	all := eventTypes()
	if slices.Contains(all, v.kind) || noun == v.kind && slices.Contains(eventNouns(), noun) {
		return nil
	}
	r := usage(fmt.Sprintf("%q is no type of an event", clip(v.kind)), "it is a noun, or a noun and what happened to it: provider.relocated", do("log").With("--type", "provider"))
	for _, n := range commands.Nearest(v.kind, append(all, eventNouns()...), 3) {
		r.Candidates = append(r.Candidates, commands.Candidate{Name: n, Why: "a similar type"})
	}
	return r
}

// filter finds what narrows the log: whom a name means now, and where a moment is.
func (v *logList) filter(ctx context.Context, c *cli, s *session) (narrowing, error) {
	entity := v.entity
	if noun, name, found := strings.Cut(v.entity, "/"); found {
		t, err := v.whom(ctx, c, s, noun, name)
		if err != nil {
			return nil, err
		}
		entity = t.IDs[0].String()
	} else if v.entity != "" {
		if _, err := events.ParseID(v.entity); err != nil {
			return nil, usage(fmt.Sprintf("%q is neither NOUN/NAME nor an id", clip(v.entity)), "", do("log").With("--entity", "provider/pg-alpha"))
		}
	}
	if err := v.findEnd(ctx, c, s); err != nil {
		return nil, err
	}
	return func(q service.LogQuery) service.LogQuery {
		q.Entity, q.Actor, q.Command, q.Type = entity, v.actor, v.command, v.kind
		if v.last != math.MaxUint64 {
			q.Until = v.last
		}
		return q
	}, nil
}

// findEnd finds the sequence at which the list ends. Before the first event there is
// nothing to be listed, which is an answer; a moment of the past is refused then.
func (v *logList) findEnd(ctx context.Context, c *cli, s *session) error {
	fix := do("log").With("--until", "2h")
	if v.last = math.MaxUint64; v.until == "" {
		return nil
	}
	at, err := c.momentOf(v.until, fix)
	if err != nil {
		return err
	}
	if at.Seq > 0 && c.globals.asOf == "" {
		v.last = at.Seq // it may lie beyond the end
		return nil
	}
	m, err := c.momentAt(ctx, s, v.until, fix)
	var r *commands.Refusal
	if errors.As(err, &r) && r.Code == commands.EventNotFound && at.Time != "" && c.globals.asOf == "" {
		v.last = 0
		return nil
	}
	v.last = m.Seq
	return err
}

func (*logList) whom(ctx context.Context, c *cli, s *session, noun, name string) (commands.TraceView, error) {
	if !slices.Contains(commands.TraceNouns(), noun) {
		noun, name = "binding", noun+"/"+name
	}
	return read[commands.TraceView](ctx, bounded{s.client, c.globals.timeout}, commands.ResolveTrace{Noun: noun, Named: name})
}

// eventTypes are the types of events, as people write them.
func eventTypes() []string {
	var out []string
	for _, t := range events.Known.Types() {
		out = append(out, t.Short())
	}
	return out
}

// eventNouns are what events are about.
func eventNouns() []string {
	var out []string
	for _, t := range events.Known.Types() {
		if e := string(t.Entity); !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

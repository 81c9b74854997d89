package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/projections"
)

type rotationStart struct {
	write
	provider, binding, provision, node string
	deadline, issuedBefore             string
	urgent, supersede                  bool
}

func (*rotationStart) help() *cobra.Command {
	return &cobra.Command{
		Use: "start (--provider PROVIDER | --binding ASSIGNMENT/SLOT | --provision PROVISION --node NODE)",
		Example: `  bindery rotation start --provider pg-alpha --deadline 72h --dry-run
  bindery rotation start --binding wiki/db --urgent --reason "its password was in a log"
  bindery rotation start --provision postgres-database --node alpha --issued-before 90d`,
		Short: "Begin to replace credentials",
		Long: `Asks for a new credential of everybody who can log in to a provider now, of one slot, or of everybody
at the providers of a provision on a node. Each is issued, taken up, and the old one revoked, by the two
sides; nobody is cut off. --dry-run shows who it would be about. With --issued-before only older ones are
replaced: an instant in RFC 3339, a date, a time ago (2h, 90d), seq:N, or an event's id.`,
	}
}

func (v *rotationStart) flags(f *flags) {
	v.bind(f)
	f.args()
	f.StringVar(&v.provider, "provider", "", "everybody who can log in to this `provider`")
	f.StringVar(&v.binding, "binding", "", "only the consumer of this `ASSIGNMENT/SLOT`")
	f.StringVar(&v.provision, "provision", "", "the providers of this `provision` on --node")
	f.StringVar(&v.node, "node", "", "the `node` of these providers")
	f.StringVar(&v.deadline, "deadline", "", "how `long` it may take (72h, 3d) until it is overdue")
	f.StringVar(&v.issuedBefore, "issued-before", "", "only credentials issued before `T`")
	f.BoolVar(&v.urgent, "urgent", false, "old ones may be revoked as soon as the new ones are issued")
	f.BoolVar(&v.supersede, "supersede", false, "abort the rotation that is open there")
	f.names("provider", providerNames)
	f.names("binding", slotNames)
	f.names("provision", provisionNames)
	f.names("node", nodeNames)
	f.values("deadline")
	f.values("issued-before")
	f.cmd.MarkFlagsOneRequired("provider", "binding", "provision")
	f.cmd.MarkFlagsMutuallyExclusive("provider", "binding", "provision")
	f.cmd.MarkFlagsRequiredTogether("provision", "node")
}

// rotationStarted is the answer to a start: whom it is about beside what was
// written. It is left out where the answer is the first one again.
type rotationStarted struct {
	commands.Result
	Rotations []preview `json:"rotations,omitempty"`
}

type preview = projections.Preview

func (v *rotationStart) run(ctx context.Context, c *cli, _ []string) error {
	start := commands.StartRotation{Deadline: v.deadline, Urgent: v.urgent, Supersede: v.supersede,
		RotationTarget: commands.RotationTarget{Provider: v.provider, Binding: v.binding, Provision: v.provision, Node: v.node}}
	var done rotationStarted
	err := c.with(ctx, func(s *session) error {
		ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
		defer cancel()
		var err error
		req, err := c.request(&v.write, start)
		if err != nil {
			return err
		}
		if start.IssuedBefore, err = v.before(ctx, s, req.ID); err != nil {
			return err
		}
		req.Command = start
		done, err = v.start(ctx, s, req, start.RotationTarget)
		return err
	})
	if err != nil {
		return err
	}
	return v.print(c, done)
}

// start asks whom the rotation would be about, and begins it. Why it cannot be
// about anybody the command itself says.
func (v *rotationStart) start(ctx context.Context, s *session, req commands.Request, target commands.RotationTarget) (done rotationStarted, err error) {
	var about struct{ Items []preview }
	data, unknown := s.client.Ask(ctx, commands.PreviewRotation{RotationTarget: target, Brief: !req.DryRun})
	if unknown == nil {
		unknown = json.Unmarshal(data, &about)
	}
	if done.Result, err = s.client.Do(ctx, req); err != nil {
		return done, err
	}
	if unknown == nil && !done.Repeated {
		done.Rotations = about.Items
	}
	return done, nil
}

// before is the sequence that --issued-before means: that of the first event at
// or after it, and the next one where there is none. 0: it was not given.
func (v *rotationStart) before(ctx context.Context, s *session, id events.ID) (uint64, error) {
	if v.issuedBefore == "" {
		return 0, nil
	}
	fix := again().With("--issued-before", "90d")
	// The same command id means the same time ago, whenever it is repeated.
	now := time.UnixMilli(id.Milli()).UTC()
	q, err := logFrom(v.issuedBefore, now, fix)
	if err != nil {
		return 0, err
	}
	if t, err := time.Parse(time.RFC3339, q.Time); err == nil && t.After(now) {
		return 0, nil // whatever is issued was issued before it
	}
	for q.Limit = 1; ; q = (service.LogQuery{First: q.First, Limit: 1}) {
		page, err := s.client.Log(ctx, q)
		if err != nil {
			return 0, err
		}
		if len(page.Items) > 0 {
			return page.Items[0].Seq, nil
		}
		if page.Next == 0 {
			return page.Seq + 1, nil
		}
		q.First = page.Next // what stands there is no event
	}
}

func (v *rotationStart) print(c *cli, done rotationStarted) error {
	data, err := marshal(done)
	if err != nil {
		return err
	}
	a := answer{json: data, items: []json.RawMessage{data}, human: func(p *paper) { startPage(p, done) }}
	for _, e := range done.Events {
		if strings.HasPrefix(e.Type, rotationStartedType) {
			a.names = append(a.names, entityOf(e.Subject))
		}
	}
	if err := c.ui.print(a); err != nil {
		return err
	}
	c.resultNotes(done.Result)
	return nil
}

// What the types of the events of a rotation begin with.
const (
	rotationStartedType = "bindery.rotation.started."
	rotationAbortedType = "bindery.rotation.aborted."
)

func startPage(p *paper, done rotationStarted) {
	switch {
	case p.ui.quiet:
	case done.DryRun:
		startPreview(p, done)
	default:
		resultLines(p, "rotation", done.Result)
		for _, r := range done.Rotations {
			p.line(aboutWhom(r))
		}
	}
}

// startPreview shows whom a rotation would be about, and what it would end.
func startPreview(p *paper, done rotationStarted) {
	for i, e := range done.Events {
		if strings.HasPrefix(e.Type, rotationAbortedType) && i < len(done.Lines) {
			p.line(done.Lines[i])
		}
	}
	for i, r := range done.Rotations {
		if i > 0 {
			p.line("")
		}
		p.line(aboutWhom(r))
		itemTable(p, r.Holders, []column[credentialView]{
			plain("SLOT", holderSlot),
			plain("NODE", func(v credentialView) string { return v.Node }),
			plain("GENERATION", func(v credentialView) string { return strconv.FormatUint(v.Generation, 10) }),
			painted("STATE", credentialState),
		})
	}
	p.line(p.paint(yellow, "dry run: nothing is written"))
}

// aboutWhom is "pg-alpha: 12 holders on alpha (8), beta (4)".
func aboutWhom(r preview) string {
	name := r.Provider
	switch {
	case r.Slot != "" && r.Provider != "":
		name = r.Slot + " at " + r.Provider
	case r.Slot != "":
		name = "the instance of " + r.Slot
	}
	if r.Total == 0 {
		return name + ": no credential to replace"
	}
	nodes := make([]string, len(r.Nodes))
	for i, n := range r.Nodes {
		nodes[i] = fmt.Sprintf("%s (%d)", n.Node, n.Holders)
	}
	return fmt.Sprintf("%s: %s on %s", name, plural(r.Total, "holder", "holders"), strings.Join(nodes, ", "))
}

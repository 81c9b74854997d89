package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/projections"
)

// waitLong ends the help of every wait.
const waitLong = `It looks every half second, for ever unless --timeout is given: then it ends with exit code 8 and
lists who is missing. Ctrl-C stops only the waiting.`

// waiting is a verb that waits for something.
type waiting struct{ limited func() bool }

func (v *waiting) bind(f *flags, of lister) {
	f.args(of)
	v.limited = func() bool { return f.Changed("timeout") }
}

// run waits for w and prints what it is then: the answer to q, in a line for
// people.
func (v *waiting) run(ctx context.Context, c *cli, w waited, q func() commands.Query, show func(data json.RawMessage) (answer, error)) error {
	var data json.RawMessage
	err := c.with(ctx, func(s *session) error {
		p, err := c.patientWith(s)
		if err != nil {
			return err
		}
		defer p.close()
		a := bounded{p, c.globals.timeout}
		if err = c.wait(ctx, a, s.served(), w, v.limited()); err == nil {
			if data, err = a.Ask(ctx, q()); err == nil {
				data, err = c.asText(data)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	a, err := show(data)
	if err != nil {
		return err
	}
	return c.ui.print(a)
}

// unlessQuiet is a page of a line that says what was waited for.
func unlessQuiet[T any](text func(p *paper, v T) string) func(p *paper, v T) {
	return func(p *paper, v T) {
		if !p.ui.quiet {
			p.line(text(p, v))
		}
	}
}

type rotationWait struct{ waiting }

func (*rotationWait) help() *cobra.Command {
	return &cobra.Command{
		Use: "wait ROTATION",
		Example: `  bindery rotation wait pg-alpha
  bindery rotation wait pg-alpha --timeout 30m`,
		Short: "Wait until a rotation is complete",
		Long:  "Waits until every credential of a rotation is replaced. One that is aborted is an error at once.\n" + waitLong,
	}
}

func (v *rotationWait) flags(f *flags) { v.bind(f, rotationNames); f.openRotations() }

func (v *rotationWait) run(ctx context.Context, c *cli, args []string) error {
	w := &rotationWaited{named: args[0]}
	return v.waiting.run(ctx, c, w, func() commands.Query { return commands.ShowRotation{Rotation: w.name()} },
		func(data json.RawMessage) (answer, error) {
			return showAnswer(data, rotationID, unlessQuiet(func(p *paper, r rotationView) string {
				return fmt.Sprintf("%s %s: %d of %d done", rotationOf(r), p.state(r.State), r.Done, r.Total)
			}))
		})
}

// rotationWaited is a rotation that shall be complete. It goes by id once that
// is known: the provider may be rotated again meanwhile.
type rotationWaited struct{ named, id string }

func (w *rotationWaited) name() string {
	if w.id != "" {
		return w.id
	}
	return w.named
}

func (w *rotationWaited) verb() commands.Fix  { return do("rotation wait", w.name()) }
func (w *rotationWaited) shows() commands.Fix { return do("rotation show", w.name()) }

func (w *rotationWaited) look(ctx context.Context, a asker) (standing, error) {
	r, err := read[rotationView](ctx, a, commands.ShowRotation{Rotation: w.name(), Brief: true})
	if err != nil {
		return standing{}, err
	}
	w.id = rotationID(r)
	if r.State == string(projections.Aborted) {
		why := "at " + atSeq(r.ClosedSeq)
		if r.ClosedReason != "" {
			why += ": " + r.ClosedReason
		}
		return standing{}, refusal(commands.RotationClosed, "the "+rotationOf(r)+" is aborted", why, w.shows())
	}
	return standing{what: rotationOf(r), done: r.Done, total: r.Total, over: r.State == string(projections.Completed)}, nil
}

func (w *rotationWaited) missing(ctx context.Context, a asker) ([]commands.Candidate, error) {
	r, err := read[rotationView](ctx, a, commands.ShowRotation{Rotation: w.name()})
	if err != nil {
		return nil, err
	}
	var out []commands.Candidate
	for _, m := range left(r) {
		why := string(m.Step) + ": " + memberTurn(m)
		if m.Attempts > 0 {
			why += "; " + trouble(m.Error, m.Attempts)
		}
		out = append(out, commands.Candidate{Name: memberSlot(m), Node: m.Node, Why: why})
	}
	return out, nil
}

type providerWait struct{ waiting }

func (*providerWait) help() *cobra.Command {
	return &cobra.Command{
		Use:     "wait PROVIDER",
		Example: "  bindery provider wait pg-alpha --timeout 10m",
		Short:   "Wait until every consumer has applied the last change",
		Long: `Waits until every consumer that is bound to a provider, or runs with it, has said that it runs with the
last change.
` + waitLong,
	}
}

func (v *providerWait) flags(f *flags) { v.bind(f, providerNames) }

func (v *providerWait) run(ctx context.Context, c *cli, args []string) error {
	w := &providerWaited{named: args[0]}
	return v.waiting.run(ctx, c, w, func() commands.Query { return commands.ShowProvider{Provider: w.view.ID.String()} },
		func(data json.RawMessage) (answer, error) {
			return showAnswer(data, func(v providerView) string { return v.Name }, unlessQuiet(func(_ *paper, v providerView) string {
				return v.Name + ": every consumer runs with the last change"
			}))
		})
}

// providerWaited is a provider whose consumers shall have applied the last
// change. It goes by id once that is known.
type providerWaited struct {
	named   string
	view    providerView
	waiting []commands.Candidate
}

func (w *providerWaited) verb() commands.Fix { return do("provider wait", w.named) }

// shows lists the holders: whom the provider no longer serves and who still runs
// with it is not among its bindings. Where nobody needs a credential, they are.
func (w *providerWaited) shows() commands.Fix {
	if w.view.Holders == 0 {
		return do("binding list").With("--provider", w.named)
	}
	return do("provider holders", w.named)
}

func (w *providerWaited) look(ctx context.Context, a asker) (standing, error) {
	name := w.named
	if !w.view.ID.IsZero() {
		name = w.view.ID.String()
	}
	var err error
	if w.view, err = read[providerView](ctx, a, commands.ShowProvider{Provider: name}); err != nil {
		return standing{}, err
	}
	all, err := w.consumers(ctx, a)
	if err != nil {
		return standing{}, err
	}
	w.waiting = nil
	for _, v := range all {
		if err := hopeless(v); err != nil {
			return standing{}, err
		}
		if waitsFor(v) != "" {
			w.waiting = append(w.waiting, waitingConsumer(v))
		}
	}
	left, err := w.leaving(ctx, a, all)
	if err != nil {
		return standing{}, err
	}
	all = append(all, make([]bindingView, len(left))...)
	w.waiting = append(w.waiting, left...)
	done := len(all) - len(w.waiting)
	return standing{what: "consumers of " + w.view.Name, done: done, total: len(all), over: len(w.waiting) == 0}, nil
}

// consumers are those bound to the provider, and those that run with it still
// and are outdated.
func (w *providerWaited) consumers(ctx context.Context, a asker) ([]bindingView, error) {
	bound, err := read[projections.List[bindingView]](ctx, a, commands.ListBindings{Provider: w.view.ID.String()})
	if err != nil {
		return nil, err
	}
	outdated, err := read[projections.List[bindingView]](ctx, a, commands.ListBindings{Flag: string(projections.FlagOutdated)})
	if err != nil {
		return nil, err
	}
	is := func(v bindingView) bool {
		return v.Use.ProviderID != nil && *v.Use.ProviderID == w.view.ID && (v.ProviderID == nil || *v.ProviderID != w.view.ID)
	}
	out := bound.Items
	for _, v := range outdated.Items {
		if is(v) {
			out = append(out, v)
		}
	}
	return out, nil
}

// leaving are the consumers that shall run with another provider by now, and have
// not said that they do.
func (w *providerWaited) leaving(ctx context.Context, a asker, known []bindingView) ([]commands.Candidate, error) {
	holders, err := read[projections.List[credentialView]](ctx, a, commands.ListHolders{Provider: w.view.ID.String()})
	if err != nil {
		return nil, err
	}
	var out []commands.Candidate
	for _, h := range holders.Items {
		is := func(v bindingView) bool { return v.ID != nil && *v.ID == h.Binding }
		if h.InUse || h.State == projections.ToRevoke.String() || slices.ContainsFunc(known, is) {
			continue
		}
		out = append(out, commands.Candidate{Name: holderSlot(h), Node: h.Node,
			Why: fmt.Sprintf("it has not said that it left: generation %d is %s", h.Generation, h.State)})
	}
	return out, nil
}

func (w *providerWaited) missing(context.Context, asker) ([]commands.Candidate, error) {
	return w.waiting, nil
}

func waitingConsumer(v bindingView) commands.Candidate {
	why := waitsFor(v)
	if v.Attempts > 0 {
		why += "; " + trouble(v.Error, v.Attempts)
	}
	return commands.Candidate{Name: slotOf(v), Node: v.Node, Why: why}
}

// hopeless refuses to wait for a consumer whom nobody is to give a credential to:
// what it is bound to is retired, and what was asked for there is withdrawn.
func hopeless(v bindingView) error {
	has := func(f projections.Flag) bool { return slices.Contains(v.Flags, f) }
	if !has(projections.FlagStranded) || v.Generation > v.Use.Generation {
		return nil
	}
	if inUse(v.Use) != "" && !has(projections.FlagSwitching) && !has(projections.FlagCutOff) {
		return nil
	}
	return refusal(commands.ProviderRetired, "no credential will come for "+slotOf(v), "it is bound to "+v.Provider+", which is retired",
		do("binding rebind", slotOf(v)).With("--provider", "OTHER"))
}

// waitsFor says what is still to come until a consumer runs with what is
// decided; "" for nothing.
func waitsFor(v bindingView) string {
	has := func(f projections.Flag) bool { return slices.Contains(v.Flags, f) }
	switch {
	case has(projections.FlagSwitching), inUse(v.Use) == "" && v.Rule != "":
		return fmt.Sprintf("generation %d is not issued yet", v.Generation)
	case has(projections.FlagCutOff):
		return fmt.Sprintf("its credential is over, and generation %d is not issued yet", v.Generation)
	case has(projections.FlagOutdated):
		return "it has not said that it runs with the last change, " + atSeq(v.ChangedSeq)
	}
	return ""
}

type bindingWait struct{ waiting }

func (*bindingWait) help() *cobra.Command {
	return &cobra.Command{
		Use:     "wait ASSIGNMENT/SLOT",
		Example: "  bindery binding wait wiki/db --timeout 5m",
		Short:   "Wait until a consumer has applied the last change",
		Long:    "Waits until the consumer of a slot has said that it runs with what is decided.\n" + waitLong,
	}
}

func (v *bindingWait) flags(f *flags) { v.bind(f, slotNames) }

func (v *bindingWait) run(ctx context.Context, c *cli, args []string) error {
	return v.waiting.run(ctx, c, &bindingWaited{slot: args[0]}, func() commands.Query { return commands.ShowBinding{Slot: args[0]} },
		func(data json.RawMessage) (answer, error) {
			return showAnswer(data, slotOf, unlessQuiet(func(_ *paper, v bindingView) string {
				return fmt.Sprintf("%s runs with %s as of %s", slotOf(v), inUse(v.Use), atSeq(v.AppliedSeq))
			}))
		})
}

// bindingWaited is a slot whose consumer shall have applied the last change.
type bindingWaited struct {
	slot string
	last bindingView
}

func (w *bindingWaited) verb() commands.Fix  { return do("binding wait", w.slot) }
func (w *bindingWaited) shows() commands.Fix { return do("binding show", w.slot) }

func (w *bindingWaited) look(ctx context.Context, a asker) (standing, error) {
	v, err := read[bindingView](ctx, a, commands.ShowBinding{Slot: w.slot})
	if err != nil {
		return standing{}, err
	}
	if slices.Contains(v.Flags, projections.FlagPending) {
		assignment, _, _ := strings.Cut(slotOf(v), "/")
		return standing{}, refusal(commands.BindingNotFound, "nothing serves "+slotOf(v)+" yet", "there is nothing to run with",
			do("assignment resolve", assignment))
	}
	if err := hopeless(v); err != nil {
		return standing{}, err
	}
	w.last = v
	now := standing{what: "consumer of " + slotOf(v), total: 1, over: waitsFor(v) == ""}
	if now.over {
		now.done = 1
	}
	return now, nil
}

func (w *bindingWaited) missing(context.Context, asker) ([]commands.Candidate, error) {
	return []commands.Candidate{waitingConsumer(w.last)}, nil
}

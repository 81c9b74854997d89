package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"bindery/commands"
	"bindery/events"
)

// series is a command that may take several batches, and what they came to.
type series struct {
	result  commands.Result // of all together
	batches int
	moved   int // bindings, by batches that are not the first answer again

	objects map[string]int // an object's place in result.Objects
}

// add merges the answer of one batch.
func (s *series) add(r commands.Result) {
	if s.batches == 0 {
		s.result, s.objects = r, map[string]int{}
		objects := r.Objects
		s.result.Objects = nil
		s.addObjects(objects)
	} else {
		t := &s.result
		t.Seq, t.Time, t.More = r.Seq, r.Time, r.More
		t.Changed, t.Repeated = t.Changed || r.Changed, t.Repeated && r.Repeated
		t.Events, t.Lines = append(t.Events, r.Events...), append(t.Lines, r.Lines...)
		t.Bindings, t.Warnings = append(t.Bindings, r.Bindings...), append(t.Warnings, r.Warnings...)
		s.addObjects(r.Objects)
	}
	if !r.Repeated {
		s.moved += len(r.Bindings)
	}
	s.batches++
}

// addObjects keeps the first result of an object that is not "unchanged": a
// later batch finds it as an earlier one made it.
func (s *series) addObjects(objects []commands.Object) {
	for _, o := range objects {
		i, known := s.objects[o.Object]
		switch {
		case !known:
			s.objects[o.Object] = len(s.result.Objects)
			s.result.Objects = append(s.result.Objects, o)
		case s.result.Objects[i].Result == commands.Unchanged:
			s.result.Objects[i] = o
		}
	}
}

// series runs a command to its end, batch by batch, and shows how far it is.
// Each batch has the whole of --timeout.
func (c *cli) series(ctx context.Context, s *session, req commands.Request, next func(k int) commands.Command, bar *bar) (series, error) {
	var out series
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(c.globals.timeout, cancel)
	defer timer.Stop()
	bar.start()
	defer bar.stop()
	err := s.client.Series(ctx, req, next, func(_ int, r commands.Result) {
		timer.Reset(c.globals.timeout)
		out.add(r)
		bar.set(out)
	})
	if err != nil {
		return out, stopped(err, out, req.ID)
	}
	return out, nil
}

// stopped says how a series that did not reach its end goes on: under the id of
// its first command.
func stopped(err error, so series, id events.ID) error {
	var r *commands.Refusal
	if !errors.As(err, &r) {
		return err
	}
	out := *r
	if r.Code == commands.OutcomeUnknown {
		out.Message, out.Why = "the command did not come to its end", "whether its last batch is written is not known"
		out.Fix = again().With("--command-id", id.String())
	}
	if so.batches > 0 {
		out.Why += fmt.Sprintf("; %s written before, up to sequence %d, and stay", plural(so.batches, "batch was", "batches were"), so.result.Seq)
	}
	return &out
}

// bar shows how far long work is: a bar on a terminal, a line every ten seconds
// elsewhere. It writes to stderr only.
type bar struct {
	ui    *ui
	what  string
	total int                // 0: not known
	done  func(s series) int // of total

	writer  progress.Writer
	tracker *progress.Tracker
	said    time.Time
}

// every is how often a line is written where there is no terminal.
const every = 10 * time.Second

func (b *bar) start() {
	b.said = time.Now()
	if b.ui.quiet || b.ui.machine() || !b.ui.errTerm {
		return
	}
	b.writer = progress.NewWriter()
	b.writer.SetOutputWriter(b.ui.err)
	b.writer.SetUpdateFrequency(100 * time.Millisecond)
	b.writer.Style().Visibility.Speed = false
	b.tracker = &progress.Tracker{Message: b.what, Total: int64(b.total), RemoveOnCompletion: true}
	b.writer.AppendTracker(b.tracker)
	go b.writer.Render()
}

func (b *bar) set(s series) {
	b.at(b.done(s), fmt.Sprintf("%s, sequence %d", plural(s.batches, "batch", "batches"), s.result.Seq))
}

// at shows how much is done; a line says more after it.
func (b *bar) at(done int, more string) {
	if b.tracker != nil {
		b.tracker.UpdateTotal(int64(b.total))
		b.tracker.SetValue(int64(done))
		return
	}
	if time.Since(b.said) < every {
		return
	}
	b.said = time.Now()
	of := ""
	if b.total > 0 {
		of = fmt.Sprintf(" of %d", b.total)
	}
	b.ui.note(fmt.Sprintf("%s: %d%s, %s", b.what, done, of, more))
}

func (b *bar) stop() {
	if b.writer == nil {
		return
	}
	b.tracker.MarkAsDone()
	b.writer.Stop()
	for b.writer.IsRenderInProgress() {
		time.Sleep(time.Millisecond)
	}
}

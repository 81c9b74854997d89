package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/ledger"
	"bindery/projections"
)

type auditRecover struct {
	write
	acceptLoss bool
}

func (*auditRecover) help() *cobra.Command {
	return &cobra.Command{
		Use: "recover",
		Example: `  bindery audit recover --accept-loss --reason 'the disk of alpha died, no backup has more'
  bindery audit recover --reason 'a test wrote into the stream, its key is revoked'`,
		Short: "Go on with a ledger that has lost events, or that others wrote into",
		Long: `Goes on from the last event that is sound, without what is lost. It records what was proved to be there
(mesh.recovered), keeps the anchor that proved it beside the new one, and where files are damaged keeps
them all in the store, below lost: nothing is thrown away. Restore a backup instead where one has more.
What is lost was acknowledged: its sequences are given out again, so agents and whoever keeps a cursor
are stopped with ledger_restored until they are told to begin anew. Nobody may serve the store meanwhile.

Where nothing is lost, but the stream has messages that the ledger's writer has not written, it records
that somebody has looked at them: bindery status is silent about them from then on. They are skipped
before and after that. With --server it takes the key of a writer, and cuts nothing.`,
	}
}

func (v *auditRecover) flags(f *flags) {
	f.args()
	v.bind(f)
	f.BoolVar(&v.acceptLoss, "accept-loss", false, "yes, go on without what is lost")
}

func (v *auditRecover) run(ctx context.Context, c *cli, _ []string) error {
	if n, ok, err := c.remote(); ok || err != nil {
		if err != nil {
			return err
		}
		return v.onServer(ctx, c, n)
	}
	dir, err := c.storeDir()
	if err != nil {
		return err
	}
	if !isStore(dir) {
		return c.noStore(dir)
	}
	d, foreign, err := c.examineDamage(ctx, dir)
	if err != nil {
		return err
	}
	if d == nil {
		return v.acknowledge(ctx, c, dir, foreign)
	}
	if !v.acceptLoss {
		r := d.refusal()
		r.Message, r.Fix = "it is not said that the loss is accepted", again().With("--accept-loss")
		return r
	}
	found := commands.RecoverMesh{AnchorSeq: d.anchor.Seq, AnchorChain: d.anchor.Chain.String(), FoundSeq: d.end.Seq}
	req, err := c.request(&v.write, found)
	if err != nil {
		return err
	}
	if req.Reason == "" {
		return noReason("going on without what is lost")
	}
	if !c.ui.machine() {
		c.ui.note(d.loss())
	}
	if req.DryRun {
		return c.imagineRecovery(d, req)
	}
	r, kept, err := c.recover(ctx, dir, d, req)
	if err != nil {
		return err
	}
	if err := c.printResult("mesh "+d.mesh, r); err != nil {
		return err
	}
	for _, path := range kept {
		c.ui.note("kept: " + path)
	}
	return nil
}

func noReason(what string) error {
	return refusal(commands.ReasonRequired, what+" needs a reason", "it is kept with the event, for whoever asks later", again().With("--reason", "TEXT"))
}

// acknowledge records that somebody has looked at the messages that are no part of the
// ledger.
func (v *auditRecover) acknowledge(ctx context.Context, c *cli, dir string, foreign ledger.Foreign) error {
	s := &session{}
	if err := s.open(ctx, c, dir, opening{find: openLog(dir, c.globals.mesh)}); err != nil {
		return errors.Join(err, s.close())
	}
	return s.using(func(s *session) error {
		p := s.handler.Position()
		req, err := c.request(&v.write, commands.RecoverMesh{AnchorSeq: p.Seq, AnchorChain: p.Chain.String(), FoundSeq: p.Seq, Skipped: foreign.Open})
		if err != nil {
			return err
		}
		if req.Reason == "" {
			return noReason("acknowledging what somebody else wrote")
		}
		if !c.ui.machine() {
			c.ui.note(fmt.Sprintf("nothing is lost: %s no part of the ledger, the first at sequence %d", isAre(foreign.Open), foreign.FirstOpen))
		}
		ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
		defer cancel()
		r, err := s.handler.Do(ctx, req)
		if err != nil {
			return err
		}
		return c.printResult("mesh "+s.mesh, r)
	})
}

func isAre(n uint64) string {
	if n == 1 {
		return "1 message is"
	}
	return fmt.Sprintf("%d messages are", n)
}

// examineDamage opens the store as every read does, and says what is lost: nil where
// nothing is, and only foreign messages are to be acknowledged. The session is closed
// again: nothing is changed.
func (c *cli) examineDamage(ctx context.Context, dir string) (d *damage, foreign ledger.Foreign, err error) {
	s := &session{}
	err = s.open(ctx, c, dir, opening{find: openLog(dir, c.globals.mesh), whole: true})
	d = s.damage
	if err == nil && d == nil {
		if foreign = s.log.Foreign(); foreign.Open == 0 {
			err = refusal(commands.NothingLost, "nothing is lost", "the ledger is what its anchor proves", do("audit verify"))
		}
	}
	if d != nil {
		d.mesh = s.mesh
		s.handler.View(func(st *projections.State) { d.state = st })
		if f := s.guard.files; d.first() == 0 && d.end.Seq < f.End { // the chain ends before the files do
			d.err = &ledger.DamageError{Seq: d.end.Seq + 1, Why: "it does not continue the chain", Err: d.err}
		}
		if last, e := s.log.Last(ctx); e == nil && d.anchor.Seq == 0 {
			d.proves(s, last)
		}
	}
	c.damaged = nil // it is what this is about
	if closed := s.close(); err == nil {
		err = closed
	}
	return d, foreign, err
}

// loss says what a recovery goes on without.
func (d *damage) loss() string {
	if d.first() == 0 {
		return fmt.Sprintf("no event is lost: all of them are there, up to sequence %d", d.end.Seq)
	}
	last := max(d.anchor.Seq, d.end.Seq+1)
	return fmt.Sprintf("it goes on from sequence %d; what is lost is %s, up to sequence %d at least", d.end.Seq, plural(int(last-d.end.Seq), "event", "events"), last)
}

// proves takes what the files still tell of the ledger's end for the anchor, where
// there was none.
func (d *damage) proves(s *session, last uint64) {
	if f := s.guard.files; f != nil {
		last = max(last, f.End)
	}
	d.anchor.Seq = max(last, d.end.Seq+1)
}

// imagineRecovery shows what would be recorded.
func (c *cli) imagineRecovery(d *damage, req commands.Request) error {
	r := d.unchanged(req)
	var err error
	if d.first() > 0 {
		_, r, err = c.imagine(d.state, req)
	}
	if err != nil {
		return err
	}
	return c.printResult("mesh "+d.mesh, r)
}

// unchanged is the result of a recovery that brought all events back.
func (d *damage) unchanged(req commands.Request) commands.Result {
	return commands.Result{Seq: d.end.Seq, DryRun: req.DryRun, CommandID: req.ID, Time: d.state.Time, Events: []commands.EventView{}, Effect: commands.EffectOf(d.state, nil)}
}

// lostDir is where a store keeps the files of before a recovery.
const lostDir = "lost"

// recover goes on with what is left: d was examined just now. It returns what was
// kept of before.
func (c *cli) recover(ctx context.Context, dir string, d *damage, req commands.Request) (r commands.Result, kept []string, err error) {
	s := &session{}
	defer func() {
		if closed := s.close(); err == nil {
			err = closed
		}
	}()
	by := opening{accept: true, find: openLog(dir, c.globals.mesh), cut: &d.end}
	if err := s.open(ctx, c, dir, by); err != nil {
		return r, nil, err
	}
	g := s.guard
	if g.kept != "" {
		kept = append(kept, g.kept)
	}
	if d.first() == 0 { // the files are right again, and no event was lost
		return d.unchanged(req), kept, nil
	}
	// Whoever is killed from here on does the same again: the anchor that proves the
	// loss stands until the new one takes its place.
	if g.anchor.Seq > 0 && g.anchors.Dir != "" {
		old, err := g.anchors.Keep(g.anchor, "lost")
		if err != nil {
			return r, kept, err
		}
		kept = append(kept, old)
	}
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	if r, err = s.handler.Do(ctx, req); err != nil {
		return r, kept, err
	}
	return r, kept, g.renew(c, s.handler.Position(), s.mesh)
}

// renew puts a new anchor in the place of the one that proved a loss.
func (g *guard) renew(c *cli, p ledger.Position, mesh string) error {
	if g.anchors.Dir == "" {
		return nil
	}
	if old := g.anchor; old.Seq > 0 && old.ID != g.store.ID.String() { // of another store that was here
		if err := os.Remove(g.anchors.File(old.ID)); err != nil {
			return err
		}
	}
	return g.anchors.Save(ledger.Anchor{ID: g.store.ID.String(), Mesh: mesh, MeshID: p.Mesh, Seq: p.Seq, Chain: p.Chain, Path: g.path, Time: c.program.Clock().UTC()})
}

// replace puts a copy of the files, cut after end, in the place of those that are
// damaged, and keeps these below lost. Where the log as it lies is what is left,
// nothing is replaced.
func (g *guard) replace(end ledger.Position, now time.Time) error {
	if f := g.files; f.Damage == nil && f.Described == nil && f.End == end.Seq {
		return f.CutAfter(end.Seq) // nothing but the index, which may know of more
	}
	copied, err := g.copied(g.dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(copied) }()
	if err := prepare(copied, end.Seq); err != nil {
		return err
	}
	kept := filepath.Join(g.dir, lostDir, strings.ReplaceAll(now.UTC().Format("20060102T150405.000Z"), ".", ""))
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}
	from := filepath.Join(g.dir, server.JetStreamStoreDir)
	if err := os.Rename(from, filepath.Join(kept, server.JetStreamStoreDir)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(copied, server.JetStreamStoreDir), from); err != nil {
		back := os.Rename(filepath.Join(kept, server.JetStreamStoreDir), from)
		return errors.Join(fmt.Errorf("putting what is left in the place of what is damaged: %w", err), back)
	}
	g.kept = kept
	return nil
}

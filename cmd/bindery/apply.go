package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/manifest"
	"bindery/projections"
)

type apply struct {
	write
	file                           string
	init, rebind, takeOver, atomic bool
}

func (*apply) help() *cobra.Command {
	return &cobra.Command{
		Use: "apply -f FILE",
		Example: `  bindery apply -f fleet.yaml
  bindery apply -f fleet.yaml --dry-run
  bindery apply -f fleet/ --init --mesh home`,
		Short: "Make the mesh what a manifest says",
		Long: `Makes the mesh what a manifest (a file, a directory of files, or - for standard input) says, as far
as no operator has said otherwise since the last one: what the manifest left as it was and an operator
changed is kept. Nothing is rebound or removed unasked; what would have to be is listed, with exit code 3.`,
	}
}

func (v *apply) flags(f *flags) {
	v.bind(f)
	f.args()
	f.StringVarP(&v.file, "file", "f", "", "`FILE`, directory, or - for standard input")
	f.BoolVar(&v.init, "init", false, "begin the ledger where there is none")
	f.BoolVar(&v.rebind, "rebind", false, "move slots that are bound otherwise than asked for")
	f.BoolVar(&v.takeOver, "take-over", false, "where manifest and ledger both changed, the manifest wins")
	f.BoolVar(&v.atomic, "atomic", false, "one batch or nothing")
	f.must("file")
}

func (v *apply) run(ctx context.Context, c *cli, _ []string) error {
	m, err := manifest.Load(v.file, c.streams.In)
	if err != nil {
		return err
	}
	part := func(k int) commands.Command {
		return commands.ApplyManifest{Manifest: m, Rebind: v.rebind, TakeOver: v.takeOver, Atomic: v.atomic, Part: k}
	}
	req, err := c.request(&v.write, part(0))
	if err != nil {
		return err
	}
	done, err := v.apply(ctx, c, req, part)
	if err != nil {
		return err
	}
	return v.print(c, done)
}

func (v *apply) apply(ctx context.Context, c *cli, req commands.Request, part func(k int) commands.Command) (done series, err error) {
	run := func(s *session) error {
		done, err = c.series(ctx, s, req, part, &bar{ui: c.ui, what: "applying " + v.file,
			done: func(s series) int { return len(s.result.Events) }})
		return err
	}
	err = c.with(ctx, run)
	if !v.init || !isMissing(err) {
		return done, err
	}
	if done, err = v.first(ctx, c, req); err != nil || req.DryRun {
		return done, err
	}
	req.ExpectSeq = nil // it was checked before the ledger was begun
	err = c.with(ctx, run)
	return done, err
}

// isMissing reports whether there is no ledger, or only one that an init did
// not finish.
func isMissing(err error) bool {
	var r *commands.Refusal
	return errors.As(err, &r) && r.Code == commands.LedgerMissing
}

// initStep tells the id of the command that begins a ledger from those of the
// batches that follow it.
const initStep = math.MaxInt

// first begins the ledger for a manifest. The manifest is decided in memory
// before, so that one that is refused makes nothing.
func (v *apply) first(ctx context.Context, c *cli, req commands.Request) (done series, err error) {
	dir, err := c.storeDir()
	if err != nil {
		return done, err
	}
	mesh, err := v.mesh(c, req)
	if err != nil {
		return done, err
	}
	begin := req
	begin.Command, begin.ID, begin.ExpectSeq = commands.CreateMesh{Name: mesh}, commands.DerivedID(req.ID, initStep), nil
	state, _, err := c.imagine(projections.New(), begin)
	if err != nil {
		return done, err
	}
	_, r, err := c.imagine(state, req)
	if err != nil {
		return done, err
	}
	if req.ExpectSeq != nil && *req.ExpectSeq != 0 {
		return done, refusal(commands.LedgerMoved, fmt.Sprintf("the ledger is not at sequence %d", *req.ExpectSeq), "it is not begun yet", again().But("--expect-seq"))
	}
	if req.DryRun {
		done.add(r)
		return done, nil
	}
	if _, err = c.create(ctx, dir, mesh, begin); err == nil {
		c.ui.note("the ledger of mesh " + mesh + " is begun in " + dir)
	}
	return done, err
}

// mesh is the mesh that a manifest and the command line agree on.
func (v *apply) mesh(c *cli, req commands.Request) (string, error) {
	said := req.Command.(commands.ApplyManifest).Manifest.Mesh
	switch {
	case said == "" && c.globals.mesh == "":
		return "", usage("the mesh to begin is not named", "the manifest has no mesh, and --mesh is not given", again().With("--mesh", "NAME"))
	case said == "":
		return c.globals.mesh, nil
	case c.globals.mesh != "" && c.globals.mesh != said:
		return "", refusal(commands.WrongMesh, "the manifest is of mesh "+said, "--mesh says "+c.globals.mesh, again().With("--mesh", said))
	}
	return said, nil
}

// print shows what became of each object. Where something is left to be asked
// for, the exit code says so.
func (v *apply) print(c *cli, done series) error {
	r := done.result
	a, err := resultAnswer("manifest "+v.file, r)
	if err != nil {
		return err
	}
	a.names = nil
	for _, o := range r.Objects {
		a.names = append(a.names, o.Object)
	}
	a.human = func(p *paper) { v.page(p, done) }
	if err := c.ui.print(a); err != nil {
		return err
	}
	c.resultNotes(r)
	if slices.ContainsFunc(r.Objects, needs) {
		return differs{}
	}
	return nil
}

// needs reports whether an object waits for a flag.
func needs(o commands.Object) bool {
	return o.Result == commands.NeedsRebind || o.Result == commands.NeedsPrune
}

func (v *apply) page(p *paper, done series) {
	if p.ui.quiet {
		return
	}
	r := done.result
	if r.DryRun {
		p.line(p.paint(yellow, "dry run: nothing is written") + "; it would be:")
	}
	var rows [][]string
	for _, o := range r.Objects {
		rows = append(rows, []string{p.state(o.Result), o.Object, o.Detail})
	}
	p.table(rows)
	if moved := rebound(r); len(moved) > 0 {
		p.line("")
		p.table(moved)
	}
	p.line(summary(done))
}

// rebound are the bindings that had something before.
func rebound(r commands.Result) [][]string {
	var rows [][]string
	for _, b := range r.Bindings {
		if b.From != "" {
			rows = append(rows, []string{changeText(b)})
		}
	}
	return rows
}

// summary is "2 created, 30 unchanged; 1 batch, seq 45".
func summary(done series) string {
	var parts []string
	for _, result := range []string{commands.Created, commands.Changed, commands.Unchanged, commands.Kept, commands.NeedsRebind, commands.NeedsPrune} {
		n := 0
		for _, o := range done.result.Objects {
			if o.Result == result {
				n++
			}
		}
		if n > 0 {
			word := result
			if n > 1 {
				word = strings.Replace(word, "needs ", "need ", 1)
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	if parts == nil {
		parts = []string{"nothing in the manifest"}
	}
	text := strings.Join(parts, ", ") + "; "
	switch r := done.result; {
	case r.DryRun:
		return text + "nothing is written"
	case !r.Changed:
		return text + fmt.Sprintf("nothing written, seq %d", r.Seq)
	default:
		return text + fmt.Sprintf("%s, seq %d", plural(done.batches, "batch", "batches"), r.Seq)
	}
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/ledger"
	"bindery/projections"
)

type auditVerify struct {
	checkpoint string
	verifiers  []string
}

func (*auditVerify) help() *cobra.Command {
	return &cobra.Command{
		Use: "verify",
		Example: `  bindery audit verify
  bindery audit verify --checkpoint home.checkpoint --verifier 'home+9ab9c4c0+AbCd...'`,
		Short: "Prove that the log is what was appended to it",
		Long: `Reads the whole log, computes every chain value anew, decodes every event, and holds the borders of the
commands and the state against it. What was edited, taken out, put in or reordered is found, and its first
sequence is said (exit code 9). So is the first message that somebody else put into the stream: it is skipped
and changes nothing, but who can do that should not. Those before a checkpoint that is held against the log
were there when it was signed, and are only counted. Events that were cut off at the end, and a log that
was written anew as a whole, are found against a checkpoint that was signed earlier and kept elsewhere. It
writes nothing, and may be stopped and begun again.`,
	}
}

func (v *auditVerify) flags(f *flags) {
	f.StringVar(&v.checkpoint, "checkpoint", "", "`file` of a signed checkpoint that the log must hold")
	f.StringArrayVar(&v.verifiers, "verifier", nil, "verifier `key` of who may have signed the checkpoint; may be repeated")
}

// auditView is what a verification found.
type auditView struct {
	Mesh       string          `json:"mesh"`
	MeshID     events.ID       `json:"mesh_id"`
	Seq        uint64          `json:"seq"`   // of the last event that is sound
	Chain      string          `json:"chain"` // at seq
	Events     uint64          `json:"events"`
	Commands   uint64          `json:"commands"`
	Foreign    uint64          `json:"foreign"`   // messages in the stream that are no part of the ledger
	Snapshots  uint64          `json:"snapshots"` // of the store, that are what the events give
	Proven     []provenView    `json:"proven"`    // who proved what, in order
	Recoveries []recoveryView  `json:"recoveries,omitempty"`
	Checkpoint *checkpointView `json:"checkpoint,omitempty"`
	OK         bool            `json:"ok"`
	Damage     *damageView     `json:"damage,omitempty"` // what is wrong, where ok is false
}

// provenView is a run of commands that one secret or key has proven.
type provenView struct {
	By    string `json:"by"`    // the id of the store's secret, or a writer's public key; empty: no proof was needed
	First uint64 `json:"first"` // sequence
	Last  uint64 `json:"last"`  // sequence
}

// recoveryView is where the ledger went on after a loss.
type recoveryView struct {
	Seq      uint64 `json:"seq"`       // of the event that tells of it
	FoundSeq uint64 `json:"found_seq"` // the last that was left
	LostSeq  uint64 `json:"lost_seq"`  // the last that was proved to have been there
}

// checkpointView is a checkpoint that the log was held against.
type checkpointView struct {
	Seq   uint64   `json:"seq"`
	Chain string   `json:"chain"`
	By    []string `json:"by"` // names of the keys that signed it
}

// damageView is the first thing that is wrong with a log.
type damageView struct {
	Seq uint64 `json:"seq"`
	Why string `json:"why"`
}

func (v *auditVerify) run(ctx context.Context, c *cli, _ []string) error {
	view := auditView{Proven: []provenView{}}
	var known []ledger.Position
	if v.checkpoint != "" {
		cp, by, err := readCheckpoint(v.checkpoint, v.verifiers)
		if err != nil {
			return err
		}
		view.Checkpoint = &checkpointView{Seq: cp.Seq, Chain: cp.Chain.String(), By: by}
		view.Mesh, view.MeshID = cp.MeshName, cp.Mesh
		known = append(known, cp.Position())
	}
	if v.checkpoint == "" && len(v.verifiers) > 0 {
		return usage("--verifier is given, and no checkpoint that it would be for", "nothing is held against the log", again().With("--checkpoint", "FILE"))
	}
	var foreign uint64
	err := c.withRecord(ctx, func(s *session) (err error) {
		view.Mesh = s.mesh
		foreign, err = v.walk(ctx, c, s, known, &view)
		return err
	})
	var r *commands.Refusal
	if known != nil && errors.As(err, &r) && r.Code == commands.LedgerMissing {
		// A ledger that is proved to have been there is not missing but lost.
		err = &ledger.DamageError{Seq: 1, Why: fmt.Sprintf("there is no log, and it had reached %d: %s", known[0].Seq, r.Why)}
	}
	if err == nil && foreign > 0 {
		err = &foreignError{seq: foreign, n: view.Foreign}
	}
	return c.verdict(view, err)
}

// walk verifies the log of an open session. foreign is the sequence of the first
// message after what is known that is no part of the ledger.
func (v *auditVerify) walk(ctx context.Context, c *cli, s *session, known []ledger.Position, view *auditView) (foreign uint64, err error) {
	last, err := s.log.Last(ctx)
	if err != nil {
		return 0, err
	}
	held, err := c.snapshotsOf()
	if err != nil {
		return 0, err
	}
	see := func(evs []events.Event) {
		for i := range evs {
			if p, ok := evs[i].Data.(*events.MeshRecovered); ok && p.AnchorSeq != p.FoundSeq { // else nothing was lost
				view.Recoveries = append(view.Recoveries, recoveryView{Seq: evs[i].Seq, FoundSeq: p.FoundSeq, LostSeq: p.AnchorSeq})
			}
		}
	}
	done, err := c.verified(ctx, s.log, ledger.Verifying{To: last, Known: known,
		Proven: func(p ledger.Proven) { view.Proven = append(view.Proven, provenView{p.By, p.First, p.Last}) }}, held, see, "verifying")
	view.Seq, view.Chain, view.MeshID = done.Last.Seq, done.Last.Chain.String(), done.Last.Mesh
	view.Events, view.Commands, view.Foreign = done.Events, done.Commands, done.Foreign
	view.Snapshots = held.same
	if err == nil && len(held.wrong) > 0 {
		err = wrongSnapshots(held.wrong)
	}
	return done.FirstForeign, stoppedReading(ctx, s.firstDamage(err), done.Last.Seq, do("audit verify"))
}

// foreignError says that somebody else wrote into the stream of a sound log.
type foreignError struct{ seq, n uint64 }

func (e *foreignError) Error() string {
	return fmt.Sprintf("sequence %d is the first that bindery did not write", e.seq)
}

// refusal says what to do about it.
func (e *foreignError) refusal(mesh string) *commands.Refusal {
	return refusal(commands.ForeignEvent, fmt.Sprintf("somebody else wrote into the stream of mesh %s: %s", mesh, e),
		fmt.Sprintf("every event is sound, and %s in all are skipped, but whoever wrote them can publish there; once the next event is written, a new checkpoint says that they are known",
			plural(int(e.n), "such message", "such messages")),
		do("audit checkpoint").With("--key", "FILE"))
}

// wrongSnapshots says that the log is sound and what was made of it is not.
func wrongSnapshots(files []string) error {
	return refusal(commands.LedgerDamaged, "a snapshot is not what the events give", "the log is sound; answers from "+names(files)+" are not", program(append([]string{"rm"}, files...)...))
}

// firstDamage is what comes first: what the walk through the log found, or what was
// found in the store's files and by its anchor before.
func (s *session) firstDamage(err error) error {
	if s.guard == nil || s.guard.damage == nil {
		return err
	}
	var found *ledger.DamageError
	if d := s.guard.damage; errors.As(err, &found) && found.Seq+1 < d.first() { // what is cut within a command ends in what is whole
		return err
	}
	return s.guard.damage
}

// verifyGC is how much garbage, in percent of what is kept, a verification lets lie: it
// makes much and keeps little, and is a twentieth sooner through (BenchmarkVerify).
const verifyGC = 300

// verified verifies a log and folds it, with a bar, and holds snapshots against it.
func (c *cli) verified(ctx context.Context, log *ledger.Log, v ledger.Verifying, held *snapshotsHeld, see func([]events.Event), what string) (ledger.Verified, error) {
	b := &bar{ui: c.ui, what: what, total: int(v.To - v.From.Seq)}
	b.start()
	defer b.stop()
	if c.program.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(verifyGC))
	}
	state := projections.New()
	v.Each = func(evs []events.Event) error {
		if err := state.ApplyCommand(evs); err != nil {
			var fold *projections.FoldError
			if errors.As(err, &fold) {
				return &ledger.DamageError{Seq: fold.Seq, Why: "an event does not fit those before it", Err: err}
			}
			return err
		}
		see(evs)
		b.at(int(state.Seq), "nothing wrong so far")
		return held.reach(state)
	}
	return log.Verify(ctx, v)
}

// stoppedReading is err, or after Ctrl-C how to begin again.
func stoppedReading(ctx context.Context, err error, seq uint64, again commands.Fix) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return refusal(commands.Interrupted, fmt.Sprintf("stopped after sequence %d", seq), "nothing was changed", again)
}

// verdict prints what was found, and returns the error that says what is wrong.
func (c *cli) verdict(view auditView, err error) error {
	var lost *damage
	var bad *ledger.DamageError
	var other *ledger.OtherMeshError
	var config *ledger.ConfigError
	var foreign *foreignError
	switch {
	case errors.As(err, &other):
		return refusal(commands.WrongMesh, "the checkpoint is of another mesh", err.Error(), do("status"))
	case errors.As(err, &foreign):
		view.Damage = &damageView{Seq: foreign.seq, Why: foreign.Error()}
	case errors.As(err, &lost):
		view.Mesh = cmp.Or(view.Mesh, lost.mesh, lost.anchor.Mesh)
		view.Damage = &damageView{Seq: cmp.Or(lost.first(), 1), Why: lost.why()} // by its description, the server may give none
	case errors.As(err, &bad):
		view.Damage = &damageView{Seq: bad.Seq, Why: whyDamaged(bad)}
	case errors.As(err, &config): // it may have left out the oldest
		view.Damage = &damageView{Seq: 1, Why: config.Error()}
	case err != nil:
		return err
	}
	view.OK = err == nil
	if err == nil || c.ui.machine() {
		if err := c.printVerdict(view); err != nil {
			return err
		}
	}
	switch {
	case view.Damage == nil:
		return err
	case foreign != nil:
		return foreign.refusal(view.Mesh)
	case config != nil && lost == nil:
		return service.AsRefusal(err)
	}
	r := refusal(commands.LedgerDamaged, fmt.Sprintf("the log of mesh %s is damaged: sequence %d is the first that is wrong", view.Mesh, view.Damage.Seq),
		view.Damage.Why, do("restore", "FILE").With("--store", "DIR"))
	if view.Seq > 0 && view.Damage.Seq > 1 {
		r.Why += fmt.Sprintf("; up to sequence %d it is sound", min(view.Seq, view.Damage.Seq-1))
	}
	for _, at := range view.Recoveries {
		r.Why += fmt.Sprintf("; at sequence %d it was recovered after a loss, and is another one than before from %d on", at.Seq, at.FoundSeq+1)
	}
	if lost != nil {
		r.Candidates = lost.refusal().Candidates
	}
	return r
}

// whyDamaged is what is wrong, without the sequence.
func whyDamaged(e *ledger.DamageError) string {
	if e.Err != nil {
		return e.Why + ": " + e.Err.Error()
	}
	return e.Why
}

func (c *cli) printVerdict(view auditView) error {
	data, err := marshal(view)
	if err != nil {
		return err
	}
	return c.ui.print(answer{json: data, items: []json.RawMessage{data}, names: []string{view.Mesh}, human: func(p *paper) {
		p.line(fmt.Sprintf("the log of mesh %s is %s up to sequence %d", view.Mesh, p.state("sound"), view.Seq))
		fields := []string{"mesh id", view.MeshID.String(), "chain", view.Chain, "events", fmt.Sprint(view.Events), "commands", fmt.Sprint(view.Commands)}
		if view.Snapshots > 0 {
			fields = append(fields, "snapshots", fmt.Sprintf("%d, as the events give them", view.Snapshots))
		}
		if view.Foreign > 0 {
			fields = append(fields, "foreign", plural(int(view.Foreign), "message", "messages")+" that bindery did not write, skipped")
		}
		for _, by := range view.Proven {
			if by.By != "" {
				fields = append(fields, "proven", fmt.Sprintf("sequences %d to %d, by %s", by.First, by.Last, by.By))
			}
		}
		for _, r := range view.Recoveries {
			fields = append(fields, "recovered", fmt.Sprintf("at sequence %d, from %d on; %d was proved to have been there", r.Seq, r.FoundSeq, r.LostSeq))
		}
		if cp := view.Checkpoint; cp != nil {
			fields = append(fields, "checkpoint", fmt.Sprintf("holds at sequence %d, signed by %s", cp.Seq, names(cp.By)))
		}
		p.fields(fields...)
	}})
}

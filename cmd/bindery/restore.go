package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
)

type restore struct {
	verifiers  []string
	acceptLoss bool
	replicas   int
	check      bool
}

func (*restore) help() *cobra.Command {
	return &cobra.Command{
		Use: "restore FILE",
		Example: `  bindery restore home-2026-11-30.jsonl --store /var/lib/bindery
  bindery restore home-2026-11-30.jsonl --store /tmp/trial
  zstdcat home.jsonl.zst | bindery restore - --server nats://ledger.home.arpa:4222 --replicas 3`,
		Short: "Make a store, or a stream on a server, from a backup",
		Long: `Puts a backup into a store that is not there yet, or with --server into a new stream: the same ids,
sequences, chain values and bytes. The whole file is verified before anything is made; a file that was
changed or is truncated is refused. With --verifier its checkpoint must be signed by that key.

Nothing counts as a ledger before everything is stored and verified once more: a store grows beside its
place, in STORE.restoring, and a stream is marked until then. An interrupted restore goes on by the same
command. A store that is restored beside another one has an id and an anchor of its own.`,
	}
}

func (v *restore) flags(f *flags) {
	f.StringArrayVar(&v.verifiers, "verifier", nil, "verifier `key` of who must have signed the backup's checkpoint; may be repeated")
	f.BoolVar(&v.acceptLoss, "accept-loss", false, "restore a backup that is older than what is known to have been there")
	f.IntVar(&v.replicas, "replicas", 1, "on a NATS cluster: how `many` servers keep the ledger")
	f.BoolVar(&v.check, "check", false, "only verify the backup")
}

// restored is a ledger that was restored, or a backup that was verified.
type restored struct {
	Mesh     string    `json:"mesh"`
	MeshID   events.ID `json:"mesh_id"`
	Seq      uint64    `json:"seq"`
	Chain    string    `json:"chain"`
	Time     string    `json:"time"`             // of the last event
	Store    string    `json:"store,omitempty"`  // the directory
	Server   string    `json:"server,omitempty"` // its URL
	SignedBy []string  `json:"signed_by"`        // names of the given keys that signed the checkpoint
	Restored bool      `json:"restored"`         // false: it was only verified
}

func (v *restore) run(ctx context.Context, c *cli, args []string) error {
	n, onServer, err := c.remote()
	if err != nil {
		return err
	}
	var dir string
	if !v.check && !onServer { // before what takes long, and before what else could be wrong with it
		if dir, err = c.storeDir(); err == nil {
			err = freeForStore(dir)
		}
		if err != nil {
			return err
		}
	}
	in, err := v.source(ctx, c, args[0])
	if err != nil {
		return err
	}
	defer in.close()
	out := restored{SignedBy: []string{}}
	if v.check {
		return v.print(c, in.view(out))
	}
	if onServer {
		out.Server, err = publicURL(n.URL), v.intoServer(ctx, c, n, in)
	} else {
		out.Store, err = dir, v.intoStore(ctx, c, dir, in)
	}
	if err != nil {
		return err
	}
	out.Restored = true
	return v.print(c, in.view(out))
}

func (v *restore) print(c *cli, r restored) error {
	data, err := marshal(r)
	if err != nil {
		return err
	}
	return c.ui.print(answer{json: data, items: []json.RawMessage{data}, names: []string{r.Mesh}, human: func(p *paper) {
		if p.ui.quiet {
			return
		}
		what := fmt.Sprintf("the backup of mesh %s is whole, up to sequence %d of %s", r.Mesh, r.Seq, r.Time)
		if r.Restored {
			what = fmt.Sprintf("mesh %s restored up to sequence %d of %s into %s", r.Mesh, r.Seq, r.Time, r.Store+r.Server)
		}
		if len(r.SignedBy) > 0 {
			what += ", signed by " + names(r.SignedBy)
		}
		p.line(what)
	}})
}

// source is a backup that is read. One in a file has been read to its end before.
type source struct {
	b    *ledger.BackupReader
	name string
	v    *restore
	by   []string
	held *proofs  // what the ledger is known to have had
	f    *os.File // nil: standard input
}

func (in *source) close() {
	if in.f != nil {
		_ = in.f.Close()
	}
}

func (in *source) view(r restored) restored {
	h := in.b.Head()
	r.Mesh, r.MeshID, r.Seq, r.Chain, r.Time = h.Mesh, h.MeshID, h.Seq, h.Chain.String(), h.Time
	r.SignedBy = append(r.SignedBy, in.by...)
	return r
}

// source opens a backup and verifies it, where it can be read twice, to its end.
func (v *restore) source(ctx context.Context, c *cli, name string) (*source, error) {
	in := &source{name: name, v: v}
	var r io.Reader = c.streams.In
	if name != "-" {
		var err error
		if in.f, err = os.Open(name); err != nil {
			return nil, usage("the backup cannot be read", err.Error(), program("ls", "-l", name))
		}
		r = in.f
	}
	err := in.open(c, r)
	if err == nil && (name != "-" || v.check) {
		err = in.readAll(ctx, c)
	}
	if err == nil && in.f != nil && !v.check {
		if _, err = in.f.Seek(0, io.SeekStart); err == nil {
			err = in.open(c, in.f)
		}
	}
	if err != nil {
		in.close()
		return nil, c.badBackup(name, err)
	}
	return in, nil
}

func (in *source) open(c *cli, r io.Reader) error {
	b, err := ledger.OpenBackup(r)
	if err != nil {
		return err
	}
	if want := c.globals.mesh; want != "" && want != b.Head().Mesh {
		return refusal(commands.WrongMesh, in.name+" is a backup of mesh "+b.Head().Mesh, "mesh "+want+" was asked for", again().But("--mesh"))
	}
	in.b = b
	in.held, err = c.proofsOf(b.Head())
	return err
}

// readAll reads the backup to its end.
func (in *source) readAll(ctx context.Context, c *cli) error {
	b := &bar{ui: c.ui, what: "verifying the backup", total: int(in.b.Head().Seq)}
	b.start()
	defer b.stop()
	for {
		step, err := in.b.Next()
		if err == io.EOF {
			return in.allowed(in.b)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		in.held.reach(step.At)
		b.at(int(step.At.Seq), "nothing wrong so far")
	}
}

// allowed decides, once the backup is read to its end, whether it may be restored.
func (in *source) allowed(b *ledger.BackupReader) error {
	if err := in.signed(b); err != nil {
		return err
	}
	return in.held.held(b.Head(), in.v.acceptLoss || in.v.check)
}

// signed checks who signed the backup's checkpoint, once it is read to its end.
func (in *source) signed(b *ledger.BackupReader) error {
	in.by = nil
	if len(in.v.verifiers) == 0 {
		return nil
	}
	if b.Note() == "" {
		return refusal(commands.CheckpointInvalid, in.name+" proves nothing", "its checkpoint is not signed: it was made without --key", again().But("--verifier"))
	}
	cp, by, err := ledger.OpenCheckpoint([]byte(b.Note()), in.v.verifiers)
	switch {
	case errors.Is(err, ledger.ErrBadKey):
		return badVerifier(err)
	case err != nil:
		return unsigned(in.name, err)
	case cp != b.Head().Checkpoint():
		return unsigned(in.name, errors.New("its checkpoint is of another place than the backup"))
	}
	in.by = by
	return nil
}

// badBackup gives the error about a backup a code.
func (c *cli) badBackup(name string, err error) error {
	var broken *ledger.BackupError
	if !errors.As(err, &broken) {
		return err
	}
	return refusal(commands.BackupInvalid, name+" is no whole backup", err.Error(), theSame(otherwise(shown(c.args), name, "OTHER")...))
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
)

type auditCheckpoint struct{ key, out string }

func (*auditCheckpoint) help() *cobra.Command {
	return &cobra.Command{
		Use: "checkpoint",
		Example: `  bindery audit checkpoint --key home.key --out home.checkpoint
  bindery audit checkpoint --key home.key | ssh vault 'cat >> home.checkpoints'`,
		Short: "Sign how far the ledger has come, and with which chain value",
		Long: `Verifies the whole log and signs its last sequence and chain value, as a note (golang.org/x/mod/sumdb/note)
that goes to standard output or to a file. A log that is damaged is not signed. Keep the note where who
can write the ledger cannot write: audit verify --checkpoint then finds what is gone or was changed.`,
	}
}

func (v *auditCheckpoint) flags(f *flags) {
	f.StringVar(&v.key, "key", "", "`file` with the secret half of the key, as audit keygen wrote it")
	f.StringVar(&v.out, "out", "", "the `file` to write; one that is there is replaced as a whole")
	f.must("key")
}

// checkpointMade is a checkpoint that was signed.
type checkpointMade struct {
	Mesh   string    `json:"mesh"`
	MeshID events.ID `json:"mesh_id"`
	Seq    uint64    `json:"seq"`
	Chain  string    `json:"chain"`
	Note   string    `json:"note"` // the signed note
}

func (v *auditCheckpoint) run(ctx context.Context, c *cli, _ []string) error {
	key, err := readSigner(v.key)
	if err != nil {
		return err
	}
	var cp ledger.Checkpoint
	err = c.withSoundRecord(ctx, func(s *session) error {
		last, err := s.log.Last(ctx)
		if err != nil {
			return err
		}
		done, err := c.verified(ctx, s.log, ledger.Verifying{To: last}, &snapshotsHeld{}, func([]events.Event) {}, "verifying before it is signed")
		cp = ledger.Checkpoint{Mesh: done.Last.Mesh, MeshName: s.mesh, Seq: done.Last.Seq, Chain: done.Last.Chain}
		return stoppedReading(ctx, err, done.Last.Seq, do("audit checkpoint").With("--key", v.key))
	})
	if err != nil {
		return err
	}
	signed, err := cp.Sign(key)
	if err != nil {
		return badSigner(v.key)
	}
	if v.out != "" {
		if err := ledger.ReplaceFile(v.out, 0o644, ledger.Bytes(signed)); err != nil {
			return refusal(commands.StoreUnusable, "the checkpoint cannot be written", err.Error(), program("ls", "-ld", filepath.Dir(v.out)))
		}
	}
	return v.print(c, checkpointMade{Mesh: cp.MeshName, MeshID: cp.Mesh, Seq: cp.Seq, Chain: cp.Chain.String(), Note: string(signed)})
}

// print shows a checkpoint: the note itself, or where it is.
func (v *auditCheckpoint) print(c *cli, made checkpointMade) error {
	data, err := marshal(made)
	if err != nil {
		return err
	}
	return c.ui.print(answer{json: data, items: []json.RawMessage{data}, names: []string{made.Mesh}, human: func(p *paper) {
		switch {
		case v.out == "":
			p.buf.WriteString(made.Note)
		case !p.ui.quiet:
			p.line(fmt.Sprintf("checkpoint of mesh %s at sequence %d in %s", made.Mesh, made.Seq, v.out))
		}
	}})
}

// readSigner reads the secret half of a key.
func readSigner(path string) (string, error) {
	key, err := os.ReadFile(path)
	if err != nil {
		return "", usage("the key cannot be read", err.Error(), program("ls", "-l", path))
	}
	if _, err := (ledger.Checkpoint{}).Sign(string(key)); err != nil {
		return "", badSigner(path)
	}
	return string(key), nil
}

func badSigner(path string) error {
	return usage("the file "+path+" holds no key that signs checkpoints", "", do("audit keygen", "OTHER"))
}

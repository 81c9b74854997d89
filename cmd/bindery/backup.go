package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger"
)

type backup struct{ key string }

func (*backup) help() *cobra.Command {
	return &cobra.Command{
		Use: "backup [FILE]",
		Example: `  bindery backup home-2026-11-30.jsonl
  bindery backup --key home.key | zstd > home.jsonl.zst`,
		Short: "Copy the ledger: every message as it is stored, and a checkpoint",
		Long: `Writes the whole ledger, up to the last command there is when it begins, as JSON Lines: each message with
its exact subject, headers and payload, then a checkpoint, signed with --key. Each event is verified before
it is written; a damaged ledger is not backed up. The store may be served and written to meanwhile.

Without FILE, or with -, it goes to standard output. With FILE it grows in FILE.part, and gets its name when
it is whole: an interrupted backup goes on by the same command. A file that is there is never replaced. Two
backups of the same events have the same bytes.`,
		Args: cobra.MaximumNArgs(1),
	}
}

func (v *backup) flags(f *flags) {
	f.StringVar(&v.key, "key", "", "`file` with the key that signs the checkpoint, as audit keygen wrote it")
}

// backupMade is a backup that was written to a file.
type backupMade struct {
	Mesh   string    `json:"mesh"`
	MeshID events.ID `json:"mesh_id"`
	Seq    uint64    `json:"seq"`
	Chain  string    `json:"chain"`
	File   string    `json:"file"`
	Bytes  int64     `json:"bytes"`
	Signed bool      `json:"signed"` // its checkpoint is
}

func (v *backup) run(ctx context.Context, c *cli, args []string) error {
	key := ""
	if v.key != "" {
		var err error
		if key, err = readSigner(v.key); err != nil {
			return err
		}
	}
	if len(args) == 0 || args[0] == "-" {
		if isTerminal(c.streams.Out) {
			return usage("a backup is not for a terminal", "it is as long as the ledger", do("backup", "FILE"))
		}
		return c.withSoundRecord(ctx, func(s *session) error { return v.toStdout(ctx, c, s, key) })
	}
	path := args[0]
	if _, err := os.Lstat(path); err == nil {
		return usage("the file "+path+" is there already", "a backup never replaces another", do("backup", path+"-"+c.program.Clock().UTC().Format("20060102T150405Z")))
	}
	var made backupMade
	err := c.withSoundRecord(ctx, func(s *session) (err error) {
		made, err = v.toFile(ctx, c, s, path, key)
		return err
	})
	if err != nil {
		return err
	}
	return v.print(c, made)
}

func (v *backup) print(c *cli, made backupMade) error {
	data, err := marshal(made)
	if err != nil {
		return err
	}
	return c.ui.print(answer{json: data, items: []json.RawMessage{data}, names: []string{made.File}, human: func(p *paper) {
		if !p.ui.quiet {
			p.line(fmt.Sprintf("mesh %s backed up to %s, up to sequence %d, %s", made.Mesh, made.File, made.Seq, size(uint64(made.Bytes))))
		}
	}})
}

// signedNote is the note of a backup's checkpoint; empty without a key.
func signedNote(h ledger.BackupHead, key string) (string, error) {
	if key == "" {
		return "", nil
	}
	note, err := h.Checkpoint().Sign(key)
	return string(note), err
}

// toStdout writes a whole backup.
func (v *backup) toStdout(ctx context.Context, c *cli, s *session, key string) error {
	head, err := s.log.BackupHead(ctx)
	if err != nil {
		return err
	}
	on := ledger.Backing{Head: head}
	if on.Note, err = signedNote(head, key); err != nil {
		return err
	}
	return v.copy(ctx, c, s, c.streams.Out, on, do("backup"))
}

// copy writes what is left of a backup, with a bar.
func (v *backup) copy(ctx context.Context, c *cli, s *session, to io.Writer, on ledger.Backing, again commands.Fix) error {
	b := &bar{ui: c.ui, what: "backing up", total: int(on.Head.Seq)}
	b.start()
	defer b.stop()
	at := on.Done.Seq
	on.Each = func(p ledger.Position) {
		at = p.Seq
		b.at(int(at), "sequence "+fmt.Sprint(at))
	}
	return stoppedReading(ctx, s.log.Backup(ctx, to, on), at, again)
}

// toFile writes a backup to a new file, or goes on with one that was interrupted.
func (v *backup) toFile(ctx context.Context, c *cli, s *session, path, key string) (made backupMade, err error) {
	p, err := openPart(path + ".part")
	if err != nil {
		return made, err
	}
	defer p.close()
	on, err := p.resume(ctx, s.log)
	if err != nil {
		return made, err
	}
	if on.Done.Seq > 0 && !c.ui.machine() {
		c.ui.note(fmt.Sprintf("going on with %s after sequence %d of %d", p.path, on.Done.Seq, on.Head.Seq))
	}
	if on.Note, err = signedNote(on.Head, key); err != nil {
		return made, err
	}
	if err := v.copy(ctx, c, s, p.f, on, do("backup", path)); err != nil {
		return made, partError(p.path, err)
	}
	bytes, err := p.finish(path)
	if err != nil {
		return made, partError(p.path, err)
	}
	h := on.Head
	if last, err := s.log.Last(ctx); err == nil && on.Done.Seq > 0 && last > h.Seq && !c.ui.machine() {
		c.ui.note(fmt.Sprintf("it was begun when the ledger was at %d, and ends there; the ledger is at %d", h.Seq, last))
	}
	return backupMade{Mesh: h.Mesh, MeshID: h.MeshID, Seq: h.Seq, Chain: h.Chain.String(), File: path, Bytes: bytes, Signed: on.Note != ""}, nil
}

// partError gives what the file system says about a backup's file a code.
func partError(path string, err error) error {
	var fs *os.PathError
	var link *ledger.LinkError
	if errors.As(err, &fs) || errors.As(err, &link) {
		return refusal(commands.StoreUnusable, "the backup cannot be written to "+path, err.Error(), program("df", "-h", filepath.Dir(path)))
	}
	return err
}

package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"bindery/events"
)

// restoring is the metadata key of a stream that a restore has not finished: no
// such stream is opened as a ledger. It is taken off when everything is there and
// verified. Its value is the mesh's id.
const restoring = "bindery-restoring"

// restoredTo is the metadata key of a stream that was restored: up to which sequence.
const restoredTo = "bindery-restored"

// ErrRestoring is wrapped by the error of an Open whose ledger is not restored
// wholly yet.
var ErrRestoring = errors.New("a restore of the ledger has not finished")

// ErrOtherBackup is wrapped by the error of a Restore that finds an unfinished one
// of another backup.
var ErrOtherBackup = errors.New("an unfinished restore of another backup is there")

// isRestoring reports whether a stream is one that a restore has not finished.
func isRestoring(cfg jetstream.StreamConfig) bool { return cfg.Metadata[restoring] != "" }

// Restoring says how Restore is to go on.
type Restoring struct {
	CreateOptions
	// Check, if not nil, is asked once the backup is read to its end and before it
	// counts as restored.
	Check func(*BackupReader) error
	// Each, if not nil, is told after each step how far it is.
	Each func(Position)

	batch int // events that are appended at once; 0: MaxEvents
}

// Restore puts a backup into a new stream: the same messages at the same sequences.
// Where a restore of the same backup was not finished it goes on with that one. If
// the mesh has a ledger, the error wraps ErrExists. Only after everything is stored,
// and read back and verified, does the stream count as a ledger: an Open before
// gives ErrRestoring. The error is one of b (see BackupReader.Next), *DamageError,
// one that wraps ErrOtherBackup, or one of an Append.
func Restore(ctx context.Context, nc *nats.Conn, b *BackupReader, opts Restoring) (*Log, error) {
	l, there, err := openRestoring(ctx, nc, b.Head(), opts.CreateOptions)
	if err != nil {
		return nil, err
	}
	r := &restore{l: l, there: there, each: opts.Each, batch: cmp.Or(opts.batch, MaxEvents), want: backupWriter{w: io.Discard, sum: sha256.New()}}
	if err := r.want.line(b.Head().line()); err != nil {
		return nil, err
	}
	for {
		step, err := b.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := r.take(ctx, step); err != nil {
			return nil, err
		}
	}
	if err := r.flush(ctx); err != nil {
		return nil, err
	}
	if opts.Check != nil {
		if err := opts.Check(b); err != nil {
			return nil, err
		}
	}
	return r.finish(ctx, b)
}

// openRestoring makes the stream, or finds the one of a restore that was not
// finished, and how far it is.
func openRestoring(ctx context.Context, nc *nats.Conn, h BackupHead, opts CreateOptions) (l *Log, there uint64, err error) {
	js, err := connect(nc)
	if err != nil {
		return nil, 0, err
	}
	cfg := streamConfig(h.Mesh)
	cfg.Replicas, cfg.Placement = max(1, opts.Replicas), opts.Placement
	cfg.Metadata = map[string]string{restoring: h.MeshID.String(), createdBy: nuid.Next()}
	stream, err := js.Stream(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, cfg)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("restoring the ledger of mesh %q: %w", h.Mesh, err)
	}
	info := stream.CachedInfo()
	switch {
	case !isRestoring(info.Config):
		return nil, 0, fmt.Errorf("restoring the ledger of mesh %q: its stream ends at sequence %d: %w", h.Mesh, info.State.LastSeq, ErrExists)
	case info.Config.Metadata[restoring] != h.MeshID.String():
		return nil, 0, fmt.Errorf("restoring the ledger of mesh %q: of a mesh with the id %s: %w", h.Mesh, info.Config.Metadata[restoring], ErrOtherBackup)
	}
	if err := verifyConfig(h.Mesh, info.Config); err != nil {
		return nil, 0, err
	}
	l = newLog(nc, js, stream, h.Mesh)
	l.Trust(nil) // the backup is verified by its chain, wherever its events were proven
	return l, info.State.LastSeq, nil
}

// restore is one Restore under way.
type restore struct {
	l     *Log
	there uint64 // messages up to here were there before
	each  func(Position)
	batch int // events that are appended at once

	want backupWriter // of the backup that the restored ledger must give

	wait  []events.Group // to be appended
	n     int            // events of wait
	bytes int
}

// take appends a step, or holds it against what is there already.
func (r *restore) take(ctx context.Context, s BackupStep) error {
	if r.each != nil {
		defer r.each(s.At)
	}
	if s.Foreign != nil {
		if err := r.flush(ctx); err != nil {
			return err
		}
		m, err := neutral(r.l.mesh, s.Foreign)
		if err != nil {
			return err
		}
		if err := r.expect(m, true); err != nil {
			return err
		}
		return r.foreign(ctx, m)
	}
	for i := range s.Command {
		if err := r.expect(&s.Command[i], false); err != nil {
			return err
		}
	}
	first, last := s.Command[0].Seq, s.Command[len(s.Command)-1].Seq
	switch {
	case last < r.there:
		return nil // the chain value of the last one that is there tells of it
	case first <= r.there:
		if err := r.compare(ctx, &s.Command[r.there-first]); err != nil || last == r.there {
			return err
		}
		// The server was killed while it stored a batch: the rest of the command goes on.
		s.Command = s.Command[r.there-first+1:]
	}
	r.wait = append(r.wait, s.Command)
	r.n += len(s.Command)
	for i := range s.Command {
		r.bytes += len(s.Command[i].Data)
	}
	if r.n >= r.batch || r.bytes >= batchBytes {
		return r.flush(ctx)
	}
	return nil
}

// compare holds the last message that is there already against the backup.
func (r *restore) compare(ctx context.Context, want *events.Record) error {
	found, err := r.l.Get(ctx, want.Seq, want.Seq)
	if err != nil {
		return err
	}
	if !same(&found[0], want) {
		return fmt.Errorf("restoring the ledger of mesh %q: sequence %d is not that of the backup: %w", r.l.mesh, want.Seq, ErrOtherBackup)
	}
	return nil
}

func (r *restore) flush(ctx context.Context) error {
	if len(r.wait) == 0 {
		return nil
	}
	_, err := r.l.Append(ctx, r.wait[0][0].Seq-1, r.wait)
	r.wait, r.n, r.bytes = nil, 0, 0
	return err
}

// expect notes a message that must be there in the end.
func (r *restore) expect(m *events.Record, foreign bool) error {
	if err := r.want.line(messageLine(m, foreign)); err != nil {
		return err
	}
	return r.want.flush()
}

// foreign publishes what stands for a foreign message, at its place.
func (r *restore) foreign(ctx context.Context, m *events.Record) error {
	if m.Seq <= r.there {
		return nil // whatever lies there, it is no event: else the chain value of the last one differs
	}
	msg := &nats.Msg{Subject: m.Subject, Header: nats.Header{hExpectSeq: {strconv.FormatUint(m.Seq-1, 10)}}, Data: m.Data}
	if _, err := r.l.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("restoring sequence %d: %w", m.Seq, err)
	}
	return nil
}

// finish verifies what is stored and makes it a ledger.
func (r *restore) finish(ctx context.Context, b *BackupReader) (*Log, error) {
	h := b.Head()
	last, err := r.l.Last(ctx)
	if err != nil {
		return nil, err
	}
	if last != h.Seq {
		return nil, fmt.Errorf("restoring the ledger of mesh %q: the stream ends at sequence %d, not %d: %w", h.Mesh, last, h.Seq, ErrOtherBackup)
	}
	// Not only the chain: what it does not cover, such as foreign messages, must be
	// there as well, and nothing that an earlier try left.
	sum := sha256.New()
	if err := r.l.Backup(ctx, io.Discard, Backing{Head: h, Note: b.Note(), Sum: sum}); err != nil {
		return nil, err
	}
	end := backupEnd{Checkpoint: backupCheckpoint{MeshID: h.MeshID, Seq: h.Seq, Chain: h.Chain.String(), Note: b.Note()}, SHA256: hex.EncodeToString(r.want.sum.Sum(nil))}
	if err := r.want.line(end); err != nil {
		return nil, err
	}
	if !bytes.Equal(sum.Sum(nil), r.want.sum.Sum(nil)) {
		return nil, fmt.Errorf("restoring the ledger of mesh %q: what is there now would give another backup: %w", h.Mesh, ErrOtherBackup)
	}
	stream, err := r.l.js.Stream(ctx, r.l.stream)
	if err != nil {
		return nil, fmt.Errorf("finishing a restore: %w", err)
	}
	cfg := stream.CachedInfo().Config
	delete(cfg.Metadata, restoring)
	cfg.Metadata[restoredTo] = strconv.FormatUint(h.Seq, 10)
	if _, err := r.l.js.UpdateStream(ctx, cfg); err != nil {
		return nil, fmt.Errorf("finishing a restore: %w", err)
	}
	return Open(ctx, r.l.nc, h.Mesh)
}

package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"bindery/events"
)

// BackupHead finds what a backup made now reaches: the last event of the last
// whole command. Foreign messages behind it are left out.
func (l *Log) BackupHead(ctx context.Context) (BackupHead, error) {
	last, err := l.Last(ctx)
	if err == nil && l.src != nil {
		last, err = l.src.Sound(ctx)
	}
	if err != nil {
		return BackupHead{}, err
	}
	check := l.secrets.checker()
	for to := last; to > 0; {
		from := max(to, getParallel) - getParallel + 1
		recs, err := l.Get(ctx, from, to)
		var none *NotFoundError
		if errors.As(err, &none) {
			return BackupHead{}, &DamageError{Seq: none.Seq, Why: "no message is there"}
		}
		if err != nil {
			return BackupHead{}, err
		}
		for i := len(recs) - 1; i >= 0; i-- {
			// What only looks like an event is found by the walk that writes the backup.
			e, err := readBorder(&recs[i])
			proven := len(l.secrets) == 0 || e.Seq < l.secrets.from() || check.by(e.Mesh, &recs[i]) != ""
			if err == nil && e.Last() && proven {
				return BackupHead{Mesh: l.mesh, MeshID: e.Mesh, Seq: e.Seq, Chain: e.Chain, Time: recs[i].Get(headerTime)}, nil
			}
		}
		to = from - 1
	}
	return BackupHead{}, &DamageError{Seq: 1, Why: "no event is there"}
}

// Backing says what Backup is to write.
type Backing struct {
	Head BackupHead
	// Done is how far the backup is written already, which is at the end of a
	// command; zero: not even its head.
	Done Position
	// Sum is the SHA-256 of what is written already; nil: nothing is.
	Sum hash.Hash
	// Note is the signed note of Head's checkpoint; empty: there is none.
	Note string
	// Each, if not nil, is told after each command how far it is.
	Each func(Position)
}

// Backup writes the backup of the ledger up to b.Head, or what is not written yet
// of it. Each event is verified against the chain before it is written; none needs
// to be of a type that this program knows. The error is a *DamageError, or one of w,
// of ctx or of the connection; what was written by then is whole commands of it.
func (l *Log) Backup(ctx context.Context, w io.Writer, b Backing) error {
	o := &backupWriter{w: w, sum: b.Sum}
	if o.sum == nil {
		o.sum = sha256.New()
	}
	if b.Done.Seq == 0 {
		if err := o.line(b.Head.line()); err != nil {
			return err
		}
	}
	at := b.Done
	for group, err := range l.Records(ctx, b.Done, b.Head.Seq) {
		if err != nil {
			return err
		}
		for i := range group {
			if err := l.backupForeign(ctx, o, at.Seq, group[i].Seq); err != nil {
				return err
			}
			if err := o.line(messageLine(&group[i], false)); err != nil {
				return err
			}
			chain, err := events.ParseChain(group[i].Get(events.HeaderChain))
			if err != nil {
				return err
			}
			at = Position{Seq: group[i].Seq, Chain: chain, Mesh: b.Head.MeshID}
		}
		if o.buf.Len() >= flushBytes {
			if err := o.flush(); err != nil {
				return err
			}
		}
		if b.Each != nil {
			b.Each(at)
		}
	}
	if at != b.Head.Position() {
		return &DamageError{Seq: b.Head.Seq, Why: fmt.Sprintf("the event that was the last one is not there any more: the log has the chain value %s at sequence %d", at.Chain, at.Seq)}
	}
	h := b.Head
	sum := hex.EncodeToString(o.sum.Sum(nil))
	if err := o.line(backupEnd{Checkpoint: backupCheckpoint{MeshID: h.MeshID, Seq: h.Seq, Chain: h.Chain.String(), Note: b.Note}, SHA256: sum}); err != nil {
		return err
	}
	return o.flush()
}

// backupForeign writes the messages between two events.
func (l *Log) backupForeign(ctx context.Context, o *backupWriter, after, before uint64) error {
	for first := after + 1; first < before; first += getParallel {
		recs, err := l.Get(ctx, first, min(first+getParallel, before)-1)
		if err != nil {
			return err
		}
		for i := range recs {
			if err := o.line(messageLine(&recs[i], true)); err != nil {
				return err
			}
		}
		if o.buf.Len() >= flushBytes {
			if err := o.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// headerTime is the header with an event's time.
const headerTime = "ce-time"

// flushBytes is how much is gathered before it is written.
const flushBytes = 256 << 10

// backupWriter gathers lines and writes whole ones.
type backupWriter struct {
	w   io.Writer
	sum hash.Hash
	buf bytes.Buffer
}

func (o *backupWriter) line(v any) error {
	from := o.buf.Len()
	if err := encodeLine(&o.buf, v); err != nil {
		return err
	}
	o.sum.Write(o.buf.Bytes()[from:])
	return nil
}

func (o *backupWriter) flush() error {
	_, err := o.w.Write(o.buf.Bytes())
	o.buf.Reset()
	if err != nil {
		return fmt.Errorf("writing the backup: %w", err)
	}
	return nil
}

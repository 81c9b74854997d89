package main

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"bindery/commands"
	"bindery/ledger"
)

func (c *cli) audits() *cobra.Command {
	return c.group("audit", "  bindery audit verify --checkpoint home.checkpoint --verifier 'home+9ab9c4c0+AbCd...'", "Prove the record, and end it",
		&auditVerify{}, &auditCheckpoint{}, &auditKeygen{}, &auditRecover{}, &auditSeal{})
}

// What proves or copies the record reads the stream message by message, through the
// process that serves it or by itself, and opens a store without the writer's state: a
// ledger that does not fold, or that a newer program wrote, is read, too.

// openRecord opens a ledger to be read as it lies in its stream: its session has a
// log, and a client only where another process serves it.
func (c *cli) openRecord(ctx context.Context) (*session, error) {
	s, err := c.reach(ctx, func(s *session, dir string) error { return s.record(ctx, c, dir) })
	if err != nil {
		return nil, err
	}
	if _, err := s.readLog(ctx, c); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// readLog is the ledger, to be read from its stream.
func (s *session) readLog(ctx context.Context, c *cli) (*ledger.Log, error) {
	if s.log != nil {
		return s.log, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.globals.timeout)
	defer cancel()
	log := s.client.Reader()
	if _, err := log.Last(ctx); err != nil { // who may not read it is told now
		return nil, err
	}
	s.log = log
	if !s.several {
		return log, c.trustStore(log)
	}
	return log, nil
}

// trustStore makes a log that another process serves take what the store proves.
func (c *cli) trustStore(log *ledger.Log) error {
	dir, err := c.storeDir()
	if err != nil {
		return err
	}
	store, _, err := ledger.ReadStoreID(dir)
	if err != nil {
		return storeError(dir, err)
	}
	log.Trust(store.Secrets)
	return nil
}

// record opens the log of a store that nobody serves.
func (s *session) record(ctx context.Context, c *cli, dir string) error {
	err := s.lock(ctx, dir, ledger.LockConfig{Command: cmp.Or(c.path, "bindery")})
	if err != nil {
		return err
	}
	by := opening{server: ledger.EmbeddedConfig{Dir: dir}, find: openLog(dir, c.globals.mesh), whole: true}
	if err := s.guarded(c, dir, &by); err != nil {
		return err
	}
	if s.server, err = ledger.StartEmbedded(ctx, by.server); err != nil {
		return storeError(dir, err)
	}
	s.later(func() error { s.server.Close(); return nil })
	if s.conn, err = s.server.Connect(); err != nil {
		return err
	}
	s.later(func() error { s.conn.Close(); return nil })
	if s.log, err = by.find(ctx, s.conn); err != nil {
		return unread(dir, err, s.server.Complaints())
	}
	s.mesh = s.log.Mesh()
	if err := s.trust(ctx); err != nil {
		return err
	}
	if s.guard.damage != nil {
		return nil // what is open is a copy of what is whole
	}
	return s.guard.check(ctx, s.log)
}

// withSoundRecord is withRecord for what must not rest on a ledger that has lost
// something.
func (c *cli) withSoundRecord(ctx context.Context, f func(s *session) error) error {
	return c.withRecord(ctx, func(s *session) error {
		if s.guard != nil && s.guard.damage != nil {
			return s.guard.damage
		}
		return f(s)
	})
}

// withRecord runs f on a ledger that is open to be read, and closes it again.
func (c *cli) withRecord(ctx context.Context, f func(s *session) error) error {
	s, err := c.openRecord(ctx)
	if err != nil {
		return err
	}
	return s.using(f)
}

// readCheckpoint reads a checkpoint's file; one that none of the verifiers has
// signed is refused.
func readCheckpoint(path string, verifiers []string) (ledger.Checkpoint, []string, error) {
	if len(verifiers) == 0 {
		return ledger.Checkpoint{}, nil, usage("nobody is named who may have signed the checkpoint", "without --verifier anybody could have written it; bindery audit keygen has printed the key",
			again().With("--verifier", "KEY"))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return ledger.Checkpoint{}, nil, usage("the checkpoint cannot be read", err.Error(), program("ls", "-l", path))
	}
	cp, by, err := ledger.OpenCheckpoint(data, verifiers)
	if errors.Is(err, ledger.ErrBadKey) {
		return cp, nil, badVerifier(err)
	}
	if err != nil {
		return cp, nil, unsigned(path, err)
	}
	return cp, by, nil
}

// unsigned refuses a checkpoint that proves nothing.
func unsigned(what string, err error) error {
	return refusal(commands.CheckpointInvalid, what+" proves nothing", err.Error(), program("head", what))
}

func badVerifier(err error) error {
	return usage("--verifier is no key", err.Error(), do("audit keygen", "FILE"))
}

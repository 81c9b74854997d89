package agent

import (
	"context"
	"errors"
	"fmt"

	"bindery/commands"
	"bindery/projections"
)

// errMoot says that the ledger has gone on: what was done is not asked for any
// more, and the next document tells what is.
var errMoot = errors.New("the ledger has gone on")

// errMoved says that it was done on a node where the provider is not any more.
var errMoved = fmt.Errorf("%w: the provider has moved", errMoot)

// errNotSaid is wrapped where the ledger could not be told: the work is done, and
// only the telling is tried again.
var errNotSaid = errors.New("the ledger could not be told")

// errNoLease says that nobody knows who acts for the node now.
var errNoLease = errors.New("the lease of the node is in doubt")

// failedStep is something that was tried, failed, and was told of.
type failedStep struct{ why error }

func (f *failedStep) Error() string { return f.why.Error() }
func (f *failedStep) Unwrap() error { return f.why }

// isWaiting reports whether an error says that nothing was wrong but that the
// ledger was not reached: that is over as soon as it is.
func isWaiting(err error) bool {
	var f *failedStep
	return (errors.Is(err, errNotSaid) || errors.Is(err, errNoLease) || errors.Is(err, errIncomplete)) && !errors.As(err, &f)
}

// say tells the ledger. Where that was restored the agent is stopped.
func (a *Agent) say(ctx context.Context, c commands.Command, reason string) error {
	err := a.cfg.Ledger.Do(ctx, c, reason)
	if err == nil {
		return nil
	}
	var r *commands.Refusal
	if !errors.As(err, &r) {
		return errors.Join(errNotSaid, err)
	}
	switch {
	case r.Code == commands.LedgerRestored:
		a.stop(a.restored(r))
		return errors.Join(errNotSaid, err)
	case r.Code == commands.SecretInLedger && reason != "":
		return a.say(ctx, c, "it failed, and its message cannot be recorded")
	case isMoot(r.Code):
		a.log.Info("what was done is not asked for any more", "verb", c.Verb(), "code", r.Code, "error", r.Message)
		if r.Code == commands.ProviderMoved {
			return errMoved
		}
		return errMoot
	}
	return errors.Join(errNotSaid, err)
}

// isMoot reports whether a refusal says that the state is another one than that of
// the document that was read, and not that nobody could answer.
func isMoot(code commands.Code) bool {
	switch code {
	case commands.GenerationUnknown, commands.AlreadyIssued, commands.AtRegressed, commands.NotAdopted, commands.BindingNotFound,
		commands.AssignmentNotFound, commands.NoCredentials, commands.ProviderRetired, commands.ProviderMoved, commands.SlotNotDeclared, commands.AmbiguousSlot:
		return true
	}
	return false
}

// restored is why an agent stops where the ledger is another one than it has read.
func (a *Agent) restored(r *commands.Refusal) *commands.Refusal {
	return &commands.Refusal{Code: commands.LedgerRestored, Message: r.Message,
		Why: r.Why + "; what this agent did may not be what the ledger says now", Fix: projections.Again().With("--resync"),
		Candidates: []commands.Candidate{}}
}

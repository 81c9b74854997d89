package commands

import (
	"fmt"
	"strconv"

	"bindery/events"
	"bindery/projections"
)

// AcknowledgeBinding is the consumer's word that it runs with what the ledger
// gives it to use as of a sequence it has read.
type AcknowledgeBinding struct {
	Slot string `json:"slot"` // assignment/slot
	At   uint64 `json:"at"`
	// Chain is the ledger's chain value at At, 64 digits, where the consumer has
	// read it, too: then it is refused where the ledger is another one by now.
	Chain string `json:"chain,omitempty"`
}

// FailBinding is the consumer's word that it could not take it up; the reason
// says why.
type FailBinding struct {
	Slot     string `json:"slot"`
	Attempts uint64 `json:"attempts,omitempty"` // 0: one more than on record
}

// RequestCredential asks for a new credential of a binding.
type RequestCredential struct {
	Slot string `json:"slot"`
}

// The provider side may say which ask it has answered by its tag, too: the first
// eight digits of the chain value at the generation. Another tag is refused: a
// ledger that has lost its tail gives generations out again. And at which node it
// has done so (a name or an id): where the provider has been relocated meanwhile,
// what was done to the one it was is refused with provider_moved.

// IssueCredential is the provider side's word that a credential exists.
type IssueCredential struct {
	Slot       string `json:"slot"`
	Generation uint64 `json:"generation"`
	SecretRef  string `json:"secret_ref"` // scheme:path
	Tag        string `json:"tag,omitempty"`
	Node       string `json:"node,omitempty"`
	User       string `json:"user,omitempty"`     // what it logs in as, where that is known
	Database   string `json:"database,omitempty"` // and to what
	// Hook is the hook that made it, where an agent says so: the path below its directory
	// of hooks. Node says whose agent.
	Hook string `json:"hook,omitempty"`
}

// FailCredential is the provider side's word that it could not issue or revoke
// one; the reason says why.
type FailCredential struct {
	Slot       string `json:"slot"`
	Generation uint64 `json:"generation"`
	Attempts   uint64 `json:"attempts,omitempty"` // 0: one more than on record
	Tag        string `json:"tag,omitempty"`
	Node       string `json:"node,omitempty"`
	Operator   bool   `json:"operator,omitempty"` // trying again does not help
}

// RevokeCredential is the provider side's word that a credential logs in no
// longer; with Force an operator's, about one that is not replaced yet.
type RevokeCredential struct {
	Slot       string     `json:"slot"`
	Generation uint64     `json:"generation"`
	Force      bool       `json:"force,omitempty"`
	Tag        string     `json:"tag,omitempty"`
	Node       string     `json:"node,omitempty"`
	Did        events.Did `json:"did,omitempty"`  // an agent must say it
	Hook       string     `json:"hook,omitempty"` // that did it, where an agent says so
}

// Verb implements Command.
func (AcknowledgeBinding) Verb() string { return "binding.applied" }

// Verb implements Command.
func (FailBinding) Verb() string { return "binding.failed" }

// Verb implements Command.
func (RequestCredential) Verb() string { return "credential.request" }

// Verb implements Command.
func (IssueCredential) Verb() string { return "credential.issued" }

// Verb implements Command.
func (FailCredential) Verb() string { return "credential.failed" }

// Verb implements Command.
func (RevokeCredential) Verb() string { return "credential.revoked" }

// Decide implements Command.
func (c AcknowledgeBinding) Decide(t *Tx) error {
	all, err := t.bindingsToApply(c.Slot)
	if err != nil {
		return err
	}
	b := t.Binding(all[0])
	path := t.SlotPath(b)
	switch {
	case c.At == 0:
		return refuse(Usage, "the sequence that "+path+" runs with is not said", "it must be read, not assumed",
			do("binding show", path))
	case c.At > t.Seq:
		return refuse(AtBeyondHead, fmt.Sprintf("%s cannot run with sequence %d", path, c.At),
			fmt.Sprintf("the ledger is at %d", t.Seq), do("binding show", path))
	case c.At < b.Applied:
		return refuse(AtRegressed, fmt.Sprintf("%s cannot go back to sequence %d", path, c.At),
			fmt.Sprintf("it was acknowledged at %d already", b.Applied), do("binding show", path))
	}
	for _, r := range all {
		b := t.Binding(r)
		_, failed := t.Trouble(r)
		// Said again it is news only after a failure; what is left of an earlier
		// binding of the name hears of it when it is about its release.
		if c.At == b.Applied && !failed || c.At < b.Applied || b.Released && c.At < b.Seq && r != all[0] {
			continue
		}
		if last := t.UseSeq(b); c.At < last {
			t.warn("%s is outdated still: what it is to run with changed at sequence %d", path, last)
		}
		if err := t.emit(b.ID, &events.BindingApplied{At: c.At}); err != nil {
			return err
		}
	}
	return nil
}

// Decide implements Command.
func (c FailBinding) Decide(t *Tx) error {
	all, err := t.bindingsToApply(c.Slot)
	if err != nil {
		return err
	}
	b := t.Binding(all[0])
	if err := t.needReason("a failure"); err != nil {
		return err
	}
	before, _ := t.Trouble(all[0])
	n, news, err := t.failed(before, c.Attempts)
	if err != nil || !news {
		return err
	}
	return t.emit(b.ID, &events.BindingFailed{Attempts: n})
}

// failed counts a failure. It is news when its reason is another one, or its
// count has doubled: an agent that tries every minute fills no log.
func (t *Tx) failed(before projections.Failure, attempts uint64) (n uint64, news bool, err error) {
	if attempts > maxAttempts {
		return 0, false, refuse(Usage, fmt.Sprintf("%d attempts are too many to be true", attempts),
			fmt.Sprintf("at most %d are counted", maxAttempts), Fix{})
	}
	if n = attempts; n == 0 {
		n = min(before.Attempts+1, maxAttempts)
	}
	return n, before.Attempts == 0 || before.Reason != t.Reason || n >= 2*before.Attempts, nil
}

// maxAttempts bounds what is counted: once a second for thirty years.
const maxAttempts = 1_000_000_000

// Decide implements Command.
func (c RequestCredential) Decide(t *Tx) error {
	f, err := Finder{t.State}.Slot(c.Slot)
	if err != nil {
		return err
	}
	path := t.Assignment(f.Assignment).Name + "/" + f.Name
	if f.Binding == 0 || t.Binding(f.Binding).Pending() {
		return refuse(BindingNotFound, "nothing serves "+path+" yet", "a credential is for what a slot is bound to",
			do("assignment resolve", t.Assignment(f.Assignment).Name))
	}
	b := t.Binding(f.Binding)
	if err := t.needManaged(b, path); err != nil {
		return err
	}
	if b.Provider != 0 && t.Provider(b.Provider).State == projections.Retired {
		return refuse(ProviderRetired, "no credential can be asked for "+path, "it is bound to "+t.Provider(b.Provider).Name+", which is retired",
			do("binding rebind", path).With("--provider", "OTHER"))
	}
	if err := t.needReason("asking for another credential"); err != nil {
		return err
	}
	if ask, ok := t.Ask(f.Binding); ok {
		t.warn("generation %d, asked for before, is withdrawn", ask.Generation)
	}
	return t.emit(b.ID, &events.CredentialRequested{Target: t.Target(b)})
}

// needManaged refuses what is about credentials where there are none.
func (t *Tx) needManaged(b *projections.Binding, path string) error {
	if t.Managed(b) {
		return nil
	}
	v := t.Provision(b.Provision).Name
	return refuse(NoCredentials, path+" has no credentials", "those of "+v+" are not managed: its consumers need none", do("provision show", v))
}

// held finds the credential that a command is about, with its binding's asks on
// record.
func (t *Tx) held(slot string, generation uint64, tag string) (*projections.Credential, string, error) {
	r, err := Finder{t.State}.HeldBinding(slot, generation)
	if err != nil {
		return nil, "", err
	}
	t.Settle(r)
	c := t.Credential(t.CredentialOf(r, generation))
	what := fmt.Sprintf("generation %d of %s", generation, t.SlotPath(t.Binding(r)))
	if now := t.Tag(c); tag != "" && tag != now {
		return nil, "", Restored(what+" is another one than it was", fmt.Sprintf("its tag is %s, not %s", now, clip(tag)))
	}
	return c, what, nil
}

// doneAt refuses what was done for a credential on another node than where its
// provider is.
func (t *Tx) doneAt(node string, c *projections.Credential, what string) error {
	if node == "" {
		return nil
	}
	at, err := Finder{t.State}.Node(node)
	now := t.ProviderNode(c)
	if err != nil || at == now {
		return err
	}
	return refuse(ProviderMoved, what+" is not issued and revoked on "+t.Node(at).Name, "its provider is on "+t.Node(now).Name+" now",
		do("binding show", t.SlotPath(t.Binding(c.Binding))))
}

// Restored refuses what was read of a ledger that has lost its tail since, and has
// gone on otherwise.
func Restored(message, why string) *Refusal {
	return refuse(LedgerRestored, message, why+": the ledger was restored to an earlier state, or is another one",
		do("status"))
}

// idOf is the id that the events of a credential stand under.
func (t *Tx) idOf(c *projections.Credential) events.ID { return t.Binding(c.Binding).ID }

// Decide implements Command.
func (c IssueCredential) Decide(t *Tx) error {
	if err := events.CheckSecretRef(c.SecretRef); err != nil {
		return refuse(SecretInLedger, "the reference to the secret is not one", err.Error(),
			again().With("--secret-ref", "SCHEME:PATH"))
	}
	held, what, err := t.held(c.Slot, c.Generation, c.Tag)
	if err != nil {
		return err
	}
	switch held.State {
	case projections.Asked:
	case projections.Withdrawn:
		t.warn("%s was withdrawn before it was issued: it is to be revoked, and never used", what)
	default: // said again it is no news, wherever the provider is now
		if t.SecretRef(held) == c.SecretRef {
			return nil
		}
		if err := t.doneAt(c.Node, held, what); err != nil {
			return err
		}
		return refuse(AlreadyIssued, what+" is issued already", fmt.Sprintf("at sequence %d, its secret at %s", held.Issued, t.SecretRef(held)),
			do("credential request", t.SlotPath(t.Binding(held.Binding))).With("--reason", "TEXT"))
	}
	if err := t.doneAt(c.Node, held, what); err != nil {
		return err
	}
	if err := t.needOwnSecret(held, c.SecretRef, what); err != nil {
		return err
	}
	e := &events.CredentialIssued{Generation: c.Generation, SecretRef: events.SecretRef(c.SecretRef)}
	if e.Login, err = loginOf(c.User, c.Database); err != nil {
		return err
	}
	if e.Maker, err = t.makerOf(c.Node, c.Hook, held); err != nil {
		return err
	}
	e.ByHand = e.Maker == nil && !t.byAgent(c.Hook)
	return t.emit(t.idOf(held), e)
}

// Decide implements Command.
func (c FailCredential) Decide(t *Tx) error {
	held, what, err := t.held(c.Slot, c.Generation, c.Tag)
	if err != nil {
		return err
	}
	if err := t.needReason("a failure"); err != nil {
		return err
	}
	if held.State != projections.Asked && held.State != projections.ToRevoke && !t.Revocable(held) {
		t.warn("%s is %s: the provider has nothing to do about it", what, held.State)
		return nil
	}
	if err := t.doneAt(c.Node, held, what); err != nil {
		return err
	}
	before, _ := t.FailureOf(held.Binding, c.Generation)
	n, news, err := t.failed(before, c.Attempts)
	if err != nil || !news {
		return err
	}
	return t.emit(t.idOf(held), &events.CredentialFailed{Generation: c.Generation, Attempts: n, Operator: c.Operator})
}

// Decide implements Command.
func (c RevokeCredential) Decide(t *Tx) error {
	held, what, err := t.held(c.Slot, c.Generation, c.Tag)
	if err != nil {
		return err
	}
	s := held.State
	due := s == projections.ToRevoke || s == projections.WrittenOff || t.Revocable(held)
	if !due && !s.Live() {
		return nil
	}
	if err := t.doneAt(c.Node, held, what); err != nil {
		return err
	}
	if err := t.needProof(c, held, what); err != nil {
		return err
	}
	switch {
	case due:
		return t.emit(t.idOf(held), &events.CredentialRevoked{Generation: c.Generation, Did: c.Did})
	case !c.Force:
		return t.notAdopted(held, what)
	}
	if err := t.needReason("revoking a credential that its consumer may run with"); err != nil {
		return err
	}
	if err := t.emit(t.idOf(held), &events.CredentialRevoked{Generation: c.Generation, Forced: true, Did: c.Did}); err != nil {
		return err
	}
	cut, err := t.cutOff(held)
	if cut {
		t.warnCutOff(held)
	}
	return err
}

// notAdopted refuses to revoke what is in use, or may be.
func (t *Tx) notAdopted(c *projections.Credential, what string) error {
	b := t.Binding(c.Binding)
	path := t.SlotPath(b)
	r := refuse(NotAdopted, what+" cannot be revoked", "its consumer has not said that it runs with a later one",
		do("binding show", path))
	retired := c.Provider != 0 && t.Provider(c.Provider).State == projections.Retired
	if use := t.InUse(b); t.Credential(use) == c && !b.Released {
		r.Why = "it is what the consumer runs with"
		if ask, ok := t.Ask(c.Binding); ok {
			r.Why += fmt.Sprintf("; generation %d is asked for and not issued yet", ask.Generation)
			r.Fix = do("credential list").With("--assignment", t.Assignment(b.Assignment).Name)
		} else if retired {
			r.Why += ", at a provider that is retired"
			r.Fix = do("binding rebind", path).With("--provider", "OTHER")
		} else {
			r.Fix = do("rotation start").With("--binding", path)
		}
	}
	r.Candidates = append(r.Candidates, Candidate{Name: strconv.FormatUint(c.Generation, 10), Why: "cuts the consumer off where it runs with it", Flag: "--force --reason TEXT"})
	return r
}

// warnCutOff says that a consumer is cut off, and for how long.
func (t *Tx) warnCutOff(c *projections.Credential) {
	path := t.SlotPath(t.Binding(c.Binding))
	if _, asked := t.Ask(c.Binding); asked {
		t.warn("%s is cut off until another credential is issued", path)
		return
	}
	t.warn("%s is cut off, and no other credential is asked for", path)
}

// cutOff asks for a credential in place of one that is gone, where the consumer
// runs with that and none is asked for yet. It reports whether it is cut off.
func (t *Tx) cutOff(c *projections.Credential) (bool, error) {
	b := t.Binding(c.Binding)
	if t.Credential(t.InUse(b)) != c || b.Released {
		return false, nil
	}
	if _, asked := t.Ask(c.Binding); asked || b.Pending() || b.Provider != 0 && t.Provider(b.Provider).State == projections.Retired {
		return true, nil
	}
	return true, t.emit(b.ID, &events.CredentialRequested{Target: t.Target(b)})
}

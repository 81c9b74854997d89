package commands

import (
	"bindery/events"
	"bindery/projections"
)

// WriteOffCredentials gives up on revoking a credential, or all that a provider
// has: a series, where one batch does not take them.
type WriteOffCredentials struct {
	Slot       string `json:"slot,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	Provider   string `json:"provider,omitempty"`
	Force      bool   `json:"force,omitempty"`
	// Series is the id of the series' first command, in those that follow it: they
	// go on with what was issued before that, and with nothing newer.
	Series events.ID `json:"series,omitzero"`
}

// Verb implements Command.
func (WriteOffCredentials) Verb() string { return "credential.write-off" }

// Decide implements Command.
func (c WriteOffCredentials) Decide(t *Tx) error {
	if (c.Provider == "") == (c.Slot == "") {
		return refuse(Usage, "what to write off is not said, or said twice", "it is one credential of a slot, or all of a provider",
			do("credential write-off", "A/S").With("--generation", "G").With("--reason", "TEXT"))
	}
	if err := t.needReason("writing off a credential"); err != nil {
		return err
	}
	if c.Provider != "" {
		return c.all(t)
	}
	held, what, err := t.held(c.Slot, c.Generation, "")
	if err != nil {
		return err
	}
	switch {
	case !held.State.Live():
		return nil
	case c.Force || t.mayWriteOff(held):
		return t.writeOff([]*projections.Credential{held})
	}
	r := t.notAdopted(held, what).(*Refusal)
	r.Message = what + " cannot be written off"
	return r
}

// mayWriteOff reports whether a live credential can be written off without
// force.
func (t *Tx) mayWriteOff(c *projections.Credential) bool {
	return c.State == projections.ToRevoke || c.Provider != 0 && t.Provider(c.Provider).State == projections.Retired
}

// writeOff writes off credentials and says how many consumers that cuts off.
func (t *Tx) writeOff(all []*projections.Credential) error {
	cut := 0
	for _, c := range all {
		t.Settle(c.Binding)
		if err := t.emit(t.idOf(c), &events.CredentialWrittenOff{Generation: c.Generation, Forced: !t.mayWriteOff(c)}); err != nil {
			return err
		}
		off, err := t.cutOff(c)
		if err != nil {
			return err
		}
		if off {
			cut++
		}
	}
	switch {
	case cut == 1 && len(all) == 1:
		t.warnCutOff(all[0])
	case cut > 0:
		t.warn("consumers that are cut off now: %d", cut)
	}
	return nil
}

// perCredential is the greatest number of events one write-off takes.
const perCredential = 2

// all writes off what a provider has: what is to be revoked; where it is
// retired, or with force, all.
func (c WriteOffCredentials) all(t *Tx) error {
	r, err := Finder{t.State}.Provider(c.Provider)
	if err != nil {
		return err
	}
	p := t.Provider(r)
	began := t.Seq + 1
	if !c.Series.IsZero() {
		first, ok := t.Remembered(c.Series)
		if !ok {
			return nil // it wrote nothing off, so that nothing is left of it
		}
		began = first.First
	}
	var all []*projections.Credential
	for _, ref := range p.Holders.Live {
		held := t.Credential(ref)
		if held.Issued > began || !c.Force && !t.mayWriteOff(held) {
			continue
		}
		if (len(all)+1)*perCredential+1 > t.limit { // one for the end of a rotation
			t.more = true
			break
		}
		all = append(all, held)
	}
	if err := t.writeOff(all); err != nil {
		return err
	}
	if n := len(p.Holders.Live); n > 0 && !c.Force && !t.more {
		t.warn("%s in use at %s", stays(n, "credential"), p.Name)
	}
	return nil
}

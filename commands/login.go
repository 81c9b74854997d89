package commands

import (
	"errors"
	"fmt"
	"strconv"

	"bindery/events"
	"bindery/projections"
)

// What a revocation rests on. That a login is over is the word of whoever ended it, and
// whoever could not know which login it was has not ended it: a hook that found nothing
// has done nothing. So it is on record who made a login and what it logs in as; an agent
// ends what its own hook has made, or what somebody said is to be ended by name.

// AdoptCredential says which login a credential is that was made by hand: its user, and
// where the service has several its database. From then on the agent of the provider's
// node ends it like any other, and the next login follows it. It issues an open ask, too,
// where SecretRef says where its secret lies.
type AdoptCredential struct {
	Slot       string `json:"slot"`
	Generation uint64 `json:"generation,omitempty"` // 0: the open ask, else what the consumer runs with
	User       string `json:"user"`
	Database   string `json:"database,omitempty"`
	SecretRef  string `json:"secret_ref,omitempty"` // scheme:path
}

// Verb implements Command.
func (AdoptCredential) Verb() string { return "credential.adopt" }

// Decide implements Command.
func (c AdoptCredential) Decide(t *Tx) error {
	login, err := loginOf(c.User, c.Database)
	if err != nil {
		return err
	}
	if login == nil {
		return refuse(Usage, "it is not said which login it is", "a login is told by the name of its user", again().With("--user", "USER"))
	}
	generation, err := t.toAdopt(c)
	if err != nil {
		return err
	}
	held, what, err := t.held(c.Slot, generation, "")
	if err != nil {
		return err
	}
	if held.State == projections.Asked || held.State == projections.Withdrawn {
		return t.adoptAsk(c, generation, what)
	}
	if c.SecretRef != "" && c.SecretRef != t.SecretRef(held) {
		return refuse(AlreadyIssued, what+" is issued already", "its secret is at "+t.SecretRef(held),
			again().But("--secret-ref"))
	}
	if _, hook, known := t.Maker(held); known {
		return refuse(MadeByAgent, what+" was made by an agent", "its hook "+hook+" made the login "+t.Login(held).User+", and ends it",
			do("credential list").With("--assignment", t.Assignment(t.Binding(held.Binding).Assignment).Name))
	}
	if held.ByHand && t.Login(held) == *login {
		return nil
	}
	if !held.State.Live() {
		t.warn("%s is %s: nobody logs in with it any more", what, held.State)
	}
	return t.emit(t.idOf(held), &events.CredentialLoginTold{Generation: generation, Login: *login})
}

// toAdopt is the generation that an adoption is about.
func (t *Tx) toAdopt(c AdoptCredential) (uint64, error) {
	if c.Generation != 0 {
		return c.Generation, nil
	}
	f, err := Finder{t.State}.Slot(c.Slot)
	if err != nil {
		return 0, err
	}
	path := t.Assignment(f.Assignment).Name + "/" + f.Name
	if f.Binding == 0 || t.Binding(f.Binding).Pending() {
		return 0, refuse(BindingNotFound, "nothing serves "+path+" yet", "a login is at what a slot is bound to",
			do("assignment resolve", t.Assignment(f.Assignment).Name))
	}
	if err := t.needManaged(t.Binding(f.Binding), path); err != nil {
		return 0, err
	}
	use := t.InUse(t.Binding(f.Binding))
	if ask, open := t.Ask(f.Binding); open && (use == 0 || c.SecretRef != "" && c.SecretRef != t.SecretRef(t.Credential(use))) {
		return ask.Generation, nil
	}
	if use == 0 {
		return 0, refuse(GenerationUnknown, "no credential of "+path+" is on record", "none is asked for",
			do("credential request", path).With("--reason", "TEXT"))
	}
	return t.Credential(use).Generation, nil
}

// adoptAsk answers an ask with a login that is there.
func (t *Tx) adoptAsk(c AdoptCredential, generation uint64, what string) error {
	if c.SecretRef == "" {
		return refuse(Usage, what+" is asked for, and it is not said where its secret lies",
			"with that the login is adopted and answers the ask; the secret itself is recorded nowhere", again().With("--secret-ref", "SCHEME:PATH"))
	}
	return IssueCredential{Slot: c.Slot, Generation: generation, SecretRef: c.SecretRef, User: c.User, Database: c.Database}.Decide(t)
}

// loginOf makes a login of what was said; nil where nothing was.
func loginOf(user, database string) (*events.Login, error) {
	if user == "" && database == "" {
		return nil, nil
	}
	for _, name := range []struct{ what, flag, text string }{{"user", "--user", user}, {"database", "--database", database}} {
		if name.text == "" && name.what == "database" {
			continue
		}
		if err := events.CheckLogin(name.text); err != nil {
			code := Usage
			if errors.Is(err, events.ErrSecret) {
				code = SecretInLedger
			}
			return nil, refuse(code, "the "+name.what+" cannot be recorded", err.Error(), again().With(name.flag, "NAME"))
		}
	}
	return &events.Login{User: user, Database: database}, nil
}

// makerOf is the agent that says it has made a login; nil where none says so.
func (t *Tx) makerOf(node, hook string, c *projections.Credential) (*events.Maker, error) {
	if hook == "" {
		return nil, nil
	}
	if err := events.CheckLogin(hook); err != nil {
		return nil, refuse(Usage, "the name of the hook cannot be recorded", err.Error(), Fix{})
	}
	on := t.ProviderNode(c)
	if node != "" {
		found, err := Finder{t.State}.Node(node)
		if err != nil {
			return nil, err
		}
		on = found
	}
	return &events.Maker{Node: t.Node(on).ID, Hook: hook}, nil
}

// byAgent reports whether an agent says something: it names its hook, or it is granted as
// one.
func (t *Tx) byAgent(hook string) bool {
	if hook != "" {
		return true
	}
	r := t.GrantNamed(t.Actor)
	return r != 0 && t.Grant(r).Role == events.RoleAgent
}

// needProof refuses an agent's word that a login is over where it does not follow from
// what the agent can know. An operator answers for his own.
func (t *Tx) needProof(c RevokeCredential, held *projections.Credential, what string) error {
	if !t.byAgent(c.Hook) || held.State == projections.Asked || held.State == projections.Withdrawn {
		return nil
	}
	unproven := func(why string) error {
		return refuse(RevocationUnproven, what+" is not shown to be over", why, t.byOperator(held))
	}
	_, made, known := t.Maker(held)
	switch {
	case held.Unowned():
		return unproven("it was made by hand, and which login it is was never said: no hook can know what to end")
	case known && c.Hook != "" && c.Hook != made:
		return unproven(fmt.Sprintf("the hook %s made it, and %s says that it is over", made, c.Hook))
	case c.Did == "":
		return unproven("an agent says whether its hook has dropped the login, or found none")
	case c.Did == events.DidAbsent && !known:
		return unproven("the hook found no such login, and this agent has not made it: another one may be meant")
	}
	return nil
}

// byOperator is the command by which an operator says that a login is over.
func (t *Tx) byOperator(c *projections.Credential) Fix {
	return do("credential revoked", t.SlotPath(t.Binding(c.Binding))).With("--generation", strconv.FormatUint(c.Generation, 10))
}

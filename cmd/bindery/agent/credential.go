package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"

	"bindery/commands"
	"bindery/projections"
)

// credential is one turn of work for a credential.
type credential struct {
	a     *Agent
	d     *projections.HolderDocument // nil: it is gone
	r     *credentialRecord
	file  string // of the record
	found bool   // the record was there
}

func (a *Agent) credential(d *projections.HolderDocument) (*credential, error) {
	c := &credential{a: a, d: d, r: &credentialRecord{}, file: credentialFile(d.Binding.String(), credentialName(d.Generation, d.Tag))}
	var err error
	if c.found, err = a.tree.readRecord(c.file, c.r); err != nil {
		return nil, fmt.Errorf("the record of a credential: %w", err)
	}
	own := c.r.userName()
	c.r.Key, c.r.Input = d.Key(), a.inputOf(d)
	c.r.Input.Username = cmp.Or(d.User, own, c.r.Input.Username)
	return c, nil
}

// keep writes the record; what follows may rely on it after a crash.
func (c *credential) keep() error {
	dir := path.Dir(c.file)
	if err := c.a.tree.mkdir(dir); err != nil {
		return err
	}
	if err := c.a.tree.writeRecord(c.file, c.r); err != nil {
		return err
	}
	if c.found {
		return nil
	}
	c.found = true
	return c.a.tree.syncDir(dirIssued)
}

// drop removes the record, and the secret from where the consumer fetched it.
func (c *credential) drop(ctx context.Context) error {
	if err := c.a.unstore(ctx, c.r); err != nil {
		return err
	}
	if err := c.a.tree.remove(c.file); err != nil {
		return err
	}
	_ = c.a.tree.root.Remove(path.Dir(c.file)) // where others are in it, it stays
	return nil
}

// issue has a credential made and says so. Its secret is on disk, and where the
// consumer fetches it, before the hook runs: whatever happens then, the hook gets
// the same one again.
func (c *credential) issue(ctx context.Context) error {
	a, r := c.a, c.r
	if r.Said {
		return nil // the document is an old one
	}
	if f := c.d.Follows; r.Issue != stepDone && f != nil && f.ByHand && f.User == "" {
		return c.fail(ctx, &operatorError{fmt.Errorf("the login that it follows was made by hand, its secret is at %s, and which one it is was never said: credential adopt", f.SecretRef)})
	}
	if r.Issue != stepDone && !strings.HasPrefix(r.Ref, a.cfg.SecretsIn+":") { // the first time, or told otherwise since
		if err := c.begin(ctx); err != nil {
			return c.fail(ctx, err)
		}
		a.crash("secret")
	}
	if r.Issue != stepDone {
		if err := c.make(ctx); errors.Is(err, errMoot) {
			return c.unused(err)
		} else if err != nil {
			return c.fail(ctx, err)
		}
	}
	a.crash("made")
	if err := c.rename(ctx); err != nil {
		return c.fail(ctx, err)
	}
	err := a.store(ctx, c.d, r) // with what the hook has added
	switch {
	case errors.Is(err, errMoot) && r.Issue != stepDone:
		return c.unused(err)
	case errors.Is(err, errMoot): // it may have been acknowledged, and the answer was lost
	case err != nil:
		return c.fail(ctx, err)
	}
	r.Issue, r.Attempts = stepDone, 0
	if err := c.keep(); err != nil {
		return err
	}
	a.crash("stored")
	err = a.say(ctx, commands.IssueCredential{Slot: r.Input.Binding, Generation: c.d.Generation, SecretRef: r.Ref, Tag: c.d.Tag, Node: a.nodeID,
		User: r.userName(), Database: r.Secret["database"], Hook: r.Hook}, "")
	if err != nil && !errors.Is(err, errMoot) {
		return err
	}
	a.crash("issued")
	r.Unused = errors.Is(err, errMoot)
	r.Said = !errors.Is(err, errMoved) // the document goes from here
	return errors.Join(c.keep(), err)
}

// unused notes that the ledger does not ask for the secret any more, before it was told
// of it: its copy is removed when the document is gone.
func (c *credential) unused(why error) error {
	c.r.Unused = true
	return errors.Join(c.keep(), why)
}

// begin makes the secret and says where it will be.
func (c *credential) begin(ctx context.Context) error {
	if err := c.a.unstore(ctx, c.r); err != nil {
		return err
	}
	if c.r.Secret == nil {
		c.r.Secret = newSecret(c.d)
	}
	c.r.Ref, c.r.Sealed = reference(c.a.cfg.SecretsIn, c.r.Input.Binding, secretName(c.d.Generation, c.d.Tag, c.a.cfg.NodeID)), nil
	return c.keep()
}

// rename gives a secret whose login name the hook has chosen another name, which tells
// that: who has not made it cannot know whom to turn away (see revoke).
func (c *credential) rename(ctx context.Context) error {
	if c.r.userName() == c.a.inputOf(c.d).Username || strings.HasSuffix(c.r.Ref, ownName) {
		return nil
	}
	if err := c.a.unstore(ctx, c.r); err != nil {
		return err
	}
	c.r.Ref, c.r.Sealed = c.r.Ref+ownName, nil
	return c.keep()
}

// ownName ends the names of secrets with a login name that the hook has chosen.
const ownName = "-own"

// make stores the secret and runs the hook.
func (c *credential) make(ctx context.Context) error {
	c.attempt(actionIssue)
	if err := c.a.store(ctx, c.d, c.r); err != nil {
		return errors.Join(err, c.keep()) // with the count
	}
	c.a.crash("kept")
	out, err := c.run(ctx, actionIssue, &c.r.Issue)
	if err != nil {
		return err
	}
	more, err := added(out)
	if err != nil {
		return err
	}
	secret := maps.Clone(c.r.Secret)
	maps.Copy(secret, more)
	if err := cmp.Or(checkSecret(secret), checkAddress(secret, c.r.Input.Endpoint)); err != nil {
		return fmt.Errorf("what the hook printed: %w", err)
	}
	c.r.Secret = secret
	c.r.Input.Username = c.r.userName()
	return nil
}

// added is what a hook adds to the secret: a JSON object of strings on its standard
// output, or nothing.
func added(out []byte) (map[string]string, error) {
	for _, b := range out {
		if b == ' ' || b == '\n' || b == '\r' || b == '\t' {
			continue
		}
		if b != '{' {
			return nil, nil // words for people
		}
		secret, err := parseSecret(out)
		if err != nil {
			return nil, fmt.Errorf("what the hook printed: %w", err)
		}
		return secret, nil
	}
	return nil, nil
}

// over removes the secret of a credential that is over. Its record stays until its
// document is gone: nothing is done twice because an old one was read.
func (c *credential) over(ctx context.Context, step *string, how string) error {
	if err := c.a.unstore(ctx, c.r); err != nil {
		return err
	}
	*step = how
	c.r.Attempts, c.r.Secret, c.r.Ref, c.r.Sealed = 0, nil, "", nil
	return c.keep()
}

// clean has removed what was made of an ask that was withdrawn, once, and removes
// its copies.
func (c *credential) clean(ctx context.Context) error {
	if c.r.Clean == stepDone {
		return nil
	}
	c.attempt(actionClean)
	if _, err := c.run(ctx, actionClean, &c.r.Clean); err != nil {
		return &failedStep{err} // nobody is waiting to hear of it
	}
	c.a.crash("cleaned")
	return c.over(ctx, &c.r.Clean, stepDone)
}

// follow seals a secret anew where its consumer has moved, or its agent has
// another key.
func (c *credential) follow(ctx context.Context) error {
	if c.r.Sealed == nil || c.r.Ref != c.d.SecretRef {
		return nil
	}
	to, err := c.a.keyOf(ctx, c.d)
	if isWaiting(err) {
		return err
	}
	if err != nil {
		c.a.log.Debug("a secret is not sealed anew yet", "binding", c.r.Input.Binding, "error", err)
		return nil // it is looked at again when there is a key
	}
	if *to == *c.r.Sealed {
		return nil
	}
	if err := c.a.seal(ctx, c.d, c.r); err != nil {
		return err
	}
	return c.keep()
}

// attempt counts a try at an action.
func (c *credential) attempt(action string) {
	if c.r.Doing != action {
		c.r.Doing, c.r.Attempts = action, 0
	}
	c.r.Attempts++
}

// run runs the provider's hook for an action and notes that it has begun.
func (c *credential) run(ctx context.Context, action string, step *string) ([]byte, error) {
	a, in := c.a, c.r.Input
	repeated := *step == stepBegun
	program, err := c.program(action)
	if err == nil {
		defer program.Close()
		*step = stepBegun
	}
	if again := c.keep(); again != nil {
		return nil, again
	}
	if err != nil {
		return nil, err
	}
	a.crash("begun " + action)
	if !a.lease.held() {
		return nil, errNoLease
	}
	in.Action, in.Attempt, in.Repeated, in.Username = action, c.r.Attempts, repeated, c.r.userName()
	if action == actionIssue {
		in.Password = c.r.Secret["password"]
	} else {
		in.Follows = nil
	}
	stdin, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	run := hookRun{program: program, stdin: stdin, limit: a.cfg.HookTimeout, secrets: values(c.r.Secret), secret: action == actionIssue,
		env: append(a.actionEnv(action, c.r.Attempts), "BINDERY_PROVIDER="+in.Provider, "BINDERY_PROVISION="+in.Provision,
			"BINDERY_ENDPOINT="+in.Endpoint, "BINDERY_ASSIGNMENT="+in.Assignment, "BINDERY_SLOT="+in.Slot,
			"BINDERY_GENERATION="+strconv.FormatUint(in.Generation, 10))}
	out, err := run.run(ctx)
	if err == nil {
		a.crash("ran " + action)
	}
	return out, err
}

// fail says why a credential could not be issued or revoked, and returns the
// reason: it is tried again.
func (c *credential) fail(ctx context.Context, why error) error {
	if ctx.Err() != nil || isWaiting(why) || errors.Is(why, errMoot) {
		return cmp.Or(ctx.Err(), why)
	}
	var theirs *operatorError
	err := c.a.say(ctx, commands.FailCredential{Slot: c.r.Input.Binding, Generation: c.d.Generation, Attempts: max(c.r.Attempts, 1), Tag: c.d.Tag, Node: c.a.nodeID,
		Operator: errors.As(why, &theirs)},
		reasonOf(why))
	if errors.Is(err, errNotSaid) {
		why = errors.Join(why, err)
	}
	return &failedStep{why}
}

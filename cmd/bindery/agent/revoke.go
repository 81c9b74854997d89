package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger/owned"
)

// That a login is over is this agent's word, and others act on it. So it is said where the
// hook that made the login has dropped it; where it found none, only if this agent had made
// it and begun to drop it before. Everything else is an operator's to look at.

// operatorError is a failure that trying again does not mend: an operator sees to it.
type operatorError struct{ error }

func (e *operatorError) Unwrap() error { return e.error }

// revoke has a credential made to log in no longer, says so, and removes its copies.
func (c *credential) revoke(ctx context.Context) error {
	if c.r.Revoke == stepSaid {
		return nil // the document is an old one
	}
	if c.r.Revoke != stepDone {
		if err := c.knows(); err != nil {
			return c.fail(ctx, err)
		}
		ours := c.r.Dropped || c.r.Revoke == stepBegun && c.r.Issue == stepDone || c.again()
		c.attempt(actionRevoke)
		out, err := c.run(ctx, actionRevoke, &c.r.Revoke)
		if err != nil {
			return c.fail(ctx, err)
		}
		if c.r.Did, err = didOf(out); err != nil {
			return c.fail(ctx, err)
		}
		if c.r.Did == events.DidAbsent && !ours {
			return c.fail(ctx, c.notFound())
		}
		c.r.Revoke, c.r.Dropped, c.r.Attempts = stepDone, true, 0
		if err := c.keep(); err != nil {
			return err
		}
	}
	c.a.crash("unmade")
	err := c.a.say(ctx, commands.RevokeCredential{Slot: c.r.Input.Binding, Generation: c.d.Generation, Tag: c.d.Tag, Node: c.a.nodeID,
		Did: c.r.Did, Hook: c.r.Hook}, "")
	var r *commands.Refusal
	if errors.As(err, &r) && r.Code == commands.RevocationUnproven {
		c.r.Revoke, c.r.Dropped = "", false // what was done did not count
		return c.fail(ctx, &operatorError{errors.New(r.Why)})
	}
	if err != nil {
		return err
	}
	c.a.crash("revoked")
	return c.over(ctx, &c.r.Revoke, stepSaid)
}

// again reports whether this agent has made the login by its own record or the ledger's,
// and was told to begin anew after the ledger was restored: what it dropped in the part
// that is lost is not there any more.
func (c *credential) again() bool {
	return c.a.cfg.Resync && (c.r.Issue == stepDone || c.d.Maker != nil && c.d.Maker.NodeID.String() == c.a.nodeID)
}

// knows reports why this agent cannot know which login a credential is: nil if it does.
func (c *credential) knows() error {
	switch {
	case c.d.User != "", c.r.Issue != "":
		return nil
	case c.d.ByHand:
		return &operatorError{fmt.Errorf("it was made by hand, its secret is at %s, and which login it is was never said: credential adopt", c.d.SecretRef)}
	case c.isByAnAgent():
		return nil
	}
	return &operatorError{fmt.Errorf("nobody here knows which login it is: this agent has not made it, and its secret is at %s", c.d.SecretRef)}
}

// isByAnAgent reports whether a reference tells of a login of the name that agents give: one
// of before logins were on record. A name that a hook has chosen is known to its maker alone.
func (c *credential) isByAnAgent() bool {
	scheme, rest, _ := strings.Cut(c.d.SecretRef, ":")
	return (scheme == schemeSealed || scheme == schemeFile) && !strings.HasSuffix(rest, ownName) &&
		strings.HasPrefix(rest, c.r.Input.Binding+"/"+credentialName(c.d.Generation, c.d.Tag)+"-")
}

// notFound is why a login that the hook did not find does not count as over.
func (c *credential) notFound() error {
	return &operatorError{fmt.Errorf("the hook found no login %s, and has dropped none; its secret is at %s", c.r.Input.Username, c.d.SecretRef)}
}

// didOf is what a hook says that it did: {"did":"dropped"} or {"did":"absent"}, on its
// standard output.
func didOf(out []byte) (events.Did, error) {
	var said struct {
		Did events.Did `json:"did"`
	}
	if err := json.Unmarshal(out, &said); err != nil || said.Did != events.DidDrop && said.Did != events.DidAbsent {
		return "", &operatorError{errors.New(`the hook does not say what it did: it prints {"did":"dropped"} where it has dropped the login, and {"did":"absent"} where there was none`)}
	}
	return said.Did, nil
}

// program opens the hook for an action: the one that has made the login, whatever its
// provider is called by now; for a new one, and for one made by hand, the first there is.
func (c *credential) program(action string) (*owned.Program, error) {
	a, in := c.a, &c.r.Input
	made := c.r.Hook
	if c.d != nil && c.d.Maker != nil {
		made = c.d.Maker.Hook
	}
	if action == actionIssue && c.r.Issue == "" || made == "" {
		program, file, err := a.hooks.find("provider", in.Provider, in.Provision)
		if errors.Is(err, errNoHook) {
			return nil, errors.New("no hook for provider " + in.name())
		}
		if err != nil {
			return nil, err
		}
		c.r.Hook = file
		return program, nil
	}
	program, err := a.hooks.open(made)
	if errors.Is(err, fs.ErrNotExist) {
		now := "no hook"
		if other, file, ferr := a.hooks.find("provider", in.Provider, in.Provision); ferr == nil {
			_ = other.Close()
			now = "the hook " + file
		}
		return nil, &operatorError{fmt.Errorf("the hook %s has made the login, and is not there; for this provider there is %s now", made, now)}
	}
	c.r.Hook = made
	return program, err
}

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"bindery/projections"
)

// hookInput is what a provider's hook reads; the record of a credential keeps it,
// without the secret, for when the document is gone.
type hookInput struct {
	// Follows, of issue alone, is the login whose place it takes. It stands first: a script
	// that looks for the last entry of a name finds none of it.
	Follows *followedLogin `json:"follows,omitempty"`

	Action       string `json:"action"` // issue, revoke, clean
	Attempt      uint64 `json:"attempt"`
	Repeated     bool   `json:"repeated"` // it may have run for this before
	Mesh         string `json:"mesh"`
	Node         string `json:"node"`
	Provider     string `json:"provider,omitempty"`
	ProviderID   string `json:"provider_id,omitempty"`
	Provision    string `json:"provision"`
	Endpoint     string `json:"endpoint,omitempty"`
	Host         string `json:"host,omitempty"`
	Port         string `json:"port,omitempty"`
	Version      string `json:"version,omitempty"`
	Embedded     bool   `json:"embedded,omitempty"`
	Assignment   string `json:"assignment"`
	AssignmentID string `json:"assignment_id"`
	Module       string `json:"module"`
	Slot         string `json:"slot"`
	ConsumerNode string `json:"consumer_node"`
	Binding      string `json:"binding"`
	Generation   uint64 `json:"generation"`
	Tag          string `json:"tag"`
	Username     string `json:"username"`
	Password     string `json:"password,omitempty"` // of issue alone
	Database     string `json:"database,omitempty"` // that it logs in to, where that is known
	ByHand       bool   `json:"by_hand,omitempty"`  // somebody made the login who is no agent
}

// followedLogin is the login that a new one is to follow: with its data and its rights.
type followedLogin struct {
	User     string `json:"user"`
	Database string `json:"database,omitempty"`
	ByHand   bool   `json:"by_hand,omitempty"`
}

// Actions of a provider's hook.
const (
	actionIssue  = "issue"
	actionRevoke = "revoke"
	actionClean  = "clean" // remove what was made of an ask that is withdrawn
)

func (a *Agent) inputOf(d *projections.HolderDocument) hookInput {
	in := hookInput{Mesh: a.cfg.Mesh, Node: d.Node, Provider: d.Provider, Provision: d.Provision, Endpoint: d.Endpoint, Version: d.Version,
		Embedded: d.Embedded, Assignment: d.Assignment, AssignmentID: d.AssignmentID.String(), Module: d.Module, Slot: d.Slot,
		ConsumerNode: d.ConsumerNode, Binding: d.Binding.String(), Generation: d.Generation, Tag: d.Tag}
	if d.ProviderID != nil {
		in.ProviderID = d.ProviderID.String()
	}
	in.Host, in.Port = hostPort(d.Endpoint)
	in.Username = cmp.Or(d.User, userName(in.Binding, in.Generation, in.Tag))
	in.Database, in.ByHand = d.Database, d.ByHand
	if f := d.Follows; f != nil && f.User != "" {
		in.Follows = &followedLogin{User: f.User, Database: f.Database, ByHand: f.ByHand}
	}
	return in
}

// name is what the provider is called in messages.
func (in *hookInput) name() string {
	if in.Embedded {
		return "the embedded instance of " + in.Assignment + "/" + in.Slot + " (" + in.Provision + ")"
	}
	return in.Provider + " (" + in.Provision + ")"
}

// recordedGroups lists the groups of the credentials that something was done for.
func (a *Agent) recordedGroups() ([]string, error) {
	names, err := a.tree.credentials()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		var r credentialRecord
		if there, err := a.tree.readRecord(path.Join(dirIssued, n), &r); there && err == nil && groupOf(r.Key) != "" {
			out = append(out, groupOf(r.Key))
		} else if err != nil {
			a.log.Warn("a record of a credential is passed over", "error", err)
		}
	}
	return out, nil
}

// provide does what the provider side has to do for one binding at one provider,
// the newest first. What fails for one credential holds up no other.
func (a *Agent) provide(ctx context.Context, group string) error {
	docs, err := a.holdersNow(ctx, group)
	if err != nil {
		return err
	}
	if len(docs) > 0 {
		if err := a.keepPlace(); err != nil {
			return err
		}
	}
	var failed error
	there := map[string]bool{}
	for _, d := range docs {
		there[credentialName(d.Generation, d.Tag)] = true
		if err := a.provideOne(ctx, d); err != nil && !errors.Is(err, errMoot) {
			failed = errors.Join(failed, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	_, binding, _ := strings.Cut(group, ".")
	names, err := a.tree.credentialsOf(binding)
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, name := range names {
		if there[name] {
			continue
		}
		if err := a.vanished(ctx, group, docs, name); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// provideOne does what is due for one credential.
func (a *Agent) provideOne(ctx context.Context, d *projections.HolderDocument) error {
	c, err := a.credential(d)
	if err != nil {
		return err
	}
	if c.found && !c.r.Said && d.IssuedSeq != 0 && d.SecretRef == c.r.Ref {
		c.r.Said = true // the answer was lost
		if err := c.keep(); err != nil {
			return err
		}
	}
	switch d.Do {
	case projections.DutyIssue:
		return c.issue(ctx)
	case projections.DutyRevoke:
		return c.revoke(ctx)
	case projections.DutyClean:
		return c.clean(ctx)
	}
	return c.follow(ctx)
}

// vanished sees to a record whose document is gone: of an ask that was begun and
// never acknowledged, what was made is removed; of a credential that is over, the
// copies.
func (a *Agent) vanished(ctx context.Context, group string, docs []*projections.HolderDocument, name string) error {
	_, binding, _ := strings.Cut(group, ".")
	c := &credential{a: a, r: &credentialRecord{}, file: credentialFile(binding, name), found: true}
	if _, err := a.tree.readRecord(c.file, c.r); err != nil {
		return fmt.Errorf("the record of a credential: %w", err)
	}
	if groupOf(c.r.Key) != group || c.r.Input.Binding != binding {
		return nil // it is of another provider of the binding
	}
	if c.r.Ref != "" && a.docs.awaits(c.r.Ref, group) {
		return nil // a consumer here may not have fetched it yet
	}
	if used, err := a.usesHere(ctx, &c.r.Input, c.r.Ref); err != nil || used {
		return cmp.Or(err, errIncomplete)
	}
	where, err := a.whereIs(ctx, &c.r.Input)
	if err != nil || where == here && !hasAnother(docs, &c.r.Input) {
		return cmp.Or(err, errIncomplete)
	}
	// Where the provider has moved, its new agent answers the ask under the same
	// login name: what this one would remove may be what that one has made.
	if where != elsewhere && !c.r.Said && c.r.Issue != "" && c.r.Clean != stepDone && c.r.Revoke != stepSaid {
		c.attempt(actionClean)
		if _, err := c.run(ctx, actionClean, &c.r.Clean); err != nil {
			return &failedStep{err}
		}
		c.a.crash("cleaned")
	}
	if !c.r.Unused && (c.r.Said || where == elsewhere) {
		c.r.Sealed = nil // what is sealed stays: the provider may only have moved, and the secret be in use
	}
	return c.drop(ctx)
}

// env is what every program sees that the agent runs: never a secret.
func (a *Agent) env() []string {
	return append(environment(a.cfg.Getenv), a.mark, "BINDERY_MESH="+a.cfg.Mesh, "BINDERY_NODE="+a.cfg.Node)
}

func (a *Agent) actionEnv(action string, attempt uint64) []string {
	return append(a.env(), "BINDERY_ACTION="+action, "BINDERY_ATTEMPT="+strconv.FormatUint(attempt, 10))
}

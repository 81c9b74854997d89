package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"bindery/commands"
	"bindery/events"
	"bindery/ledger/owned"
	"bindery/projections"
)

// Schemes that need no command.
const (
	schemeFile   = "file"                // below secrets in the agent's own tree
	schemeSealed = commands.SchemeSealed // kept by the ledger's writer
)

// userName is what a credential logs in as, where the hook does not say otherwise:
// no other credential is called so. PostgreSQL takes names of 63 bytes.
func userName(binding string, generation uint64, tag string) string {
	return fmt.Sprintf("b%s_%d_%s", strings.ToLower(binding[len(binding)-10:]), generation, tag)
}

// newSecret makes the secret of an ask.
func newSecret(d *projections.HolderDocument) map[string]string {
	return map[string]string{"username": userName(d.Binding.String(), d.Generation, d.Tag), "password": rand.Text()}
}

// reference is where the agent stores the secret of an ask.
func reference(scheme, binding, name string) string { return scheme + ":" + binding + "/" + name }

// parseSecret reads a secret: a JSON object of strings. Its error repeats no value.
func parseSecret(data []byte) (map[string]string, error) {
	var printed map[string]*string // null is no string, and would be read as an empty one
	if err := json.Unmarshal(data, &printed); err != nil || printed == nil || !utf8.Valid(data) {
		return nil, errors.New("it is no JSON object of strings")
	}
	secret := map[string]string{}
	for name, value := range printed {
		if value == nil {
			return nil, errors.New("an entry of it is null, which is no string")
		}
		secret[name] = *value
	}
	return secret, checkSecret(secret)
}

// resolve fetches the secret that a reference refers to.
func (a *Agent) resolve(ctx context.Context, n *need) (map[string]string, error) {
	scheme, rest, ok := strings.Cut(n.ref, ":")
	if !ok || events.CheckSecretRef(n.ref) != nil {
		return nil, errors.New("the reference to the secret is not one")
	}
	switch scheme {
	case schemeFile:
		if binding, _, _ := strings.Cut(rest, "/"); isID(binding) && binding != n.binding {
			return nil, errors.New("the reference is to the secret of another binding, and is not read")
		}
		return a.tree.readSecret(rest)
	case schemeSealed:
		return a.open(ctx, n, rest)
	}
	command, ok := a.cfg.Resolvers[scheme]
	if !ok {
		return nil, fmt.Errorf("no resolver for references of %s: is given to the agent", scheme)
	}
	return a.resolveBy(ctx, command, n)
}

// readSecret reads what a file: reference refers to, below secrets.
func (t *tree) readSecret(name string) (map[string]string, error) {
	if !filepath.IsLocal(name) || !fs.ValidPath(name) {
		return nil, errors.New("the file that the reference names is not one of the agent's secrets")
	}
	below, err := t.root.OpenRoot(dirSecrets) // a link in there leads nowhere else
	if err != nil {
		return nil, err
	}
	defer below.Close()
	data, err := (&tree{path: path.Join(t.path, dirSecrets), root: below}).read(name, maxRecord)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the file of the secret cannot be read: %w", bare(err))
	case data == nil:
		return nil, errors.New("there is no file of the secret on this node")
	}
	secret, err := parseSecret(data)
	if err != nil {
		return nil, fmt.Errorf("the file of the secret: %w", err)
	}
	return someSecret(secret, "the file of the secret")
}

// resolveInput is what a command that fetches a secret is told.
type resolveInput struct {
	Ref          string `json:"ref"`
	Scheme       string `json:"scheme"`
	Path         string `json:"path"`
	Mesh         string `json:"mesh"`
	Node         string `json:"node"`
	Assignment   string `json:"assignment"`
	AssignmentID string `json:"assignment_id"`
	Slot         string `json:"slot"`
	Binding      string `json:"binding"`
	Generation   uint64 `json:"generation"`
}

// resolveBy has a command fetch a secret: its arguments are split at blanks, and
// no shell sees them.
func (a *Agent) resolveBy(ctx context.Context, command string, n *need) (map[string]string, error) {
	scheme, rest, _ := strings.Cut(n.ref, ":")
	stdin, err := json.Marshal(resolveInput{Ref: n.ref, Scheme: scheme, Path: rest, Mesh: a.cfg.Mesh, Node: a.cfg.Node,
		Assignment: n.name, AssignmentID: n.assignment, Slot: n.slot, Binding: n.binding, Generation: n.generation})
	if err != nil {
		return nil, err
	}
	words := strings.Fields(command)
	program, err := owned.Find(words[0])
	if err != nil {
		return nil, fmt.Errorf("the resolver of %s is not run: %w", scheme, err)
	}
	run := hookRun{program: program, args: words[1:], limit: a.cfg.HookTimeout, stdin: stdin, secret: true,
		env: append(a.env(), "BINDERY_ACTION=resolve", "BINDERY_SCHEME="+scheme)}
	out, err := run.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("the resolver of %s: %w", scheme, err)
	}
	secret, err := parseSecret(out)
	if err != nil {
		return nil, fmt.Errorf("what the resolver of %s printed: %w", scheme, err)
	}
	return someSecret(secret, "what the resolver of "+scheme+" printed")
}

// someSecret refuses a secret of nothing: the one in use is better.
func someSecret(secret map[string]string, what string) (map[string]string, error) {
	if len(secret) == 0 {
		return nil, errors.New(what + " is an empty object: there is no secret in it")
	}
	return secret, nil
}

// store puts a secret where the consumer fetches it, durably.
func (a *Agent) store(ctx context.Context, d *projections.HolderDocument, r *credentialRecord) error {
	scheme, _, _ := strings.Cut(r.Ref, ":")
	if scheme == schemeSealed {
		return a.seal(ctx, d, r)
	}
	if d.ConsumerNodeID != a.cfg.NodeID && !a.cfg.FilesElsewhere {
		return fmt.Errorf("node %s would not find the file of a secret on this node: seal secrets, or have their files copied", d.ConsumerNode)
	}
	binding, name := r.secretOf()
	if err := a.tree.mkdir(path.Join(dirSecrets, binding)); err != nil {
		return err
	}
	return a.tree.writeRecord(path.Join(dirSecrets, binding, name), r.Secret)
}

// unstore takes it out again: it logs in no longer.
func (a *Agent) unstore(ctx context.Context, r *credentialRecord) error {
	if r.Sealed != nil {
		return a.unseal(ctx, r)
	}
	if strings.HasPrefix(r.Ref, schemeFile+":") {
		binding, name := r.secretOf()
		file := path.Join(dirSecrets, binding, name)
		if err := a.tree.remove(file); err != nil {
			return err
		}
		_ = a.tree.root.Remove(path.Dir(file)) // where others are in it, it stays
	}
	return nil
}

// values are the values of a secret.
func values(secret map[string]string) []string { return slices.Collect(maps.Values(secret)) }

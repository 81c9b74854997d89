package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
)

// What was done is kept in files, so that an agent that was killed goes on where
// it stopped: what is there is begun again, and told that it may have run.

// maxRecord bounds what is read of one, in bytes.
const maxRecord = 1 << 20

// place is what the agent has read of the ledger, and for whom.
type place struct {
	NodeID string         `json:"node_id"`
	Tree   string         `json:"tree"` // tells this tree from others
	Cursor service.Cursor `json:"cursor"`
	// Seals tells the sealed secrets that are kept from those that were lost: what was
	// sealed under another is sealed again.
	Seals string `json:"seals"`
}

const (
	placeFile = dirState + "/place"
	runFile   = dirState + "/run" // the mark of this run in the environment of its hooks
)

// slotRecord is what was done for one slot of an assignment.
type slotRecord struct {
	Source string `json:"source,omitempty"` // digest of what its files were made of
	Files  string `json:"files,omitempty"`  // digest of its files; "": it has none, or none any more
	Hooked string `json:"hooked,omitempty"` // Files when the hook last succeeded
	// What the hook is told of it.
	Type       string `json:"type,omitempty"`
	Provider   string `json:"provider,omitempty"`
	Endpoint   string `json:"endpoint,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	At         uint64 `json:"at,omitempty"`
}

// tries are how often the files of a slot could not be made of something.
type tries struct {
	Source string `json:"source"`
	N      uint64 `json:"n"`
}

// assignmentRecord is what was done for an assignment.
type assignmentRecord struct {
	Name     string                 `json:"name"`
	Module   string                 `json:"module"`
	Slots    map[string]*slotRecord `json:"slots"`
	Said     map[string]uint64      `json:"said,omitempty"`  // at what sequence a binding was acknowledged last
	Tries    map[string]tries       `json:"tries,omitempty"` // by binding
	Begun    string                 `json:"begun,omitempty"` // digest of the set that the hook was begun with and has not succeeded with
	Attempts uint64                 `json:"attempts,omitempty"`
}

// Steps of what the provider's hook does.
const (
	stepBegun = "begun"
	stepDone  = "done"
	stepSaid  = "said" // and acknowledged
)

// credentialRecord is the provider side's own copy of a secret, and what was done.
type credentialRecord struct {
	Key    string            `json:"key"` // of its document
	Input  hookInput         `json:"input"`
	Secret map[string]string `json:"secret,omitempty"`
	Ref    string            `json:"ref,omitempty"` // where it was stored for the consumer
	Sealed *sealedTo         `json:"sealed,omitempty"`

	Hook   string     `json:"hook,omitempty"` // that has made the login, or was begun to
	Issue  string     `json:"issue,omitempty"`
	Said   bool       `json:"said,omitempty"`   // that it is issued
	Unused bool       `json:"unused,omitempty"` // the ledger did not take it
	Revoke string     `json:"revoke,omitempty"`
	Did    events.Did `json:"did,omitempty"` // what the hook did to revoke it
	// Dropped: the login was ended by this agent, whatever the ledger was told of it.
	Dropped  bool   `json:"dropped,omitempty"`
	Clean    string `json:"clean,omitempty"`
	Doing    string `json:"doing,omitempty"`    // the action that was tried last, and
	Attempts uint64 `json:"attempts,omitempty"` // how often, without success
}

// userName is what the credential logs in as.
func (r *credentialRecord) userName() string {
	return cmp.Or(r.Secret["username"], r.Input.Username)
}

// readRecord reads a file into v and reports whether there is one.
func (t *tree) readRecord(name string, v any) (bool, error) {
	data, err := t.read(name, maxRecord)
	if err != nil || data == nil {
		return false, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	return true, nil
}

// writeRecord writes one that a crash of the machine must not take back.
func (t *tree) writeRecord(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.durably(name, append(data, '\n'))
}

func assignmentFile(id string) string { return path.Join(dirAssigned, id) }

// writeAssignment writes the record of an assignment. After a crash of the machine
// it may be an older one: then some of it is done again.
func (t *tree) writeAssignment(id string, r *assignmentRecord) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return t.replace(assignmentFile(id), data, false)
}

// readAssignment reads the record of an assignment; an empty one where there is
// none, or what is there cannot be read: then everything is done again.
func (t *tree) readAssignment(id string) (*assignmentRecord, error) {
	r := &assignmentRecord{}
	if _, err := t.readRecord(assignmentFile(id), r); err != nil {
		if data, again := t.read(assignmentFile(id), maxRecord); again != nil || data == nil {
			return nil, err
		}
		r = &assignmentRecord{}
	}
	if r.Slots == nil {
		r.Slots = map[string]*slotRecord{}
	}
	for slot, s := range r.Slots {
		if s == nil || plainName(slot) != nil {
			delete(r.Slots, slot)
		}
	}
	if r.Said == nil {
		r.Said = map[string]uint64{}
	}
	return r, nil
}

// recorded lists the ids of the assignments that something was done for; some of
// them may come twice.
func (t *tree) recorded() ([]string, error) {
	names, err := t.list(dirAssigned)
	homes, err2 := t.list(dirBindings)
	var out []string
	for _, n := range append(names, homes...) {
		if isID(n) {
			out = append(out, n)
		}
	}
	return out, errors.Join(err, err2)
}

// credentialName is what a credential's files are called: no other of the binding
// is called so, even where a ledger has lost its tail and gives sequences again.
func credentialName(generation uint64, tag string) string {
	return fmt.Sprintf("%d-%s", generation, tag)
}

// secretName is what the secret of a credential is called. Where its provider moves
// while it is issued, the agents of both nodes make one: each its own, and the ledger
// says whose is in use.
func secretName(generation uint64, tag string, maker events.ID) string {
	return credentialName(generation, tag) + "-" + commands.MakerName(maker)
}

// secretOf splits the reference to a secret that this agent has stored.
func (r *credentialRecord) secretOf() (binding, name string) {
	_, rest, _ := strings.Cut(r.Ref, ":")
	binding, name, _ = strings.Cut(rest, "/")
	return binding, name
}

func credentialFile(binding, name string) string { return path.Join(dirIssued, binding, name) }

// credentials lists the records of the provider side, as <binding id>/<name>.
func (t *tree) credentials() ([]string, error) {
	bindings, err := t.list(dirIssued)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, b := range bindings {
		if !isID(b) {
			continue
		}
		names, err := t.credentialsOf(b)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			out = append(out, b+"/"+n)
		}
	}
	return out, nil
}

// credentialsOf lists the names of a binding's records.
func (t *tree) credentialsOf(binding string) ([]string, error) {
	names, err := t.list(path.Join(dirIssued, binding))
	var out []string
	for _, n := range names {
		if !strings.HasPrefix(n, ".") { // not one that was being written
			out = append(out, n)
		}
	}
	return out, err
}

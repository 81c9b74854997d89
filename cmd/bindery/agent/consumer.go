package agent

import (
	"bindery/ledger/owned"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"path/filepath"
	"slices"
)

// consumerSlot is what a consumer's hook is told of a slot; the secret is in its
// files.
type consumerSlot struct {
	Type       string `json:"type"`
	Provider   string `json:"provider,omitempty"`
	Host       string `json:"host,omitempty"`
	Port       string `json:"port,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	At         uint64 `json:"at"`
}

// consumerInput is what a consumer's hook reads.
type consumerInput struct {
	Action       string                  `json:"action"` // apply, remove
	Attempt      uint64                  `json:"attempt"`
	Repeated     bool                    `json:"repeated"` // it may have run for this before
	Mesh         string                  `json:"mesh"`
	Node         string                  `json:"node"`
	Assignment   string                  `json:"assignment"`
	AssignmentID string                  `json:"assignment_id"`
	Module       string                  `json:"module"`
	Root         string                  `json:"root"`    // SERVICE_BINDING_ROOT
	Changed      []string                `json:"changed"` // slots whose files are others than when it last succeeded, or gone
	Slots        map[string]consumerSlot `json:"slots"`
}

// Actions of a consumer's hook.
const (
	actionApply  = "apply"
	actionRemove = "remove" // nothing is left of the assignment here
)

// consume makes an assignment's files what the ledger says, runs its hook where
// they have changed, and acknowledges what was done.
func (a *Agent) consume(ctx context.Context, id string) error {
	r, err := a.tree.readAssignment(id)
	if err != nil {
		return err
	}
	if a.isDone(id, r) {
		return a.tree.sweep(path.Join(dirBindings, id))
	}
	needs, err := a.needsNow(ctx, id)
	if err != nil {
		return err
	}
	if len(needs) > 0 {
		if err := a.keepPlace(); err != nil {
			return err
		}
	}
	c := &consumption{a: a, id: id, home: path.Join(dirBindings, id), r: r, needs: needs, faults: map[*need]error{}}
	if c.kept, err = json.Marshal(r); err != nil {
		return err
	}
	if err := c.place(ctx); err != nil {
		return c.fail(ctx, err)
	}
	if err := c.keep(); err != nil {
		return err
	}
	a.crash("files")
	if err := c.hook(ctx); err != nil {
		return c.fail(ctx, err)
	}
	a.crash("hook")
	return c.acknowledge(ctx)
}

// isDone reports whether, by what the agent heard last, nothing is due for an
// assignment: then nobody needs to be asked.
func (a *Agent) isDone(id string, r *assignmentRecord) bool {
	needs := a.docs.needsOf(id)
	if len(needs) == 0 || r.Begun != "" {
		return false
	}
	served := map[string]bool{}
	for _, n := range needs {
		if n.isNews() && r.Said[n.binding] < n.at {
			return false
		}
		if !n.usable {
			continue
		}
		served[n.slot] = true
		s := r.Slots[n.slot]
		if s == nil || s.Source != n.source() || s.Files == "" || s.Hooked != s.Files || r.Name != n.name || !a.tree.leadsTo(id, n.name) || r.Module != n.module || len(r.Tries) > 0 {
			return false
		}
		if there := a.tree.readSet(path.Join(dirBindings, id), n.slot); there == nil || digest(there) != s.Files {
			return false
		}
	}
	for slot := range r.Slots {
		if !served[slot] {
			return false
		}
	}
	return len(served) > 0
}

// consumption is one turn of work for an assignment.
type consumption struct {
	a      *Agent
	id     string
	home   string
	r      *assignmentRecord
	kept   []byte // as it was written last
	needs  []*need
	faults map[*need]error // why the files of a slot could not be made
}

// keep writes the record, where it is another one than is there.
func (c *consumption) keep() error {
	data, err := json.Marshal(c.r)
	if err != nil || bytes.Equal(data, c.kept) {
		return err
	}
	if err := c.a.tree.replace(assignmentFile(c.id), data, false); err != nil {
		return err
	}
	c.kept = data
	return nil
}

// place makes the files. What fails for one slot holds up no other.
func (c *consumption) place(ctx context.Context) error {
	t := c.a.tree
	wanted := map[string]bool{}
	for _, n := range c.needs {
		if !n.usable {
			continue
		}
		wanted[n.slot] = true
		if err := c.placeSlot(ctx, n); err != nil {
			c.faults[n] = err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for slot, s := range c.r.Slots {
		if wanted[slot] {
			continue
		}
		if err := t.remove(path.Join(c.home, slot)); err != nil {
			return err
		}
		if s.Source, s.Files = "", ""; s.Hooked == "" && c.r.Begun == "" {
			delete(c.r.Slots, slot) // the hook has never heard of it
		}
	}
	if len(c.needs) == 0 || !c.r.hasFiles() {
		return nil
	}
	name := c.needs[0].name
	if err := t.nameHome(c.id, name, c.r.Name); err != nil {
		return err
	}
	c.r.Name, c.r.Module = name, c.needs[0].module
	return nil
}

// placeSlot makes the files of one slot, where they are not what they must be.
func (c *consumption) placeSlot(ctx context.Context, n *need) error {
	s := c.r.Slots[n.slot]
	if s == nil {
		s = &slotRecord{}
	}
	there := c.a.tree.readSet(c.home, n.slot)
	if there == nil || digest(there) != s.Files || n.source() != s.Source {
		var secret map[string]string
		if n.ref != "" {
			var err error
			if secret, err = c.a.resolve(ctx, n); err != nil {
				return err
			}
			if err := checkAddress(secret, n.endpoint); err != nil {
				return err
			}
		}
		files := slotFiles(n, secret)
		if d := digest(files); there == nil || digest(there) != d {
			set, err := c.a.tree.writeSet(c.home, n.slot, files)
			if err != nil {
				return err
			}
			c.a.crash("set")
			if err := c.a.tree.turnTo(c.home, n.slot, set); err != nil {
				return err
			}
			c.a.crash("turned")
		}
		s.Source, s.Files = n.source(), digest(files)
	}
	s.Type, s.Provider, s.Endpoint, s.Generation, s.At = n.provision, n.provider, n.endpoint, n.generation, n.at
	c.r.Slots[n.slot] = s
	return nil
}

func (r *assignmentRecord) hasFiles() bool {
	for _, s := range r.Slots {
		if s.Files != "" {
			return true
		}
	}
	return false
}

// set is the digest of all files of an assignment; "" for none.
func (r *assignmentRecord) set() string {
	all := map[string]string{}
	for slot, s := range r.Slots {
		if s.Files != "" {
			all[slot] = s.Files
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return digest(all)
}

// changed lists the slots whose files are others than the hook last succeeded with.
func (r *assignmentRecord) changed() []string {
	out := []string{}
	for _, slot := range slices.Sorted(maps.Keys(r.Slots)) {
		if s := r.Slots[slot]; s.Files != s.Hooked {
			out = append(out, slot)
		}
	}
	return out
}

// hook runs the assignment's hook, where there is something new to tell it, and
// notes that it succeeded.
func (c *consumption) hook(ctx context.Context) error {
	changed := c.r.changed()
	if c.r.Begun != "" && c.r.Begun != c.r.set() {
		// A hook was begun with other files and has not succeeded: what it has done of
		// that must be undone, also where the files are what they were before.
		changed = slices.Sorted(maps.Keys(c.r.Slots))
	}
	if len(changed) == 0 {
		return c.clear()
	}
	program, err := c.a.consumerHook(c.r)
	if errors.Is(err, errNoHook) {
		return c.took(changed)
	}
	if err == nil {
		defer program.Close()
	}
	set := c.r.set()
	repeated := c.r.Begun == set
	if !repeated {
		c.r.Attempts = 0
	}
	c.r.Begun = set
	c.r.Attempts++
	if again := c.keep(); again != nil {
		return again
	}
	if err != nil {
		return err
	}
	c.a.crash("begun")
	if !c.a.lease.held() {
		return errNoLease
	}
	action := actionApply
	if !c.r.hasFiles() {
		action = actionRemove
	}
	if err := c.run(ctx, program, action, changed, repeated); err != nil {
		return err
	}
	c.a.crash("ran")
	return c.took(changed)
}

// consumerHook opens the hook of an assignment.
func (a *Agent) consumerHook(r *assignmentRecord) (*owned.Program, error) {
	if a.hooks == nil {
		return nil, errNoHook
	}
	program, _, err := a.hooks.find("consumer", r.Name, r.Module)
	return program, err
}

func (c *consumption) run(ctx context.Context, program *owned.Program, action string, changed []string, repeated bool) error {
	a := c.a
	in := consumerInput{Action: action, Attempt: c.r.Attempts, Repeated: repeated, Mesh: a.cfg.Mesh, Node: a.cfg.Node,
		Assignment: c.r.Name, AssignmentID: c.id, Module: c.r.Module, Root: filepath.Join(a.tree.path, dirBindings, c.id),
		Changed: changed, Slots: map[string]consumerSlot{}}
	var secrets []string
	for slot, s := range c.r.Slots {
		if s.Files == "" {
			continue
		}
		host, port := hostPort(s.Endpoint)
		in.Slots[slot] = consumerSlot{Type: s.Type, Provider: s.Provider, Host: host, Port: port, Generation: s.Generation, At: s.At}
		secrets = append(secrets, c.secretsIn(slot, s)...)
	}
	stdin, err := json.Marshal(in)
	if err != nil {
		return err
	}
	run := hookRun{program: program, stdin: stdin, limit: a.cfg.HookTimeout, secrets: secrets,
		env: append(a.actionEnv(action, c.r.Attempts), "SERVICE_BINDING_ROOT="+in.Root, "BINDERY_ASSIGNMENT="+c.r.Name, "BINDERY_MODULE="+c.r.Module)}
	_, err = run.run(ctx)
	return err
}

// secretsIn are the values in a slot's files that the ledger does not say.
func (c *consumption) secretsIn(slot string, s *slotRecord) []string {
	files := c.a.tree.readSet(c.home, slot)
	for _, name := range []string{entryType, entryProvider, entryHost, entryPort} {
		delete(files, name)
	}
	if files[entryURI] == s.Endpoint {
		delete(files, entryURI)
	}
	return values(files)
}

// took notes that the consumer has taken up what there is, and removes what it
// does not run with any more.
func (c *consumption) took(changed []string) error {
	for _, slot := range changed {
		if s := c.r.Slots[slot]; s.Files == "" {
			delete(c.r.Slots, slot)
		} else {
			s.Hooked = s.Files
		}
		for _, n := range c.needs {
			if n.slot == slot {
				delete(c.r.Said, n.binding) // it is said anew
			}
		}
	}
	c.r.Begun, c.r.Attempts = "", 0
	if err := c.keep(); err != nil {
		return err
	}
	return c.clear()
}

// clear removes what nothing leads to; all of it where nothing is left.
func (c *consumption) clear() error {
	t := c.a.tree
	if len(c.r.Slots) > 0 {
		return t.sweep(c.home)
	}
	if c.r.Name != "" {
		if err := t.unnameHome(c.id, c.r.Name); err != nil {
			return err
		}
	}
	if err := t.root.RemoveAll(c.home); err != nil {
		return err
	}
	if len(c.needs) == 0 {
		return t.remove(assignmentFile(c.id))
	}
	return nil
}

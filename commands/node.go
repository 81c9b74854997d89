package commands

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bindery/events"
	"bindery/projections"
)

// CreateMesh begins a ledger.
type CreateMesh struct {
	Name string `json:"name"`
	// Operator and NKey grant the first operator, where others than this process
	// will reach the ledger.
	Operator string `json:"operator,omitempty"`
	NKey     string `json:"nkey,omitempty"`
	// Writer is the key that proves what is written, where a server keeps the ledger.
	Writer string `json:"writer,omitempty"`
}

// FirstWriter is the name of the first writer's grant.
const FirstWriter = "writer"

// RegisterNode adds a machine.
type RegisterNode struct {
	Name string `json:"name"`
}

// RenameNode gives a node another name.
type RenameNode struct {
	Node string `json:"node"`
	To   string `json:"to"`
}

// RetireNode takes a node out of the mesh.
type RetireNode struct {
	Node  string `json:"node"`
	Force bool   `json:"force,omitempty"`
}

// Verb implements Command.
func (CreateMesh) Verb() string { return "mesh.create" }

// Verb implements Command.
func (RegisterNode) Verb() string { return "node.register" }

// Verb implements Command.
func (RenameNode) Verb() string { return "node.rename" }

// Verb implements Command.
func (RetireNode) Verb() string { return "node.retire" }

// Decide implements Command.
func (c CreateMesh) Decide(t *Tx) error {
	if err := events.CheckName(c.Name); err != nil {
		return invalid(err)
	}
	if !t.Mesh.ID.IsZero() {
		return refuse(NameTaken, "the ledger of mesh "+t.Mesh.Name+" exists already", "its id is "+t.Mesh.ID.String(), do("status"))
	}
	if err := t.emit(t.NewID(), &events.MeshCreated{Name: c.Name}); err != nil {
		return err
	}
	if c.Writer != "" {
		if err := (GrantAccess{Name: FirstWriter, Role: events.RoleWriter, NKey: c.Writer}).Decide(t); err != nil {
			return err
		}
	}
	if c.Operator == "" && c.NKey == "" {
		return nil
	}
	return GrantAccess{Name: c.Operator, Role: events.RoleOperator, NKey: c.NKey}.Decide(t)
}

// Decide implements Command.
func (c RegisterNode) Decide(t *Tx) error {
	if err := events.CheckName(c.Name); err != nil {
		return invalid(err)
	}
	if r := t.NodeNamed(c.Name); r != 0 {
		return taken("node", c.Name, t.Node(r).ID)
	}
	return t.emit(t.NewID(), &events.NodeRegistered{Name: c.Name})
}

// Decide implements Command.
func (c RenameNode) Decide(t *Tx) error {
	r, err := Finder{t.State}.Node(c.Node)
	if err != nil {
		return err
	}
	n := t.Node(r)
	if n.Retired {
		return retiredNode(n.Name)
	}
	if err := events.CheckName(c.To); err != nil {
		return invalid(err)
	}
	if n.Name == c.To {
		return nil
	}
	if o := t.NodeNamed(c.To); o != 0 {
		return taken("node", c.To, t.Node(o).ID)
	}
	return t.emit(n.ID, &events.NodeRenamed{From: n.Name, To: c.To})
}

// Decide implements Command.
func (c RetireNode) Decide(t *Tx) error {
	r, err := Finder{t.State}.Node(c.Node)
	if err != nil {
		return err
	}
	n := t.Node(r)
	if n.Retired {
		return nil
	}
	inUse := len(n.Providers)+len(n.Assignments)+n.Defaults > 0
	if c.Force && inUse {
		if err := t.needReason("retiring a node that is in use"); err != nil {
			return err
		}
	} else if inUse {
		refusal := refuse(NodeInUse, "node "+n.Name+" is in use",
			count(len(n.Assignments), "assignment")+", "+count(len(n.Providers), "provider")+" and "+
				count(n.Defaults, "default")+" live there; end, retire and clear them in this order", Fix{})
		for _, a := range t.AssignmentNames(n.Assignments) {
			refusal.Candidates = append(refusal.Candidates, Candidate{Name: a, Why: "an assignment there", Fix: do("assignment end", a)})
		}
		for _, d := range t.defaultsOn(r) {
			refusal.Candidates = append(refusal.Candidates, Candidate{Name: d, Why: "a default there",
				Fix: do("provision default", d).With("--clear").With("--node", n.Name)})
		}
		for _, p := range t.ProviderNames(n.Providers) {
			refusal.Candidates = append(refusal.Candidates, t.fromElsewhere(r, p)...)
			refusal.Candidates = append(refusal.Candidates, t.holdersFirst(r, p)...)
			refusal.Candidates = append(refusal.Candidates, Candidate{Name: p, Why: "a provider there", Fix: do("provider retire", p)})
		}
		refusal.Fix = refusal.Candidates[0].Fix
		return refusal
	}
	for _, d := range t.defaultsOn(r) {
		// Nobody can be put on the node any more: its defaults would only be
		// references that keep providers from being retired.
		if err := (ClearDefault{Provision: d, Node: n.ID.String()}).Decide(t); err != nil {
			return err
		}
	}
	return t.emit(n.ID, &events.NodeRetired{Forced: inUse})
}

// fromElsewhere is what would keep a provider from being retired when nothing
// else is left on its node, with the commands that end it.
func (t *Tx) fromElsewhere(node projections.NodeRef, provider string) []Candidate {
	r := t.ProviderNamed(provider)
	p := t.Provider(r)
	var out []Candidate
	for _, m := range t.ModuleNames(p.Modules) {
		out = append(out, Candidate{Name: m, Why: "a module that names " + provider + ": declare it without", Fix: do("module show", m)})
	}
	elsewhere := func(b projections.BindingRef) bool { return t.Assignment(t.Binding(b).Assignment).Node != node }
	for _, refs := range [][]projections.BindingRef{p.Bindings, p.Choices, p.Overrides, p.Memories} {
		if slices.ContainsFunc(refs, elsewhere) {
			return append(out, Candidate{Name: provider, Why: "a provider there that serves other nodes, too",
				Fix: do("provider drain", provider).With("--to", "OTHER")}) // defaults go along
		}
	}
	v := t.Provision(p.Provision)
	clear := do("provision default", v.Name).With("--clear")
	if v.Default.Provider == r {
		out = append(out, Candidate{Name: v.Name, Why: "the mesh's default is " + provider, Fix: clear})
	}
	var nodes []string
	for n, d := range v.NodeDefaults {
		if d.Provider == r && n != node {
			nodes = append(nodes, t.Node(n).Name)
		}
	}
	slices.Sort(nodes)
	for _, n := range nodes {
		out = append(out, Candidate{Name: v.Name, Why: "the default on " + n + " is " + provider, Fix: clear.With("--node", n)})
	}
	return out
}

// holdersFirst is what must be done about the holders of a provider before it can
// be retired: those of consumers on the node are to be revoked when these have
// ended; others must first be given another credential.
func (t *Tx) holdersFirst(node projections.NodeRef, provider string) []Candidate {
	live := t.Provider(t.ProviderNamed(provider)).Holders.Live
	look := []Candidate{{Name: provider, Why: "credentials that log in to it: " + strconv.Itoa(len(live)) + "; revoked each before it is retired",
		Fix: do("provider holders", provider)}}
	if len(live) == 0 {
		return nil
	}
	var out []Candidate
	for _, ref := range live {
		c := t.Credential(ref)
		b := t.Binding(c.Binding)
		if a := t.Assignment(b.Assignment); !a.Ended && a.Node != node || len(live) > MaxCandidates {
			return look
		}
		path := t.SlotPath(b)
		out = append(out, Candidate{Name: path, Why: fmt.Sprintf("its generation %d logs in to %s", c.Generation, provider),
			Fix: do("credential revoked", path).With("--generation", fmt.Sprint(c.Generation))})
	}
	slices.SortFunc(out, func(a, b Candidate) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Why, b.Why))
	})
	return out
}

// taken is the refusal of a name that a live entity bears.
func taken(what, name string, holder events.ID) error {
	r := refuse(NameTaken, what+" "+name+" exists already", "its id is "+holder.String(), do(what+" show", name))
	r.Candidates = append(r.Candidates, Candidate{Name: name, ID: &holder, Why: "bears the name"})
	return r
}

func retiredNode(name string) error {
	return refuse(NodeNotFound, "node "+name+" is retired", "nothing can be put on it", do("node list"))
}

// needReason refuses a command that must say why and does not.
func (t *Tx) needReason(what string) error {
	if t.Reason != "" {
		return nil
	}
	return refuse(ReasonRequired, what+" needs a reason", "it is kept with the event, for whoever asks later", again().With("--reason", "TEXT"))
}

// StepClock records that the writer's clock went back. The writer gives it to
// itself.
type StepClock struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Verb implements Command.
func (StepClock) Verb() string { return "mesh.step-clock" }

// Decide implements Command.
func (c StepClock) Decide(t *Tx) error {
	return t.emit(t.Mesh.ID, &events.MeshClockStepped{From: c.From, To: c.To})
}

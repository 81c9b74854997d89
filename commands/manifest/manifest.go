// Package manifest reads and writes the file that says what a fleet should
// look like: what apply, plan, export and module declare speak.
//
// A manifest is YAML (or JSON, which YAML contains) in one document. Decode is
// pure and strict: an unknown, misplaced or repeated key, a null, a value of
// the wrong type and a value the ledger would refuse are errors with file, line
// and column; up to MaxErrors of them are reported at once, in the order of
// the text. No message repeats a value that carries a secret. Whether the names
// in a manifest mean anything is not decided here: they may stand in the ledger
// only.
//
// # Said, not said, said to be empty
//
// A key that is absent says nothing. A key that is present has a value: null
// (`version:`) and the empty text (`version: ""`) are refused, so the empty
// string of a field means "not said" and nothing else. Lists and maps are nil
// where they are not said and empty, but not nil, where they are said to be
// empty (`features: []`, `bind: {}`, `nodes: []`); JSON and Encode keep the
// difference. `cordoned`, `optional` and `replaceable` are true or false, and
// false where they are not said. Features come out sorted.
package manifest

import "bindery/projections"

// Limits of one manifest. A directory's files share MaxNodes.
const (
	MaxFile   = 4 << 20 // bytes of one file
	MaxNodes  = 100_000 // keys, values, maps and lists, once aliases are expanded
	MaxDepth  = 100     // maps and lists inside each other, once aliases are expanded
	MaxErrors = 20      // reported at once
)

// Manifest is what one file, or the files of one directory, say.
type Manifest struct {
	Mesh        string                `json:"mesh,omitempty" yaml:"mesh,omitempty"`
	Provisions  map[string]Provision  `json:"provisions,omitzero" yaml:"provisions,omitzero"`
	Nodes       []string              `json:"nodes,omitzero" yaml:"nodes,omitzero"`
	Providers   map[string]Provider   `json:"providers,omitzero" yaml:"providers,omitzero"`
	Defaults    []Default             `json:"defaults,omitzero" yaml:"defaults,omitzero"`
	Modules     map[string]Module     `json:"modules,omitzero" yaml:"modules,omitzero"`
	Assignments map[string]Assignment `json:"assignments,omitzero" yaml:"assignments,omitzero"`
	Overrides   []Override            `json:"overrides,omitzero" yaml:"overrides,omitzero"`
	Logins      []Login               `json:"logins,omitzero" yaml:"logins,omitzero"`

	at map[place]position // where it was said; nil where it was not read from a text
}

// Provision is a kind of service.
type Provision struct {
	Scope       string `json:"scope" yaml:"scope"`                                 // node or mesh
	Credentials string `json:"credentials,omitempty" yaml:"credentials,omitempty"` // managed or none; empty where not said
}

// Provider is one running server of one provision.
type Provider struct {
	Provision string   `json:"provision" yaml:"provision"`
	Node      string   `json:"node" yaml:"node"`
	Endpoint  string   `json:"endpoint" yaml:"endpoint"`
	Version   string   `json:"version,omitempty" yaml:"version,omitempty"`
	Features  []string `json:"features,omitzero" yaml:"features,flow,omitzero"` // sorted; nil where not said
	Cordoned  bool     `json:"cordoned,omitempty" yaml:"cordoned,omitempty"`
}

// Default is the provider of a provision where nobody names one: on one node,
// or (node empty) in the whole mesh.
type Default struct {
	Provision string `json:"provision" yaml:"provision"`
	Provider  string `json:"provider" yaml:"provider"`
	Node      string `json:"node,omitempty" yaml:"node,omitempty"`
}

// Name is what Position and messages call the default: its provision, with
// @NODE where it is for a node.
func (d Default) Name() string {
	if d.Node == "" {
		return d.Provision
	}
	return d.Provision + "@" + d.Node
}

// Module is an application's declaration: its slots. A slot is in one of the
// two maps only.
type Module struct {
	Requires map[string]Requirement `json:"requires,omitzero" yaml:"requires,omitzero"`
	Embeds   map[string]Embed       `json:"embeds,omitzero" yaml:"embeds,omitzero"`
}

// Requirement is a slot that a provider serves. It may be written short, as
// PROVISION or PROVISION:CONSTRAINT.
type Requirement struct {
	Provision string   `json:"provision" yaml:"provision"`
	Version   string   `json:"version,omitempty" yaml:"version,omitempty"` // a constraint
	Provider  string   `json:"provider,omitempty" yaml:"provider,omitempty"`
	Features  []string `json:"features,omitzero" yaml:"features,flow,omitzero"` // sorted; nil where not said
	Optional  bool     `json:"optional,omitempty" yaml:"optional,omitempty"`
}

// Embed is a slot the module serves from a private instance of its own.
type Embed struct {
	Provision   string       `json:"provision" yaml:"provision"`
	Version     string       `json:"version,omitempty" yaml:"version,omitempty"`      // of the server it ships
	Features    []string     `json:"features,omitzero" yaml:"features,flow,omitzero"` // of the server it ships
	Because     string       `json:"because" yaml:"because"`                          // fork, version or extension
	Needs       *Needs       `json:"needs,omitempty" yaml:"needs,omitempty"`
	Replaceable bool         `json:"replaceable,omitempty" yaml:"replaceable,omitempty"`
	Composition *Composition `json:"composition,omitempty" yaml:"composition,omitempty"`
}

// Needs is what a provider must have to take an embed's place.
type Needs struct {
	Version  string   `json:"version,omitempty" yaml:"version,omitempty"` // a constraint
	Features []string `json:"features,omitzero" yaml:"features,flow,omitzero"`
}

// Composition says where an embed stands in its module's own composition.
type Composition struct {
	File    string `json:"file" yaml:"file"`       // a Compose file, relative to the manifest
	Service string `json:"service" yaml:"service"` // the service in it
}

// Assignment places a module on a node.
type Assignment struct {
	Module string            `json:"module,omitempty" yaml:"module,omitempty"` // empty: the one of the assignment's own name
	Node   string            `json:"node" yaml:"node"`
	Bind   map[string]string `json:"bind,omitzero" yaml:"bind,omitzero"` // slot to provider; nil where not said
}

// Override is an operator's decision on one slot.
type Override struct {
	Slot     string `json:"slot" yaml:"slot"` // ASSIGNMENT/SLOT
	Provider string `json:"provider" yaml:"provider"`
	Reason   string `json:"reason" yaml:"reason"`
}

// Login is a login that was made by hand, of one slot: which it is, never what proves it.
type Login struct {
	Slot      string `json:"slot" yaml:"slot"` // ASSIGNMENT/SLOT
	User      string `json:"user" yaml:"user"`
	Database  string `json:"database,omitempty" yaml:"database,omitempty"`
	SecretRef string `json:"secret_ref,omitempty" yaml:"secret_ref,omitempty"` // scheme:path; answers an open ask
}

// Decode reads the manifest data; file is what its errors call it. The error is
// of type Errors.
func Decode(file string, data []byte) (*Manifest, error) {
	d := newDecoder()
	d.manifest(file, data)
	return d.result()
}

// DecodeModule reads the declaration of one module: a manifest with exactly one
// module and nothing else but mesh. The error is of type Errors.
func DecodeModule(file string, data []byte) (name string, m Module, err error) {
	d := newDecoder()
	d.root = kindDeclaration
	d.manifest(file, data)
	if n := len(d.m.Modules); n != 1 && len(d.errs) == 0 {
		at, ok := d.m.at[place{"modules", ""}]
		if !ok {
			at = position{file: file}
		}
		e := d.fail(at, CodeInvalid, "%d modules; a module declaration has exactly one", n)
		if n > 1 {
			e.Fix = projections.Do("apply").With("-f", file)
		}
	}
	if _, err := d.result(); err != nil {
		return "", Module{}, err
	}
	for name, m = range d.m.Modules {
	}
	return name, m, nil
}

// Position says where the manifest speaks of an object, as file:line:column,
// and is empty where it does not, or was not read from a text. The section is
// the top-level key, the name is
//
//	mesh                                        ""
//	provisions, nodes, providers, modules       NAME
//	defaults                                    PROVISION, or PROVISION@NODE
//	modules, a slot                             MODULE/SLOT
//	assignments, and a choice under bind        NAME, ASSIGNMENT/SLOT
//	overrides, logins                           ASSIGNMENT/SLOT
//
// With ".KEY" behind the name it is where that key of the object stands, or
// the object where it has no such key.
func (m *Manifest) Position(section, name string) string {
	for {
		if p, ok := m.at[place{section, name}]; ok {
			return p.String()
		}
		i := lastDot(name)
		if i < 0 {
			return ""
		}
		name = name[:i]
	}
}

package events

import (
	"cmp"
	"errors"
	"fmt"
)

// MaxSlots is the greatest number of slots of one module, and with it the
// greatest number of bindings of one assignment: one command stays one batch.
const MaxSlots = 100

// ModuleDeclared holds the whole declaration of a module; a later one under
// the same id replaces it.
type ModuleDeclared struct {
	Name     string                 `json:"name"`
	Requires map[string]Requirement `json:"requires,omitempty" jsonschema:"description=slots served by a provider"`
	Embeds   map[string]Embed       `json:"embeds,omitempty" jsonschema:"description=slots the module ships itself"`
}

// Requirement is a provisioned slot: what the module needs there.
type Requirement struct {
	Provision ID       `json:"provision"`
	Version   string   `json:"version,omitempty" jsonschema:"description=constraint on the provider's version"`
	Features  []string `json:"features,omitempty" jsonschema:"description=each must be there; sorted and distinct"`
	Provider  ID       `json:"provider,omitzero" jsonschema:"description=the provider the module itself names"`
	Optional  bool     `json:"optional,omitempty" jsonschema:"description=left pending where there is no provider"`
}

// Embed is a slot the module serves from an instance of its own: private, never
// a provider.
type Embed struct {
	Provision   ID           `json:"provision"`
	Version     string       `json:"version,omitempty" jsonschema:"description=of the server it ships"`
	Features    []string     `json:"features,omitempty" jsonschema:"description=of the server it ships; sorted and distinct"`
	Because     Because      `json:"because"`
	Needs       *Needs       `json:"needs,omitempty" jsonschema:"description=what a provider must have to take its place"`
	Replaceable bool         `json:"replaceable,omitempty" jsonschema:"description=an operator may override it with a provider"`
	Composition *Composition `json:"composition,omitempty"`
}

// Needs is what a provider must meet to take an embed's place.
type Needs struct {
	Version  string   `json:"version,omitempty"`
	Features []string `json:"features,omitempty"`
}

// Composition says where an embed stands in the module's own composition.
type Composition struct {
	File    string `json:"file" jsonschema:"description=the Compose file"`
	Service string `json:"service" jsonschema:"description=the service in it"`
}

// ModuleRemoved ends a module nothing is assigned of.
type ModuleRemoved struct{}

// EventType implements Payload, for each type of this file.
func (*ModuleDeclared) EventType() Type { return Type{EntityModule, "declared", 1} }
func (*ModuleRemoved) EventType() Type  { return Type{EntityModule, "removed", 1} }

// Check implements Payload, for each type of this file.
func (p *ModuleDeclared) Check() error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	if n := len(p.Requires) + len(p.Embeds); n > MaxSlots {
		return fmt.Errorf("%d slots; at most %d are allowed", n, MaxSlots)
	}
	for _, slot := range sortedKeys(p.Requires) {
		if err := cmp.Or(CheckName(slot), p.Requires[slot].check()); err != nil {
			return fmt.Errorf("slot %s: %w", clip(slot), err)
		}
		if _, both := p.Embeds[slot]; both {
			return fmt.Errorf("slot %s is both required and embedded", slot)
		}
	}
	for _, slot := range sortedKeys(p.Embeds) {
		if err := cmp.Or(CheckName(slot), p.Embeds[slot].check()); err != nil {
			return fmt.Errorf("slot %s: %w", clip(slot), err)
		}
	}
	return nil
}

func (r Requirement) check() error {
	if err := checkID("provision", r.Provision); err != nil {
		return err
	}
	return checkNeed(r.Version, r.Features)
}

func (e Embed) check() error {
	if err := checkID("provision", e.Provision); err != nil {
		return err
	}
	if err := oneOf("because", e.Because, allBecause...); err != nil {
		return err
	}
	if err := cmp.Or(checkVersion(e.Version), CheckFeatures(e.Features)); err != nil {
		return err
	}
	if e.Needs != nil {
		if err := checkNeed(e.Needs.Version, e.Needs.Features); err != nil {
			return err
		}
	}
	if e.Composition != nil {
		return e.Composition.check()
	}
	return nil
}

func checkNeed(constraint string, features []string) error {
	if constraint != "" {
		if err := CheckConstraint(constraint); err != nil {
			return err
		}
	}
	return CheckFeatures(features)
}

// maxPath bounds what a declaration may carry of a composition.
const maxPath = 1024

func (c Composition) check() error {
	if c.File == "" || c.Service == "" {
		return errors.New("composition without a file or a service")
	}
	return cmp.Or(checkText("composition file", c.File, maxPath), checkText("composition service", c.Service, maxPath))
}

func (p *ModuleRemoved) Check() error { return nil }

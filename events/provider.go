package events

import (
	"cmp"
	"errors"
)

// ProviderRegistered adds one running server of one provision.
type ProviderRegistered struct {
	Name      string   `json:"name"`
	Provision ID       `json:"provision"`
	Node      ID       `json:"node"`
	Endpoint  string   `json:"endpoint" jsonschema:"description=host:port or scheme://host[:port][/path]"`
	Version   string   `json:"version,omitempty"`
	Features  []string `json:"features,omitempty" jsonschema:"description=sorted and distinct"`
	Cordoned  bool     `json:"cordoned,omitempty" jsonschema:"description=registered as a successor: takes no consumer until uncordoned"`
}

// ProviderUpdated changes what a provider is like; a field that is absent did
// not change, an empty one was emptied.
type ProviderUpdated struct {
	Endpoint *string   `json:"endpoint,omitempty"`
	Version  *string   `json:"version,omitempty"`
	Features *[]string `json:"features,omitempty" jsonschema:"description=the whole set\\, sorted and distinct"`
}

// ProviderRenamed gives a provider another name.
type ProviderRenamed struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// ProviderRelocated moves a provider to another node; its identity stays, and
// with it every binding.
type ProviderRelocated struct {
	From         ID     `json:"from" jsonschema:"description=the node it was on"`
	To           ID     `json:"to" jsonschema:"description=the node it is on now"`
	FromEndpoint string `json:"from_endpoint"`
	Endpoint     string `json:"endpoint" jsonschema:"description=where it answers now"`
}

// ProviderCordoned stops a provider from being given new consumers.
type ProviderCordoned struct{}

// ProviderUncordoned lets it have new consumers again.
type ProviderUncordoned struct{}

// ProviderRetired ends a provider.
type ProviderRetired struct {
	Forced bool `json:"forced,omitempty" jsonschema:"description=bindings or references were left behind"`
}

// EventType implements Payload, for each type of this file.
func (*ProviderRegistered) EventType() Type { return Type{EntityProvider, "registered", 1} }
func (*ProviderUpdated) EventType() Type    { return Type{EntityProvider, "updated", 1} }
func (*ProviderRenamed) EventType() Type    { return Type{EntityProvider, "renamed", 1} }
func (*ProviderRelocated) EventType() Type  { return Type{EntityProvider, "relocated", 1} }
func (*ProviderCordoned) EventType() Type   { return Type{EntityProvider, "cordoned", 1} }
func (*ProviderUncordoned) EventType() Type { return Type{EntityProvider, "uncordoned", 1} }
func (*ProviderRetired) EventType() Type    { return Type{EntityProvider, "retired", 1} }

// Check implements Payload, for each type of this file.
func (p *ProviderRegistered) Check() error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	if err := cmp.Or(checkID("provision", p.Provision), checkID("node", p.Node)); err != nil {
		return err
	}
	return cmp.Or(CheckEndpoint(p.Endpoint), checkVersion(p.Version), CheckFeatures(p.Features))
}

func (p *ProviderUpdated) Check() error {
	if p.Endpoint == nil && p.Version == nil && p.Features == nil {
		return errors.New("nothing was updated")
	}
	if p.Endpoint != nil {
		if err := CheckEndpoint(*p.Endpoint); err != nil {
			return err
		}
	}
	if p.Version != nil {
		if err := checkVersion(*p.Version); err != nil {
			return err
		}
	}
	if p.Features == nil {
		return nil
	}
	if *p.Features == nil {
		return errors.New("features are null; emptied ones are an empty list")
	}
	return CheckFeatures(*p.Features)
}

// checkVersion is CheckVersion for a field that may be empty: not known.
func checkVersion(s string) error {
	if s == "" {
		return nil
	}
	return CheckVersion(s)
}

func (p *ProviderRelocated) Check() error {
	if err := cmp.Or(checkID("node", p.From), checkID("node", p.To)); err != nil {
		return err
	}
	return cmp.Or(CheckEndpoint(p.FromEndpoint), CheckEndpoint(p.Endpoint))
}

func (p *ProviderRenamed) Check() error    { return checkNames(p.From, p.To) }
func (p *ProviderCordoned) Check() error   { return nil }
func (p *ProviderUncordoned) Check() error { return nil }
func (p *ProviderRetired) Check() error    { return nil }

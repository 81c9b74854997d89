package events

// ProvisionDefined names a kind of service.
type ProvisionDefined struct {
	Name        string      `json:"name"`
	Scope       Scope       `json:"scope"`
	Credentials Credentials `json:"credentials"`
}

// ProvisionRescoped changes the scope; it rebinds nothing.
type ProvisionRescoped struct {
	From Scope `json:"from"`
	To   Scope `json:"to"`
}

// ProvisionRemoved ends a provision nothing refers to.
type ProvisionRemoved struct{}

// DefaultSet declares the provider of a provision for consumers that name
// none: of one node, or (without node) of the mesh. A standing one is replaced.
type DefaultSet struct {
	Node     ID `json:"node,omitzero"`
	Provider ID `json:"provider"`
	Replaces ID `json:"replaces,omitzero" jsonschema:"description=the provider that was the default before"`
}

// DefaultCleared withdraws a default.
type DefaultCleared struct {
	Node     ID `json:"node,omitzero"`
	Provider ID `json:"provider" jsonschema:"description=the provider that was the default"`
}

// EventType implements Payload, for each type of this file.
func (*ProvisionDefined) EventType() Type  { return Type{EntityProvision, "defined", 1} }
func (*ProvisionRescoped) EventType() Type { return Type{EntityProvision, "rescoped", 1} }
func (*ProvisionRemoved) EventType() Type  { return Type{EntityProvision, "removed", 1} }
func (*DefaultSet) EventType() Type        { return Type{EntityProvision, "default-set", 1} }
func (*DefaultCleared) EventType() Type    { return Type{EntityProvision, "default-cleared", 1} }

// Check implements Payload, for each type of this file.
func (p *ProvisionDefined) Check() error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	if err := checkScope(p.Scope); err != nil {
		return err
	}
	return oneOf("credentials", p.Credentials, allCredentials...)
}

func (p *ProvisionRescoped) Check() error {
	if err := checkScope(p.From); err != nil {
		return err
	}
	return checkScope(p.To)
}

func (p *ProvisionRemoved) Check() error { return nil }
func (p *DefaultSet) Check() error       { return checkID("provider", p.Provider) }
func (p *DefaultCleared) Check() error   { return checkID("provider", p.Provider) }

func checkScope(s Scope) error { return oneOf("scope", s, allScopes...) }

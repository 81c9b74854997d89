package events

// NodeRegistered adds a machine to the mesh.
type NodeRegistered struct {
	Name string `json:"name"`
}

// NodeRenamed gives a node another name.
type NodeRenamed struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// NodeRetired takes a node out of the mesh.
type NodeRetired struct {
	Forced bool `json:"forced,omitempty" jsonschema:"description=something still lived there"`
}

// EventType implements Payload, for each type of this file.
func (*NodeRegistered) EventType() Type { return Type{EntityNode, "registered", 1} }
func (*NodeRenamed) EventType() Type    { return Type{EntityNode, "renamed", 1} }
func (*NodeRetired) EventType() Type    { return Type{EntityNode, "retired", 1} }

// Check implements Payload, for each type of this file.
func (p *NodeRegistered) Check() error { return CheckName(p.Name) }
func (p *NodeRenamed) Check() error    { return checkNames(p.From, p.To) }
func (p *NodeRetired) Check() error    { return nil }

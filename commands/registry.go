package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"bindery/projections"
)

// verbs makes a command of each verb from its arguments in JSON. What only the
// writer gives itself (mesh.step-clock) is not among them.
var verbs = map[string]func(json.RawMessage) (Command, error){}

func register[C Command]() {
	var zero C
	verbs[zero.Verb()] = func(args json.RawMessage) (Command, error) {
		var c C
		if err := strict(args, &c); err != nil {
			return nil, refuse(Usage, "the arguments of "+zero.Verb()+" cannot be read", err.Error(), Fix{})
		}
		return c, nil
	}
}

func init() {
	register[CreateMesh]()
	register[RegisterNode]()
	register[RenameNode]()
	register[RetireNode]()
	register[DefineProvision]()
	register[RescopeProvision]()
	register[RemoveProvision]()
	register[SetDefault]()
	register[ClearDefault]()
	register[RegisterProvider]()
	register[UpdateProvider]()
	register[RenameProvider]()
	register[RelocateProvider]()
	register[CordonProvider]()
	register[UncordonProvider]()
	register[RetireProvider]()
	register[DrainProvider]()
	register[DeclareModule]()
	register[RemoveModule]()
	register[CreateAssignment]()
	register[MoveAssignment]()
	register[RenameAssignment]()
	register[EndAssignment]()
	register[ResolveAssignment]()
	register[RebindSlot]()
	register[SetOverride]()
	register[ClearOverride]()
	register[ApplyManifest]()
	register[AcknowledgeBinding]()
	register[FailBinding]()
	register[RequestCredential]()
	register[IssueCredential]()
	register[AdoptCredential]()
	register[FailCredential]()
	register[RevokeCredential]()
	register[WriteOffCredentials]()
	register[StartRotation]()
	register[UrgeRotation]()
	register[AbortRotation]()
	register[GrantAccess]()
	register[RevokeAccess]()
	register[SealMesh]()

	registerQuery[ListNodes]()
	registerQuery[ShowNode]()
	registerQuery[ListProvisions]()
	registerQuery[ShowProvision]()
	registerQuery[ListProviders]()
	registerQuery[ShowProvider]()
	registerQuery[ListModules]()
	registerQuery[ShowModule]()
	registerQuery[ListAssignments]()
	registerQuery[ShowAssignment]()
	registerQuery[ListBindings]()
	registerQuery[ShowBinding]()
	registerQuery[ListOverrides]()
	registerQuery[Status]()
	registerQuery[Explain]()
	registerQuery[ListHolders]()
	registerQuery[ListCredentials]()
	registerQuery[ListRotations]()
	registerQuery[ShowRotation]()
	registerQuery[PreviewRotation]()
	registerQuery[ListAccess]()
	registerQuery[WhoAmI]()
	registerQuery[ResolveTrace]()
}

// Verbs lists the verbs, sorted.
func Verbs() []string { return sortedKeys(verbs) }

// ParseCommand makes the command of a verb from its arguments, strictly.
func ParseCommand(verb string, args json.RawMessage) (Command, error) {
	parse := verbs[verb]
	if parse == nil {
		return nil, refuse(Usage, fmt.Sprintf("there is no command %q", clip(verb)), "", do("").With("--help"))
	}
	return parse(args)
}

// A Query asks about the state; it changes nothing.
type Query interface {
	// Name is the query's name: noun and verb of the command line with a dot.
	Name() string
	// Answer gives a value of the JSON contract, or a *Refusal. It is asked at now.
	Answer(s *projections.State, now time.Time) (any, error)
}

// Answer puts q to s. A refusal repeats no secret that q carries.
func Answer(s *projections.State, q Query, now time.Time) (any, error) {
	v, err := q.Answer(s, now)
	if err != nil {
		return nil, withoutSecret(q, err)
	}
	return v, nil
}

var queries = map[string]func(json.RawMessage) (Query, error){}

func registerQuery[Q Query]() {
	var zero Q
	queries[zero.Name()] = func(args json.RawMessage) (Query, error) {
		var q Q
		if err := strict(args, &q); err != nil {
			return nil, refuse(Usage, "the arguments of "+zero.Name()+" cannot be read", err.Error(), Fix{})
		}
		return q, nil
	}
}

// ParseQuery makes the query of a name from its arguments, strictly.
func ParseQuery(name string, args json.RawMessage) (Query, error) {
	parse := queries[name]
	if parse == nil {
		return nil, refuse(Usage, fmt.Sprintf("there is no query %q", clip(name)), "", do("").With("--help"))
	}
	return parse(args)
}

// strict reads JSON with unknown fields refused.
func strict(args json.RawMessage, into any) error {
	if len(bytes.TrimSpace(args)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("more than one value")
	}
	return nil
}

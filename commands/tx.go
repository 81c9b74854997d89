package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"bindery/events"
	"bindery/projections"
)

// MaxEvents is the greatest number of events of one command: JetStream's limit
// on an atomic batch (nats-server server/stream.go, 1,000 messages).
const MaxEvents = 1000

// A Command is something somebody asks for: a verb and its arguments. Its JSON
// is what is hashed and what travels in a request.
type Command interface {
	// Verb is the command's name: noun and verb of the command line with a dot.
	Verb() string
	// Decide emits the events that make it so, or returns a *Refusal. One that
	// emits nothing has found that nothing would change.
	Decide(tx *Tx) error
}

// Env is what a decision takes from outside: who asks, when, under which id.
type Env struct {
	Now         time.Time
	NewID       func() events.ID // mints the ids of new entities and of events
	Actor       string
	Reason      string
	Command     events.ID
	CommandHash events.CommandHash
	// Whole decides all parts of a series at once, for a dry run; what comes out
	// may be more than one batch takes.
	Whole bool
	// After is the stream's last sequence, where foreign messages lie behind the
	// last event; 0 where none do.
	After uint64
}

// Tx is one decision under way: the state with the decision's own events folded
// into it already.
type Tx struct {
	*projections.State
	Env
	events []events.Event
	limit  int

	objects  []Object
	warnings []string
	more     bool
	origin   events.Origin
	prefix   events.Chain
}

// Decision is what a command came to.
type Decision struct {
	Events  []events.Event
	Records events.Group
	Effect
}

// Decide runs c against s. When it returns without error, the events are folded
// into s under its journal: the caller commits them once they are durable, or
// rolls back. When it returns an error (a *Refusal, or one that says this
// program is at fault), s is as before.
func Decide(s *projections.State, c Command, env Env) (*Decision, error) {
	mark := s.Begin()
	tx := &Tx{State: s, Env: env, limit: MaxEvents, origin: events.OriginCommand, prefix: s.Chain}
	if env.Whole {
		tx.limit = maxWhole
	}
	d, err := tx.run(c)
	if err != nil {
		s.Rollback(mark)
		return nil, withoutSecret(c, err)
	}
	if len(d.Events) == 0 {
		s.Rollback(mark) // what was worked out on the way is no fact: a replay would not have it
	}
	return d, nil
}

// maxWhole bounds what one series may write in all.
const maxWhole = 10_000_000

// withoutSecret is the refusal of a command, or another one where the command's
// arguments carry a secret: a refusal cites what was given.
func withoutSecret(args any, refusal error) error {
	text, err := json.Marshal(args)
	if err != nil {
		return refusal
	}
	if err := events.CheckNoSecret(string(text)); err != nil {
		return refuse(SecretInLedger, "a value carries what looks like a secret", err.Error(),
			advise("the same command with the value's plain form; secrets are referred to, never recorded"))
	}
	return refusal
}

func (t *Tx) run(c Command) (*Decision, error) {
	if t.Mesh.Sealed {
		return nil, refuse(LedgerSealed, "the ledger of mesh "+t.Mesh.Name+" is sealed",
			sealedWhy(t.Mesh.Successor), do("log"))
	}
	if err := t.checkReason(t.Reason); err != nil {
		return nil, err
	}
	if err := events.CheckActor(t.Actor); err != nil {
		return nil, invalid(err)
	}
	if err := c.Decide(t); err != nil {
		return nil, err
	}
	if err := t.completeRotations(); err != nil {
		return nil, err
	}
	return t.finish()
}

// sealedWhy says where a ledger has gone.
func sealedWhy(successor string) string {
	if successor == "" {
		return "nothing may follow; where it lives now was not said"
	}
	return "it has moved to " + successor
}

// checkReason refuses a reason that no event could carry.
func (t *Tx) checkReason(reason string) error {
	if err := events.CheckReason(reason); err != nil {
		if len(reason) > events.MaxReason {
			return codedAs(TooLarge, err)
		}
		return invalid(err)
	}
	return nil
}

// finish numbers the events within the command, encodes and chains them.
func (t *Tx) finish() (*Decision, error) {
	d := &Decision{Events: t.events, Effect: t.effect()}
	if len(t.events) == 0 {
		return d, nil
	}
	if len(t.events) > t.limit {
		return nil, refuse(TooLarge, "the command is too large",
			fmt.Sprintf("it would write %d events at once; at most %d fit", len(t.events), t.limit), Fix{})
	}
	d.Records = make(events.Group, len(t.events))
	chain := t.prefix
	for i := range t.events {
		e := &t.events[i]
		e.N, e.Continues = len(t.events), t.more
		r, err := e.Encode(chain)
		if errors.Is(err, events.ErrTooLarge) {
			return nil, refuse(TooLarge, "the command is too large", err.Error(), Fix{})
		}
		if err != nil {
			return nil, err
		}
		chain, d.Records[i] = e.Chain, r
	}
	t.Close(&t.events[len(t.events)-1])
	t.Tagged(t.events)
	return d, nil
}

// emit makes p a fact of this command and folds it.
func (t *Tx) emit(id events.ID, p events.Payload) error {
	e := events.Event{
		Envelope: events.Envelope{ID: t.NewID(), Mesh: t.Mesh.ID, Time: t.Now, Actor: t.Actor, Command: t.Command,
			CommandHash: t.CommandHash, Reason: t.Reason, Origin: t.origin, K: len(t.events) + 1, N: math.MaxInt},
		Seq: max(t.Seq, t.After) + 1, MeshName: t.Mesh.Name, Type: p.EventType(), Entity: id, Data: p,
	}
	if c, ok := p.(*events.MeshCreated); ok {
		e.Mesh, e.MeshName = id, c.Name
	}
	if err := p.Check(); err != nil {
		return invalid(err)
	}
	if err := t.Apply(&e); err != nil {
		return err
	}
	t.events = append(t.events, e)
	return nil
}

// warn adds a sentence for the person who gave the command.
func (t *Tx) warn(format string, args ...any) {
	t.warnings = append(t.warnings, fmt.Sprintf(format, args...))
}

// invalid turns an error of the events package about a value into a refusal.
func invalid(err error) error {
	var name *events.NameError
	switch {
	case errors.Is(err, events.ErrSecret):
		return refuse(SecretInLedger, "the value carries a secret", err.Error(),
			advise("give the address alone; secrets are referred to, never recorded"))
	case errors.As(err, &name):
		code, why := NameInvalid, "a name is 1 to 63 of a-z, 0-9 and '-', begins with a letter and does not end in '-'"
		if name.Reserved {
			code, why = NameReserved, "reserved are "+strings.Join(events.ReservedNames(), ", ")
		}
		r := refuse(code, err.Error(), why, Fix{})
		if name.Suggest != "" {
			r.Candidates = append(r.Candidates, Candidate{Name: name.Suggest, Why: "the nearest valid name"})
		}
		return r
	}
	return refuse(Usage, err.Error(), "", Fix{})
}

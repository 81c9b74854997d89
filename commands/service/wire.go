// Package service is the request path: commands and queries as NATS requests
// (the services API of nats.go, package micro), answered by a handler.
//
// Requests go to bindery-req.<mesh>.command, bindery-req.<mesh>.query and
// bindery-req.<mesh>.agent, which the writer answers, and to
// bindery-req.<mesh>.read, which every instance does:
// a prefix the mesh's stream does not listen on, since a stream stores and
// acknowledges whatever is published under its subjects. Bodies are JSON. An answer that
// does not fit one message comes in several, in order, each with the header
// Bindery-Part: k/n.
package service

import (
	"encoding/json"
	"time"

	"bindery/commands"
	"bindery/events"
)

// SubjectRoot is the first token of every request's subject.
const SubjectRoot = "bindery-req"

// CommandSubject is where a mesh's commands go.
func CommandSubject(mesh string) string { return SubjectRoot + "." + mesh + ".command" }

// QuerySubject is where a mesh's queries go.
func QuerySubject(mesh string) string { return SubjectRoot + "." + mesh + ".query" }

// ReadSubject is where queries go that any instance may answer, the writer or one
// that follows it.
func ReadSubject(mesh string) string { return SubjectRoot + "." + mesh + ".read" }

// IdentitySubject is where it is asked which ledger is served: an Identity answers,
// to who is granted anything.
const IdentitySubject = SubjectRoot + "." + identityVerb

// identityVerb ends the same subject in the ledger's account.
const identityVerb = "mesh"

// guestSubject is a subject in the ledger's account for what a guest sends.
func guestSubject(mesh, key, verb string) string {
	return SubjectRoot + "." + mesh + "." + key + "." + verb
}

// HeaderPart tells the parts of a long answer: k/n, k from 1.
const HeaderPart = "Bindery-Part"

// maxPart is the greatest part of an answer in bytes: half of the least limit
// NATS servers have by default (1 MiB, server/const.go).
const maxPart = 512 << 10

// CommandMessage is a command on the wire.
type CommandMessage struct {
	Verb      string          `json:"verb"`
	Args      json.RawMessage `json:"args,omitempty"`
	ID        events.ID       `json:"id"`
	Actor     string          `json:"actor"`
	Reason    string          `json:"reason,omitempty"`
	DryRun    bool            `json:"dry_run,omitempty"`
	ExpectSeq *uint64         `json:"expect_seq,omitempty"`
	// Invocation tells the copies of one request from a later one with the same id: what
	// the writer told the first copy, it tells the others. Any text that nobody used
	// before, 64 bytes at most.
	Invocation string `json:"invocation,omitempty"`
}

// QueryMessage is a query on the wire.
type QueryMessage struct {
	Query string          `json:"query"`
	Args  json.RawMessage `json:"args,omitempty"`
	// AtLeast is a sequence that the answer must know of: one that follows the log
	// waits until it has read that far, but no longer than Within.
	AtLeast uint64 `json:"at_least,omitempty"`
	// AsOf asks for the answer as of a moment; nil: now.
	AsOf *AsOf `json:"as_of,omitempty"`
	// Within is how long the caller waits, in milliseconds; 0: MaxReadWait.
	Within int `json:"within,omitempty"`
}

// MaxReadWait is how long a query may wait until a follower has read as far as
// it asks.
const MaxReadWait = 30 * time.Second

// LogQuery asks for events by sequence; it is answered by the service itself,
// from the log.
type LogQuery struct {
	First uint64 `json:"first"`           // from 1
	Limit int    `json:"limit,omitempty"` // 0: MaxLogPage
	// Time, an instant in RFC 3339, asks for the first event at or after it
	// instead of First.
	Time string `json:"time,omitempty"`
	// Event, an event's id, asks from that event on.
	Event string `json:"event,omitempty"`
	// Until is the last sequence that is wanted; 0: the ledger's last.
	Until uint64 `json:"until,omitempty"`
	// What is given of these narrows what comes; a page may then hold less than Limit
	// events, and there may be more all the same (Next).
	Entity  string `json:"entity,omitempty"`  // the id that the events stand under
	Actor   string `json:"actor,omitempty"`   // who
	Command string `json:"command,omitempty"` // the id of the command
	Type    string `json:"type,omitempty"`    // of the events: provider, or provider.relocated
	// Wait, in milliseconds, asks to answer only when there are events from First
	// on, or that time is over; at most MaxLogWait.
	Wait int `json:"wait,omitempty"`
}

// LogQueryName is the name of LogQuery.
const LogQueryName = "log"

// MaxLogWait is how long a LogQuery may wait for events.
const MaxLogWait = 30 * time.Second

// MaxLogPage is the greatest number of events in one answer to a LogQuery.
const MaxLogPage = 1000

// LogItem is one event of the log.
type LogItem struct {
	Seq     uint64          `json:"seq"`
	Time    string          `json:"time"`
	ID      events.ID       `json:"id"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"`
	Actor   string          `json:"actor"`
	Command events.ID       `json:"command"`
	Origin  events.Origin   `json:"origin"`
	Reason  string          `json:"reason"`
	Batch   string          `json:"batch"` // k/n of its command
	Chain   string          `json:"chain"`
	What    string          `json:"what"` // in one line, with the names of now
	Data    json.RawMessage `json:"data"`
}

// LogPage is the answer to a LogQuery.
type LogPage struct {
	Mesh  string    `json:"mesh"`
	Seq   uint64    `json:"seq"`  // the ledger's last
	Next  uint64    `json:"next"` // to go on with; 0 at the end
	Items []LogItem `json:"items"`
}

// answer is what comes back: one of the two.
type answer struct {
	Result json.RawMessage   `json:"result,omitempty"`
	Error  *commands.Refusal `json:"error,omitempty"`
	// Seq is the last sequence that the result knows of; 0: it says nothing of that.
	Seq uint64 `json:"seq,omitempty"`
}

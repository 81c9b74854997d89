package commands

import (
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"time"

	"bindery/events"
)

// Request is one command as somebody gives it.
type Request struct {
	Command   Command
	ID        events.ID // the command's; the same id and content have one effect
	Key       string    // the public nkey that proves who asks; "": whoever runs the handler
	Actor     string    // where there is no Key
	Reason    string
	DryRun    bool    // decide for real, write nothing
	ExpectSeq *uint64 // refuse when the ledger has moved from there
	// Invocation is the same in every copy of one request that is sent more than once; "":
	// it is sent once.
	Invocation string
}

// Hash is what tells a repeated command from another one with its id: the
// first 16 bytes of the SHA-256 over verb, arguments and reason.
func (r *Request) Hash() (events.CommandHash, error) {
	args, err := json.Marshal(r.Command)
	if err != nil {
		return events.CommandHash{}, err
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(r.Command.Verb()), args, []byte(r.Reason)} {
		h.Write(part)
		h.Write([]byte{0})
	}
	return events.CommandHash(h.Sum(nil)[:len(events.CommandHash{})]), nil
}

// Result is the answer to a command that was not refused.
type Result struct {
	Seq       uint64      `json:"seq"` // of its last event, or of the ledger where it wrote nothing
	Changed   bool        `json:"changed"`
	DryRun    bool        `json:"dry_run"`
	CommandID events.ID   `json:"command_id"`
	Repeated  bool        `json:"repeated,omitempty"` // the first answer to this id again
	Time      time.Time   `json:"time"`
	Events    []EventView `json:"events"`
	Effect
}

// ViewsOf makes the views of written records.
func ViewsOf(evs []events.Event, records []events.Record) []EventView {
	out := make([]EventView, len(records))
	for i := range records {
		out[i] = EventView{Seq: records[i].Seq, Subject: records[i].Subject, Type: evs[i].Type.String(), Data: records[i].Data}
	}
	return out
}

// DerivedID is the id of the k-th command of a series that began with id: it
// keeps the instant, and the rest is a hash of both, so that the same series
// has the same ids wherever it is driven from.
func DerivedID(id events.ID, k int) events.ID {
	if k == 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id.String() + "/" + strconv.Itoa(k)))
	out := id
	copy(out[6:], sum[:10])
	return out
}

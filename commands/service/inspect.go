package service

import (
	"context"
	"encoding/json"
	"time"

	"bindery/ledger"
)

// InspectQueryName asks how the writer and its server are. It does not wait for
// the writer.
const InspectQueryName = "inspect"

// Inspection is the answer.
type Inspection struct {
	PID     int               `json:"pid"`     // of the process that holds the store
	Version string            `json:"version"` // of its program
	Commit  string            `json:"commit"`
	Go      string            `json:"go"`
	NATS    string            `json:"nats"`   // the server's version
	Now     time.Time         `json:"now"`    // the writer's clock
	Synced  *bool             `json:"synced"` // the server fsyncs before it acknowledges; null: that cannot be seen
	Stream  ledger.Inspection `json:"stream"`
	Foreign uint64            `json:"foreign"` // messages that are no part of the ledger, and not acknowledged
	Trouble string            `json:"trouble"` // why nothing can be written; empty where it can
}

// Inspect asks how the writer and its server are.
func (c *Client) Inspect(ctx context.Context) (Inspection, error) {
	var out Inspection
	data, err := c.ask(ctx, InspectQueryName, struct{}{})
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(data, &out)
}

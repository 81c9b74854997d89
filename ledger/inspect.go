package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Inspection is how the stream of a ledger is kept.
type Inspection struct {
	Stream   string    `json:"stream"`
	Storage  string    `json:"storage"` // file or memory
	Replicas int       `json:"replicas"`
	Lagging  []string  `json:"lagging"` // the servers whose replica is offline or behind
	Messages uint64    `json:"messages"`
	Last     uint64    `json:"last"` // sequence
	Bytes    uint64    `json:"bytes"`
	Settings []Setting `json:"settings"` // what is not as it must be
}

// Inspect asks the server how the stream is kept now: somebody may have changed
// it since it was opened.
func (l *Log) Inspect(ctx context.Context) (Inspection, error) {
	stream, err := l.js.Stream(ctx, l.stream)
	if err != nil {
		return Inspection{}, fmt.Errorf("asking for stream %q: %w", l.stream, err)
	}
	info := stream.CachedInfo()
	out := Inspection{Stream: l.stream, Storage: strings.ToLower(info.Config.Storage.String()), Replicas: info.Config.Replicas, Lagging: []string{},
		Messages: info.State.Msgs, Last: info.State.LastSeq, Bytes: info.State.Bytes, Settings: []Setting{}}
	if info.Cluster != nil {
		for _, p := range info.Cluster.Replicas {
			if p.Offline || !p.Current {
				out.Lagging = append(out.Lagging, p.Name)
			}
		}
	}
	var bad *ConfigError
	if errors.As(verifyConfig(l.mesh, info.Config), &bad) {
		out.Settings = bad.Settings
	}
	return out, nil
}

// Synced reports whether the server fsyncs before it acknowledges.
func (e *Embedded) Synced() bool { return e.synced }

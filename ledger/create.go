package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"bindery/events"
)

// NeedVersion is the oldest server that can keep a ledger: atomic publishes
// that survive a kill, and one fsync for each.
const NeedVersion = "2.15"

// CreateOptions vary a new ledger.
type CreateOptions struct {
	Replicas  int                  // 0: 1. Three or five on a cluster
	Placement *jetstream.Placement // nil: the server decides
}

// createdBy is the metadata key that tells two Creates apart: the server calls
// it a success if the very same stream is created twice.
const createdBy = "bindery-create"

// Create makes the empty ledger of a mesh, and never opens one: if the mesh has
// a ledger, the error wraps ErrExists. Of two at the same time one gets it.
func Create(ctx context.Context, nc *nats.Conn, mesh string, opts CreateOptions) (*Log, error) {
	if err := events.CheckName(mesh); err != nil {
		return nil, fmt.Errorf("creating the ledger of mesh %q: %w", mesh, err)
	}
	js, err := connect(nc)
	if err != nil {
		return nil, err
	}
	cfg := streamConfig(mesh)
	cfg.Replicas, cfg.Placement = max(1, opts.Replicas), opts.Placement
	cfg.Metadata = map[string]string{createdBy: nuid.Next()}
	if _, err := js.Stream(ctx, cfg.Name); err == nil {
		return nil, fmt.Errorf("creating the ledger of mesh %q: %w", mesh, ErrExists)
	} else if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("creating the ledger of mesh %q: looking for it: %w", mesh, err)
	}
	stream, err := js.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil, fmt.Errorf("creating the ledger of mesh %q: %w", mesh, ErrExists)
	} else if err != nil {
		err = fmt.Errorf("creating the ledger of mesh %q: %w", mesh, err)
		if api := (*jetstream.APIError)(nil); errors.As(err, &api) && api.Code >= 500 { // a full disk, for one
			err = &StoreError{Code: int(api.ErrorCode), Err: err}
		}
		return nil, err
	}
	// Where only the description of a stream was lost, creating it again brings
	// back its messages (measured): that is no new ledger.
	if n := stream.CachedInfo().State.LastSeq; n > 0 {
		return nil, fmt.Errorf("creating the ledger of mesh %q: its messages up to sequence %d came back: %w", mesh, n, ErrExists)
	}
	return newLog(nc, js, stream, mesh), nil
}

// Open opens the ledger of mesh, or with an empty name the only one there is,
// and never creates one: a *MissingError lists those there; one that is not wholly
// restored yet is ErrRestoring. It checks the
// server's version (*VersionError) and the whole configuration of the stream
// (*ConfigError), since who may change streams may have made it forgetful.
func Open(ctx context.Context, nc *nats.Conn, mesh string) (*Log, error) {
	js, err := connect(nc)
	if err != nil {
		return nil, err
	}
	if mesh == "" {
		there, err := list(ctx, js)
		if err != nil {
			return nil, err
		}
		if len(there) != 1 {
			return nil, &MissingError{There: there}
		}
		mesh = there[0]
	} else if err := events.CheckName(mesh); err != nil {
		return nil, fmt.Errorf("opening the ledger of mesh %q: %w", mesh, err)
	}
	stream, err := js.Stream(ctx, StreamName(mesh))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		there, err := list(ctx, js)
		if err != nil {
			return nil, err
		}
		return nil, &MissingError{Mesh: mesh, There: there}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the ledger of mesh %q: %w", mesh, err)
	}
	if isRestoring(stream.CachedInfo().Config) {
		return nil, fmt.Errorf("opening the ledger of mesh %q: %w", mesh, ErrRestoring)
	}
	if err := verifyConfig(mesh, stream.CachedInfo().Config); err != nil {
		return nil, err
	}
	return newLog(nc, js, stream, mesh), nil
}

// Meshes lists the meshes that have a ledger on the server, sorted.
func Meshes(ctx context.Context, nc *nats.Conn) ([]string, error) {
	js, err := connect(nc)
	if err != nil {
		return nil, err
	}
	return list(ctx, js)
}

func list(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	var out []string
	names := js.StreamNames(ctx, jetstream.WithStreamListSubject(events.SubjectRoot+".>"))
	for name := range names.Name() {
		if mesh, ok := strings.CutPrefix(name, streamPrefix); ok {
			out = append(out, mesh)
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("listing ledgers: %w", err)
	}
	slices.Sort(out)
	return out, nil
}

func connect(nc *nats.Conn) (jetstream.JetStream, error) {
	if found := nc.ConnectedServerVersion(); !atLeast(found, NeedVersion) {
		return nil, &VersionError{Found: found, Need: NeedVersion}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("using JetStream: %w", err)
	}
	return js, nil
}

// atLeast compares major and minor version. What cannot be read is too old.
func atLeast(found, need string) bool {
	f, n := strings.SplitN(found, ".", 3), strings.SplitN(need, ".", 3)
	if len(f) < 2 {
		return false
	}
	for i := range 2 {
		a, err := strconv.Atoi(f[i])
		b, _ := strconv.Atoi(n[i])
		if err != nil || a < b {
			return false
		}
		if a > b {
			return true
		}
	}
	return true
}

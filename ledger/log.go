package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"bindery/events"
)

// Position is a place in the ledger: the last event that is known. The zero
// Position is before the first event.
type Position struct {
	Seq   uint64
	Chain events.Chain
	Mesh  events.ID // zero only before the first event
	// Writers, of a place from which a ledger on a server is read, are the keys that
	// may write after it.
	Writers *Writers
}

// After is the position of an event.
func After(e *events.Event) Position {
	return Position{Seq: e.Seq, Chain: e.Chain, Mesh: e.Mesh}
}

// Log is an open ledger. Its methods may be called from several goroutines;
// Appends wait for each other.
type Log struct {
	src    Source // nil: it is read from the server itself
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string
	mesh   string
	made   string // what tells this stream from one of the same name
	tun    tuning

	replicas atomic.Int64 // of the stream, as last heard

	// One Append at a time; it owns what follows.
	turn  chan struct{}
	tr    transport
	costs *costs
	msgs  msgPool

	// Set before it is used.
	prover  Prover  // nil: nothing is proven
	secrets Secrets // of the store
	ofStore bool    // it is a store's: grants of writers count on a server alone
	// restored is how far a restore has made the log: what came with it was proven where
	// it was written, by a store's secret maybe, and is verified by the chain.
	restored uint64

	// What reading has found, guarded by mu.
	mu        sync.Mutex
	foreign   spans
	recovered uint64 // the last mesh.recovered
}

// tuning are the times a Log works with; tests shorten them.
type tuning struct {
	attempt  time.Duration // how long one try waits for its answers
	backoff  time.Duration // the first pause between tries; it doubles, with jitter
	maxPause time.Duration // and does not grow beyond this
	watch    time.Duration // how long a reader trusts a consumer that delivers nothing
	partial  time.Duration // how long a command may be seen without its end
}

// An attempt that outlasts the time an fsync takes on a busy disk costs
// nothing but time: it is sent again with the same expectation.
var defaultTuning = tuning{
	attempt:  2 * time.Second,
	backoff:  2 * time.Millisecond,
	maxPause: 250 * time.Millisecond,
	watch:    time.Second,
	partial:  5 * time.Second,
}

func newLog(nc *nats.Conn, js jetstream.JetStream, stream jetstream.Stream, mesh string) *Log {
	l := &Log{
		nc: nc, js: js, stream: stream.CachedInfo().Config.Name, mesh: mesh,
		made:  stream.CachedInfo().Config.Metadata[createdBy],
		tun:   defaultTuning,
		turn:  make(chan struct{}, 1),
		tr:    &natsTransport{nc: nc},
		costs: newCosts(),
	}
	l.replicas.Store(int64(stream.CachedInfo().Config.Replicas))
	l.restored, _ = strconv.ParseUint(stream.CachedInfo().Config.Metadata[restoredTo], 10, 64)
	return l
}

// Mesh returns the name of the mesh.
func (l *Log) Mesh() string { return l.mesh }

// Created returns what the stream was created with: it tells one ledger on a
// server from another of the same name. Empty: an early version created it.
func (l *Log) Created() string { return l.made }

// Restored is how far a restore made the ledger, as the stream says; 0: none did.
func (l *Log) Restored() uint64 { return l.restored }

// Stream returns the name of the stream.
func (l *Log) Stream() string { return l.stream }

// Replicas is how many replicas the stream has, as last heard.
func (l *Log) Replicas() int { return int(l.replicas.Load()) }

// errNoLeader says that a replicated stream has no leader now.
var errNoLeader = errors.New("the stream has no leader")

// Last returns the stream's last sequence, 0 if it is empty. It is the leader
// who answers, and only after it has applied what the one before had acknowledged
// (server/raft.go, aflr). Where there is no leader any replica answers, from what
// it has (server/jetstream_api.go, jsStreamInfoRequest): that is an error here.
func (l *Log) Last(ctx context.Context) (uint64, error) {
	if l.src != nil {
		return l.src.Last(ctx)
	}
	var resp struct {
		Error  *jetstream.APIError `json:"error"`
		Config struct {
			Replicas int64 `json:"num_replicas"`
		} `json:"config"`
		State struct {
			LastSeq uint64 `json:"last_seq"`
		} `json:"state"`
		Cluster *struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	if err := l.api(ctx, "STREAM.INFO."+l.stream, nil, &resp); err != nil {
		return 0, fmt.Errorf("asking for the last sequence of %q: %w", l.stream, err)
	}
	if resp.Error != nil {
		return 0, fmt.Errorf("asking for the last sequence of %q: %w", l.stream, resp.Error)
	}
	if resp.Config.Replicas > 1 && resp.Cluster != nil && resp.Cluster.Leader == "" {
		return 0, fmt.Errorf("asking for the last sequence of %q: %w", l.stream, errNoLeader)
	}
	l.replicas.Store(resp.Config.Replicas)
	return resp.State.LastSeq, nil
}

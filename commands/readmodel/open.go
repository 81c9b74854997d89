package readmodel

import (
	"context"

	"github.com/nats-io/nats.go"

	"bindery/ledger"
)

// Where says on what a mesh's buckets are kept.
type Where struct {
	Memory   bool // documents and leases are gone with their server
	Replicas int  // of the buckets; 0: 1
}

// OpenAgents finds the bucket of the agents' leases, or makes it.
func OpenAgents(ctx context.Context, nc *nats.Conn, mesh string, w Where) (*ledger.Bucket, error) {
	return ledger.OpenBucket(ctx, nc, ledger.BucketConfig{Name: Agents(mesh), Description: "bindery: the leases of the agents of mesh " + mesh,
		Memory: w.Memory, Replicas: w.Replicas, MaxAge: AgentLease})
}

// OpenSealed finds the bucket of sealed secrets, or makes it. It outlives its
// server: nobody else has what is in it.
func OpenSealed(ctx context.Context, nc *nats.Conn, mesh string, w Where) (*ledger.Bucket, error) {
	return ledger.OpenBucket(ctx, nc, ledger.BucketConfig{Name: Sealed(mesh), Description: "bindery: secrets sealed to the agents of nodes of mesh " + mesh,
		Replicas: w.Replicas})
}

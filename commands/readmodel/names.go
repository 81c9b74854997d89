// Package readmodel keeps what the ledger says now where any NATS client can read
// and watch it: documents in key-value buckets.
package readmodel

// The buckets of a mesh. Each lies in a stream "KV_<bucket>" with subjects
// "$KV.<bucket>.<key>" (ADR-8 of the NATS architecture).

// Bindings is the bucket of what consumers run with: projections.BindingDocument
// under <node id>.<binding id>.
func Bindings(mesh string) string { return "bindery-" + mesh + "-bindings" }

// Holders is the bucket of what the provider side has to do:
// projections.HolderDocument under
// <provider's node id>.<provider id>.<binding id>.<generation>.
func Holders(mesh string) string { return "bindery-" + mesh + "-holders" }

// Agents is the bucket of the agents' leases, one under each <node id>. What is
// not renewed within AgentLease is gone.
func Agents(mesh string) string { return "bindery-" + mesh + "-agents" }

// Sealed is the bucket of secrets that are sealed to the agent of a node:
// <node id>.<binding id>.<generation>-<tag>-<maker>; and of the keys they are sealed to:
// <node id>.key.
func Sealed(mesh string) string { return "bindery-" + mesh + "-sealed" }

// WholeKey is a key in each bucket of documents that holds a stamp
// (projections.Stamp): once it is there, every document is. A bucket in memory is
// empty when its server starts, and this comes last.
const WholeKey = "whole"

// Headers of every message in the buckets of documents, deletions among them.
const (
	HeaderAt    = "Bindery-At"    // the ledger's sequence the document was made at
	HeaderChain = "Bindery-Chain" // the ledger's chain value there
)

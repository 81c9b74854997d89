// Package ledger is where the events of a mesh are kept: one stream of NATS
// JetStream, written by one writer at a time and read by anyone.
//
// # Writing
//
// Log.Append stores commands. A command is 1 to 1,000 events that are stored
// together or not at all; what Append reports as stored is acknowledged by the
// stream and will be there after a crash. The only guard is the expected last
// sequence of the whole stream: whoever decided on other events than those that
// are stored gets a ConflictError. An answer that is lost is not an answer:
// Append finds out what the stream holds before it reports anything.
//
// Events of one command go out as one atomic batch, many commands of one event
// as pipelined conditional publishes or as a batch, whichever has been cheaper
// so far (cost.go).
//
// # Reading
//
// Log.Read and Log.Follow yield whole commands, decoded, in order, each event
// verified against the chain of hashes and, where proofs are needed, proven by the
// ledger's writer (Log.Trust, Position.Writers; package events says how). A message
// that is neither is foreign: somebody else published it below the ledger's subjects,
// or it is what is left of a command that was torn. It is skipped and counted, so that
// nobody can stop a ledger by publishing into it. What the writer has proven and is not
// there as it was is a DamageError.
//
// # Several processes
//
// Who may write is decided by a lease (Log.Candidate, Candidate.Acquire): a key
// that is renewed by compare-and-set, taken over by whoever has seen it unchanged
// for longer than it holds. The lease keeps nobody from appending, the expected
// sequence does; it says whose answers are not out of date.
//
// # The embedded server
//
// A store directory holds one mesh and is used by one process at a time
// (AcquireLock, then StartEmbedded): the server itself keeps nobody out of its
// directory, and two of them acknowledge the same sequences.
package ledger

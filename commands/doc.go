// Package commands says what may happen: pure decisions over the state of a
// mesh.
//
// A [Command] is what somebody asks for. [Decide] runs it against a state, with
// time and ids as arguments, and gives the events that make it so, or a
// [Refusal] that names the rule, the candidates and a command that helps. Every
// decision goes through a [Tx], which folds each event as it is emitted, so that
// a later part of a command sees the earlier ones.
//
// [resolve] is the ladder that says which provider serves a slot, and keeps a
// trace of why.
//
// Nothing here does I/O, reads a clock or mints an id. The shell around it is in
// the packages below: handler (one writer, group commit), service (the request
// path), instance (one of several processes that serve a mesh), manifest (what
// people write down).
package commands

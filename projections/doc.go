// Package projections says what the events mean: pure folds over them.
//
// [State] is the mesh as decisions need it, with an index for every question a
// decision asks, so that none costs by the size of the mesh. The same Apply
// folds a live command, a replay and a look back in time. The views
// (view_*.go) are what readers get to see: the JSON contract of the command
// line.
//
// Nothing here does I/O, reads a clock or mints an id.
package projections

//go:build !linux

package agent

// endLeftovers does nothing where the environment of other processes cannot be
// read: what a killed agent has left running ends by itself.
func endLeftovers(string) int { return 0 }

//go:build !linux

package owned

import "os"

// executable is the program's path. Systems other than Linux have no way to run a
// script by its descriptor. Nobody but root and this user can put another file at the
// path: that was checked just before.
func (p *Program) executable() (string, []*os.File) { return p.path, nil }

func hasDescriptors() bool { return true }

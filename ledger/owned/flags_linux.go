package owned

import "golang.org/x/sys/unix"

// A descriptor of O_PATH names a file and reads nothing of it: no permission beyond
// that of passing through, or of executing, is needed.
const (
	dirFlags  = unix.O_PATH | unix.O_DIRECTORY
	fileFlags = unix.O_PATH
)

//go:build !linux

package owned

import "golang.org/x/sys/unix"

const (
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY
	fileFlags = unix.O_RDONLY | unix.O_NONBLOCK // a pipe with nobody at its other end must not hold us up
)

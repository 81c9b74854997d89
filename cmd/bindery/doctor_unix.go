//go:build linux || darwin

package main

import (
	"io/fs"
	"syscall"
)

// spaceOf is the space on the disk that has dir.
func spaceOf(dir string) (disk, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return disk{}, err
	}
	block := uint64(s.Bsize)
	return disk{free: s.Bavail * block, total: s.Blocks * block}, nil
}

// ownerOf is the user a file belongs to.
func ownerOf(i fs.FileInfo) (uid int, known bool) {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

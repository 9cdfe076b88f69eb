// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"io/fs"
	"syscall"
)

// inode is the file's number; zero where the file system has none.
func inode(info fs.FileInfo) uint64 {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"

	"golang.org/x/sys/unix"
)

// redirectFile redirects writes to file to target. It uses dup3, because not every
// architecture of Linux has dup2.
func redirectFile(file, target *os.File) error {
	return unix.Dup3(int(target.Fd()), int(file.Fd()), 0)
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package up

import (
	"os"

	"golang.org/x/sys/unix"
)

// redirectFile redirects writes to file to target.
func redirectFile(file, target *os.File) error {
	return unix.Dup2(int(target.Fd()), int(file.Fd()))
}

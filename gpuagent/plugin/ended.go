// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// ignoreEnded leaves out the errors of a process that has ended.
func ignoreEnded(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build windows

package filelock

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// The locked byte lies far behind the holder's id, which others may then read.
const lockedByte = math.MaxUint32

func lockFile(file *os.File) error {
	err := windows.LockFileEx(windows.Handle(file.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{Offset: lockedByte})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errBusy
	}
	return err
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sluice.dev/test/lab/cluster/process"
)

const (
	temporaryPrefix = "sluice-"
	// minSweepAge is the age from which an unlocked folder is abandoned. A younger one may
	// just be in creation.
	minSweepAge = time.Minute
	// maxTemporaryBase keeps the paths in a temporary folder short: the path of a Unix
	// socket is limited to about a hundred characters.
	maxTemporaryBase = 32
)

// temporaryFolder creates a locked folder that is removed when this process ends, and
// removes abandoned ones.
func temporaryFolder() (*folder, error) {
	base := temporaryBase()
	removeAbandoned(base)
	dir, err := os.MkdirTemp(base, temporaryPrefix)
	if err != nil {
		return nil, fmt.Errorf("create the cluster's temporary folder: %w (set TMPDIR to a folder that you may write)", err)
	}
	f, err := lockFolder(dir)
	if err == nil {
		f.state.Temporary = true
		err = f.writeState()
	}
	if err == nil {
		f.guard, err = startGuard(dir)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("create the cluster's temporary folder: %w", err)
	}
	return f, nil
}

func temporaryBase() string {
	base := os.TempDir()
	if len(base) > maxTemporaryBase {
		return "/tmp"
	}
	return base
}

// removeAbandoned removes the folders of clusters that were killed together with their
// guard. It ignores folders that it cannot remove: they belong to another user, or another
// process removes them.
func removeAbandoned(base string) {
	marks, _ := filepath.Glob(filepath.Join(base, temporaryPrefix+"*", stateFile))
	for _, mark := range marks {
		dir := filepath.Dir(mark)
		info, err := os.Stat(mark)
		if err != nil || time.Since(info.ModTime()) < minSweepAge {
			continue
		}
		// A folder that the user named belongs to the user.
		if s, err := readMark(dir); err != nil || !s.Temporary {
			continue
		}
		if f, err := lockFolder(dir); err == nil {
			if _, err := process.ReapLeftovers(dir); err == nil {
				_ = removeFolder(dir, true)
			}
			_ = f.lock.Unlock()
		}
	}
}

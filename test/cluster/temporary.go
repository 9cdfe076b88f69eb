// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"sluice.dev/test/cluster/process"
)

const (
	temporaryPrefix = "sluice-"
	// minSweepAge is the age from which a folder whose lock nobody holds is a
	// leftover, and not one that is just being made.
	minSweepAge = time.Minute
	// maxTemporaryBase keeps the paths in a temporary folder short: a unix socket's
	// may have about a hundred characters.
	maxTemporaryBase = 32
)

// temporaryFolder makes a locked folder that goes away with this process, and
// sweeps up those of earlier processes.
func temporaryFolder() (*folder, error) {
	base := temporaryBase()
	removeAbandoned(base)
	dir, err := os.MkdirTemp(base, temporaryPrefix)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's temporary folder: %w (set TMPDIR to a folder that you may write)", err)
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
		return nil, fmt.Errorf("make the cluster's temporary folder: %w", err)
	}
	return f, nil
}

func temporaryBase() string {
	base := os.TempDir()
	if runtime.GOOS != "windows" && len(base) > maxTemporaryBase {
		return "/tmp"
	}
	return base
}

// removeAbandoned removes the folders of clusters that ended without a word and whose
// guard was killed as well. What it cannot remove is another user's, or another
// sweep's business.
func removeAbandoned(base string) {
	marks, _ := filepath.Glob(filepath.Join(base, temporaryPrefix+"*", stateFile))
	for _, mark := range marks {
		dir := filepath.Dir(mark)
		info, err := os.Stat(mark)
		if err != nil || time.Since(info.ModTime()) < minSweepAge {
			continue
		}
		// A folder that a person has named is theirs, whatever its name.
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

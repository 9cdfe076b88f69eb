// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"sluice.dev/test/cluster/filelock"
	"sluice.dev/test/cluster/process"
)

// Exists reports whether dir is a cluster's folder, running or not. A link counts
// as what it points to, here and in the functions below.
func Exists(dir string) bool {
	_, marked, err := find(dir)
	return marked && err == nil
}

// Holder returns the process that runs the cluster in dir; 0 where none does. A
// dir whose cluster.json is something else's is an error.
func Holder(dir string) (int, error) {
	dir, marked, err := find(dir)
	if err != nil || !marked {
		return 0, err
	}
	lock, err := filelock.Try(filepath.Join(dir, lockFile))
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return held.PID, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look who runs the cluster in %s: %w", dir, err)
	}
	return 0, lock.Unlock()
}

// Remove ends what a killed cluster has left running and removes dir. It fails,
// and touches nothing, where a process runs a cluster there, or where dir is no
// cluster's; a dir that does not exist is no error. What a person has put into
// dir stays: then the error is a *LeftError. A Remove that was cut short can be
// done again.
func Remove(dir string) error {
	dir, marked, err := find(dir)
	if err != nil {
		return fmt.Errorf("remove the cluster: %w", err)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !marked && !onlyLocked(dir) {
		return fmt.Errorf("remove the cluster in %s: the folder is no cluster's (it has no %s)", dir, stateFile)
	}
	folder, err := lockExisting(dir)
	if err != nil {
		return fmt.Errorf("remove the cluster in %s: %w", dir, err)
	}
	if _, err := process.ReapLeftovers(dir); err != nil {
		return fmt.Errorf("remove the cluster in %s: %w", dir, errors.Join(err, folder.close(true)))
	}
	return folder.close(false)
}

// Reap ends what a killed cluster has left running in dir, and leaves dir for a
// later Start. It fails where a process runs a cluster there, and where dir's
// cluster.json is something else's.
func Reap(dir string) error {
	dir, marked, err := find(dir)
	if err != nil {
		return fmt.Errorf("end what is left of the cluster: %w", err)
	}
	if !marked {
		return nil
	}
	folder, err := lockExisting(dir)
	if err != nil {
		return fmt.Errorf("end what is left of the cluster in %s: %w", dir, err)
	}
	_, err = process.ReapLeftovers(dir)
	return errors.Join(err, folder.close(true))
}

// find returns the folder itself that dir names, and whether it has a cluster's mark.
func find(dir string) (path string, marked bool, err error) {
	path, err = resolved(dir)
	if err != nil {
		return dir, false, folderError(dir, err)
	}
	_, err = readMark(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return path, false, nil
	}
	if err != nil {
		return path, false, folderError(path, err)
	}
	return path, true, nil
}

// lockExisting locks a cluster's folder as it is. Only under the lock is what the
// mark says certain.
func lockExisting(dir string) (*folder, error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	if f.state, err = readMark(dir); err != nil && !onlyLocked(dir) {
		_ = f.lock.Unlock() // the reason for giving up counts
		return nil, err
	}
	return f, nil
}

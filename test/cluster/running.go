// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sluice.dev/test/cluster/filelock"
	"sluice.dev/test/cluster/process"
)

// Exists reports whether dir is a cluster's folder, running or not.
func Exists(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, stateFile))
	return err == nil && info.Mode().IsRegular()
}

// Holder returns the process that runs the cluster in dir; 0 where none does.
func Holder(dir string) (int, error) {
	if !Exists(dir) {
		return 0, nil
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
// cluster's; a dir that does not exist is no error.
func Remove(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if !Exists(dir) {
		return fmt.Errorf("remove the cluster in %s: the folder is no cluster's (it has no %s)", dir, stateFile)
	}
	folder, err := lockFolder(dir)
	if err != nil {
		return fmt.Errorf("remove the cluster in %s: %w", dir, err)
	}
	if _, err := process.ReapLeftovers(dir); err != nil {
		return fmt.Errorf("remove the cluster in %s: %w", dir, errors.Join(err, folder.close(true)))
	}
	return folder.close(false)
}

// Reap ends what a killed cluster has left running in dir, and leaves dir for a
// later Start. It fails where a process runs a cluster there.
func Reap(dir string) error {
	if !Exists(dir) {
		return nil
	}
	folder, err := lockFolder(dir)
	if err != nil {
		return fmt.Errorf("end what is left of the cluster in %s: %w", dir, err)
	}
	_, err = process.ReapLeftovers(dir)
	return errors.Join(err, folder.close(true))
}

// FreePorts returns n ports on 127.0.0.1 that nobody listens on, for components
// that are started in Processes.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, n)
	slots := make([]*int, n)
	for i := range ports {
		slots[i] = &ports[i]
	}
	return ports, choosePorts(slots...)
}

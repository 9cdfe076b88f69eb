// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

// checkpointName is the kubelet's own file name.
const checkpointName = "kubelet_internal_checkpoint"

// readCheckpoint returns the pods that hold devices on a node; booted is set if the file
// does not exist. The file is always replaced as a whole, so an invalid one was damaged or
// edited, and is an error.
func readCheckpoint(dir, node string) (pods []devices.Pod, booted bool, err error) {
	path := filepath.Join(dir, checkpointName)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read checkpoint: %w", err)
	}
	pods, err = devices.Decode(node, raw)
	if err != nil {
		return nil, false, fmt.Errorf("checkpoint %s is invalid (%w): the devices of running pods are unknown;  "+
			"restore a valid copy, or delete the pods on node %s and remove the file", path, err, node)
	}
	return pods, false, nil
}

// writeCheckpoint replaces a node's checkpoint atomically, also across a power failure.
func writeCheckpoint(dir, node string, s devices.State) error {
	raw, err := devices.Encode(node, s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, checkpointName)
	if err := replaceFile(path, raw); err != nil {
		return fmt.Errorf("write checkpoint %s: %w", path, err)
	}
	return nil
}

func replaceFile(path string, content []byte) error {
	next, err := os.OpenFile(path+".next", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = next.Write(content)
	if err == nil {
		err = next.Sync()
	}
	if err = errors.Join(err, next.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".next", path); err != nil {
		return err
	}
	// The rename is durable only when the folder is synced.
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

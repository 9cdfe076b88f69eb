// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"sluice.dev/gpuagent/nvml/simulator"
)

const (
	// gpusName is the file in a node's folder that keeps its GPUs as they are: their
	// layout outlives this process, as a real one outlives all processes.
	gpusName = "gpus.json"
	// driverName is the socket in a node's folder on which its driver answers.
	driverName = "nvml.sock"
)

// openGPUs brings a node's GPUs back as they were, or makes new ones. A boot takes
// their layout away. Whatever happens to them from then on is on disk before whoever
// did it learns of it.
func openGPUs(dir string, node Node, booted bool, log *slog.Logger) (*simulator.Node, error) {
	path := filepath.Join(dir, gpusName)
	kept, err := os.ReadFile(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		kept, err = newGPUs(node)
	}
	if err != nil {
		return nil, fmt.Errorf("the node's GPUs: %w", err)
	}
	config := node.Machine.Simulator(node.Name)
	config.Latency = simulator.Measured()
	gpus, err := simulator.New(config)
	if err != nil {
		return nil, err
	}
	if err := gpus.Restore(kept); err != nil {
		return nil, fmt.Errorf("the node's GPUs in %s cannot be believed (%w): put back a good copy, "+
			"or remove the file, and node %s has GPUs as they are when they are new", path, err, node.Name)
	}
	if booted && !isNew {
		gpus.Boot()
	}
	file := &gpuFile{path: path, gpus: gpus}
	gpus.Hook(simulator.Hooks{Changed: func() {
		if err := file.write(); err != nil {
			log.Error("cannot keep the GPUs' state", "error", err)
		}
	}})
	return gpus, file.write()
}

// newGPUs are those of a new machine, cut as it says, in no time.
func newGPUs(node Node) ([]byte, error) {
	gpus, err := simulator.New(node.Machine.Simulator(node.Name))
	if err != nil {
		return nil, err
	}
	if err := gpus.Init(); err != nil {
		return nil, err
	}
	if err := node.Machine.Cut(node.Name, gpus); err != nil {
		return nil, err
	}
	return gpus.Snapshot()
}

// gpuFile keeps the GPUs' state on disk, the newest last.
type gpuFile struct {
	path string
	gpus *simulator.Node

	mu sync.Mutex
}

func (f *gpuFile) write() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	snapshot, err := f.gpus.Snapshot()
	if err != nil {
		return err
	}
	return replaceFile(f.path, snapshot)
}

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
	"slices"
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

const (
	// gpusName is the file in a node's folder with the state of its GPUs. Their layout
	// outlives this process, as a real one does.
	gpusName = "gpus.json"
	// driverName is the socket in a node's folder on which its driver answers.
	driverName = "nvml.sock"
)

// restoreGPUs restores a node's GPUs, or creates new ones. A boot removes their layout.
// From then on every change is on disk before the caller of the driver sees its result.
func restoreGPUs(dir string, node Node, booted bool, log *slog.Logger) (*simulator.Node, error) {
	path := filepath.Join(dir, gpusName)
	saved, err := os.ReadFile(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		saved, err = newGPUState(node)
	}
	if err != nil {
		return nil, fmt.Errorf("restore the node's GPUs: %w", err)
	}
	config := node.Machine.Simulator(node.Name)
	config.Latency = simulator.MeasuredLatency()
	gpus, err := simulator.New(config)
	if err != nil {
		return nil, err
	}
	if err := gpus.Restore(saved); err != nil {
		return nil, fmt.Errorf("the node's GPUs in %s are invalid (%w): restore a valid copy, "+
			"or remove the file; node %s then gets new GPUs", path, err, node.Name)
	}
	if booted && !isNew {
		gpus.Boot()
	}
	file := &gpuFile{path: path, gpus: gpus}
	gpus.Hook(simulator.Hooks{Changed: func() {
		if err := file.save(); err != nil {
			log.Error("Failed to save the state of the GPUs", "error", err)
		}
	}})
	return gpus, file.save()
}

// newGPUState returns the state of a new machine's GPUs, partitioned as configured and
// without latency.
func newGPUState(node Node) ([]byte, error) {
	gpus, err := simulator.New(node.Machine.Simulator(node.Name))
	if err != nil {
		return nil, err
	}
	if err := gpus.Init(); err != nil {
		return nil, err
	}
	if err := node.Machine.Partition(node.Name, gpus); err != nil {
		return nil, err
	}
	return gpus.Snapshot()
}

// gpuFile writes the GPUs' state to disk, in the order of the changes.
type gpuFile struct {
	path string
	gpus *simulator.Node

	mu sync.Mutex
}

func (f *gpuFile) save() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	snapshot, err := f.gpus.Snapshot()
	if err != nil {
		return err
	}
	return replaceFile(f.path, snapshot)
}

// pluginKey is the queue's key for the device plugin. A pod's key has a slash.
const pluginKey = "device-plugin"

// pluginRestartDelay is the duration of a plugin restart. During it the kubelet has no
// devices and rejects pods that request some.
const pluginRestartDelay = 300 * time.Millisecond

// discoverDevices reads the GPUs for the first time, before the Node is registered.
func (k *kubelet) discoverDevices() error {
	if err := k.driver.Init(); err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	gpus, err := devices.ReadGPUs(k.driver, k.node.Machine.Replicas)
	if err == nil {
		k.driverVersion, err = k.driver.DriverVersion()
	}
	if err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	k.registerDevices(gpus)
	return nil
}

// restartPlugin handles SIGHUP: the plugin withdraws all its devices, and reports those
// that exist after the restart. A signal reaches all nodes of this process; a node whose
// devices have not changed ignores it.
func (k *kubelet) restartPlugin() error {
	if left := time.Until(k.pluginReadyAt); !k.pluginReadyAt.IsZero() && left > 0 {
		k.queue.AddAfter(pluginKey, left)
		return nil
	}
	gpus, err := devices.ReadGPUs(k.driver, k.node.Machine.Replicas)
	if err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	if k.pluginReadyAt.IsZero() {
		if slices.Equal(devices.OfGPUs(gpus), k.reported) {
			return nil
		}
		k.log.Info("Restarting device plugin")
		k.pluginReadyAt = time.Now().Add(pluginRestartDelay)
		k.queue.AddAfter(pluginKey, pluginRestartDelay)
		k.setState(k.state.WithInventory(nil))
	} else {
		k.pluginReadyAt = time.Time{}
		k.registerDevices(gpus)
		k.log.Info("Device plugin reported devices", "devices", k.state.Capacity())
	}
	k.queue.Add(nodeKey)
	return nil
}

// registerDevices makes the devices of these GPUs the node's devices.
func (k *kubelet) registerDevices(gpus []devices.GPU) {
	k.mu.Lock()
	k.discovered = gpus
	k.mu.Unlock()
	k.reported, k.memory = devices.OfGPUs(gpus), devices.MemoryMiB(gpus)
	k.relabel = true
	k.setState(k.state.WithInventory(k.reported))
}

// requestPluginRestart handles SIGHUP. It may be called from any goroutine.
func (k *kubelet) requestPluginRestart() { k.queue.Add(pluginKey) }

// capacity returns the state for the node's capacity, which keeps the devices during a
// plugin restart.
func (k *kubelet) capacity() devices.State { return k.state.WithInventory(k.reported) }

// setState makes next the node's state without a checkpoint, whose content has not changed.
func (k *kubelet) setState(next devices.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = next
}

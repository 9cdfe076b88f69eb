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
	"sluice.dev/test/cluster/fakekubelet/deviceplugin"
	"sluice.dev/test/cluster/fakekubelet/devices"
)

const (
	// gpusName is the file in a node's folder that keeps its GPUs as they are: their
	// layout outlives this process, as a real one outlives all processes.
	gpusName = "gpus.json"
	// driverName is the socket in a node's folder on which its driver answers.
	driverName = "nvml.sock"
)

// restoreGPUs brings a node's GPUs back as they were, or makes new ones. A boot takes
// their layout away. Whatever happens to them from then on is on disk before whoever
// did it learns of it.
func restoreGPUs(dir string, node Node, booted bool, log *slog.Logger) (*simulator.Node, error) {
	path := filepath.Join(dir, gpusName)
	kept, err := os.ReadFile(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		kept, err = newGPUState(node)
	}
	if err != nil {
		return nil, fmt.Errorf("the node's GPUs: %w", err)
	}
	config := node.Machine.Simulator(node.Name)
	config.Latency = simulator.MeasuredLatency()
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
		if err := file.save(); err != nil {
			log.Error("cannot keep the GPUs' state", "error", err)
		}
	}})
	return gpus, file.save()
}

// newGPUState are those of a new machine, cut as it says, in no time.
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

// gpuFile keeps the GPUs' state on disk, the newest last.
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

// pluginKey is the queue's key for the device plugin. A pod's has a slash.
const pluginKey = "device-plugin"

// pluginRestartDelay is how long the plugin is away when it starts again. Until then the
// kubelet knows of no device: who is bound to the node meanwhile is refused.
const pluginRestartDelay = 300 * time.Millisecond

// discoverDevices is the plugin's first look, before anybody knows of the node.
func (k *kubelet) discoverDevices() error {
	if err := k.driver.Init(); err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	seen, err := deviceplugin.ReadGPUs(k.driver)
	if err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	k.registerDevices(seen)
	return nil
}

// restartPlugin is what SIGHUP does to the plugin: it goes away with all its devices, and
// comes back with those that there are then. One signal is for all nodes that this
// process plays, and meant for one: where there are the same devices as before
// nothing happens.
func (k *kubelet) restartPlugin() error {
	if left := time.Until(k.pluginReadyAt); !k.pluginReadyAt.IsZero() && left > 0 {
		k.queue.AddAfter(pluginKey, left)
		return nil
	}
	seen, err := deviceplugin.ReadGPUs(k.driver)
	if err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	if k.pluginReadyAt.IsZero() {
		if slices.Equal(deviceplugin.Devices(seen), k.reported) {
			return nil
		}
		k.log.Info("the device plugin starts again")
		k.pluginReadyAt = time.Now().Add(pluginRestartDelay)
		k.queue.AddAfter(pluginKey, pluginRestartDelay)
		k.setState(k.state.WithInventory(nil))
	} else {
		k.pluginReadyAt = time.Time{}
		k.registerDevices(seen)
		k.log.Info("the device plugin reports", "devices", k.state.Capacity())
	}
	k.queue.Add(nodeKey)
	return nil
}

// registerDevices makes what the plugin saw the node's devices.
func (k *kubelet) registerDevices(seen []deviceplugin.GPU) {
	k.seen, k.reported, k.memory = seen, deviceplugin.Devices(seen), deviceplugin.MemoryMiB(seen)
	k.relabel = true
	k.setState(k.state.WithInventory(k.reported))
}

// requestPluginRestart is SIGHUP. It may be called from any goroutine.
func (k *kubelet) requestPluginRestart() { k.queue.Add(pluginKey) }

// capacity is the state as far as the node's capacity goes: a plugin that is away for
// a moment takes nothing from it.
func (k *kubelet) capacity() devices.State { return k.state.WithInventory(k.reported) }

// setState makes next the node's state, where nothing has changed that a checkpoint has.
func (k *kubelet) setState(next devices.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = next
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"fmt"
	"slices"
	"time"

	"sluice.dev/test/cluster/fakekubelet/devices"
	"sluice.dev/test/cluster/fakekubelet/plugin"
)

// pluginKey is the queue's key for the device plugin. A pod's has a slash.
const pluginKey = "device-plugin"

// pluginStart is how long the plugin is away when it starts again. Until then the
// kubelet knows of no device: who is bound to the node meanwhile is refused.
const pluginStart = 300 * time.Millisecond

// enumerateFirst is the plugin's first look, before anybody knows of the node.
func (k *kubelet) enumerateFirst() error {
	if err := k.driver.Init(); err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	seen, err := plugin.Look(k.driver)
	if err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	k.report(seen)
	return nil
}

// enumerate is what SIGHUP does to the plugin: it goes away with all its devices, and
// comes back with those that there are then. One signal is for all nodes that this
// process plays, and meant for one: where there are the same devices as before
// nothing happens.
func (k *kubelet) enumerate() error {
	if left := time.Until(k.pluginBack); !k.pluginBack.IsZero() && left > 0 {
		k.queue.AddAfter(pluginKey, left)
		return nil
	}
	seen, err := plugin.Look(k.driver)
	if err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	if k.pluginBack.IsZero() {
		if slices.Equal(plugin.Devices(seen), k.reported) {
			return nil
		}
		k.log.Info("the device plugin starts again")
		k.pluginBack = time.Now().Add(pluginStart)
		k.queue.AddAfter(pluginKey, pluginStart)
		k.become(k.state.With(nil))
	} else {
		k.pluginBack = time.Time{}
		k.report(seen)
		k.log.Info("the device plugin reports", "devices", k.state.Capacity())
	}
	k.queue.Add(nodeKey)
	return nil
}

// report makes what the plugin saw the node's devices.
func (k *kubelet) report(seen []plugin.GPU) {
	k.seen, k.reported, k.memory = seen, plugin.Devices(seen), plugin.MemoryMiB(seen)
	k.relabel = true
	k.become(k.state.With(k.reported))
}

// hangUp is SIGHUP. It may be called from any goroutine.
func (k *kubelet) hangUp() { k.queue.Add(pluginKey) }

// capacity is the state as far as the node's capacity goes: a plugin that is away for
// a moment takes nothing from it.
func (k *kubelet) capacity() devices.State { return k.state.With(k.reported) }

// become makes next the node's state, where nothing has changed that a checkpoint has.
func (k *kubelet) become(next devices.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = next
}

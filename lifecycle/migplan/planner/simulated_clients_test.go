// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// simulatedClients are NVIDIA's GPU clients on a node: DaemonSets that select it by a label.
type simulatedClients struct {
	labels map[string]string
	// until is, by label, when the pod that runs ends or the one that is missing starts; zero if neither is due.
	until map[string]time.Time
	runs  map[string]bool
	// upgrade holds the labels as they were before an upgrade of the driver, nil without one.
	upgrade   map[string]string
	upgradeAt time.Time // its end
}

// initialClientLabels are the labels before each history: an administrator switched NVSM off, and DCGM
// has a value that no program writes.
var initialClientLabels = map[string]string{
	labelPlugin: "true", "nvidia.com/gpu.deploy.dcgm-exporter": "true", labelNVSM: "false", labelDCGM: "host",
}

func newSimulatedClients() simulatedClients {
	c := simulatedClients{labels: maps.Clone(initialClientLabels), until: map[string]time.Time{}, runs: map[string]bool{}}
	for key, value := range c.labels {
		c.runs[key] = value == "true"
	}
	return c
}

// running returns the clients that run.
func (c *simulatedClients) running() (names []string) {
	for _, key := range slices.Sorted(maps.Keys(c.runs)) {
		if c.runs[key] {
			names = append(names, key)
		}
	}
	return names
}

func (c *simulatedClients) hasPlugin() bool { return c.runs[labelPlugin] }

// ours reports whether Sluice pauses the device plugin.
func (c *simulatedClients) ours() bool {
	return strings.HasPrefix(c.labels[labelPlugin], v1alpha1.GPUClientPaused)
}

// pods returns the pods of the clients.
func (c *simulatedClients) pods() (all []boundPod) {
	for _, name := range c.running() {
		all = append(all, boundPod{uid: "client", name: name, client: true})
	}
	return all
}

// isAtRest reports whether each client runs as its label says, and no upgrade runs.
func (c *simulatedClients) isAtRest() bool {
	for key, value := range c.labels {
		if c.runs[key] != (value == "true") {
			return false
		}
	}
	return c.upgrade == nil && !clientLabels(c.labels).paused()
}

// runClients starts and ends the pods of the clients, and upgrades the driver now and then.
func (h *simulation) runClients(n *simulatedNode) {
	c := &n.clients
	h.upgradeDriver(n)
	for key, value := range c.labels {
		switch active := value == "true"; {
		case c.runs[key] == active:
			c.until[key] = time.Time{}
		case c.until[key].IsZero():
			c.until[key] = h.now.Add(h.randomDelay(h.maxDelay()))
		case !h.now.Before(c.until[key]):
			c.runs[key] = active
		}
	}
}

// upgradeDriver does to the labels what NVIDIA's driver manager does. It writes the values that it read
// before, however old they are.
func (h *simulation) upgradeDriver(n *simulatedNode) {
	const paused = "paused-for-driver-upgrade"
	c := &n.clients
	switch {
	case c.upgrade == nil && h.oneIn(300):
		h.logf("the driver of %s is upgraded", n.name)
		c.upgrade, c.upgradeAt = maps.Clone(c.labels), h.now.Add(h.randomDelay(2*h.maxDelay()))
		for key, value := range c.labels {
			switch value {
			case "", "false":
			case "true":
				c.labels[key] = paused
			default:
				c.labels[key] = value + "_" + paused
			}
		}
	case c.upgrade != nil && (h.calm || !h.now.Before(c.upgradeAt)):
		h.logf("the driver of %s is upgraded now", n.name)
		maps.Copy(c.labels, c.upgrade)
		c.upgrade = nil
	}
}

// pool returns the pool of the nodes.
func (h *simulation) pool() pool {
	return pool{name: "dgx", maxChangesPerHour: defaultMaxChangesPerHour, resets: v1alpha1.MIGResetsWhenIdle, pause: h.pause}
}

// checkLabels fails if the labels of a node are not as they were before the history.
func (h *simulation) checkLabels() {
	for _, n := range h.nodes {
		if !maps.Equal(n.clients.labels, initialClientLabels) {
			h.failf("the labels of %s are %v, and were %v", n.name, n.clients.labels, initialClientLabels)
		}
	}
}

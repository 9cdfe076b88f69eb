// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package library chooses the driver by the agent's configuration: the one place that
// knows that there is more than one.
//
// Enters: which driver is configured. Leaves: it, with nothing loaded yet. It never
// makes a call.
package library

import (
	"sluice.dev/gpuagent/agent"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/driver"
	"sluice.dev/gpuagent/nvml/simulator/socket"
)

// New is the driver that is configured.
func New(c agent.Driver) nvml.Library {
	if c.Simulator != "" {
		return socket.Dial(c.Simulator)
	}
	return driver.New(driver.Config{Path: c.Library})
}

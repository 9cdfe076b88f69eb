// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"sluice.dev/gpuagent/config"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/driver"
	"sluice.dev/gpuagent/nvml/simulator/served"
)

// Choose is the driver that is configured.
func Choose(c config.Driver) nvml.Library {
	if c.Simulator != "" {
		return served.Dial(c.Simulator)
	}
	return driver.New(driver.Config{Path: c.Library})
}

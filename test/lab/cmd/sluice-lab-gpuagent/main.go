// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sluice-lab-gpuagent is the GPU agent as it is shipped, on the simulated GPUs of a node. SIMULATED_DRIVER names the
// socket of their driver.
package main

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/config"
	"sluice.dev/gpuagent/agent"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

func main() {
	ctx := ctrl.SetupSignalHandler()
	if len(os.Args) > 1 && os.Args[1] == "status" {
		os.Exit(agent.StatusMain(ctx, os.Args[2:], os.Stdout, os.Stderr, func(agent.Driver) nvml.Library { return dial() }))
	}
	var cfg agent.Config
	os.Exit(config.Main(ctx, "gpuagent", os.Args[1:], os.Stderr, &cfg, func(ctx context.Context, logger logr.Logger) error {
		cfg.HostRoot = "" // simulated GPUs have no device nodes
		return agent.Run(ctx, &cfg, dial(), logger)
	}))
}

// dial returns the driver of the simulated GPUs. It connects to nothing yet.
func dial() nvml.Library { return simulator.Dial(os.Getenv("SIMULATED_DRIVER")) }

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gpuagent runs the agent of a GPU node. `gpuagent status` shows the node's GPUs: as the agent
// reports them, or without an agent as the driver does. It never changes anything.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"

	base "sluice.dev/api/config"
	"sluice.dev/gpuagent/agent"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/driver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	if len(os.Args) > 1 && os.Args[1] == "status" {
		os.Exit(agent.StatusMain(ctx, os.Args[2:], os.Stdout, os.Stderr, newLibrary))
	}
	var cfg agent.Config
	os.Exit(base.Main(ctx, "gpuagent", os.Args[1:], os.Stderr, &cfg,
		func(ctx context.Context, logger logr.Logger) error {
			return agent.Run(ctx, &cfg, newLibrary(cfg.Driver), logger)
		}))
}

// newLibrary returns the driver. It loads nothing yet.
func newLibrary(c agent.Driver) nvml.Library { return driver.New(driver.Config{Path: c.Library}) }

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gpuagent runs package gpuagent, or as `gpuagent status` shows what it sees;
// see their documentation.
package main

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	base "sluice.dev/api/config"
	"sluice.dev/cmd/gpuagent/library"
	"sluice.dev/cmd/gpuagent/status"
	"sluice.dev/gpuagent/agent"
)

func main() {
	ctx := ctrl.SetupSignalHandler()
	if len(os.Args) > 1 && os.Args[1] == "status" {
		os.Exit(status.Main(ctx, os.Args[2:], os.Stdout, os.Stderr))
	}
	var cfg agent.Config
	os.Exit(base.Main(ctx, "gpuagent", os.Args[1:], os.Stderr, &cfg,
		func(ctx context.Context, logger logr.Logger) error {
			return agent.Run(ctx, &cfg, library.New(cfg.Driver), logger)
		}))
}

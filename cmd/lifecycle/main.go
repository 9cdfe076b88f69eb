// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command lifecycle runs the controllers of package lifecycle.
package main

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	base "sluice.dev/api/config"
	"sluice.dev/lifecycle"
	"sluice.dev/lifecycle/config"
	"sluice.dev/manifests"
	"sluice.dev/policies/check"
)

func main() {
	check.RunIfChild()
	var cfg config.Config
	os.Exit(base.Main(ctrl.SetupSignalHandler(), "lifecycle", os.Args[1:], os.Stderr, &cfg,
		func(ctx context.Context, logger logr.Logger) error {
			return lifecycle.Run(ctx, &cfg, manifests.Files, logger)
		}))
}

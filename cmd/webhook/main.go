// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command webhook runs the admission webhook of package webhook.
package main

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	base "sluice.dev/api/config"
	"sluice.dev/policies/check"
	"sluice.dev/webhook"
)

func main() {
	check.RunIfChild()
	var cfg webhook.Config
	os.Exit(base.Main(ctrl.SetupSignalHandler(), "webhook", os.Args[1:], os.Stderr, &cfg,
		func(ctx context.Context, logger logr.Logger) error { return webhook.Run(ctx, &cfg, logger) }))
}

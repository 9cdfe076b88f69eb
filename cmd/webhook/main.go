// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command webhook runs the admission webhook of package webhook. With the argument certificates it creates or renews the webhook's
// certificate instead, and ends.
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
	run, args := webhook.Run, os.Args[1:]
	if len(args) > 0 && args[0] == "certificates" {
		run, args = webhook.RenewCertificates, args[1:]
	}
	var cfg webhook.Config
	os.Exit(base.Main(ctrl.SetupSignalHandler(), "webhook", args, os.Stderr, &cfg,
		func(ctx context.Context, logger logr.Logger) error { return run(ctx, &cfg, logger) }))
}

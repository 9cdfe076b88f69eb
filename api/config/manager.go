// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"net/http"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api/scheme"
)

// ManagerOptions are the options of a controller-runtime manager that this
// configuration stands for; the caller adds its own.
func (c *Common) ManagerOptions(logger logr.Logger) (ctrl.Options, error) {
	kinds, err := scheme.New()
	return ctrl.Options{
		Scheme:                 kinds,
		Logger:                 logger,
		Metrics:                metricsserver.Options{BindAddress: c.Metrics},
		HealthProbeBindAddress: c.Health,
	}, err
}

// AddHealth makes mgr answer /healthz, and /readyz once its caches are filled
// and every check in ready passes.
func AddHealth(mgr ctrl.Manager, ready map[string]healthz.Checker) error {
	errs := []error{
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", func(req *http.Request) error {
			if !mgr.GetCache().WaitForCacheSync(req.Context()) {
				return errors.New("the caches are not filled yet")
			}
			return nil
		}),
	}
	for name, check := range ready {
		errs = append(errs, mgr.AddReadyzCheck(name, check))
	}
	return errors.Join(errs...)
}

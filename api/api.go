// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the root of the packages that all parts of Sluice share: the API objects
// (v1alpha1), pod requests (workload), kinds of workloads (workloadkind), periods, policy
// time, configuration and tenancy. It imports no other part of Sluice.
//
// It holds the scheme, and the parts of a controller-runtime manager that lifecycle and the webhook
// share. The GPU agent imports none of it: it links neither controller-runtime nor all kinds of
// Kubernetes, for the sake of its memory.
package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
)

// NewScheme returns a scheme with the kinds of Kubernetes and Sluice.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	return scheme, nil
}

// ManagerOptions returns the options of a controller-runtime manager for a configuration, and sets the
// logger of controller-runtime. Callers add their own options.
func ManagerOptions(c *config.Common, logger logr.Logger) (ctrl.Options, error) {
	ctrl.SetLogger(logger)
	scheme, err := NewScheme()
	return ctrl.Options{
		Scheme:                 scheme,
		Logger:                 logger,
		Metrics:                metricsserver.Options{BindAddress: c.Metrics},
		HealthProbeBindAddress: c.Health,
	}, err
}

// AddHealthChecks serves /healthz, and /readyz once the caches are filled and every check in
// ready passes.
func AddHealthChecks(mgr ctrl.Manager, ready map[string]healthz.Checker) error {
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

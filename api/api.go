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
	"net/http/pprof"
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
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
		Metrics:                metricsOptions(c),
		HealthProbeBindAddress: c.Health,
	}, err
}

// metricsOptions returns the options of the metrics server. Its certificate is self-signed, as that of Kubernetes' components.
func metricsOptions(c *config.Common) metricsserver.Options {
	options := metricsserver.Options{BindAddress: c.Metrics}
	if c.MetricsAccess != config.MetricsOpen {
		options.SecureServing = true
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if c.Profiling {
		options.ExtraHandlers = map[string]http.Handler{
			"/debug/pprof/":        http.HandlerFunc(pprof.Index),
			"/debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
			"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
			"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
			"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
		}
	}
	return options
}

// Kinds returns the kinds of Sluice's CRDs.
func Kinds() []string {
	scheme := runtime.NewScheme()
	_ = v1alpha1.AddToScheme(scheme) // registers types of this binary
	var kinds []string
	for kind, typ := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		// Lists and the options of requests are registered too.
		if reflect.PointerTo(typ).Implements(reflect.TypeFor[metav1.Object]()) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
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

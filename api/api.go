// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the root of the packages that all parts of Sluice share: the API objects
// (v1alpha1), pod requests (workload), kinds of workloads (workloadkind), periods, policy
// time, configuration and tenancy. It imports no other part of Sluice.
package api

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sluice.dev/api/v1alpha1"
)

// Version is the version of this build. The linker sets it.
var Version = "unknown"

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

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the root of what every part of Sluice agrees on.
//
// Enters and leaves: nothing; the packages below hold the objects people
// declare and Sluice keeps (v1alpha1), the durations and periods they are
// written in (period), and policy time (clock).
//
// It never imports another part of Sluice, and every other part may import it.
package api

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sluice.dev/api/v1alpha1"
)

// Version is the version of this build, stamped in by the linker.
var Version = "unknown"

// NewScheme makes a scheme with Kubernetes' kinds and Sluice's.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

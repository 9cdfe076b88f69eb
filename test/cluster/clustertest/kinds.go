// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/cluster"
)

// InstallKinds is a [Setup] that makes the API server know Sluice's kinds. Those
// that it knows already, in a person's own cluster, stay as they are.
func InstallKinds(ctx context.Context, c *cluster.Cluster) error {
	kinds, err := manifests.Build("crds")
	if err != nil {
		return err
	}
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, kind)); err != nil {
			return fmt.Errorf("install %s: %w", kind.GetName(), err)
		}
	}
	return nil
}

// Admin returns the administrator's client of the shared cluster, for Kubernetes'
// kinds and Sluice's, once these are served. The package's Main needs the setup
// [InstallKinds].
func Admin(t testing.TB) client.Client {
	t.Helper()
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(Start(t).Config(), client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, func() error { return admin.List(t.Context(), &v1alpha1.PolicyList{}) })
	return admin
}

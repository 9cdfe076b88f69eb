// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"context"
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m, installCRDs) }

func TestBadInput(t *testing.T) {
	c, err := client.New(clustertest.Start(t).Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	Run(t, c)
}

func installCRDs(ctx context.Context, c *clustertest.Cluster) error {
	api, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	crds, err := manifests.Build("crds")
	if err != nil {
		return err
	}
	for _, crd := range crds {
		configuration := client.ApplyConfigurationFromUnstructured(crd)
		if err := api.Apply(ctx, configuration, client.FieldOwner("badinput"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s: %w", crd.GetName(), err)
		}
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
			err := api.Get(ctx, client.ObjectKeyFromObject(crd), crd)
			return err == nil && established(crd), err
		})
		if err != nil {
			return fmt.Errorf("wait until %s is established: %w", crd.GetName(), err)
		}
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if ok && condition["type"] == string(apiextensionsv1.Established) && condition["status"] == "True" {
			return true
		}
	}
	return false
}

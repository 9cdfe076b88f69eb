// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// InstallKinds is a [Setup] that installs Sluice's CustomResourceDefinitions, and waits until the API
// server serves them. It does not change existing ones in the user's own cluster.
func InstallKinds(ctx context.Context, c *Cluster) error {
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
	return waitForKinds(ctx, c, len(kinds))
}

// wakeAfter is how long a CustomResourceDefinition may take to go before [RemoveKinds] wakes the API server's finalizer. A change
// more often would only make the finalizer's own updates conflict.
const wakeAfter = 2 * time.Second

// RemoveKinds removes CustomResourceDefinitions with their objects, and waits until the API server has none of them.
//
// The API server's finalizer forgets a CustomResourceDefinition if, after an attempt that failed ("storage is (re)initializing"), the
// second one's update conflicts with the condition that the first one wrote: of a change of the condition Terminating alone it is not
// told again. It goes on five minutes later, or at any other change, which an annotation is.
func RemoveKinds(t testing.TB, admin client.Client, kinds []*unstructured.Unstructured) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it is for cleaning up, too
	for _, kind := range kinds {
		if err := client.IgnoreNotFound(admin.Delete(ctx, kind.DeepCopy())); err != nil {
			t.Errorf("delete %s: %v", kind.GetName(), err)
		}
	}
	woken := time.Now()
	Eventually(t, func() error {
		var remaining []string
		wake := time.Since(woken) > wakeAfter
		for _, kind := range kinds {
			now := kind.DeepCopy()
			err := admin.Get(ctx, client.ObjectKeyFromObject(kind), now)
			if apierrors.IsNotFound(err) {
				continue
			}
			remaining = append(remaining, kind.GetName())
			if err == nil && wake {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"test.sluice.dev/woken":%q}}}`, time.Now().Format(time.RFC3339Nano))
				err = client.IgnoreNotFound(admin.Patch(ctx, now, client.RawPatch(types.MergePatchType, []byte(patch))))
			}
			if err != nil {
				return err
			}
		}
		if wake {
			woken = time.Now()
		}
		if len(remaining) > 0 {
			return fmt.Errorf("%s exist", strings.Join(remaining, ", "))
		}
		return nil
	})
}

// waitForKinds waits until the API server serves a number of Sluice's kinds. A client that asks earlier does not find all of them.
func waitForKinds(ctx context.Context, c *Cluster, number int) error {
	discoverer, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, defaultTimeout, true, func(context.Context) (bool, error) {
		resources, err := discoverer.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		served := slices.DeleteFunc(resources.APIResources, func(r metav1.APIResource) bool { return strings.Contains(r.Name, "/") })
		return len(served) >= number, nil
	})
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nextpool

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"sluice.dev/lifecycle/conflict"
	"sluice.dev/policies/kaigroup"
)

// look is after how long it is asked again whether there are PodGroups, in machine
// time.
const look = 10 * time.Second

// SetupWithManager makes the manager run r as soon as the API server serves
// PodGroups.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.notBefore = map[types.NamespacedName]time.Time{}
	server, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("nextpool: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
			served, err := isServed(ctx, server)
			if err != nil {
				mgr.GetLogger().V(1).Info("the API server does not say whether it serves PodGroups; asking again", "reason", err.Error())
			}
			return served, nil
		})
		if err == nil {
			err = r.run(mgr)
		}
		if wait.Interrupted(err) { // the manager stops
			return nil
		}
		return err
	}))
}

func (r *Reconciler) run(mgr ctrl.Manager) error {
	groups := &unstructured.Unstructured{}
	groups.SetGroupVersionKind(kaigroup.Kind)
	return ctrl.NewControllerManagedBy(mgr).Named("nextpool").For(groups).Complete(conflict.Retried(r))
}

func isServed(ctx context.Context, server *discovery.DiscoveryClient) (bool, error) {
	var list metav1.APIResourceList
	err := server.RESTClient().Get().AbsPath("/apis", kaigroup.Kind.Group, kaigroup.Kind.Version).Do(ctx).Into(&list)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	for i := range list.APIResources {
		if list.APIResources[i].Kind == kaigroup.Kind.Kind {
			return err == nil, err
		}
	}
	return false, err
}

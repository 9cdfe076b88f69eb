// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/webhook/certificates"
)

// injectAddedKinds makes the injector write the rules of the kinds that AdmissionParameters adds, at each change of its
// spec.
func injectAddedKinds(ctx context.Context, cached cache.Cache, injector *certificates.Injector) error {
	injector.Rules = func(ctx context.Context) (certificates.EntryRules, error) {
		var parameters v1alpha1.AdmissionParameters
		err := cached.Get(ctx, client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get admission parameters: %w", err)
		}
		return workloadkind.AddedRules(parameters.Spec.PodTemplates), nil
	}
	informer, err := cached.GetInformer(ctx, &v1alpha1.AdmissionParameters{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { injector.Update() },
		UpdateFunc: func(before, after any) {
			old, _ := before.(*v1alpha1.AdmissionParameters)
			present, _ := after.(*v1alpha1.AdmissionParameters)
			if old == nil || present == nil || old.Generation != present.Generation || old.UID != present.UID {
				injector.Update()
			}
		},
		DeleteFunc: func(any) { injector.Update() },
	})
	return err
}

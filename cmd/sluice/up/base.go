// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// installBase applies what every installation of Sluice has, and the accounts
// of the simulation. The API server finds the webhook below the URL webhook.
func installBase(ctx context.Context, c client.Client, webhook string) error {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := pointTo(object, webhook); err != nil {
			return err
		}
	}
	simulation, err := simulationAccounts()
	if err != nil {
		return err
	}
	if err := apply(ctx, c, append(objects, simulation...)); err != nil {
		return err
	}
	return await(ctx, "Sluice's kinds to be served", func(ctx context.Context) (bool, error) {
		return served(ctx, c, v1alpha1.Group)
	})
}

// served reports whether all kinds of a group are.
func served(ctx context.Context, c client.Client, group string) (bool, error) {
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &crds); err != nil {
		return false, err
	}
	for i := range crds.Items {
		if crds.Items[i].Spec.Group == group && !established(&crds.Items[i]) {
			return false, nil
		}
	}
	return true, nil
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
)

// Apply applies objects in their order, as `kubectl apply --server-side` does. While the API server is busy it tries again, for about
// two minutes. It replaces a Job whose pods would change: the API server does not change them.
func Apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, options ...client.ApplyOption) error {
	options = append(options, client.FieldOwner(v1alpha1.FieldManagerCLI))
	for _, object := range objects {
		apply := func() error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), options...)
		}
		err := retry.OnError(applyBackoff, func(err error) bool { return mayPass(err) && ctx.Err() == nil }, apply)
		if object.GetKind() == "Job" && apierrors.IsInvalid(err) && !slices.Contains(options, client.ApplyOption(client.DryRunAll)) {
			former := object.DeepCopy()
			err = WaitFor(ctx, "Job "+object.GetName()+" to be removed", func(ctx context.Context) (bool, error) {
				err := c.Delete(ctx, former, client.PropagationPolicy(metav1.DeletePropagationBackground))
				return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
			})
			err = errors.Join(err, apply())
		}
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// applyBackoff repeats a request for about two minutes, and for the time that the requests take.
var applyBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 17}

// mayPass reports whether a request that failed can succeed later: the API server reports a webhook that does not answer in time, as on a
// busy machine, as an internal error.
func mayPass(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// WaitForGroup waits until the API server serves all kinds of a group.
func WaitForGroup(ctx context.Context, c client.Client, group string) error {
	return WaitFor(ctx, "the API server to serve "+group, func(ctx context.Context) (bool, error) {
		var crds apiextensionsv1.CustomResourceDefinitionList
		if err := c.List(ctx, &crds); err != nil {
			return false, err
		}
		for i := range crds.Items {
			if crds.Items[i].Spec.Group == group && !crdEstablished(&crds.Items[i]) {
				return false, nil
			}
		}
		return true, nil
	})
}

func crdEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// NewAdminClient returns a client for the kinds of Kubernetes, of Sluice, and CustomResourceDefinitions.
func NewAdminClient(config *rest.Config) (client.Client, error) {
	scheme, err := api.NewScheme()
	if err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return admin, nil
}

const (
	pollInterval = 100 * time.Millisecond
	// waitTimeout limits each wait. At a load of nine for each processor, the API server took over a minute to
	// enforce the admission policies.
	waitTimeout = 3 * time.Minute
)

// WaitFor polls a condition. An error of the condition does not end the wait; the
// last one is the reason in the error.
func WaitFor(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		done, err := condition(ctx)
		last = err
		return done && err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, errors.Join(err, last))
	}
	return nil
}

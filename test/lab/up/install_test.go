// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/manifests"
)

// The cluster is ready only when all admission policies are in force.
func TestProbesLastAdmissionPolicy(t *testing.T) {
	policies, err := admissionpolicy.LoadPolicies(manifests.Files, true)
	if err != nil {
		t.Fatal(err)
	}
	if last := policies[len(policies)-1].GetName(); last != lastAdmissionPolicy {
		t.Errorf("lifecycle applies %s last, and the probe is of %s", last, lastAdmissionPolicy)
	}
}

// On a busy machine a webhook may not answer in time: the object is applied again. Other errors end the installation at once.
func TestApplyRepeatsWhatMayPass(t *testing.T) {
	timedOut := apierrors.NewInternalError(errors.New(`failed calling webhook "projects.sluice.dev": context deadline exceeded`))
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no"))
	for name, test := range map[string]struct {
		errs     []error
		want     error
		attempts int
	}{
		"twice no answer": {errs: []error{timedOut, timedOut}, attempts: 3},
		"denied":          {errs: []error{denied}, want: denied, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := decodeManifests([]byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}"))
			if err != nil {
				t.Fatal(err)
			}
			attempts := 0
			c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if attempts++; attempts <= len(test.errs) {
						return test.errs[attempts-1]
					}
					return c.Apply(ctx, object, options...)
				},
			}).Build()
			if err := applyObjects(t.Context(), c, objects); !errors.Is(err, test.want) || attempts != test.attempts {
				t.Errorf("after %d attempts: %v, want %d attempts and %v", attempts, err, test.attempts, test.want)
			}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, &corev1.ConfigMap{}); (err == nil) != (test.want == nil) {
				t.Errorf("the object: %v", err)
			}
		})
	}
}

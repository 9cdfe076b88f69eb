// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A Job of another version is replaced, since the API server refuses another template. Nothing is deleted in a dry run, or for
// another kind.
func TestApplyReplacesJobs(t *testing.T) {
	for name, tc := range map[string]struct {
		kind    string
		options []client.ApplyOption
		deletes int
		refused bool
	}{
		"a Job":        {"Job", nil, 2, false}, // the second one finds none
		"in a dry run": {"Job", []client.ApplyOption{client.DryRunAll}, 0, true},
		"a CronJob":    {"CronJob", nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			exists, deletes := true, 0
			c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					if exists {
						return apierrors.NewInvalid(schema.GroupKind{Kind: tc.kind}, "certificates", nil)
					}
					return nil
				},
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					deletes++
					if !exists {
						return apierrors.NewNotFound(schema.GroupResource{}, "certificates")
					}
					exists = false
					return nil
				},
			})
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": tc.kind}}
			object.SetName("certificates")
			err := Apply(t.Context(), c, []*unstructured.Unstructured{object}, tc.options...)
			if (err != nil) != tc.refused || deletes != tc.deletes {
				t.Errorf("%v, %d requests to delete; want refused %v, %d", err, deletes, tc.refused, tc.deletes)
			}
		})
	}
}

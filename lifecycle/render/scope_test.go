// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A quota that somebody prepared in the namespace, to be taken for Sluice's and
// to count nothing, is made anew.
func TestAQuotaCountsThePodsThatItIsRenderedFor(t *testing.T) {
	place := Place{Kind: ForProject, Name: "thesis", Namespace: "thesis-ns"}
	limit := map[string]any{"hard": map[string]any{"requests.sluice.dev/gpu-milli.dgx": "1000"}}
	guarantee := map[string]any{"hard": limit["hard"], "scopeSelector": map[string]any{"matchExpressions": []any{
		map[string]any{"scopeName": "PriorityClass", "operator": "In", "values": []any{"sluice-interactive"}},
	}}}
	prepared := func(scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		q := quota("sluice-dgx", "1000", "1000", "0")
		q.Namespace, q.Labels, q.UID, q.Spec.Scopes = place.Namespace, Ours(), "prepared", scopes
		return &q
	}
	refusing := interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
		return apierrors.NewInvalid(quotaKind.GroupKind(), "sluice-dgx", nil) // scopes cannot be changed
	}}
	tests := map[string]struct {
		there  *corev1.ResourceQuota
		with   interceptor.Funcs
		spec   map[string]any
		faults string
		anew   bool
	}{
		"none there":             {nil, interceptor.Funcs{}, limit, "", false},
		"as it should be":        {prepared(), interceptor.Funcs{}, limit, "", false},
		"of other pods":          {prepared(corev1.ResourceQuotaScopeTerminating), interceptor.Funcs{}, limit, "it is made anew", true},
		"of all pods":            {prepared(), refusing, guarantee, "it is made anew", true},
		"refused for the amount": {prepared(), refusing, limit, "the API server refuses", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithInterceptorFuncs(tc.with)
			if tc.there != nil {
				builder = builder.WithObjects(tc.there)
			}
			cluster := builder.Build()
			object := &unstructured.Unstructured{Object: map[string]any{"spec": tc.spec}}
			object.SetGroupVersionKind(quotaKind)
			object.SetName("sluice-dgx")
			object.SetNamespace(place.Namespace)
			object.SetLabels(place.labels())
			applied, err := (&Applier{Client: cluster, Live: cluster, Queues: noQueues{}}).Apply(t.Context(), place, Wanted{Objects: []*unstructured.Unstructured{object}})
			if err != nil {
				t.Fatal(err)
			}
			var faults []string
			for _, fault := range applied.Faults {
				faults = append(faults, fault.String())
				if !fault.Quota {
					t.Errorf("%s: GPU pods would be let in meanwhile", fault)
				}
			}
			if said := strings.Join(faults, "; "); !strings.Contains(said, tc.faults) || (tc.faults == "") != (said == "") {
				t.Errorf("faults %q, want %q", said, tc.faults)
			}
			err = cluster.Get(t.Context(), client.ObjectKeyFromObject(object), &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}})
			if diff := cmp.Diff(tc.anew, apierrors.IsNotFound(err)); diff != "" {
				t.Errorf("deleted (-want +got)\n%s%v", diff, err)
			}
		})
	}
}

// noQueues: no engine is there.
type noQueues struct{}

func (noQueues) Watched(schema.GroupVersionKind) bool { return false }
func (noQueues) Absent(schema.GroupVersionKind) bool  { return true }
func (noQueues) Of(schema.GroupVersionKind, SubjectKind, string) []*metav1.PartialObjectMetadata {
	return nil
}

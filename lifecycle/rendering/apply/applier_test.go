// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

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

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
)

// A quota that a user prepared in the namespace so that it counts nothing is created
// again.
func TestQuotaWithWrongScopeIsRecreated(t *testing.T) {
	target := Target{Kind: SubjectProject, Name: "thesis", Namespace: "thesis-ns"}
	limit := map[string]any{"hard": map[string]any{"requests.sluice.dev/gpu-milli.dgx": "1000"}}
	prepared := func(scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		q := newQuota("1000", "1000", "0")
		q.Labels, q.UID, q.Spec.Scopes = ManagedLabels(), "prepared", scopes
		return q
	}
	refusing := interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
		return apierrors.NewInvalid(quotaKind.GroupKind(), v1alpha1.QuotaName, nil) // scopes cannot be changed
	}}
	tests := map[string]struct {
		existing  *corev1.ResourceQuota
		with      interceptor.Funcs
		failures  string
		recreated bool
	}{
		"no quota":               {nil, interceptor.Funcs{}, "", false},
		"as it should be":        {prepared(), interceptor.Funcs{}, "", false},
		"of other pods":          {prepared(corev1.ResourceQuotaScopeTerminating), interceptor.Funcs{}, "it is deleted and created again", true},
		"of other pods, refused": {prepared(corev1.ResourceQuotaScopeTerminating), refusing, "it is deleted and created again", true},
		"refused for the amount": {prepared(), refusing, "the API server refuses", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			scheme, err := api.NewScheme()
			if err != nil {
				t.Fatal(err)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(tc.with)
			if tc.existing != nil {
				builder = builder.WithObjects(tc.existing)
			}
			cluster := builder.Build()
			object := &unstructured.Unstructured{Object: map[string]any{"spec": limit}}
			object.SetGroupVersionKind(quotaKind)
			object.SetName(v1alpha1.QuotaName)
			object.SetNamespace(target.Namespace)
			object.SetLabels(target.labels())
			applied, err := (&Applier{Client: cluster, Live: cluster, Queues: noQueueKinds{}}).Apply(t.Context(), target, Desired{Objects: []*unstructured.Unstructured{object}})
			if err != nil {
				t.Fatal(err)
			}
			var failures []string
			for _, failure := range applied.Failures {
				failures = append(failures, failure.String())
				if !failure.AffectsQuota {
					t.Errorf("%s: GPU pods would be admitted meanwhile", failure)
				}
			}
			if text := strings.Join(failures, "; "); !strings.Contains(text, tc.failures) || (tc.failures == "") != (text == "") {
				t.Errorf("failures %q, want %q", text, tc.failures)
			}
			err = cluster.Get(t.Context(), client.ObjectKeyFromObject(object), &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}})
			if diff := cmp.Diff(tc.recreated, apierrors.IsNotFound(err)); diff != "" {
				t.Errorf("deleted (-want +got)\n%s%v", diff, err)
			}
		})
	}
}

// noQueueKinds is a cluster without queue kinds.
type noQueueKinds struct{}

func (noQueueKinds) IsWatched(schema.GroupVersionKind) bool { return false }
func (noQueueKinds) IsAbsent(schema.GroupVersionKind) bool  { return true }
func (noQueueKinds) List(schema.GroupVersionKind, SubjectKind, string) []*metav1.PartialObjectMetadata {
	return nil
}

// An object of another person is taken over only after they handed it over.
func TestOwnershipConflict(t *testing.T) {
	target := ClusterTarget(SubjectProject, "thesis")
	type labels = map[string]string
	applied := metav1.ManagedFieldsEntry{Manager: v1alpha1.FieldManagerLifecycle, Operation: metav1.ManagedFieldsOperationApply}
	updated := metav1.ManagedFieldsEntry{Manager: v1alpha1.FieldManagerLifecycle, Operation: metav1.ManagedFieldsOperationUpdate}
	tests := map[string]struct {
		labels      labels
		annotations map[string]string
		fields      []metav1.ManagedFieldsEntry
		want        []string // none if it may be taken over
	}{
		"its own":                     {labels: target.labels(), fields: []metav1.ManagedFieldsEntry{applied}},
		"Sluice's, without a subject": {labels: ManagedLabels()},
		"its own, without its labels": {fields: []metav1.ManagedFieldsEntry{applied}},
		"another person's":            {want: []string{"ClusterQueue thesis exists and is not Sluice's", "kubectl annotate clusterqueue.kueue.x-k8s.io thesis sluice.dev/adopt-by=thesis"}},
		"another tool's":              {labels: labels{v1alpha1.LabelManagedBy: "helm"}, want: []string{"is not Sluice's"}},
		"one that looks like its own": {labels: labels{v1alpha1.LabelProject: "thesis"}, want: []string{"is not Sluice's"}},
		"updated as lifecycle":        {fields: []metav1.ManagedFieldsEntry{updated}, want: []string{"is not Sluice's"}},
		"another's, by its label":     {labels: ClusterTarget(SubjectProject, "other").labels(), want: []string{"belongs to project other"}},
		"its own, the label changed":  {labels: ClusterTarget(SubjectProject, "other").labels(), fields: []metav1.ManagedFieldsEntry{applied}},
		"a pool's of the same name":   {labels: ClusterTarget(SubjectNodePool, "thesis").labels(), fields: []metav1.ManagedFieldsEntry{applied}, want: []string{"belongs to node pool thesis"}},
		"handed over":                 {annotations: map[string]string{v1alpha1.AnnotationAdoptBy: "thesis"}},
		"handed over by another":      {labels: ClusterTarget(SubjectDepartment, "thesis").labels(), annotations: map[string]string{v1alpha1.AnnotationAdoptBy: "thesis"}},
		"handed over to another":      {annotations: map[string]string{v1alpha1.AnnotationAdoptBy: "other"}, want: []string{"is not Sluice's"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			existing := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "thesis", Labels: tc.labels, Annotations: tc.annotations, ManagedFields: tc.fields}}
			existing.SetGroupVersionKind(kueueVersion.WithKind("ClusterQueue"))
			err := ownershipConflict(existing, target)
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("foreign: %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Nothing of somebody else's is taken over, unless they handed it over.
func TestWhatIsThereIsTakenOnlyWhereItIsTheSubjects(t *testing.T) {
	place := ClusterWide(ForProject, "thesis")
	type labels = map[string]string
	applied := metav1.ManagedFieldsEntry{Manager: v1alpha1.FieldManagerLifecycle, Operation: metav1.ManagedFieldsOperationApply}
	updated := metav1.ManagedFieldsEntry{Manager: v1alpha1.FieldManagerLifecycle, Operation: metav1.ManagedFieldsOperationUpdate}
	tests := map[string]struct {
		labels      labels
		annotations map[string]string
		fields      []metav1.ManagedFieldsEntry
		says        []string // none where it may be taken
	}{
		"its own":                     {labels: place.labels(), fields: []metav1.ManagedFieldsEntry{applied}},
		"Sluice's, of nobody yet":     {labels: Ours()},
		"its own, the labels off":     {fields: []metav1.ManagedFieldsEntry{applied}},
		"somebody else's":             {says: []string{"ClusterQueue thesis is there and is not Sluice's", "kubectl annotate clusterqueue.kueue.x-k8s.io thesis sluice.dev/adopt-by=thesis"}},
		"another tool's":              {labels: labels{v1alpha1.LabelManagedBy: "helm"}, says: []string{"is not Sluice's"}},
		"one that looks like its own": {labels: labels{v1alpha1.LabelProject: "thesis"}, says: []string{"is not Sluice's"}},
		"updated in our name":         {fields: []metav1.ManagedFieldsEntry{updated}, says: []string{"is not Sluice's"}},
		"another's, by its label":     {labels: ClusterWide(ForProject, "other").labels(), says: []string{"is there for project other"}},
		"its own, the label changed":  {labels: ClusterWide(ForProject, "other").labels(), fields: []metav1.ManagedFieldsEntry{applied}},
		"a pool's of the same name":   {labels: ClusterWide(ForNodePool, "thesis").labels(), fields: []metav1.ManagedFieldsEntry{applied}, says: []string{"is there for node pool thesis"}},
		"handed over":                 {annotations: map[string]string{v1alpha1.AnnotationAdoptBy: "thesis"}},
		"handed over by another":      {labels: ClusterWide(ForDepartment, "thesis").labels(), annotations: map[string]string{v1alpha1.AnnotationAdoptBy: "thesis"}},
		"handed over to another":      {annotations: map[string]string{v1alpha1.AnnotationAdoptBy: "other"}, says: []string{"is not Sluice's"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			there := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "thesis", Labels: tc.labels, Annotations: tc.annotations, ManagedFields: tc.fields}}
			there.SetGroupVersionKind(kueue.WithKind("ClusterQueue"))
			err := foreign(there, place)
			if (err == nil) != (len(tc.says) == 0) {
				t.Fatalf("foreign: %v", err)
			}
			for _, says := range tc.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q does not say %q", err, says)
				}
			}
		})
	}
}

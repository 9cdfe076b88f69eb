// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation"
)

func TestChangedFields(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.Project)
		want   []validation.Change
		first  string // the error of the first change
	}{
		"nothing":                {change: func(*v1alpha1.Project) {}},
		"empty values":           {change: func(p *v1alpha1.Project) { p.Labels, p.Spec.Members = map[string]string{}, []v1alpha1.Member{} }},
		"kubectl's annotation":   {change: func(p *v1alpha1.Project) { p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}"} }},
		"generation and version": {change: func(p *v1alpha1.Project) { p.Generation, p.ResourceVersion = 2, "9" }},
		"the status":             {change: func(p *v1alpha1.Project) { p.Status.Phase = v1alpha1.ProjectExpired }},
		"a string": {
			change: func(p *v1alpha1.Project) { p.Spec.Department = "research" },
			want:   []validation.Change{{Path: "spec.department", Value: "research"}},
			first:  `spec.department: Invalid value: "research": no`,
		},
		"a removed string": {
			change: func(p *v1alpha1.Project) { p.Spec.PodSecurity = "" },
			want:   []validation.Change{{Path: "spec.podSecurity"}},
			first:  "spec.podSecurity: Forbidden: no",
		},
		"a list": {
			change: func(p *v1alpha1.Project) { p.Spec.Members = []v1alpha1.Member{userMember("kim", v1alpha1.RoleViewer)} },
			want:   []validation.Change{{Path: "spec.members"}},
			first:  "spec.members: Forbidden: no",
		},
		"all metadata, and more": {
			change: func(p *v1alpha1.Project) {
				p.Labels, p.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
				p.OwnerReferences, p.Finalizers = []metav1.OwnerReference{{Name: "x"}}, nil
				p.Spec.Hold = &v1alpha1.Exception{Reason: "mine"}
			},
			want: []validation.Change{
				{Path: "metadata.labels"},
				{Path: "metadata.annotations"},
				{Path: "metadata.ownerReferences"},
				{Path: "metadata.finalizers"},
				{Path: "spec.hold"},
			},
			first: "metadata.labels: Forbidden: no",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Project{
				ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 1, Finalizers: []string{v1alpha1.FinalizerProject}},
				Spec:       v1alpha1.ProjectSpec{Department: "students", PodSecurity: v1alpha1.PodSecurityRestricted},
			}
			after := before.DeepCopy()
			tc.change(after)
			got, err := validation.ChangedFields(before, after)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(got) > 0 && got[0].Deny("no").Error() != tc.first {
				t.Errorf("denied with %q, want %q", got[0].Deny("no"), tc.first)
			}
		})
	}
}

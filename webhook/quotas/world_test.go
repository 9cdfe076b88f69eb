// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package quotas_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

var spec = field.NewPath("spec")

func pool(name, guaranteed, limit string) v1alpha1.PoolQuota {
	return v1alpha1.PoolQuota{Name: name, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
}

func cpu(cores string) v1alpha1.ResourceQuota {
	return v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse(cores))}
}

func memory(bytes string) v1alpha1.ResourceQuota {
	return v1alpha1.ResourceQuota{Memory: ptr.To(resource.MustParse(bytes))}
}

// none is no quota of CPU and memory.
var none v1alpha1.ResourceQuota

func project(name string, resources v1alpha1.ResourceQuota, pools ...v1alpha1.PoolQuota) *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ProjectSpec{Department: "students", NodePools: pools, Resources: resources},
	}
}

func department(resources v1alpha1.ResourceQuota, pools ...v1alpha1.PoolQuota) *v1alpha1.Department {
	return &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec:       v1alpha1.DepartmentSpec{NodePools: pools, Resources: resources},
	}
}

func allowing(d *v1alpha1.Department) *v1alpha1.Department {
	d.Spec.Oversubscription = v1alpha1.OversubscriptionAllow
	return d
}

func projects(all ...*v1alpha1.Project) (list []v1alpha1.Project) {
	for _, p := range all {
		list = append(list, *p)
	}
	return list
}

// expect compares the answer with what a person would read of it.
func expect(t *testing.T, errs field.ErrorList, warnings, wantErrs, wantWarnings []string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(wantErrs, got); diff != "" {
		t.Errorf("errors (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}

func refusal(field, value, detail string) []string {
	return []string{fmt.Sprintf("%s: Invalid value: %q: %s", field, value, detail)}
}

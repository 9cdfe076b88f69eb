// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

func poolQuota(name, guaranteed string) v1alpha1.PoolQuota {
	return v1alpha1.PoolQuota{Name: name, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse("100")}}
}

func cpuQuota(cores string) v1alpha1.ResourceQuota {
	return v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse(cores))}
}

func projectWithQuota(name, department string, resources v1alpha1.ResourceQuota, pools ...v1alpha1.PoolQuota) v1alpha1.Project {
	return v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{Department: department, NodePools: pools, Resources: resources}}
}

func departmentWithQuota(resources v1alpha1.ResourceQuota, pools ...v1alpha1.PoolQuota) *v1alpha1.Department {
	return &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}, Spec: v1alpha1.DepartmentSpec{NodePools: pools, Resources: resources}}
}

func describeSubscriptions(all []tenancy.Subscription) (words []string) {
	for i := range all {
		p := &all[i]
		left := p.Remaining()
		words = append(words, fmt.Sprintf("%s: %s of %s, left %s, over %v, to [%s], unstated %v",
			p.QuotaResource, p.Subscribed.String(), p.FormatAmount(p.Quota), left.String(), p.IsOversubscribed(), p.DescribeShares(), p.WithoutQuota))
	}
	return words
}

func TestSubscriptions(t *testing.T) {
	var none v1alpha1.ResourceQuota
	memory := v1alpha1.ResourceQuota{Memory: ptr.To(resource.MustParse("512Gi"))}
	tests := map[string]struct {
		department *v1alpha1.Department
		projects   []v1alpha1.Project
		without    string
		want       []string
	}{
		"a department with nothing": {department: departmentWithQuota(none)},
		"no projects": {
			department: departmentWithQuota(memory, poolQuota("dgx", "1")),
			want: []string{
				"GPUs of node pool dgx: 0 of 1 GPU, left 1, over false, to [], unstated []",
				"memory: 0 of 512Gi of memory, left 512Gi, over false, to [], unstated []",
			},
		},
		"the largest first, and only its own": {
			department: departmentWithQuota(none, poolQuota("dgx", "4"), poolQuota("mig", "500m")),
			projects: []v1alpha1.Project{
				projectWithQuota("a", "students", none, poolQuota("dgx", "500m"), poolQuota("gone", "9")),
				projectWithQuota("b", "students", none, poolQuota("dgx", "2"), poolQuota("mig", "0")),
				projectWithQuota("c", "research", none, poolQuota("dgx", "9")),
			},
			want: []string{
				"GPUs of node pool dgx: 2500m of 4 GPUs, left 1500m, over false, to [b 2, a 500m], unstated []",
				"GPUs of node pool mig: 0 of 500m GPUs, left 500m, over false, to [], unstated []",
			},
		},
		"more than it has, and one is left out": {
			department: departmentWithQuota(cpuQuota("1"), poolQuota("dgx", "1")),
			projects: []v1alpha1.Project{
				projectWithQuota("a", "students", cpuQuota("500m"), poolQuota("dgx", "1")), projectWithQuota("b", "students", cpuQuota("2"), poolQuota("dgx", "1")),
				projectWithQuota("c", "students", none, poolQuota("dgx", "1")), projectWithQuota("d", "students", cpuQuota("1"), poolQuota("dgx", "1")),
				projectWithQuota("e", "students", none, poolQuota("dgx", "3")),
			},
			without: "d",
			want: []string{
				"GPUs of node pool dgx: 6 of 1 GPU, left 0, over true, to [e 3, a 1, b 1 and 1 more], unstated []",
				"CPU: 2500m of 1 core, left 0, over true, to [b 2, a 500m], unstated [c e]",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, describeSubscriptions(tenancy.Subscriptions(tc.department, tc.projects, nil, tc.without))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDescribeOversubscription(t *testing.T) {
	var none v1alpha1.ResourceQuota
	d := departmentWithQuota(cpuQuota("4"), poolQuota("dgx", "1"), poolQuota("mig", "1"))
	projects := []v1alpha1.Project{projectWithQuota("a", "students", cpuQuota("5"), poolQuota("dgx", "1"), poolQuota("mig", "500m")), projectWithQuota("b", "students", none, poolQuota("dgx", "500m"))}
	const want = "GPUs of node pool dgx: it has 1 and has promised 1500m (a 1, b 500m); CPU: it has 4 and has promised 5 (a 5)"
	if got := tenancy.DescribeOversubscription(tenancy.Subscriptions(d, projects, nil, "")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := tenancy.DescribeOversubscription(tenancy.Subscriptions(d, projects[1:], nil, "")); got != "" {
		t.Errorf("nothing is over, and it says %q", got)
	}
}

// For all projects the parts add up to the sum, and the remainder fits.
func TestSubscriptionSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		milli := rapid.Int64Range(0, 20000)
		quantity := func(name string) string { return fmt.Sprintf("%dm", milli.Draw(t, name)) }
		d := departmentWithQuota(cpuQuota(quantity("cpu")), poolQuota("dgx", quantity("has")))
		var projects []v1alpha1.Project
		var sum int64
		for i := range rapid.IntRange(0, 8).Draw(t, "projects") {
			p := projectWithQuota(fmt.Sprint("p", i), rapid.SampledFrom([]string{"students", "research"}).Draw(t, "of"), cpuQuota("1"), poolQuota("dgx", quantity("share")))
			projects = append(projects, p)
			if p.Spec.Department == "students" {
				sum += p.Spec.NodePools[0].GPU.Guaranteed.MilliValue()
			}
		}
		gpus := tenancy.Subscriptions(d, projects, nil, "")[0]
		var shares int64
		for i := range gpus.Shares {
			shares += gpus.Shares[i].Quantity.MilliValue()
		}
		left := gpus.Remaining()
		if got := gpus.Subscribed.MilliValue(); got != sum || shares != sum {
			t.Fatalf("promised %d, shares %d, want %d", got, shares, sum)
		}
		if gpus.IsOversubscribed() != (sum > gpus.Quota.MilliValue()) || !gpus.IsOversubscribed() && left.MilliValue() != gpus.Quota.MilliValue()-sum || gpus.IsOversubscribed() && !left.IsZero() {
			t.Fatalf("%s left of %s with %d promised", left.String(), gpus.Quota.String(), sum)
		}
	})
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package promises_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"sluice.dev/api/promises"
	"sluice.dev/api/v1alpha1"
)

func pool(name, guaranteed string) v1alpha1.PoolQuota {
	return v1alpha1.PoolQuota{Name: name, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse("100")}}
}

func cpu(cores string) v1alpha1.ResourceQuota {
	return v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse(cores))}
}

func project(name, department string, resources v1alpha1.ResourceQuota, pools ...v1alpha1.PoolQuota) v1alpha1.Project {
	return v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{Department: department, NodePools: pools, Resources: resources}}
}

func department(resources v1alpha1.ResourceQuota, pools ...v1alpha1.PoolQuota) *v1alpha1.Department {
	return &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}, Spec: v1alpha1.DepartmentSpec{NodePools: pools, Resources: resources}}
}

func inWords(all []promises.Promise) (words []string) {
	for i := range all {
		p := &all[i]
		left := p.Left()
		words = append(words, fmt.Sprintf("%s: %s of %s, left %s, over %v, to [%s], unstated %v",
			p.Thing, p.Promised.String(), p.Amount(p.Has), left.String(), p.Over(), p.Largest(), p.Unstated))
	}
	return words
}

func TestOf(t *testing.T) {
	var none v1alpha1.ResourceQuota
	memory := v1alpha1.ResourceQuota{Memory: ptr.To(resource.MustParse("512Gi"))}
	tests := map[string]struct {
		department *v1alpha1.Department
		projects   []v1alpha1.Project
		without    string
		want       []string
	}{
		"a department with nothing": {department: department(none)},
		"no projects": {
			department: department(memory, pool("dgx", "1")),
			want: []string{
				"GPUs of node pool dgx: 0 of 1 GPU, left 1, over false, to [], unstated []",
				"memory: 0 of 512Gi of memory, left 512Gi, over false, to [], unstated []",
			},
		},
		"the largest first, and only its own": {
			department: department(none, pool("dgx", "4"), pool("cut", "500m")),
			projects: []v1alpha1.Project{
				project("a", "students", none, pool("dgx", "500m"), pool("gone", "9")),
				project("b", "students", none, pool("dgx", "2"), pool("cut", "0")),
				project("c", "research", none, pool("dgx", "9")),
			},
			want: []string{
				"GPUs of node pool dgx: 2500m of 4 GPUs, left 1500m, over false, to [b 2, a 500m], unstated []",
				"GPUs of node pool cut: 0 of 500m GPUs, left 500m, over false, to [], unstated []",
			},
		},
		"more than it has, and one is left out": {
			department: department(cpu("1"), pool("dgx", "1")),
			projects: []v1alpha1.Project{
				project("a", "students", cpu("500m"), pool("dgx", "1")), project("b", "students", cpu("2"), pool("dgx", "1")),
				project("c", "students", none, pool("dgx", "1")), project("d", "students", cpu("1"), pool("dgx", "1")),
				project("e", "students", none, pool("dgx", "3")),
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
			if diff := cmp.Diff(tc.want, inWords(promises.Of(tc.department, tc.projects, tc.without))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestExcess(t *testing.T) {
	var none v1alpha1.ResourceQuota
	d := department(cpu("4"), pool("dgx", "1"), pool("cut", "1"))
	projects := []v1alpha1.Project{project("a", "students", cpu("5"), pool("dgx", "1"), pool("cut", "500m")), project("b", "students", none, pool("dgx", "500m"))}
	const want = "GPUs of node pool dgx: it has 1 and has promised 1500m (a 1, b 500m); CPU: it has 4 and has promised 5 (a 5)"
	if got := promises.Excess(promises.Of(d, projects, "")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := promises.Excess(promises.Of(d, projects[1:], "")); got != "" {
		t.Errorf("nothing is over, and it says %q", got)
	}
}

// Whatever the projects, the parts add up to the sum, and what is left fits.
func TestSumsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		milli := rapid.Int64Range(0, 20000)
		quantity := func(name string) string { return fmt.Sprintf("%dm", milli.Draw(t, name)) }
		d := department(cpu(quantity("cpu")), pool("dgx", quantity("has")))
		var projects []v1alpha1.Project
		var sum int64
		for i := range rapid.IntRange(0, 8).Draw(t, "projects") {
			p := project(fmt.Sprint("p", i), rapid.SampledFrom([]string{"students", "research"}).Draw(t, "of"), cpu("1"), pool("dgx", quantity("share")))
			projects = append(projects, p)
			if p.Spec.Department == "students" {
				sum += p.Spec.NodePools[0].GPU.Guaranteed.MilliValue()
			}
		}
		gpus := promises.Of(d, projects, "")[0]
		var shares int64
		for i := range gpus.Shares {
			shares += gpus.Shares[i].Quantity.MilliValue()
		}
		left := gpus.Left()
		if got := gpus.Promised.MilliValue(); got != sum || shares != sum {
			t.Fatalf("promised %d, shares %d, want %d", got, shares, sum)
		}
		if gpus.Over() != (sum > gpus.Has.MilliValue()) || !gpus.Over() && left.MilliValue() != gpus.Has.MilliValue()-sum || gpus.Over() && !left.IsZero() {
			t.Fatalf("%s left of %s with %d promised", left.String(), gpus.Has.String(), sum)
		}
	})
}

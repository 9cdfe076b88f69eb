// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/pods"
	"sluice.dev/webhook/tenant"
)

// newDesk is a desk with the built-in policies and more, and one project with two
// pools.
func newDesk(tb testing.TB, more ...engine.Source) pods.Desk {
	tb.Helper()
	// Where the machine is busy, no policy is to be cut off.
	limits := engine.Limits{Evaluation: time.Minute, Request: time.Minute}
	rules, err := engine.New(engine.Options{Libraries: policies.Libraries(), Limits: limits})
	if err != nil {
		tb.Fatal(err)
	}
	for _, report := range rules.Update(append(policies.BuiltIn(), more...)) {
		for _, problem := range report.Problems {
			tb.Fatal(problem)
		}
	}
	return pods.Desk{
		Judge:   &judge.Judge{Engine: rules, Clock: clock.System()},
		Tenants: &tenant.Directory{Cache: university()},
	}
}

// shelf is a cache with these objects and no others.
type shelf struct {
	client.Reader
	projects   []v1alpha1.Project
	department v1alpha1.Department
	pools      map[string]*v1alpha1.NodePool
}

func (s *shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.ProjectList).Items = s.projects
	return nil
}

func (s *shelf) Get(_ context.Context, key types.NamespacedName, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *v1alpha1.Department:
		s.department.DeepCopyInto(object)
	case *v1alpha1.NodePool:
		s.pools[key.Name].DeepCopyInto(object)
	}
	return nil
}

func university() *shelf {
	pool := func(name string, sharing v1alpha1.Sharing, profiles ...v1alpha1.MIGProfile) *v1alpha1.NodePool {
		return &v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
			Spec: v1alpha1.NodePoolSpec{
				Scheduler: v1alpha1.SchedulerKube, Sharing: sharing, NodeSelector: map[string]string{"sluice.dev/node-pool": name},
				Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
			},
			Status: v1alpha1.NodePoolStatus{GPUs: 8, Boards: []v1alpha1.Board{{Product: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960, GPUs: 8, MIGProfiles: profiles}}},
		}
	}
	quota := v1alpha1.GPUQuota{Guaranteed: resource.MustParse("2"), Limit: resource.MustParse("4")}
	return &shelf{
		projects: []v1alpha1.Project{{
			ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 1, ResourceVersion: "1"},
			Spec:       v1alpha1.ProjectSpec{Department: "students", NodePools: []v1alpha1.PoolQuota{{Name: "dgx-mig", GPU: quota}, {Name: "dgx", GPU: quota}}},
			Status: v1alpha1.ProjectStatus{
				Namespace:  &v1alpha1.ProjectNamespace{Name: "thesis"},
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionQuotaApplied, Status: metav1.ConditionTrue, ObservedGeneration: 1}},
			},
		}},
		department: v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students", ResourceVersion: "1"}},
		pools: map[string]*v1alpha1.NodePool{
			"dgx-mig": pool("dgx-mig", v1alpha1.SharingMIG, "1g.5gb", "2g.10gb", "3g.20gb"),
			"dgx":     pool("dgx", v1alpha1.SharingNone),
		},
	}
}

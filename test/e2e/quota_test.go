// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// largeDepartment is a department with more quota than those of the sample.
const largeDepartment = "roomy"

// createLargeDepartment creates the department for the first test that needs it. It goes with
// the cluster.
var createLargeDepartment = sync.OnceValue(func() error {
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: largeDepartment}}
	department.Spec.NodePools, department.Spec.Oversubscription = []v1alpha1.PoolQuota{newPoolQuota("dgx-mig", "4", "20")}, v1alpha1.OversubscriptionAllow
	department.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: ptr.To(period.MustParseDuration("48h"))}}
	return sharedCluster.adminClient.Create(context.Background(), department)
})

func requireLargeDepartment(t *testing.T) {
	t.Helper()
	if err := createLargeDepartment(); err != nil {
		t.Fatal(err)
	}
}

// withQuota sets the quota of a project in largeDepartment.
func withQuota(guaranteed, limit string) func(*v1alpha1.Project) {
	return func(p *v1alpha1.Project) {
		p.Spec.Department = largeDepartment
		p.Spec.NodePools[0].GPU = v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}
	}
}

func getResourceQuota(namespace, name string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// enforcedGPUQuota returns the limit that the quota enforces for node pool dgx-mig, or ""
// while Kubernetes has not applied the spec.
func enforcedGPUQuota(quota *corev1.ResourceQuota) string {
	if !equality.Semantic.DeepEqual(quota.Spec.Hard, quota.Status.Hard) {
		return ""
	}
	hard := quota.Status.Hard["requests.sluice.dev/gpu-milli.dgx-mig"]
	return strconv.FormatInt(hard.Value(), 10)
}

// waitForQuotas waits until Kubernetes enforces both quotas with these values.
func waitForQuotas(t *testing.T, namespace, guaranteed, limit string) {
	t.Helper()
	eventually(t, func() error {
		for name, want := range map[string]string{"sluice-dgx-mig": limit, "sluice-dgx-mig.guaranteed": guaranteed} {
			quota := getResourceQuota(namespace, name)
			if err := refresh(t, quota); err != nil {
				return err
			}
			if got := enforcedGPUQuota(quota); got != want {
				return unexpectedState(name+" is "+want, quota)
			}
		}
		return nil
	})
}

// waitForQuotaApplied waits until the project reports that its quotas are enforced for its
// current generation.
func waitForQuotaApplied(t *testing.T, p *v1alpha1.Project) {
	t.Helper()
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == v1alpha1.ConditionQuotaApplied && c.Status == metav1.ConditionTrue && c.ObservedGeneration == p.Generation {
				return nil
			}
		}
		return unexpectedState("QuotaApplied is true", p.Status.Conditions)
	})
}

func TestProjectQuotaLifecycle(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	ns := create(t, newNamespace("quota-lab", v1alpha1.AnnotationAdoptBy, "quota"))
	own := create(t, getResourceQuota(ns.Name, "own")) // not Sluice's
	p := create(t, newProject("quota", inNamespace(ns.Name), withQuota("500m", "1")))
	waitForProjectReady(t, p)
	waitForQuotaApplied(t, p)
	waitForQuotas(t, ns.Name, "500", "1000")
	if err := refresh(t, ns); err != nil || ns.Labels[v1alpha1.LabelProject] != "quota" {
		t.Errorf("labels = %v, %v", ns.Labels, err)
	}
	use := p.Status.GPU
	if use.Guaranteed.String() != "500m" || use.Limit.String() != "1" || !use.Allocated.IsZero() || len(p.Status.NodePools) != 1 {
		t.Errorf("gpu = %v, node pools = %v", use, p.Status.NodePools)
	}

	// Patch only the spec, because lifecycle may write the status concurrently.
	before := p.DeepCopy()
	withQuota("1", "1500m")(p)
	if err := sharedCluster.adminClient.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	waitForQuotaApplied(t, p)
	waitForQuotas(t, ns.Name, "1000", "1500")

	deleteAndWait(t, p)
	for _, name := range []string{"sluice-dgx-mig", "sluice-dgx-mig.guaranteed"} {
		if err := checkDeleted(t.Context(), getResourceQuota(ns.Name, name)); err != nil {
			t.Errorf("after the deletion of the project: %v", err)
		}
	}
	if err := refresh(t, own); err != nil {
		t.Errorf("the user's quota: %v", err)
	}
}

// The label governs the pods of a namespace, so the namespace must never have the label
// before its quotas are enforced.
func TestQuotaEnforcedBeforeNamespaceGoverned(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	watching, err := client.NewWithWatch(sharedCluster.config, client.Options{Scheme: sharedCluster.adminClient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := watching.Watch(t.Context(), &corev1.NamespaceList{}, client.MatchingFields{"metadata.name": "quota-first"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	create(t, newProject("quota-first", withQuota("500m", "1")))
	for event := range events.ResultChan() {
		ns, ok := event.Object.(*corev1.Namespace)
		if !ok || event.Type == watch.Deleted {
			t.Fatalf("event %s %v", event.Type, event.Object)
		}
		if ns.Labels[v1alpha1.LabelProject] == "" {
			continue
		}
		for name, want := range map[string]string{"sluice-dgx-mig": "1000", "sluice-dgx-mig.guaranteed": "500"} {
			quota := getResourceQuota("quota-first", name)
			if err := refresh(t, quota); err != nil || enforcedGPUQuota(quota) != want {
				t.Errorf("the namespace is governed, and %s is %+v, %v", name, quota, err)
			}
		}
		return
	}
	t.Error("the watch ended")
}

// Lifecycle restores its quotas. The admission policies allow only lifecycle to change them,
// so the test changes them with its identity.
func TestQuotasRestored(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	lifecycle := lifecycleClient(t)
	waitForProjectReady(t, create(t, newProject("quota-kept", withQuota("500m", "1"))))
	waitForQuotas(t, "quota-kept", "500", "1000")
	tests := map[string]string{
		"raised":             `{"spec":{"hard":{"requests.sluice.dev/gpu-milli.dgx-mig":"8k"}}}`,
		"limit removed":      `{"spec":{"hard":{"requests.sluice.dev/gpu-milli.dgx-mig":null}}}`,
		"another project's":  `{"metadata":{"labels":{"sluice.dev/project":"thesis-mueller"}}}`,
		"without its labels": `{"metadata":{"labels":null}}`,
	}
	for name, patch := range tests {
		t.Run(name, func(t *testing.T) {
			quota := getResourceQuota("quota-kept", "sluice-dgx-mig")
			if err := lifecycle.Patch(t.Context(), quota, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error {
				if err := refresh(t, quota); err != nil {
					return err
				}
				if enforcedGPUQuota(quota) != "1000" || quota.Labels[v1alpha1.LabelProject] != "quota-kept" || quota.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBySluice {
					return unexpectedState("the quota is restored", quota)
				}
				return nil
			})
		})
	}
	t.Run("deleted", func(t *testing.T) {
		if err := lifecycle.Delete(t.Context(), getResourceQuota("quota-kept", "sluice-dgx-mig.guaranteed")); err != nil {
			t.Fatal(err)
		}
		waitForQuotas(t, "quota-kept", "500", "1000")
	})
}

// Lifecycle does not change a user's object with the name of a quota, and reports it. The
// project becomes ready after its deletion.
func TestForeignQuotaNotAdopted(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	ns := create(t, newNamespace("quota-foreign", v1alpha1.AnnotationAdoptBy, "quota-foreign"))
	foreign := getResourceQuota(ns.Name, "sluice-dgx-mig")
	foreign.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("7")}
	create(t, foreign)
	p := create(t, newProject("quota-foreign", withQuota("500m", "1")))
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied, metav1.ConditionFalse, "ObjectsRefused")
	})
	if err := refresh(t, ns); err != nil || ns.Labels[v1alpha1.LabelProject] != "" {
		t.Errorf("the namespace is governed without its quota: %v, %v", ns.Labels, err)
	}
	if err := refresh(t, foreign); err != nil || len(foreign.Spec.Hard) != 1 || len(foreign.Labels) != 0 {
		t.Errorf("the user's quota = %+v, %v", foreign, err)
	}
	deleteAndWait(t, foreign)
	// Any change of the project triggers the next attempt.
	if err := sharedCluster.adminClient.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`))); err != nil {
		t.Fatal(err)
	}
	waitForProjectReady(t, p)
	waitForQuotas(t, ns.Name, "500", "1000")
}

// The project reports pods that had GPUs before the adoption of its namespace.
func TestPodsBeforeQuotaReported(t *testing.T) {
	t.Parallel()
	ns := create(t, newNamespace("quota-before", v1alpha1.AnnotationAdoptBy, "quota-before"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "before", Namespace: ns.Name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64), // deleted at once
			Containers:                    []corev1.Container{{Name: "main", Image: "example.org/train"}},
		},
	}
	// A new namespace accepts pods once its default service account exists.
	eventually(t, func() error {
		return client.IgnoreAlreadyExists(sharedCluster.adminClient.Create(t.Context(), pod.DeepCopy()))
	})
	t.Cleanup(func() { deleteAndWait(t, pod) })
	// Users cannot create such a pod, but one could exist before the adoption.
	if err := sharedCluster.adminClient.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"gpu-fraction":"0.5"}}}`))); err != nil {
		t.Fatal(err)
	}
	p := create(t, newProject("quota-before"))
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionUncounted, metav1.ConditionTrue, v1alpha1.ReasonPodsUncounted)
	})
}

// A node pool that does not exist yet does not block the quotas of other node pools.
func TestQuotaOfAMissingNodePool(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	d := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: largeDepartment}}
	if err := refresh(t, d); err != nil {
		t.Fatal(err)
	}
	before := d.DeepCopy()
	d.Spec.NodePools = append(d.Spec.NodePools, v1alpha1.PoolQuota{Name: "later", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("2")}})
	if err := sharedCluster.adminClient.Patch(t.Context(), d, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		removal := client.RawPatch("application/json-patch+json", fmt.Appendf(nil, `[{"op":"remove","path":"/spec/nodePools/%d"}]`, len(d.Spec.NodePools)-1))
		if err := sharedCluster.adminClient.Patch(context.Background(), d, removal); err != nil {
			t.Error(err)
		}
	})
	p := create(t, newProject("quota-later", withQuota("500m", "1"), func(p *v1alpha1.Project) {
		p.Spec.NodePools = append(p.Spec.NodePools, v1alpha1.PoolQuota{Name: "later", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("2")}})
	}))
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodePoolNotFound)
	})
	waitForQuotas(t, "quota-later", "500", "1000")
	create(t, &v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "later"},
		Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{"later": "yes"}, Scheduler: v1alpha1.SchedulerKube},
	})
	waitForProjectReady(t, p)
	quota := getResourceQuota("quota-later", "sluice-later")
	if err := refresh(t, quota); err != nil {
		t.Fatal(err)
	}
	if hard := quota.Status.Hard["requests.sluice.dev/gpu-milli.later"]; hard.Value() != 2000 {
		t.Errorf("hard = %v", quota.Status.Hard)
	}
}

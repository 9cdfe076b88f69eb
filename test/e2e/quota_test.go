// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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

// projectQuota returns the quota of the project in a namespace.
func projectQuota(namespace string) *corev1.ResourceQuota {
	return getResourceQuota(namespace, v1alpha1.QuotaName)
}

// enforcedGPUQuota returns the guarantee and the limit that the quota enforces in node pool dgx-mig, such
// as 500/1000, or "" while Kubernetes has not applied the spec.
func enforcedGPUQuota(quota *corev1.ResourceQuota) string {
	if !equality.Semantic.DeepEqual(quota.Spec.Hard, quota.Status.Hard) {
		return ""
	}
	guaranteed, limit := quota.Status.Hard["requests.sluice.dev/guaranteed-milli.dgx-mig"], quota.Status.Hard["requests.sluice.dev/gpu-milli.dgx-mig"]
	return fmt.Sprintf("%d/%d", guaranteed.Value(), limit.Value())
}

// waitForQuota waits until Kubernetes enforces the quota with these values.
func waitForQuota(t *testing.T, namespace, guaranteed, limit string) {
	t.Helper()
	eventually(t, func() error {
		quota := projectQuota(namespace)
		if err := refresh(t, quota); err != nil {
			return err
		}
		if want := guaranteed + "/" + limit; enforcedGPUQuota(quota) != want {
			return unexpectedState("the quota is "+want, quota)
		}
		return nil
	})
}

// waitForQuotaApplied waits until the project reports that its quota is enforced for its
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
	own := create(t, getResourceQuota(ns.Name, "own")) // not Sluice's: the project names it
	p := create(t, newProject("quota", inNamespace(ns.Name), withQuota("500m", "1")))
	waitForProjectReady(t, p)
	waitForQuotaApplied(t, p)
	waitForQuota(t, ns.Name, "500", "1000")
	if err := checkCondition(p.Status.Conditions, v1alpha1.ConditionOtherQuotas, metav1.ConditionTrue, v1alpha1.ReasonQuotasFound); err != nil {
		t.Error(err)
	}
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
	waitForQuota(t, ns.Name, "1000", "1500")

	deleteAndWait(t, own)
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionOtherQuotas, metav1.ConditionFalse, v1alpha1.ReasonNoOtherQuotas)
	})
	own = create(t, getResourceQuota(ns.Name, "own"))
	deleteAndWait(t, p)
	if err := checkDeleted(t.Context(), projectQuota(ns.Name)); err != nil {
		t.Errorf("after the deletion of the project: %v", err)
	}
	if err := refresh(t, own); err != nil {
		t.Errorf("the user's quota: %v", err)
	}
}

// A team's policy adds limits to the project's quota. Two values of one limit are a conflict, in which the
// former quota stays. Guards invariant 3 of the design.
func TestPolicyAddsToQuota(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	const ns = "quota-team"
	p := create(t, newProject(ns, withQuota("500m", "1")))
	waitForProjectReady(t, p)
	newPolicy := func(name, hard string) *v1alpha1.Policy {
		policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		policy.Spec.Match.Projects = []string{ns}
		policy.Spec.Rego = "package " + strings.ReplaceAll(name, "-", "_") + `
objects contains {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "sluice"}, "spec": {"hard": ` + hard + `}} if input.object.kind == "Project"`
		return policy
	}
	create(t, newPolicy("team-quota-a", `{"count/leases.coordination.k8s.io": "7"}`))
	eventually(t, func() error {
		quota := projectQuota(ns)
		if err := refresh(t, quota); err != nil {
			return err
		}
		leases := quota.Status.Hard["count/leases.coordination.k8s.io"]
		if leases.String() != "7" || enforcedGPUQuota(quota) != "500/1000" {
			return unexpectedState("the quota has the limits of the policy and of the project", quota.Status.Hard)
		}
		return nil
	})
	other := create(t, newPolicy("team-quota-b", `{"count/leases.coordination.k8s.io": "9"}`))
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied)
		if c == nil || c.Reason != "ObjectsRefused" || !strings.Contains(c.Message, "policy team-quota-b: policy team-quota-a renders ResourceQuota sluice, too, "+
			"with another spec.hard.count/leases.coordination.k8s.io: 7, and this one 9") {
			return unexpectedState("QuotaApplied names both policies", c)
		}
		return nil
	})
	waitForQuota(t, ns, "500", "1000")
	deleteAndWait(t, other)
	waitForQuotaApplied(t, p)
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
		quota := projectQuota("quota-first")
		if err := refresh(t, quota); err != nil || enforcedGPUQuota(quota) != "500/1000" {
			t.Errorf("the namespace is governed, and the quota is %+v, %v", quota, err)
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
	waitForQuota(t, "quota-kept", "500", "1000")
	tests := map[string]string{
		"raised":             `{"spec":{"hard":{"requests.sluice.dev/gpu-milli.dgx-mig":"8k"}}}`,
		"limit removed":      `{"spec":{"hard":{"requests.sluice.dev/gpu-milli.dgx-mig":null}}}`,
		"another project's":  `{"metadata":{"labels":{"sluice.dev/project":"thesis-mueller"}}}`,
		"without its labels": `{"metadata":{"labels":null}}`,
	}
	for name, patch := range tests {
		t.Run(name, func(t *testing.T) {
			quota := projectQuota("quota-kept")
			if err := lifecycle.Patch(t.Context(), quota, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error {
				if err := refresh(t, quota); err != nil {
					return err
				}
				if enforcedGPUQuota(quota) != "500/1000" || quota.Labels[v1alpha1.LabelProject] != "quota-kept" || quota.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBySluice {
					return unexpectedState("the quota is restored", quota)
				}
				return nil
			})
		})
	}
	t.Run("deleted", func(t *testing.T) {
		if err := lifecycle.Delete(t.Context(), projectQuota("quota-kept")); err != nil {
			t.Fatal(err)
		}
		waitForQuota(t, "quota-kept", "500", "1000")
	})
}

// Lifecycle does not change a user's object with the name of a quota, and reports it. The
// project becomes ready after its deletion.
func TestForeignQuotaNotAdopted(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	ns := create(t, newNamespace("quota-foreign", v1alpha1.AnnotationAdoptBy, "quota-foreign"))
	foreign := projectQuota(ns.Name)
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
	waitForQuota(t, ns.Name, "500", "1000")
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
	waitForQuota(t, "quota-later", "500", "1000")
	create(t, &v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "later"},
		Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{"later": "yes"}, Scheduler: v1alpha1.SchedulerKube},
	})
	waitForProjectReady(t, p)
	quota := projectQuota("quota-later")
	if err := refresh(t, quota); err != nil {
		t.Fatal(err)
	}
	if hard := quota.Status.Hard["requests.sluice.dev/gpu-milli.later"]; hard.Value() != 2000 {
		t.Errorf("hard = %v", quota.Status.Hard)
	}
}

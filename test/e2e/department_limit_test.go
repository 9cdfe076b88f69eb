// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Of projects that are created at once and whose limits exceed the department's together, admission and
// lifecycle let no more have a quota than fit. Guards invariant 3 of the design.
func TestProjectsCreatedAtOnceStayWithinDepartmentLimit(t *testing.T) {
	t.Parallel()
	const department, limit = "sprinters", 3000
	sharedCluster.createDepartment(t, department, newPoolQuota("dgx", "0", "3"))
	var (
		mu       sync.Mutex
		admitted []*v1alpha1.Project
		all      sync.WaitGroup
	)
	for i := range 12 {
		p := newProject(fmt.Sprint("sprinter-", i), func(p *v1alpha1.Project) {
			p.Spec.Department, p.Spec.NodePools = department, []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "2")}
		})
		all.Go(func() {
			err := sharedCluster.adminClient.Create(t.Context(), p)
			if err != nil && !strings.Contains(err.Error(), "department sprinters is limited to 3 GPUs in node pool dgx") {
				t.Error(err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				admitted = append(admitted, p)
			}
		})
	}
	all.Wait()
	t.Cleanup(func() {
		for _, p := range admitted {
			deleteAndWait(t, p)
		}
	})
	t.Logf("admission let %d of 12 projects pass", len(admitted))
	eventually(t, steadily(limitInForce, func() error {
		var sum int64
		governed := 0
		for _, p := range admitted {
			var quotas corev1.ResourceQuotaList
			if err := sharedCluster.adminClient.List(t.Context(), &quotas, client.InNamespace(p.Name)); err != nil {
				return err
			}
			for i := range quotas.Items {
				hard := quotas.Items[i].Spec.Hard[corev1.DefaultResourceRequestsPrefix+v1alpha1.ResourceGPUMilliFor("dgx")]
				sum += hard.Value()
			}
			if err := refresh(t, p); err != nil {
				return err
			}
			switch c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied); {
			case c == nil:
				return unexpectedState("project "+p.Name+" has the condition QuotaApplied", p.Status.Conditions)
			case c.Status == metav1.ConditionTrue:
				governed++
			case c.Reason != v1alpha1.ReasonDepartmentLimitExceeded:
				return unexpectedState("project "+p.Name+" has the reason DepartmentLimitExceeded", c)
			}
		}
		if sum > limit {
			t.Fatalf("the quotas of %d projects add up to %d, and the department's limit is %d", len(admitted), sum, limit)
		}
		if governed != 1 {
			return unexpectedState("one project has a quota", governed)
		}
		return nil
	}))
}

// Projects of a department that allows oversubscription do not hold more than its limit together where
// each is counted alone: the newest pod is ended. Guards invariant 3 of the design.
func TestExcessOfDepartmentIsEnded(t *testing.T) {
	t.Parallel()
	const department = "sharers"
	create(t, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: department}, Spec: v1alpha1.DepartmentSpec{
		NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "2")}, Oversubscription: v1alpha1.OversubscriptionAllow,
	}})
	for _, ns := range []string{"sharer-a", "sharer-b"} {
		sharedCluster.createGovernedProject(t, department, ns, newPoolQuota("dgx", "0", "2"))
	}
	add := func(ns string, i int) *corev1.Pod {
		t.Helper()
		pod, err := sharedCluster.clientset.CoreV1().Pods(ns).Create(t.Context(), newTrainingPod(ns, i), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	add("sharer-a", 0)
	add("sharer-b", 0)
	eventually(t, steadily(limitInForce, func() error { return sharedCluster.checkQuotaUsed(t.Context(), "sharer-a", 1000) }))
	newest := add("sharer-a", 1)
	eventually(t, func() error {
		_, err := sharedCluster.clientset.CoreV1().Pods("sharer-a").Get(t.Context(), newest.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the newest pod was not ended: %w", err)
		}
		d := &v1alpha1.Department{}
		if err := sharedCluster.adminClient.Get(t.Context(), types.NamespacedName{Name: department}, d); err != nil {
			return err
		}
		c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionLimitExceeded)
		want := "department sharers held 3 GPUs of node pool dgx, 1 GPU more than its limit of 2 GPUs, " +
			"because its projects are counted alone and their limits add up to more; ended the newest: pod sharer-a/" + newest.Name
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, want) {
			return unexpectedState(want, c)
		}
		return nil
	})
	for _, ns := range []string{"sharer-a", "sharer-b"} {
		if left := sharedCluster.listPods(t, ns); len(left) != 1 {
			t.Errorf("%d pods are left in %s, want the older one", len(left), ns)
		}
	}
}

// A pod within its project's guarantee is admitted into a full department, and is not ended: the preemption of the newest pod over
// quota is announced, and withdrawn when the claimant ends. Guards invariant 12 of the design.
func TestGuaranteeIsReclaimedInDepartment(t *testing.T) {
	t.Parallel()
	const department = "claimers"
	create(t, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: department}, Spec: v1alpha1.DepartmentSpec{
		NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "1", "2")}, Oversubscription: v1alpha1.OversubscriptionAllow,
	}})
	sharedCluster.createGovernedProject(t, department, "claimer-owner", newPoolQuota("dgx", "1", "2"))
	sharedCluster.createGovernedProject(t, department, "claimer-borrower", newPoolQuota("dgx", "0", "2"))
	add := func(ns, name string) *corev1.Pod {
		t.Helper()
		pod := newPod(ns, name, withGPU)
		create(t, pod)
		return pod
	}
	condition := func() *metav1.Condition {
		d := &v1alpha1.Department{}
		if err := sharedCluster.adminClient.Get(t.Context(), types.NamespacedName{Name: department}, d); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionLimitExceeded)
	}
	eventually(t, steadily(limitInForce, func() error { return sharedCluster.checkQuotaUsed(t.Context(), "claimer-borrower", 0) }))
	add("claimer-borrower", "train-1")
	sharedCluster.waitForRunningPods(t, "claimer-borrower", 1)
	newest := add("claimer-borrower", "train-2")
	sharedCluster.waitForRunningPods(t, "claimer-borrower", 2)
	claimant := add("claimer-owner", "train")
	eventually(t, func() error {
		if err := refresh(t, newest); err != nil {
			return err
		}
		c := condition()
		if newest.Annotations[v1alpha1.AnnotationPreemptReason] != string(v1alpha1.EndQuotaReclaimed) ||
			newest.Annotations[v1alpha1.AnnotationPreemptFor] != string(claimant.UID) || c == nil || c.Reason != v1alpha1.ReasonGuaranteeClaimed {
			return unexpectedState("the preemption of pod "+newest.Name+" is announced", []any{newest.Annotations, c})
		}
		return nil
	})
	if err := sharedCluster.clientset.CoreV1().Pods("claimer-owner").Delete(t.Context(), claimant.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := refresh(t, newest); err != nil {
			return err
		}
		if c := condition(); newest.Annotations[v1alpha1.AnnotationPreemptAt] != "" || c.Status != metav1.ConditionFalse {
			return unexpectedState("the announcement is withdrawn", []any{newest.Annotations, c})
		}
		return nil
	})
}

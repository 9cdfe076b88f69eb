// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// slowExit is the time for which the processes of training outlive their pod.
const slowExit = 10 * time.Second

// Training gives way to an interactive pod whose MIG profile no GPU has room for: at the announced time; after a disruption
// budget has held the pod for the budget period; and while lifecycle and the agent are killed. No further pod is evicted.
func TestTrainingGivesWay(t *testing.T) {
	g := newMIGCluster(t)
	g.allowPreemption(t)

	// Each GPU has room for one instance of four slices, and then for none of seven.
	for i := range 8 {
		g.createPod(t, newPod(g.ns, fmt.Sprint("train-", i), func(p *corev1.Pod) {
			p.Labels["app"] = "train"
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, exitDelay, slowExit.String())
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceMIG("4g.20gb"): resource.MustParse("1")}
		}))
	}
	g.waitForRunningCount(t, 8)

	g.createInteractivePod(t, "first")
	g.waitForRunningPod(t, "first")
	g.expectEvent(t, "PreemptionAnnounced")

	minimum := intstr.FromInt32(7)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.ns, Name: "training"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &minimum, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}},
		},
	}
	if _, err := g.clientset.PolicyV1().PodDisruptionBudgets(g.ns).Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.eventuallyAfterRepartition(t, func() error {
		known, err := g.clientset.PolicyV1().PodDisruptionBudgets(g.ns).Get(t.Context(), "training", metav1.GetOptions{})
		if err == nil && (known.Status.ObservedGeneration == 0 || known.Status.CurrentHealthy != 7) {
			err = unexpectedState("the budget counts seven pods", known.Status)
		}
		return err
	})
	began := time.Now()
	g.createInteractivePod(t, "second")
	g.waitForRunningPod(t, "second")
	if took := time.Since(began); took < 30*time.Second {
		t.Errorf("the second pod runs after %s; the notice and the budget period are 30s", took)
	}
	g.expectEvent(t, "EvictionBlocked")

	if err := g.clientset.PolicyV1().PodDisruptionBudgets(g.ns).Delete(t.Context(), "training", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.preemptThroughCrashes(t, "third")

	var evicted []string
	for _, failure := range g.podFailures() {
		if strings.Contains(failure, "was evicted") {
			evicted = append(evicted, failure)
		} else {
			t.Error(failure)
		}
	}
	if len(evicted) != 3 {
		t.Errorf("evicted: %v; want three pods", evicted)
	}
}

// allowPreemption lets pods give way after a second, with short periods.
func (g *migCluster) allowPreemption(t *testing.T) {
	t.Helper()
	lifecycle := &policyTimeCluster{sluiceCluster: g.sluiceCluster}
	lifecycle.configureLifecycle(t, map[string]any{"eviction": map[string]any{"noticePeriod": "10s", "budgetPeriod": "20s"}})
	pool := newNodePool("dgx-mig")
	g.eventuallyAfterRepartition(t, func() error {
		if err := g.adminClient.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		pool.Spec.Preemption = &v1alpha1.PreemptionSpec{MinimumRuntime: ptr.To(period.MustParseDuration("1s"))}
		return g.adminClient.Update(t.Context(), pool)
	})
}

// preemptThroughCrashes creates an interactive pod, and kills lifecycle once the eviction for it is announced, and the agent once
// the pod is evicted, whose processes outlive it. Guards invariants 7 and 8 of the design.
func (g *migCluster) preemptThroughCrashes(t *testing.T, name string) {
	t.Helper()
	g.createInteractivePod(t, name)
	var victim corev1.Pod
	g.eventuallyAfterRepartition(t, func() error {
		for _, p := range g.listPods(t, g.ns) {
			if p.Annotations[v1alpha1.AnnotationPreemptAt] != "" && p.DeletionTimestamp == nil {
				victim = p
				return nil
			}
		}
		return unexpectedState("an eviction is announced", g.plannerStatus(t))
	})
	g.killAndAwaitRestart(t, "lifecycle")
	var existed time.Time // a busy machine may observe the end of the pod late
	g.eventuallyAfterRepartition(t, func() error {
		now := time.Now()
		_, err := g.clientset.CoreV1().Pods(g.ns).Get(t.Context(), victim.Name, metav1.GetOptions{})
		if err == nil {
			existed = now
			err = unexpectedState(victim.Name+" is evicted", g.plannerStatus(t))
		}
		return client.IgnoreNotFound(err)
	})
	g.killAndAwaitRestart(t, "gpuagent-"+victim.Spec.NodeName)
	g.waitForRunningPod(t, name)
	if took := time.Since(existed); took < slowExit/2 {
		t.Errorf("%s runs %s after %s existed, whose processes exited %s after it", name, took, victim.Name, slowExit)
	}
}

// createInteractivePod creates a pod that cannot be preempted and requests a whole partitioned GPU.
func (g *migCluster) createInteractivePod(t *testing.T, name string) {
	t.Helper()
	g.createPod(t, newPod(g.ns, name, func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadInteractive)
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceMIG("7g.40gb"): resource.MustParse("1")}
	}))
}

func (g *migCluster) waitForRunningPod(t *testing.T, name string) {
	t.Helper()
	g.eventuallyAfterRepartition(t, func() error {
		pod, err := g.clientset.CoreV1().Pods(g.ns).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			announced := []string{}
			for _, p := range g.listPods(t, g.ns) {
				if at := p.Annotations[v1alpha1.AnnotationPreemptAt]; at != "" {
					announced = append(announced, p.Name+" at "+at)
				}
			}
			err = unexpectedState(name+" runs", []any{pod.Status, announced, g.plannerStatus(t)})
		}
		return err
	})
}

// expectEvent waits for an event of a reason in the project's namespace.
func (g *migCluster) expectEvent(t *testing.T, reason string) {
	t.Helper()
	g.eventuallyAfterRepartition(t, func() error {
		output := g.mustKubectl(t, "get", "events", "-n", g.ns)
		if !strings.Contains(output, reason) {
			return unexpectedState("an event "+reason, output)
		}
		return nil
	})
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// teams maps the teams of the sample to their guaranteed GPUs, of 16 whole GPUs in total.
var teams = map[string]int{"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}

// gpusByTeam is the number of whole GPUs that each team's running pods have.
type gpusByTeam map[string]int

// Kueue lends idle GPUs in proportion to the teams' quotas and reclaims them for teams below
// their guarantee, without taking a team below its own. The Jobs, Deployments and pods have
// no settings for Kueue.
func TestFairness(t *testing.T) {
	s := newDedicatedCluster(t, "--scheduler", "kueue")
	for team := range teams {
		s.waitForGoverned(t, team)
	}
	evicted := s.watchGuaranteedPreemptions(t)

	t.Run("the other teams borrow while team d is idle", func(t *testing.T) {
		for i := range 10 {
			s.createForTest(t, newGPUJob("team-a", fmt.Sprintf("sweep-%d", i), withGPU))
		}
		for i := range 8 {
			s.createForTest(t, newPod("team-b", fmt.Sprintf("run-%d", i), withGPU, neverRestarted))
		}
		s.createForTest(t, newGangDeployment("team-c", "workers", 8, v1alpha1.WorkloadTrain, withGPU))
		s.waitForGPUShares(t, gpusByTeam{"team-a": 8, "team-b": 4, "team-c": 4, "team-d": 0})
	})
	t.Run("team d reclaims its guarantee", func(t *testing.T) {
		for i := range 8 {
			s.createForTest(t, newGPUJob("team-d", fmt.Sprintf("train-%d", i), withGPU))
		}
		s.waitForGPUShares(t, gpusByTeam{"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8})
		s.waitForProjectStatus(t, "team-a", "4", "4", "0")
	})
	t.Run("the other teams borrow again", func(t *testing.T) {
		s.deleteTeamWorkloads(t, "team-d")
		s.waitForGPUShares(t, gpusByTeam{"team-a": 8, "team-b": 4, "team-c": 4, "team-d": 0})
		s.waitForProjectStatus(t, "team-a", "4", "8", "4")
	})
	if below := evicted(); len(below) > 0 {
		t.Errorf("preempted though at or below quota:\n%s", strings.Join(below, "\n"))
	}
	for team := range teams {
		s.deleteTeamWorkloads(t, team)
	}
	s.waitForGPUShares(t, gpusByTeam{"team-a": 0, "team-b": 0, "team-c": 0, "team-d": 0})

	t.Run("work that cannot be preempted stays within the guarantee of its pool", func(t *testing.T) {
		half := func(name string) *corev1.Pod { // team b has 2 whole GPUs and 1 GPU of slices
			return newPod("team-b", name, onMIGPool("500m"), func(p *corev1.Pod) {
				p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadInteractive)
				p.Spec.NodeSelector = map[string]string{"example.org/nowhere": "true"} // the GPUs are partitioned for the next part
			})
		}
		s.createForTest(t, half("notebook-0"))
		s.createForTest(t, half("notebook-1"))
		if err := s.adminClient.Create(t.Context(), half("notebook-2")); !isQuotaExceeded(err) || !strings.Contains(err.Error(), "guaranteed-milli.mig") {
			t.Errorf("a third notebook: %v", err)
		}
		s.deleteTeamWorkloads(t, "team-b")
	})
	t.Run("seven training and six interactive workloads fill the cluster", func(t *testing.T) {
		create := func(team, name string, gpus int64) {
			s.createForTest(t, newGPUJob(team, name, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
			}))
		}
		create("team-a", "llm", 4)
		create("team-b", "vision", 2)
		create("team-d", "climate", 4)
		create("team-d", "folding-1", 2)
		create("team-d", "folding-2", 2)
		// The single GPUs come last. Earlier they could leave one GPU on each node, where no pod
		// with two fits.
		s.waitForGPUShares(t, gpusByTeam{"team-a": 4, "team-b": 2, "team-c": 0, "team-d": 8})
		create("team-c", "speech-1", 1)
		create("team-c", "speech-2", 1)
		for _, w := range []struct {
			team, name, share string
			replicas          int32
		}{
			{"team-a", "notebooks", "125m", 8},
			{"team-a", "desktops", "250m", 4},
			{"team-b", "labs", "125m", 8},
			{"team-c", "course", "250m", 4},
			{"team-d", "studio", "500m", 4},
			{"team-d", "viewer", "500m", 4},
		} {
			s.createForTest(t, newGangDeployment(w.team, w.name, w.replicas, v1alpha1.WorkloadInteractive, onMIGPool(w.share)))
		}
		s.waitForGPUShares(t, gpusByTeam{"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8})
		s.waitForMIGPods(t, map[string]int{"team-a": 12, "team-b": 8, "team-c": 4, "team-d": 8})
	})
}

// onMIGPool requests a GPU fraction in the node pool with partitioned GPUs.
func onMIGPool(fraction string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationGPU: fraction, v1alpha1.AnnotationNodePools: "mig"}
	}
}

// newGangDeployment returns a Deployment of such pods, which start together or not at all.
func newGangDeployment(ns, name string, replicas int32, workloadType v1alpha1.WorkloadType, change ...func(*corev1.Pod)) *appsv1.Deployment {
	p := newPod(ns, name, change...)
	labels := map[string]string{"app": name, v1alpha1.LabelWorkloadType: string(workloadType)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: p.Annotations}, Spec: p.Spec},
		},
	}
}

// waitForGPUShares waits until each team runs as many whole GPUs, and the numbers stay the
// same.
func (s *sluiceCluster) waitForGPUShares(t *testing.T, want gpusByTeam) {
	t.Helper()
	// Fair shares may match for a moment while they still change.
	eventuallyLong(t, steadily(2*time.Second, func() error {
		got := gpusByTeam{}
		for team := range want {
			for _, p := range s.listPods(t, team) {
				if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
					whole := p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceNVIDIAGPU]
					got[team] += int(whole.Value())
				}
			}
			got[team] += 0
		}
		if !maps.Equal(got, want) {
			return unexpectedState(fmt.Sprint(want), got)
		}
		return nil
	}))
}

// waitForMIGPods waits until each team runs as many pods in the node pool with partitioned
// GPUs.
func (s *sluiceCluster) waitForMIGPods(t *testing.T, want map[string]int) {
	t.Helper()
	eventuallyLong(t, func() error {
		got := map[string]int{}
		for team := range want {
			for _, p := range s.listPods(t, team) {
				if p.Labels[v1alpha1.LabelNodePool] == "mig" && p.Status.Phase == corev1.PodRunning {
					got[team]++
				}
			}
		}
		if !maps.Equal(got, want) {
			return unexpectedState(fmt.Sprintf("pods on MIG devices: %v", want), got)
		}
		return nil
	})
}

// waitForGoverned waits until the project accepts pods.
func (s *sluiceCluster) waitForGoverned(t *testing.T, name string) {
	t.Helper()
	eventuallyLong(t, func() error {
		var p v1alpha1.Project
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
			return err
		}
		for _, condition := range []string{v1alpha1.ConditionQuotaApplied, v1alpha1.ConditionQueueApplied} {
			if err := checkCondition(p.Status.Conditions, condition, metav1.ConditionTrue, ""); err != nil {
				return err
			}
		}
		return s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// waitForProjectStatus waits until the project's status has these numbers of whole GPUs.
func (s *sluiceCluster) waitForProjectStatus(t *testing.T, name, guaranteed, allocated, over string) {
	t.Helper()
	eventuallyLong(t, func() error {
		var p v1alpha1.Project
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
			return err
		}
		for _, use := range p.Status.NodePools {
			if use.Name != "whole" {
				continue
			}
			got := []string{use.Guaranteed.String(), use.Allocated.String(), use.OverQuota.String()}
			if want := []string{guaranteed, allocated, over}; !slices.Equal(got, want) {
				return unexpectedState(fmt.Sprintf("quota, allocated, over quota: %v", want), got)
			}
			return nil
		}
		return unexpectedState("the status contains node pool whole", p.Status.NodePools)
	})
}

// deleteTeamWorkloads deletes all workloads of a team.
func (s *sluiceCluster) deleteTeamWorkloads(t *testing.T, ns string) {
	t.Helper()
	for _, kind := range []client.Object{&batchv1.Job{}, &appsv1.Deployment{}, &corev1.Pod{}} {
		if err := s.adminClient.DeleteAllOf(t.Context(), kind, client.InNamespace(ns),
			client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
}

// watchGuaranteedPreemptions returns a function that lists the workloads preempted while
// their team had no more than its guarantee. Each workload counts as one whole GPU.
func (s *sluiceCluster) watchGuaranteedPreemptions(t *testing.T) func() []string {
	t.Helper()
	watching, err := client.NewWithWatch(s.config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	list.SetKind("WorkloadList")
	watcher, err := watching.Watch(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	var mu sync.Mutex
	var below []string
	go func() {
		admitted := map[types.UID]string{}
		for event := range watcher.ResultChan() {
			w, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			team, wasAdmitted := admitted[w.GetUID()]
			switch isAdmitted := conditionTrue(w, "Admitted") && event.Type != watch.Deleted; {
			case isAdmitted:
				admitted[w.GetUID()] = w.GetNamespace()
			case wasAdmitted:
				delete(admitted, w.GetUID())
				remaining := 0
				for _, admittedTeam := range admitted {
					if admittedTeam == team {
						remaining++
					}
				}
				if conditionTrue(w, "Preempted") && remaining < teams[team] {
					mu.Lock()
					below = append(below, fmt.Sprintf("%s of %s: the team has %d GPUs left of %d guaranteed", w.GetName(), team, remaining, teams[team]))
					mu.Unlock()
				}
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(slices.Values(below))
	}
}

// conditionTrue reports whether the object has the condition with status True.
func conditionTrue(object *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		entry, _ := c.(map[string]any)
		return entry["type"] == condition && entry["status"] == "True"
	})
}

// With kube-scheduler, interactive work preempts training and stays within the guarantee.
// Nothing preempts pods outside projects.
func TestInteractiveWorkPreemptsTraining(t *testing.T) {
	s := newDedicatedCluster(t)
	const gpus = 8 // of the one node that has whole ones
	s.createDepartment(t, "mixed", newPoolQuota("dgx", "8", "16"))
	s.createGovernedProject(t, "mixed", "trainers", newPoolQuota("dgx", "0", "8"))
	s.createGovernedProject(t, "mixed", "desks", newPoolQuota("dgx", "8", "8"))

	// A pod in an exempt namespace outside projects uses one GPU.
	s.createForTest(t, newNamespace("gpu-operator"))
	eventuallyLong(t, func() error {
		return s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: "gpu-operator", Name: "default"}, &corev1.ServiceAccount{})
	})
	exemptPod := newPod("gpu-operator", "validator", withGPU, func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
	})
	s.createForTest(t, exemptPod)
	s.waitForRunningPods(t, "gpu-operator", 1)

	for i := range gpus {
		s.createForTest(t, newGPUJob("trainers", fmt.Sprintf("train-%d", i), withGPU))
	}
	s.waitForRunningPods(t, "trainers", gpus-1)

	interactivePod := func(i int) *corev1.Pod {
		return newPod("desks", fmt.Sprintf("desk-%d", i), withGPU, func(p *corev1.Pod) {
			p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadInteractive)
		})
	}
	for i := range 3 {
		s.createForTest(t, interactivePod(i))
	}
	s.waitForRunningPods(t, "desks", 3)
	s.waitForRunningPods(t, "trainers", gpus-1-3)

	// The project's pods fill the remaining GPUs, and the exempt pod leaves no room for one
	// more.
	for i := 3; i < gpus; i++ {
		s.createForTest(t, interactivePod(i))
	}
	s.waitForRunningPods(t, "desks", gpus-1)
	s.waitForRunningPods(t, "trainers", 0)
	err := s.adminClient.Create(t.Context(), interactivePod(gpus))
	if !isQuotaExceeded(err) || !strings.Contains(err.Error(), "guaranteed-milli.dgx") {
		t.Errorf("a pod beyond the eight guaranteed GPUs: %v", err)
	}
	big := newPod("desks", "big", func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadInteractive)
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("9")}
	})
	expectError(t, s.adminClient.Create(t.Context(), big), "project desks may have 8 GPUs there")

	var observed corev1.Pod
	if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(exemptPod), &observed); err != nil {
		t.Fatal(err)
	}
	if observed.UID != exemptPod.UID || observed.DeletionTimestamp != nil || observed.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod outside projects changed: %s, deleted at %v", observed.Status.Phase, observed.DeletionTimestamp)
	}
	events, err := s.clientset.CoreV1().Events("gpu-operator").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Preempted"})
	if err != nil || len(events.Items) > 0 {
		t.Errorf("preempted outside projects: %v %v", events.Items, err)
	}
}

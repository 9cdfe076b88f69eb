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

// teams are those of the sample, with what each is guaranteed of the 16 whole GPUs.
var teams = map[string]int{"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}

// gpusByTeam are as many GPUs as each team has running.
type gpusByTeam map[string]int

// Idle GPUs are lent in proportion to the teams' quotas, and come back to whoever
// is below his own, without anybody going below his: with real Kueue, on plain
// Jobs, Deployments and pods that know nothing of it.
func TestFairness(t *testing.T) {
	s := newDedicatedCluster(t, "--scheduler", "kueue")
	for team := range teams {
		s.waitForGoverned(t, team)
	}
	evicted := s.watchGuaranteedPreemptions(t)

	t.Run("while d is idle the others share what it leaves", func(t *testing.T) {
		for i := range 10 {
			s.createForTest(t, newGPUJob("team-a", fmt.Sprintf("sweep-%d", i), withGPU))
		}
		for i := range 8 {
			s.createForTest(t, newPod("team-b", fmt.Sprintf("run-%d", i), withGPU, neverRestarted))
		}
		s.createForTest(t, newGangDeployment("team-c", "workers", 8, v1alpha1.WorkloadTrain, withGPU))
		s.waitForGPUShares(t, gpusByTeam{"team-a": 8, "team-b": 4, "team-c": 4, "team-d": 0})
	})
	t.Run("d has its own as soon as it asks", func(t *testing.T) {
		for i := range 8 {
			s.createForTest(t, newGPUJob("team-d", fmt.Sprintf("train-%d", i), withGPU))
		}
		s.waitForGPUShares(t, gpusByTeam{"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8})
		s.waitForProjectStatus(t, "team-a", "4", "4", "0")
	})
	t.Run("d goes, and it is lent again", func(t *testing.T) {
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

	t.Run("seven training and six interactive workloads fill it", func(t *testing.T) {
		for _, w := range []struct {
			team, name string
			gpus       int
		}{
			{"team-a", "llm", 4},
			{"team-b", "vision", 2},
			{"team-c", "speech-1", 1},
			{"team-c", "speech-2", 1},
			{"team-d", "climate", 4},
			{"team-d", "folding-1", 2},
			{"team-d", "folding-2", 2},
		} {
			s.createForTest(t, newGPUJob(w.team, w.name, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: *resource.NewQuantity(int64(w.gpus), resource.DecimalSI)}
			}))
		}
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

// onMIGPool is a share of a GPU, in the pool whose GPUs are cut.
func onMIGPool(share string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationGPU: share, v1alpha1.AnnotationNodePools: "cut"}
	}
}

// newGangDeployment is a Deployment of such pods, which run at once or not at all.
func newGangDeployment(ns, name string, replicas int32, as v1alpha1.WorkloadType, change ...func(*corev1.Pod)) *appsv1.Deployment {
	p := newPod(ns, name, change...)
	labels := map[string]string{"app": name, v1alpha1.LabelWorkloadType: string(as)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: p.Annotations}, Spec: p.Spec},
		},
	}
}

// waitForGPUShares waits until each team runs as many whole GPUs, and stays so.
func (s *sluiceCluster) waitForGPUShares(t *testing.T, want gpusByTeam) {
	t.Helper()
	steady := 0
	eventuallyLong(t, func() error {
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
			steady = 0
			return unexpectedState(fmt.Sprint(want), got)
		}
		// Fair shares that are still moving may be right for a moment.
		if steady++; steady < 20 {
			return unexpectedState("the shares are steady", steady)
		}
		return nil
	})
}

// waitForMIGPods waits until as many pods of each team run in the pool whose GPUs are cut.
func (s *sluiceCluster) waitForMIGPods(t *testing.T, want map[string]int) {
	t.Helper()
	eventuallyLong(t, func() error {
		got := map[string]int{}
		for team := range want {
			for _, p := range s.listPods(t, team) {
				if p.Labels[v1alpha1.LabelNodePool] == "cut" && p.Status.Phase == corev1.PodRunning {
					got[team]++
				}
			}
		}
		if !maps.Equal(got, want) {
			return unexpectedState(fmt.Sprintf("pods on slices: %v", want), got)
		}
		return nil
	})
}

// waitForGoverned waits until the project takes pods.
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

// waitForProjectStatus waits until the team's status tells of these figures for whole GPUs.
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
		return unexpectedState("pool whole is shown", p.Status.NodePools)
	})
}

// deleteTeamWorkloads ends all that a team runs.
func (s *sluiceCluster) deleteTeamWorkloads(t *testing.T, ns string) {
	t.Helper()
	for _, kind := range []client.Object{&batchv1.Job{}, &appsv1.Deployment{}, &corev1.Pod{}} {
		if err := s.adminClient.DeleteAllOf(t.Context(), kind, client.InNamespace(ns),
			client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
}

// watchGuaranteedPreemptions tells, when it is called, of each workload that was preempted
// while its team had no more than it is guaranteed: of whole GPUs, one for each
// workload.
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
			team, had := admitted[w.GetUID()]
			switch is := conditionTrue(w, "Admitted") && event.Type != watch.Deleted; {
			case is:
				admitted[w.GetUID()] = w.GetNamespace()
			case had:
				delete(admitted, w.GetUID())
				left := 0
				for _, of := range admitted {
					if of == team {
						left++
					}
				}
				if conditionTrue(w, "Preempted") && left < teams[team] {
					mu.Lock()
					below = append(below, fmt.Sprintf("%s of %s: %d GPUs are left to it of %d that are its own", w.GetName(), team, left, teams[team]))
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

// conditionTrue tells whether an object has a condition.
func conditionTrue(object *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		of, _ := c.(map[string]any)
		return of["type"] == condition && of["status"] == "True"
	})
}

// On Kubernetes' own scheduler interactive work takes the place of training, and
// stays within what is guaranteed; what is nobody's is left alone. Guards that
// nothing of ours preempts what is not ours.
func TestInteractiveWorkPreemptsTraining(t *testing.T) {
	s := newDedicatedCluster(t)
	const gpus = 8 // of the one node that has whole ones
	s.createDepartment(t, "mixed", newPoolQuota("dgx", "8", "16"))
	s.createGovernedProject(t, "mixed", "trainers", newPoolQuota("dgx", "0", "8"))
	s.createGovernedProject(t, "mixed", "desks", newPoolQuota("dgx", "8", "8"))

	// A GPU is in use by what runs outside of projects, in a namespace that is exempt.
	s.createForTest(t, newNamespace("gpu-operator"))
	eventuallyLong(t, func() error {
		return s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: "gpu-operator", Name: "default"}, &corev1.ServiceAccount{})
	})
	stranger := newPod("gpu-operator", "validator", withGPU, func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
	})
	s.createForTest(t, stranger)
	s.waitForRunningPods(t, "gpu-operator", 1)

	for i := range gpus {
		s.createForTest(t, newGPUJob("trainers", fmt.Sprintf("train-%d", i), withGPU))
	}
	s.waitForRunningPods(t, "trainers", gpus-1)

	desk := func(i int) *corev1.Pod {
		return newPod("desks", fmt.Sprintf("desk-%d", i), withGPU, func(p *corev1.Pod) {
			p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadInteractive)
		})
	}
	for i := range 3 {
		s.createForTest(t, desk(i))
	}
	s.waitForRunningPods(t, "desks", 3)
	s.waitForRunningPods(t, "trainers", gpus-1-3)

	// As many as there are, and one more than there is room for beside the stranger.
	for i := 3; i < gpus; i++ {
		s.createForTest(t, desk(i))
	}
	s.waitForRunningPods(t, "desks", gpus-1)
	s.waitForRunningPods(t, "trainers", 0)
	err := s.adminClient.Create(t.Context(), desk(gpus))
	if !isQuotaExceeded(err) || !strings.Contains(err.Error(), "guaranteed") && !strings.Contains(err.Error(), "sluice-dgx") {
		t.Errorf("a ninth that cannot be preempted, of eight that are guaranteed: %v", err)
	}
	big := newPod("desks", "big", func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadInteractive)
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("9")}
	})
	expectError(t, s.adminClient.Create(t.Context(), big), "project desks may have 8 GPUs there")

	var still corev1.Pod
	if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(stranger), &still); err != nil {
		t.Fatal(err)
	}
	if still.UID != stranger.UID || still.DeletionTimestamp != nil || still.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod outside of projects was not left alone: %s, deleted at %v", still.Status.Phase, still.DeletionTimestamp)
	}
	events, err := s.clientset.CoreV1().Events("gpu-operator").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Preempted"})
	if err != nil || len(events.Items) > 0 {
		t.Errorf("preempted outside of projects: %v %v", events.Items, err)
	}
}

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

// gpusOf are as many GPUs as each team has running.
type gpusOf map[string]int

// Idle GPUs are lent in proportion to the teams' quotas, and come back to whoever
// is below his own, without anybody going below his: with real Kueue, on plain
// Jobs, Deployments and pods that know nothing of it.
func TestFairness(t *testing.T) {
	s := own(t, "--scheduler", "kueue")
	for team := range teams {
		s.awaitGoverned(t, team)
	}
	evicted := s.watchEvictions(t)

	t.Run("while d is idle the others share what it leaves", func(t *testing.T) {
		for i := range 10 {
			s.make(t, jobOf("team-a", fmt.Sprintf("sweep-%d", i), withGPU))
		}
		for i := range 8 {
			s.make(t, podIn("team-b", fmt.Sprintf("run-%d", i), withGPU, neverRestarted))
		}
		s.make(t, replicated("team-c", "workers", 8, v1alpha1.WorkloadTrain, withGPU))
		s.awaitShares(t, gpusOf{"team-a": 8, "team-b": 4, "team-c": 4, "team-d": 0})
	})
	t.Run("d has its own as soon as it asks", func(t *testing.T) {
		for i := range 8 {
			s.make(t, jobOf("team-d", fmt.Sprintf("train-%d", i), withGPU))
		}
		s.awaitShares(t, gpusOf{"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8})
		s.awaitShown(t, "team-a", "4", "4", "0")
	})
	t.Run("d goes, and it is lent again", func(t *testing.T) {
		s.removeAll(t, "team-d")
		s.awaitShares(t, gpusOf{"team-a": 8, "team-b": 4, "team-c": 4, "team-d": 0})
		s.awaitShown(t, "team-a", "4", "8", "4")
	})
	if below := evicted(); len(below) > 0 {
		t.Errorf("preempted though at or below quota:\n%s", strings.Join(below, "\n"))
	}
	for team := range teams {
		s.removeAll(t, team)
	}
	s.awaitShares(t, gpusOf{"team-a": 0, "team-b": 0, "team-c": 0, "team-d": 0})

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
			s.make(t, jobOf(w.team, w.name, func(p *corev1.Pod) {
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
			s.make(t, replicated(w.team, w.name, w.replicas, v1alpha1.WorkloadInteractive, onCut(w.share)))
		}
		s.awaitShares(t, gpusOf{"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8})
		s.cutRuns(t, map[string]int{"team-a": 12, "team-b": 8, "team-c": 4, "team-d": 8})
	})
}

// onCut is a share of a GPU, in the pool whose GPUs are cut.
func onCut(share string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationGPU: share, v1alpha1.AnnotationNodePools: "cut"}
	}
}

// replicated is a Deployment of such pods, which run at once or not at all.
func replicated(ns, name string, replicas int32, as v1alpha1.WorkloadType, change ...func(*corev1.Pod)) *appsv1.Deployment {
	p := podIn(ns, name, change...)
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

// awaitShares waits until each team runs as many whole GPUs, and stays so.
func (s *stack) awaitShares(t *testing.T, want gpusOf) {
	t.Helper()
	steady := 0
	within(t, func() error {
		got := gpusOf{}
		for team := range want {
			for _, p := range s.podsOf(t, team) {
				if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
					whole := p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceNVIDIAGPU]
					got[team] += int(whole.Value())
				}
			}
			got[team] += 0
		}
		if !maps.Equal(got, want) {
			steady = 0
			return errNotYet(fmt.Sprint(want), got)
		}
		// Fair shares that are still moving may be right for a moment.
		if steady++; steady < 20 {
			return errNotYet("the shares are steady", steady)
		}
		return nil
	})
}

// cutRuns waits until as many pods of each team run in the pool whose GPUs are cut.
func (s *stack) cutRuns(t *testing.T, want map[string]int) {
	t.Helper()
	within(t, func() error {
		got := map[string]int{}
		for team := range want {
			for _, p := range s.podsOf(t, team) {
				if p.Labels[v1alpha1.LabelNodePool] == "cut" && p.Status.Phase == corev1.PodRunning {
					got[team]++
				}
			}
		}
		if !maps.Equal(got, want) {
			return errNotYet(fmt.Sprintf("pods on slices: %v", want), got)
		}
		return nil
	})
}

// awaitGoverned waits until the project takes pods.
func (s *stack) awaitGoverned(t *testing.T, name string) {
	t.Helper()
	within(t, func() error {
		var p v1alpha1.Project
		if err := s.admin.Get(t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
			return err
		}
		for _, condition := range []string{v1alpha1.ConditionQuotaApplied, v1alpha1.ConditionQueueApplied} {
			if err := hasCondition(p.Status.Conditions, condition, metav1.ConditionTrue, ""); err != nil {
				return err
			}
		}
		return s.admin.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// awaitShown waits until the team's status tells of these figures for whole GPUs.
func (s *stack) awaitShown(t *testing.T, name, guaranteed, allocated, over string) {
	t.Helper()
	within(t, func() error {
		var p v1alpha1.Project
		if err := s.admin.Get(t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
			return err
		}
		for _, use := range p.Status.NodePools {
			if use.Name != "whole" {
				continue
			}
			got := []string{use.Guaranteed.String(), use.Allocated.String(), use.OverQuota.String()}
			if want := []string{guaranteed, allocated, over}; !slices.Equal(got, want) {
				return errNotYet(fmt.Sprintf("quota, allocated, over quota: %v", want), got)
			}
			return nil
		}
		return errNotYet("pool whole is shown", p.Status.NodePools)
	})
}

// removeAll ends all that a team runs.
func (s *stack) removeAll(t *testing.T, ns string) {
	t.Helper()
	for _, kind := range []client.Object{&batchv1.Job{}, &appsv1.Deployment{}, &corev1.Pod{}} {
		if err := s.admin.DeleteAllOf(t.Context(), kind, client.InNamespace(ns),
			client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
}

// watchEvictions tells, when it is called, of each workload that was preempted
// while its team had no more than it is guaranteed: of whole GPUs, one for each
// workload.
func (s *stack) watchEvictions(t *testing.T) func() []string {
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
			switch is := isTrue(w, "Admitted") && event.Type != watch.Deleted; {
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
				if isTrue(w, "Preempted") && left < teams[team] {
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

// isTrue tells whether an object has a condition.
func isTrue(object *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		of, _ := c.(map[string]any)
		return of["type"] == condition && of["status"] == "True"
	})
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// podWatch checks every state of a project's pods.
type podWatch struct {
	*simulation
	namespace string
	running   map[types.UID]*corev1.Pod // the pods that are bound and have not ended
	// excessSince is since when they exceed the limit, and excess describes them since then.
	excessSince time.Time
	excess      []string
	longest     time.Duration
	most        int64
}

func (s *simulation) newPodWatch(namespace string) *podWatch {
	return &podWatch{simulation: s, namespace: namespace, running: map[types.UID]*corev1.Pod{}}
}

// run observes the pods until the context ends, and then an excess until it is over or longer than the bound.
func (w *podWatch) run(ctx context.Context) {
	watching, end := context.WithCancel(w.t.Context())
	defer end()
	for ended := false; !ended; {
		events, err := w.world.Clientset.CoreV1().Pods(w.namespace).Watch(watching, metav1.ListOptions{})
		if err != nil {
			w.t.Errorf("watch the pods of %s: %v", w.namespace, err)
			return
		}
		ended = w.observeAll(ctx, events)
		events.Stop()
	}
	w.endExcess()
	w.t.Logf("%s: at most %d GPUs of %d, over the limit for at most %s", w.namespace, w.most, simulatedLimit, w.longest.Round(time.Millisecond))
}

// observeAll observes the events of a watch. It reports false if the watch ended before run has to.
func (w *podWatch) observeAll(ctx context.Context, events watch.Interface) (ended bool) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return w.t.Context().Err() != nil
			}
			if pod, ok := event.Object.(*corev1.Pod); ok {
				w.observe(pod, event.Type == watch.Deleted)
			}
		case <-tick.C:
			if ctx.Err() != nil && (w.excessSince.IsZero() || time.Since(w.excessSince) > excessBound) {
				return true
			}
		}
	}
}

func (w *podWatch) observe(pod *corev1.Pod, deleted bool) {
	ends := deleted || pod.DeletionTimestamp != nil
	owner := w.onPod(pod)
	w.mu.Lock()
	if ends && owner != nil && w.endedAboveLimit(pod) {
		owner.touched = true
	}
	if ends && (owner == nil || !owner.touched) {
		w.t.Errorf("pod %s/%s was deleted, though no member with the right ended its workload: %+v", pod.Namespace, pod.Name, pod.Status.Conditions)
	}
	w.mu.Unlock()
	if owner != nil {
		if err := keepsOnlyOwnAway(pod, owner.creator.user); err != nil {
			w.t.Error(err)
		}
	}
	w.checkShare(pod)
	w.running[pod.UID] = pod
	if deleted || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		delete(w.running, pod.UID)
	}
	var sum int64
	for _, running := range w.running {
		sum += gpus(running)
	}
	w.most = max(w.most, sum)
	if sum <= simulatedLimit {
		w.endExcess()
		return
	}
	if w.excessSince.IsZero() {
		w.excessSince = time.Now()
		for _, running := range w.running {
			w.record(running, "running")
		}
	}
	w.record(pod, fmt.Sprintf("%d GPUs run", sum))
}

// shareOfGPU is what a preemptible pod may request with one of the eight GPUs of a node of 256 CPUs and 1 TiB.
var shareOfGPU = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("48"), corev1.ResourceMemory: resource.MustParse("192Gi")}

// checkShare checks that a pod with GPUs requests at most their share of the node.
func (w *podWatch) checkShare(pod *corev1.Pod) {
	number := gpus(pod)
	if number == 0 {
		return
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for name, most := range shareOfGPU {
		most.Mul(number)
		if quantity := requests[name]; quantity.Cmp(most) > 0 {
			w.t.Errorf("pod %s/%s of %d GPUs requests %s %s, more than its share of %s", pod.Namespace, pod.Name, number, name, quantity.String(), most.String())
		}
	}
}

// record records a state of a pod with GPUs during an excess.
func (w *podWatch) record(pod *corev1.Pod, what string) {
	if gpus(pod) > 0 {
		w.excess = append(w.excess, describe(pod, what))
	}
}

// describe describes a state of a pod.
func describe(pod *corev1.Pod, what string) string {
	words := []string{fmt.Sprintf("%s %s: pod %s of %d GPUs, %s, created %s", time.Now().UTC().Format("15:04:05.000"), what,
		pod.Name, gpus(pod), pod.Status.Phase, pod.CreationTimestamp.UTC().Format(time.TimeOnly))}
	if pod.DeletionTimestamp != nil {
		words = append(words, fmt.Sprintf("grace period of %d s until %s, finalizers %v",
			ptr.Deref(pod.DeletionGracePeriodSeconds, -1), pod.DeletionTimestamp.UTC().Format(time.TimeOnly), pod.Finalizers))
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget || c.Type == corev1.PodReady {
			words = append(words, fmt.Sprintf("%s %s at %s: %s", c.Type, c.Status, c.LastTransitionTime.UTC().Format(time.TimeOnly), c.Message))
		}
	}
	return strings.Join(words, ", ")
}

// endedAboveLimit reports whether lifecycle ended the pod as one of the newest of a project above its limit. No member may write a
// pod's conditions.
func (w *podWatch) endedAboveLimit(pod *corev1.Pod) bool {
	return w.most > simulatedLimit && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == suspend.ReasonStopped
	})
}

// endExcess checks how long the limit was exceeded.
func (w *podWatch) endExcess() {
	if w.excessSince.IsZero() {
		return
	}
	lasted, pods := time.Since(w.excessSince), w.excess
	w.excessSince, w.excess = time.Time{}, nil
	w.longest = max(w.longest, lasted)
	if lasted > excessBound {
		w.t.Errorf("%s ran up to %d GPUs with a limit of %d for %s:\n%s", w.namespace, w.most, simulatedLimit, lasted, strings.Join(pods, "\n"))
	}
}

// gpus returns the whole GPUs that a pod requests.
func gpus(pod *corev1.Pod) (sum int64) {
	for i := range pod.Spec.Containers {
		quantity := pod.Spec.Containers[i].Resources.Limits[v1alpha1.ResourceNVIDIAGPU]
		sum += quantity.Value()
	}
	return sum
}

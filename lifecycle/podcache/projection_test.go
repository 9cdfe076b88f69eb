// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestProjection(t *testing.T) {
	for mode, pages := range listModes {
		t.Run(mode, func(t *testing.T) {
			w := newTestServer(t, Settings{PageSize: 2}, newGPUPod("a"), newGPUPod("bound").onNode("n"), newPod("cpu"))
			w.server.WithoutWatchList = pages
			names := NewProjection(w.store, func(pod *corev1.Pod) (string, bool) { return pod.Name, pod.Spec.NodeName == "" })
			uids := NewProjection(w.store, func(pod *corev1.Pod) (string, bool) { return string(pod.UID), pod.Spec.NodeName != "" })
			var calls atomic.Int32
			var others atomic.Int32
			names.OnChange(func() { calls.Add(1) })
			names.OnChange(func() { others.Add(1) })
			expect := func(wantNames, wantUIDs []string) {
				t.Helper()
				w.waitUntil(func() bool {
					return slices.Equal(slices.Sorted(slices.Values(names.Values())), wantNames) && slices.Equal(uids.Values(), wantUIDs)
				}, func() any { return [][]string{names.Values(), uids.Values()} })
			}
			w.startStore().waitForSync()
			expect([]string{"a"}, []string{"uid-bound"})
			initial := calls.Load()

			w.putPods(newGPUPod("bound").onNode("n").withPhase(corev1.PodRunning), newGPUPod("b"))
			expect([]string{"a", "b"}, []string{"uid-bound"})
			w.putPods(newGPUPod("a").onNode("n"), newGPUPod("b").withPhase(corev1.PodFailed))
			w.waitUntil(func() bool { return len(names.Values()) == 0 && len(uids.Values()) == 2 }, func() any { return names.Values() })
			w.deletePod("bound")
			w.putPods(newPod("a")) // requests no GPU any more
			expect([]string{}, []string{})
			if got := calls.Load() - initial; got != 3 {
				t.Errorf("OnChange was called %d times, want 3: b was added, a was bound, b ended", got)
			}
			if others.Load() != calls.Load() {
				t.Errorf("a second subscriber was called %d times, the first one %d times", others.Load(), calls.Load())
			}
		})
	}
}

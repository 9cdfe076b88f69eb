// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod whose last status was written is not started again when the informer reports an earlier status.
func TestEndedPodIsNotStartedAgain(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	w := &worker{pod: pod}
	l := &launcher{workers: map[types.UID]*worker{pod.UID: w}, ended: map[types.UID]bool{}}
	if again := l.retire(w, true); again != nil {
		t.Errorf("another worker gets %v", again)
	}
	l.observe(t.Context(), pod)
	if len(l.workers) > 0 {
		t.Error("the pod is started again")
	}
	l.observeRemoval(pod)
	if len(l.ended) > 0 {
		t.Error("the launcher remembers a pod that does not exist any more")
	}
}

// A pod that is deleted or removed while its worker ends is not forgotten.
func TestDeletionWhileWorkerEnds(t *testing.T) {
	now := metav1.Now()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", DeletionTimestamp: &now}}
	for name, tc := range map[string]struct {
		worker          *worker
		ended           bool
		again, recorded bool
	}{
		"deleted":                     {&worker{pod: pod}, true, true, true},
		"removed":                     {&worker{pod: pod, gone: true}, true, false, false},
		"terminated by its worker":    {&worker{pod: pod}, false, false, false},
		"the launcher or a node ends": {&worker{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}}, false, false, false},
	} {
		l := &launcher{workers: map[types.UID]*worker{"1": tc.worker}, ended: map[types.UID]bool{}}
		again := l.retire(tc.worker, tc.ended)
		if (again != nil) != tc.again || l.ended["1"] != tc.recorded || len(l.workers) > 0 {
			t.Errorf("%s: again %v, recorded %v, workers %v", name, again, l.ended, l.workers)
		}
	}
}

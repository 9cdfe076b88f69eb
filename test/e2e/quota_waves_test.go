// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
)

const (
	// waveDuration is the time for which pods come and go in a round. Most rounds exceed the limit.
	waveDuration = 20 * time.Second
	waveCreators = 20
	// waveDeletionInterval is the time between two deletions. Each causes a recount.
	waveDeletionInterval = 15 * time.Millisecond

	// changingPods and changeBytes make the events of pods late in the cache of the quota controller,
	// and not those of quotas, as in a large cluster.
	changingPods = 2
	changeBytes  = 100 << 10
)

// keepPodsChanging changes large pods outside the project until the test ends. The quota controller has
// one watch for all pods of the cluster and one for all quotas: a quota is then newer than the pods.
func (r *quotaRace) keepPodsChanging(t testing.TB) {
	t.Helper()
	pods := r.clientset.CoreV1().Pods(metav1.NamespaceDefault)
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for i := range changingPods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("changing-", i)}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "any"}}
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/never"}}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for n := 0; t.Context().Err() == nil; n++ {
				text := fmt.Sprint(n, strings.Repeat("x", changeBytes))
				change := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.org/note":%q}}}`, text)
				_, err := pods.Patch(t.Context(), pod.Name, types.MergePatchType, change, metav1.PatchOptions{})
				if err != nil && t.Context().Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
}

// runWaves creates pods at the limit and deletes the oldest, one after the other, for waveDuration. Then
// it waits until the pods are within the limit.
func (r *quotaRace) runWaves(t testing.TB) string {
	t.Helper()
	ctx, pods := t.Context(), r.clientset.CoreV1().Pods(r.ns)
	var (
		all             sync.WaitGroup
		created, gone   atomic.Int64
		names           = make(chan string, 100_000)
		end             = policytime.MachineNow().Add(waveDuration)
		before, atLimit = len(r.sizes), raceLimit - waveCreators/4
	)
	for i := range waveCreators {
		all.Go(func() {
			for policytime.MachineNow().Before(end) {
				pod, err := pods.Create(ctx, newTrainingPod(r.ns, i), metav1.CreateOptions{})
				if err == nil {
					created.Add(1)
					names <- pod.Name
				} else if !isQuotaExceeded(err) && !isAdmissionTimeout(err) && !apierrors.IsConflict(err) {
					t.Errorf("neither admitted nor rejected by the quota: %v", err)
				}
			}
		})
	}
	ticker := time.NewTicker(waveDeletionInterval)
	defer ticker.Stop()
	for policytime.MachineNow().Before(end) {
		<-ticker.C
		if len(names) < atLimit {
			continue
		}
		if err := pods.Delete(ctx, <-names, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		gone.Add(1)
	}
	all.Wait()
	eventuallyLong(t, steadily(time.Second, r.checkWithinLimit))
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items { // the next round begins with a quota that is free
		err := pods.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		if client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d created, %d deleted, %d excesses", created.Load(), gone.Load(), len(r.sizes)-before)
}

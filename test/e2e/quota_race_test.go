// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

const (
	concurrentCreates = 200 // pods
	gpuLimit          = 10  // GPUs
)

// Concurrent requests never exceed the limit of a project. Guards invariant 3 of the design:
// with three webhook replicas and a limit of 10, 200 concurrent creates admit exactly 10
// pods, also if a replica is killed meanwhile; and of two pods that request the last GPU,
// one is admitted.
func TestProjectLimitUnderConcurrency(t *testing.T) {
	const ns = "race"
	s := newUnsharedCluster(t)
	b := s.startWebhookReplicas(t, 3)
	s.createDepartment(t, "racers", newPoolQuota("dgx", "0", "20"))
	s.createGovernedProject(t, "racers", ns, newPoolQuota("dgx", "0", strconv.Itoa(gpuLimit)))

	t.Run("200 concurrent creates", func(t *testing.T) {
		s.createConcurrently(t, ns, concurrentCreates, gpuLimit, func() {})
		for i, n := range b.connectionCounts() {
			if n == 0 {
				t.Errorf("replica %d of the webhook received no connection", i)
			}
		}
	})
	t.Run("the last GPU", func(t *testing.T) {
		for round := range 5 {
			admitted := s.listPods(t, ns)
			if len(admitted) != gpuLimit {
				t.Fatalf("round %d begins with %d pods, want %d", round, len(admitted), gpuLimit)
			}
			s.deletePodsAndWait(t, ns, admitted[:1])
			s.createConcurrently(t, ns, 2, 1, func() {})
		}
	})
	t.Run("200 concurrent creates while a replica is killed", func(t *testing.T) {
		s.deletePodsAndWait(t, ns, s.listPods(t, ns))
		s.createConcurrently(t, ns, concurrentCreates, gpuLimit, b.killOne)
	})
}

// createConcurrently creates n pods with one GPU each concurrently, and retries if the
// webhook times out. It expects that exactly room pods are admitted and the quota rejects
// the others. After a tenth of the pods it calls meanwhile.
func (s *sluiceCluster) createConcurrently(t *testing.T, ns string, n, room int, meanwhile func()) {
	t.Helper()
	before := len(s.listPods(t, ns))
	var (
		admitted, rejected, timeouts atomic.Int64
		completed, uncounted         atomic.Int64
		once                         sync.Once
		start                        = make(chan struct{})
		all                          sync.WaitGroup
	)
	for i := range n {
		all.Go(func() {
			<-start
			pod := newTrainingPod(ns, i)
			for {
				_, err := s.clientset.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
				switch {
				case err == nil:
					admitted.Add(1)
				case isQuotaExceeded(err):
					rejected.Add(1)
				case isQuotaTimeout(err):
					uncounted.Add(1)
				case isWebhookTimeout(err) && t.Context().Err() == nil:
					timeouts.Add(1)
					continue
				default:
					t.Errorf("neither admitted nor rejected by the quota: %v", err)
				}
				break
			}
			if completed.Add(1) >= int64(n/10) {
				once.Do(meanwhile)
			}
		})
	}
	started := time.Now()
	close(start)
	all.Wait()
	t.Logf("%d pods in %s: %d admitted, %d rejected, %d webhook timeouts",
		n, time.Since(started).Round(time.Millisecond), admitted.Load(), rejected.Load(), timeouts.Load())
	if uncounted.Load() > 0 {
		// The quota keeps what it charged for such pods until it is counted again.
		s.createRemaining(t, ns, before+room)
	} else if admitted.Load() != int64(room) || rejected.Load() != int64(n-room) {
		t.Errorf("%d admitted and %d rejected by the quota, want %d and %d", admitted.Load(), rejected.Load(), room, n-room)
	}
	if got := len(s.listPods(t, ns)); got != before+room {
		t.Errorf("%d pods exist, want %d", got, before+room)
	}
	eventually(t, func() error { return s.checkQuotaUsed(t.Context(), ns, int64(1000*(before+room))) })
}

// createRemaining creates pods until the namespace has as many.
func (s *sluiceCluster) createRemaining(t *testing.T, ns string, total int) {
	t.Helper()
	eventuallyLong(t, func() error {
		existing := len(s.listPods(t, ns))
		if existing >= total {
			return nil
		}
		_, err := s.clientset.CoreV1().Pods(ns).Create(t.Context(), newTrainingPod(ns, existing), metav1.CreateOptions{})
		return errors.Join(err, unexpectedState(fmt.Sprintf("%d pods exist", total), existing))
	})
}

// isQuotaTimeout reports whether the API server's quota admission did not evaluate the request in
// time, or gave up after others changed the quota meanwhile, as on an overloaded machine.
func isQuotaTimeout(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "resource quota evaluation timed out") ||
		apierrors.IsConflict(err) && strings.Contains(err.Error(), "resourcequotas")
}

// isAdmissionTimeout reports whether a webhook or the quota admission did not finish, as on an overloaded machine.
func isAdmissionTimeout(err error) bool { return isWebhookTimeout(err) || isQuotaTimeout(err) }

// newTrainingPod returns a training pod with one GPU. No scheduler binds it: the quota counts it all
// the same, and a pod that a node rejects would no longer be counted.
func newTrainingPod(ns string, i int) *corev1.Pod {
	return newPod(ns, "", func(p *corev1.Pod) {
		p.GenerateName = fmt.Sprintf("contender-%d-", i)
		p.Labels[v1alpha1.LabelWorkloadType] = "train"
		p.Spec.NodeSelector = map[string]string{"example.org/never": "true"}
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1")}
	})
}

// isQuotaExceeded reports whether a ResourceQuota, which counts atomically, rejected the pod
// with its figures.
func isQuotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: ") && strings.Contains(err.Error(), "limited: ")
}

// isWebhookTimeout reports whether the API server rejected the request because the webhook
// did not respond. Controllers retry then.
func isWebhookTimeout(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

func (s *sluiceCluster) listPods(t *testing.T, ns string) []corev1.Pod {
	t.Helper()
	list, err := s.clientset.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// deletePodsAndWait deletes the pods without a grace period, and waits until their quota is
// free.
func (s *sluiceCluster) deletePodsAndWait(t *testing.T, ns string, pods []corev1.Pod) {
	t.Helper()
	remaining := len(s.listPods(t, ns)) - len(pods)
	for i := range pods {
		if err := s.clientset.CoreV1().Pods(ns).Delete(t.Context(), pods[i].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
	}
	// After a deletion, Kubernetes' quota controller counts from a cache that may lag. Until
	// its next count, it may count a new pod twice or not at all. The test does not cover
	// that, so it waits for a stable count.
	eventually(t, steadily(5*time.Second, func() error {
		if err := s.checkQuotaUsed(t.Context(), ns, int64(1000*remaining)); err != nil {
			return fmt.Errorf("%w; pods: %s", err, describePods(s.listPods(t, ns)))
		}
		return nil
	}))
}

// describePods returns the names, nodes and phases of pods.
func describePods(pods []corev1.Pod) string {
	var described []string
	for i := range pods {
		p := &pods[i]
		described = append(described, strings.TrimSpace(fmt.Sprintf("%s on %q %s %s %s", p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Reason, p.Status.Message)))
	}
	return strings.Join(described, ", ")
}

// steadily returns a condition that holds once the given one has held for a time, whenever it
// was checked.
func steadily(duration time.Duration, condition func() error) func() error {
	var since time.Time
	return func() error {
		if err := condition(); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if held := time.Since(since); held < duration {
			return unexpectedState(fmt.Sprintf("the condition holds for %s", duration), held)
		}
		return nil
	}
}

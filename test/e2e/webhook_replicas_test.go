// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// readyWebhooks returns the number of ready endpoints of the webhook's Service.
func (s *sluiceCluster) readyWebhooks(ctx context.Context) (int, error) {
	list, err := s.clientset.DiscoveryV1().EndpointSlices(v1alpha1.SystemNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=webhook",
	})
	if err != nil {
		return 0, err
	}
	ready := 0
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				ready++
			}
		}
	}
	return ready, nil
}

func (s *sluiceCluster) eventuallyWebhooks(t *testing.T, want int) {
	t.Helper()
	clustertest.EventuallyWithin(t, restartTimeout, func() error {
		ready, err := s.readyWebhooks(t.Context())
		if err == nil && ready != want {
			err = fmt.Errorf("%d endpoints of the webhook are ready, want %d", ready, want)
		}
		return err
	})
}

// Two replicas of the webhook are two: after one is killed, the other one admits pods, the endpoints follow, and the API server
// reports an error only to requests that the dead one had. Without a replica, governed pods are refused at once.
func TestWebhookReplicas(t *testing.T) {
	s := newDedicatedCluster(t)
	s.createDepartment(t, "replicas", newPoolQuota("dgx", "0", "1"))
	s.createGovernedProject(t, "replicas", "replicas", newPoolQuota("dgx", "0", "1"))
	s.eventuallyWebhooks(t, 1)
	s.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "scale", "deployment", "webhook", "--replicas", "2")
	s.eventuallyWebhooks(t, 2)

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var admitted, failed atomic.Int64
	load.Go(func() {
		for ctx.Err() == nil {
			err := s.dryRunPod(ctx, "replicas")
			switch {
			case ctx.Err() != nil:
			case err == nil:
				admitted.Add(1)
			case strings.Contains(err.Error(), "failed calling webhook"):
				failed.Add(1)
			default:
				t.Errorf("a pod is refused: %v", err)
			}
		}
	})
	admitMore := func(what string) {
		t.Helper()
		before := admitted.Load()
		clustertest.EventuallyWithin(t, restartTimeout, func() error {
			if admitted.Load() < before+20 {
				return errors.New("too few pods are admitted " + what)
			}
			return nil
		})
	}
	admitMore("with two replicas")
	for _, victim := range []string{"webhook", "webhook-2"} {
		pid := s.componentPID(t, victim)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		admitMore("after the kill of " + victim)
		clustertest.EventuallyWithin(t, restartTimeout, func() error { return s.restarted(t.Context(), victim, pid) })
		s.eventuallyWebhooks(t, 2)
	}
	pid := s.componentPID(t, "webhook-2")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	s.eventuallyWebhooks(t, 1)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.eventuallyWebhooks(t, 2)
	stop()
	load.Wait()
	t.Logf("%d pods admitted, %d requests failed while a replica ended or was suspended", admitted.Load(), failed.Load())

	// A replica that is deleted gets no more requests before it ends.
	s.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "scale", "deployment", "webhook", "--replicas", "0")
	s.eventuallyWebhooks(t, 0)
	clustertest.EventuallyWithin(t, restartTimeout, func() error {
		err := s.dryRunPod(t.Context(), "replicas")
		if err == nil || !strings.Contains(err.Error(), "no pod of Service sluice-system/webhook is ready") {
			return fmt.Errorf("without a replica: %w", err)
		}
		return nil
	})
	s.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "scale", "deployment", "webhook", "--replicas", "1")
	clustertest.EventuallyWithin(t, restartTimeout, func() error { return s.dryRunPod(t.Context(), "replicas") })
}

// dryRunPod creates a pod that is not stored.
func (s *sluiceCluster) dryRunPod(ctx context.Context, namespace string) error {
	_, err := s.clientset.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

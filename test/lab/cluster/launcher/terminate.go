// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/test/lab/cluster/process"
)

// terminate ends a deleted pod within its grace period and removes it from the API. If ctx
// ends first, the containers are ended and the pod stays.
func (w *worker) terminate(ctx context.Context, pod *corev1.Pod) {
	w.log.Info("Ending pod", "grace period", time.Until(pod.DeletionTimestamp.Time).Round(time.Second))
	graceCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.runPreStop(graceCtx, pod)
		w.stopContainers(graceCtx)
	}()
	w.awaitEnd(ctx, cancel, ended)
	if ctx.Err() != nil {
		return
	}
	w.removeFolder()
	for removed := false; !removed; {
		removed = w.remove(ctx, pod)
		if !removed && !waitFor(ctx, tickInterval) {
			return
		}
	}
}

// awaitEnd waits until the containers have ended. It cancels their grace period at the pod's
// deletion timestamp, which a second deletion can bring forward, and when the pod is gone.
func (w *worker) awaitEnd(ctx context.Context, kill func(), ended <-chan struct{}) {
	tick := time.NewTicker(tickInterval / 4)
	defer tick.Stop()
	for {
		// The timestamp has whole seconds: the grace period is never shorter than stated.
		if pod, gone := w.current(); gone || time.Now().After(pod.DeletionTimestamp.Add(time.Second)) {
			kill()
		}
		select {
		case <-ended:
			return
		case <-ctx.Done():
			kill()
			<-ended
			return
		case <-w.changed:
		case <-tick.C:
		}
	}
}

// runPreStop runs the hooks of the running containers.
func (w *worker) runPreStop(ctx context.Context, pod *corev1.Pod) {
	longest := int64(0)
	for _, c := range w.containers {
		hooks := c.spec.Lifecycle
		if c.status.PID != 0 && hooks != nil && hooks.PreStop != nil && hooks.PreStop.Sleep != nil {
			longest = max(longest, hooks.PreStop.Sleep.Seconds)
		}
	}
	if longest > 0 {
		waitFor(ctx, min(time.Duration(longest)*time.Second, gracePeriod(pod)))
	}
}

// stopContainers ends all containers, at once when ctx ends.
func (w *worker) stopContainers(ctx context.Context) {
	var all sync.WaitGroup
	for _, c := range w.containers {
		if !c.started {
			continue
		}
		all.Go(func() {
			last, err := w.launcher.Group.Remove(ctx, c.process)
			if err != nil {
				w.log.Warn("Failed to end container", "container", c.spec.Name, "error", err)
			}
			if last.Name != "" {
				c.status = last
			}
		})
	}
	all.Wait()
	for _, c := range w.containers {
		if c.run != nil {
			c.run.cancel()
			c.run = nil
		}
	}
}

// end ends all containers within a time, without a report.
func (w *worker) end(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	w.stopContainers(ctx)
}

// remove reports the end of the pod and removes it from the API. It reports whether it
// succeeded.
func (w *worker) remove(ctx context.Context, pod *corev1.Pod) bool {
	status := w.podStatus(pod)
	status.Phase = corev1.PodSucceeded
	for _, c := range w.containers {
		if c.status.State != process.Exited && c.status.State != process.Stopped || c.status.LastExitCode != 0 {
			status.Phase = corev1.PodFailed
		}
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			c.Status, c.Reason = corev1.ConditionFalse, "PodTerminating"
		}
	}
	if err := w.publish(ctx, pod, status); err != nil {
		w.log.Warn("Failed to report the pod's end, retrying", "error", err)
		return false
	}
	err := w.launcher.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !isRemoved(err) {
		w.log.Warn("Failed to remove pod, retrying", "error", err)
		return false
	}
	return true
}

func (w *worker) removeFolder() {
	if err := os.RemoveAll(w.dir); err != nil {
		w.log.Warn("Failed to remove the pod's folder", "error", err)
	}
}

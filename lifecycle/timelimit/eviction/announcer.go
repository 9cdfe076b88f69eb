// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/podcache"
)

// ErrNotGoverned means that the pod belongs to no project, so that Sluice does not evict it.
var ErrNotGoverned = errors.New("the pod belongs to no project")

// Announcer writes announcements on pods. It is safe for concurrent use.
type Announcer struct {
	// Client reads Projects and Departments from the cache and writes to the API server.
	Client client.Client
	// Live reads the pod and its Notices.
	Live client.Reader
	// Pods has the cached GPU pods, a podcache.Store.
	Pods PodReader
	// Clocks finds the workload of a pod, whose creator gets the Notice.
	Clocks ClockResolver
	// Notices records the Notice to the creator.
	Notices notification.Recorder
	// Events records events on the pods.
	Events events.EventRecorder
	// Clock is policy time, in which Notices have their times.
	Clock policytime.Clock
	// Periods are the lengths of the steps.
	Periods Periods

	now func() time.Time

	mu sync.Mutex
	// recorded holds, by pod, the deadline whose Notices are recorded.
	recorded map[types.UID]time.Time
}

// PodReader finds GPU pods.
type PodReader interface {
	ByUID(uid types.UID) (*podcache.Pod, bool)
}

// ClockResolver finds the workloads of pods.
type ClockResolver interface {
	// ClockOf returns the name of the WorkloadClock of a pod, and false if it is not known.
	ClockOf(pod *podcache.Pod) (types.NamespacedName, bool)
}

// maxAttempts limits the attempts to patch a pod that others change.
const maxAttempts = 4

// Announce writes the deadline on the pod, records the Notice to its creator, and an event. A pod that is
// announced already keeps its deadline and its reason. A pod that is gone, has ended or terminates is no error. Callers
// repeat the call while the reason lasts: that completes what a crash interrupted.
func (a *Announcer) Announce(ctx context.Context, announcement Announcement) error {
	project, department, err := inventory.TenantForNamespace(ctx, a.Client, announcement.Pod.Namespace)
	if err != nil {
		return fmt.Errorf("announce the eviction of pod %s: %w", announcement.Pod, err)
	}
	for range maxAttempts {
		var done bool
		if done, err = a.announce(ctx, &announcement, project, department); done || !apierrors.IsConflict(err) {
			break
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("announce the eviction of pod %s: %w", announcement.Pod, err)
	}
	return nil
}

func (a *Announcer) announce(
	ctx context.Context, announcement *Announcement, project *v1alpha1.Project, department *v1alpha1.Department,
) (done bool, err error) {
	var pod corev1.Pod
	if err := a.Live.Get(ctx, announcement.Pod, &pod); err != nil {
		return false, err
	}
	if pod.UID != announcement.UID || pod.DeletionTimestamp != nil || workload.IsPodTerminal(&pod) {
		return true, nil
	}
	if project == nil || pod.Labels[v1alpha1.LabelProject] != project.Name {
		return true, ErrNotGoverned
	}
	if known, ok := Parse(&pod); ok {
		if !known.same(announcement) {
			return true, nil // it is evicted anyway
		}
		return true, a.recordNotices(ctx, announcement, &pod, known.At, project, department)
	}
	now := a.machineNow()
	pausedUntil, err := a.pausedUntil(ctx, now)
	if err != nil {
		return false, err
	}
	p := &AnnouncedPod{Announcement: *announcement, Node: pod.Spec.NodeName, At: deadlineAfter(policytime.Later(now, pausedUntil), a.Periods.Notice)}
	if p.Node == "" {
		return true, nil // it holds nothing
	}
	if err := a.patchPod(ctx, &pod, p.annotations()); err != nil {
		return false, err
	}
	evictionsTotal.WithLabelValues(string(p.Reason), outcomeAnnounced).Inc()
	log.FromContext(ctx).Info("Announced eviction", "namespace", pod.Namespace, "pod", pod.Name, "reason", p.Reason, "at", p.At, "claimant", p.Claimant)
	a.Events.Eventf(announcement.reference(), nil, corev1.EventTypeWarning, string(p.Reason), "Announce",
		"This pod will be evicted at %s: %s. Save a checkpoint before then", p.At.UTC().Format(time.RFC3339), p.Message)
	return true, a.recordNotices(ctx, announcement, &pod, p.At, project, department)
}

// deadlineAfter returns now plus a period. Times on the pod are whole seconds, and no period is shortened.
func deadlineAfter(now time.Time, period time.Duration) time.Time {
	return now.Add(period + time.Second - 1).Truncate(time.Second)
}

// Withdraw removes the announcement of a pod that has it for this reason and claimant, with an event that
// says why. Its Notices that are not sent yet are superseded. It is no error if there is nothing to remove.
func (a *Announcer) Withdraw(ctx context.Context, announcement Announcement, why string) error {
	var err error
	for range maxAttempts {
		if err = a.withdraw(ctx, &announcement, why); !apierrors.IsConflict(err) {
			break
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("withdraw the eviction of pod %s: %w", announcement.Pod, err)
	}
	return nil
}

func (a *Announcer) withdraw(ctx context.Context, announcement *Announcement, why string) error {
	var pod corev1.Pod
	if err := a.Live.Get(ctx, announcement.Pod, &pod); err != nil {
		return err
	}
	known, ok := Parse(&pod)
	if !ok || !known.same(announcement) {
		return nil
	}
	// The Notices come first: after a crash in between, the announcement is still there.
	if err := a.supersedeNotices(ctx, &pod, known); err != nil {
		return err
	}
	if err := a.patchPod(ctx, &pod, noAnnotations()); err != nil {
		return err
	}
	evictionsTotal.WithLabelValues(string(known.Reason), outcomeWithdrawn).Inc()
	log.FromContext(ctx).Info("Withdrew eviction", "namespace", pod.Namespace, "pod", pod.Name, "reason", known.Reason, "why", why)
	a.Events.Eventf(known.reference(), nil, corev1.EventTypeNormal, "EvictionWithdrawn", "Withdraw", "This pod will not be evicted: %s", why)
	return nil
}

// patchPod writes annotations of a pod, with a precondition on its UID and resource version.
func (a *Announcer) patchPod(ctx context.Context, pod *corev1.Pod, annotations map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("marshal patch: %w", err)
	}
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	return a.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
}

func (a *Announcer) machineNow() time.Time {
	if a.now != nil {
		return a.now()
	}
	return policytime.MachineNow()
}

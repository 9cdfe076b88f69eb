// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	helpers "k8s.io/component-helpers/scheduling/corev1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/kaigroup"
	"sluice.dev/policies/merge/schema"
)

// maxInstancesPerPod bounds the instances of one pod; no node has more.
const maxInstancesPerPod = 16 * 7

// pendingPod is the cached part of a pending pod that requests MIG instances.
type pendingPod struct {
	podRequest
	// constraints holds its node constraints.
	constraints podConstraints
	// preferredPools holds the names of its preferred pools in order.
	preferredPools []string
	// podGroup names its PodGroup of KAI-Scheduler; empty for none.
	podGroup string
}

// podConstraints holds the fields of a pod that restrict its nodes.
type podConstraints struct {
	selector    map[string]string
	affinity    *corev1.Affinity
	tolerations []corev1.Toleration
}

// parsePendingPod returns the cached part of a pod, and false if no instance is to be created
// for it: it requests none, has a node, is being deleted, has a scheduling gate, or its
// scheduler has not reported it as unschedulable.
func parsePendingPod(pod *corev1.Pod) (*pendingPod, bool) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || workload.IsPodTerminal(pod) {
		return nil, false
	}
	instances, _ := parseInstanceRequests(pod)
	if len(instances) == 0 {
		return nil, false
	}
	condition := scheduledCondition(pod)
	if condition == nil || condition.Status != corev1.ConditionFalse || condition.Reason != corev1.PodReasonUnschedulable ||
		isOverQuota(condition.Message) {
		return nil, false
	}
	w := &pendingPod{
		podRequest: podRequest{
			uid: pod.UID, namespace: pod.Namespace, name: pod.Name, instanceRequests: instances,
			priority: helpers.PodPriority(pod), created: pod.CreationTimestamp.Time,
			unschedulableSince:  condition.LastTransitionTime.Add(apiTimeResolution),
			missesOtherResource: missesOtherResource(condition.Message, instances),
		},
		constraints:    podConstraints{selector: pod.Spec.NodeSelector, tolerations: pod.Spec.Tolerations},
		preferredPools: splitPoolNames(pod.Annotations[v1alpha1.AnnotationNodePools]),
		podGroup:       pod.Annotations[kaigroup.AnnotationGroup],
	}
	if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		w.constraints.affinity = &corev1.Affinity{NodeAffinity: pod.Spec.Affinity.NodeAffinity}
	}
	return w, true
}

func splitPoolNames(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func scheduledCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// parseInstanceRequests returns the MIG instances that a pod requests, by the scheduler's own
// rule and sorted, and the number of whole GPUs.
func parseInstanceRequests(pod *corev1.Pod) (instances []instanceRequest, wholeGPUs int) {
	for name, quantity := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		count := int(min(quantity.Value(), maxInstancesPerPod))
		if count <= 0 {
			continue
		}
		if name == v1alpha1.ResourceNVIDIAGPU {
			wholeGPUs = count
		} else if profile, ok := v1alpha1.MIGProfileOf(name); ok {
			instances = append(instances, instanceRequest{profile, count})
		}
	}
	slices.SortFunc(instances, func(a, b instanceRequest) int { return strings.Compare(string(a.profile), string(b.profile)) })
	return instances, wholeGPUs
}

// newBoundPod returns the device requests and binding time of a bound pod.
func newBoundPod(pod *corev1.Pod) boundPod {
	c := boundPod{uid: pod.UID}
	c.instanceRequests, c.wholeGPUs = parseInstanceRequests(pod)
	if condition := scheduledCondition(pod); condition != nil && condition.Status == corev1.ConditionTrue {
		c.bound = condition.LastTransitionTime.Add(apiTimeResolution)
	}
	return c
}

// schedulerMessageMarker occurs in messages of kube-scheduler, and of schedulers built on it,
// that list the missing resources.
const schedulerMessageMarker = "nodes are available"

// untoleratedTaintMarker occurs in them where a taint excluded a node. Older schedulers append
// the taint's key in braces; those of Kubernetes 1.36 append "(s)" and no key.
const untoleratedTaintMarker = "untolerated taint"

// missesOtherResource reports whether the scheduler lists missing resources, and the requested
// instances are not among them: more instances would not help. On a tainted node the scheduler
// has not checked resources.
func missesOtherResource(message string, requests []instanceRequest) bool {
	if !strings.Contains(message, schedulerMessageMarker) || mayBeRepartitioningTaint(message) {
		return false
	}
	return !slices.ContainsFunc(requests, func(a instanceRequest) bool {
		return strings.Contains(message, string(v1alpha1.ResourceMIG(a.profile)))
	})
}

func mayBeRepartitioningTaint(message string) bool {
	_, after, found := strings.Cut(message, untoleratedTaintMarker)
	return found && (!strings.HasPrefix(after, " {") || strings.Contains(after, v1alpha1.TaintRepartitioning))
}

// isOverQuota reports whether a message of KAI-Scheduler says that the queue is at its quota or limit.
func isOverQuota(message string) bool {
	return strings.Contains(message, kaiReasonOverQuota) || strings.Contains(message, kaiReasonOverLimit)
}

// Reasons of KAI-Scheduler for a group that waits for its queue, not for capacity.
const (
	kaiReasonOverQuota = "NonPreemptibleOverQuota"
	kaiReasonOverLimit = "OverLimit"
)

// compareUrgency orders requests by priority, then by age.
func compareUrgency(a, b *podRequest) int {
	if a.priority != b.priority {
		if a.priority > b.priority {
			return -1
		}
		return 1
	}
	if c := a.created.Compare(b.created); c != 0 {
		return c
	}
	return strings.Compare(string(a.uid), string(b.uid))
}

// displayName returns namespace/name.
func (w *podRequest) displayName() string {
	return types.NamespacedName{Namespace: w.namespace, Name: w.name}.String()
}

// plannableAt returns when the planner may create instances for the request.
func (w *podRequest) plannableAt() time.Time {
	return w.unschedulableSince.Add(unschedulableGracePeriod)
}

// isHeldByQueue reports whether a pod waits for its queue, not for capacity. Pods held by Kueue
// have a scheduling gate and are not cached; for KAI-Scheduler the PodGroup shows it.
func (r *Reconciler) isHeldByQueue(ctx context.Context, w *pendingPod) (bool, error) {
	if w.podGroup == "" {
		return false, nil
	}
	group := &unstructured.Unstructured{}
	group.SetGroupVersionKind(kaigroup.Kind)
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: w.podGroup}, group)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil // the annotation does not come from KAI-Scheduler
	case err != nil:
		return false, fmt.Errorf("get PodGroup %s/%s: %w", w.namespace, w.podGroup, err)
	}
	return isPodGroupOverQuota(group.Object), nil
}

// isPodGroupOverQuota reports whether a PodGroup waits because its queue is at its quota or limit.
func isPodGroupOverQuota(group map[string]any) bool {
	return slices.ContainsFunc(schema.AsList(schema.AsMap(group["status"])["schedulingConditions"]), func(condition any) bool {
		c := schema.AsMap(condition)
		return schema.AsString(c["status"]) == "True" && slices.ContainsFunc(schema.AsList(c["reasons"]), func(reason any) bool {
			text := schema.AsString(schema.AsMap(reason)["reason"])
			return text == kaiReasonOverQuota || text == kaiReasonOverLimit
		})
	})
}

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

// maxInstancesPerPod bounds what is believed of one pod: no node has more instances.
const maxInstancesPerPod = 16 * 7

// pendingPod is as much as is kept of a pod that waits for MIG instances.
type pendingPod struct {
	podRequest
	// constraints is where it may be, as it says itself.
	constraints podConstraints
	// preferredPools are those that it likes, by name.
	preferredPools []string
	// podGroup is KAI-Scheduler's PodGroup; empty for none.
	podGroup string
}

// podConstraints is what of a pod bounds the nodes on which it may be.
type podConstraints struct {
	selector    map[string]string
	affinity    *corev1.Affinity
	tolerations []corev1.Toleration
}

// parsePendingPod is what is kept of a pod, and false for one that asks for no MIG instance or
// for which none shall be made: it has a node, goes, is held back by a gate, or its
// scheduler has not said that there is no place for it.
func parsePendingPod(pod *corev1.Pod) (*pendingPod, bool) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || workload.IsPodTerminal(pod) {
		return nil, false
	}
	asks, _ := parseInstanceRequests(pod)
	if len(asks) == 0 {
		return nil, false
	}
	said := scheduledCondition(pod)
	if said == nil || said.Status != corev1.ConditionFalse || said.Reason != corev1.PodReasonUnschedulable || isOverQuota(said.Message) {
		return nil, false
	}
	w := &pendingPod{
		podRequest: podRequest{
			uid: pod.UID, namespace: pod.Namespace, name: pod.Name, instanceRequests: asks,
			priority: helpers.PodPriority(pod), created: pod.CreationTimestamp.Time, unschedulableSince: said.LastTransitionTime.Add(apiTimeResolution),
			missesOtherResource: missesOtherResource(said.Message, asks),
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

// parseInstanceRequests are the MIG instances that a pod asks for, by the scheduler's own rule,
// sorted, and how many whole GPUs.
func parseInstanceRequests(pod *corev1.Pod) (asks []instanceRequest, whole int) {
	for name, quantity := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		count := int(min(quantity.Value(), maxInstancesPerPod))
		if count <= 0 {
			continue
		}
		if name == v1alpha1.ResourceNVIDIAGPU {
			whole = count
		} else if profile, ok := v1alpha1.MIGProfileOf(name); ok {
			asks = append(asks, instanceRequest{profile, count})
		}
	}
	slices.SortFunc(asks, func(a, b instanceRequest) int { return strings.Compare(string(a.profile), string(b.profile)) })
	return asks, whole
}

// newBoundPod is what a pod that has a node needs there.
func newBoundPod(pod *corev1.Pod) boundPod {
	c := boundPod{uid: pod.UID}
	c.instanceRequests, c.wholeGPUs = parseInstanceRequests(pod)
	if said := scheduledCondition(pod); said != nil && said.Status == corev1.ConditionTrue {
		c.bound = said.LastTransitionTime.Add(apiTimeResolution)
	}
	return c
}

// schedulerMessageMarker is how the messages of kube-scheduler, and of those built on it,
// name what is missing.
const schedulerMessageMarker = "nodes are available"

// untoleratedTaintMarker is how they say that a taint kept a pod out. Older ones go on with its
// key in a brace; those of Kubernetes 1.36 with "(s)", and do not say which.
const untoleratedTaintMarker = "untolerated taint"

// missesOtherResource tells whether a scheduler that lists what is missing does not list the
// instances: more of them would not help. On a node that is being changed it has not
// looked for them.
func missesOtherResource(message string, asks []instanceRequest) bool {
	if !strings.Contains(message, schedulerMessageMarker) || mayBeRepartitioningTaint(message) {
		return false
	}
	return !slices.ContainsFunc(asks, func(a instanceRequest) bool {
		return strings.Contains(message, string(v1alpha1.ResourceMIG(a.profile)))
	})
}

func mayBeRepartitioningTaint(message string) bool {
	_, after, found := strings.Cut(message, untoleratedTaintMarker)
	return found && (!strings.HasPrefix(after, " {") || strings.Contains(after, v1alpha1.TaintRepartitioning))
}

// isOverQuota tells whether KAI-Scheduler says that its queue may have no more.
func isOverQuota(message string) bool {
	return strings.Contains(message, kaiReasonOverQuota) || strings.Contains(message, kaiReasonOverLimit)
}

// KAI-Scheduler's reasons for which a group waits for its queue, not for room.
const (
	kaiReasonOverQuota = "NonPreemptibleOverQuota"
	kaiReasonOverLimit = "OverLimit"
)

// compareUrgency orders by priority, then by age.
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

// displayName names the pod for people.
func (w *podRequest) displayName() string {
	return types.NamespacedName{Namespace: w.namespace, Name: w.name}.String()
}

// plannableAt is from when something may be made for it.
func (w *podRequest) plannableAt() time.Time {
	return w.unschedulableSince.Add(unschedulableGracePeriod)
}

// isHeldByQueue tells whether a pod waits for its queue and not for room. What Kueue
// holds back has a gate and is not here; what KAI-Scheduler does, its group says.
func (r *Reconciler) isHeldByQueue(ctx context.Context, w *pendingPod) (bool, error) {
	if w.podGroup == "" {
		return false, nil
	}
	group := &unstructured.Unstructured{}
	group.SetGroupVersionKind(kaigroup.Kind)
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: w.podGroup}, group)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil // the annotation is not KAI-Scheduler's word
	case err != nil:
		return false, fmt.Errorf("reading PodGroup %s/%s: %w", w.namespace, w.podGroup, err)
	}
	return isPodGroupOverQuota(group.Object), nil
}

// isPodGroupOverQuota tells whether a PodGroup says that its queue may have no more.
func isPodGroupOverQuota(group map[string]any) bool {
	return slices.ContainsFunc(schema.AsList(schema.AsMap(group["status"])["schedulingConditions"]), func(condition any) bool {
		c := schema.AsMap(condition)
		return schema.AsString(c["status"]) == "True" && slices.ContainsFunc(schema.AsList(c["reasons"]), func(reason any) bool {
			text := schema.AsString(schema.AsMap(reason)["reason"])
			return text == kaiReasonOverQuota || text == kaiReasonOverLimit
		})
	})
}

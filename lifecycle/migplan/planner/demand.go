// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	helpers "k8s.io/component-helpers/scheduling/corev1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/policies/kaigroup"
	"sluice.dev/policies/merge/schema"
)

// maxInstancesPerPod bounds the instances of one pod; no node has more.
const maxInstancesPerPod = 16 * 7

// pendingPod is the cached part of a pod without node that requests MIG instances.
type pendingPod struct {
	podRequest
	// nominatedNode is the node that its scheduler chose; empty for none.
	nominatedNode string
	// volumeClaims holds the names of its PersistentVolumeClaims.
	volumeClaims []string
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

// parsePendingPod returns the cached part of a pod, and false if no scheduler may bind it to a MIG
// instance: it requests none, has a node, is being deleted, has a scheduling gate, or waits for
// its queue.
func parsePendingPod(pod *corev1.Pod) (*pendingPod, bool) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || workload.IsPodTerminal(pod) {
		return nil, false
	}
	instances, _ := parseInstanceRequests(pod)
	if len(instances) == 0 {
		return nil, false
	}
	w := &pendingPod{
		podRequest: podRequest{
			uid: pod.UID, namespace: pod.Namespace, name: pod.Name, instanceRequests: instances, resources: podAmounts(pod),
			priority: helpers.PodPriority(pod), created: pod.CreationTimestamp.Time, guaranteed: isGuaranteed(pod),
		},
		nominatedNode:  pod.Status.NominatedNodeName,
		volumeClaims:   volumeClaims(pod),
		constraints:    podConstraints{selector: pod.Spec.NodeSelector, tolerations: pod.Spec.Tolerations},
		preferredPools: splitPoolNames(pod.Annotations[v1alpha1.AnnotationNodePools]),
		podGroup:       pod.Annotations[kaigroup.AnnotationGroup],
	}
	condition := podcache.ScheduledCondition(pod)
	if condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
		if isOverQuota(condition.Message) {
			return nil, false
		}
		w.unschedulableSince = condition.LastTransitionTime.Add(apiTimeResolution)
	}
	if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		w.constraints.affinity = &corev1.Affinity{NodeAffinity: pod.Spec.Affinity.NodeAffinity}
	}
	return w, true
}

// volumeClaims returns the names of the PersistentVolumeClaims of a pod. Kubernetes names those of
// ephemeral volumes after pod and volume.
func volumeClaims(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		switch volume := &pod.Spec.Volumes[i]; {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}

func splitPoolNames(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
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

// newBoundPod returns the requests and the binding time of a bound pod.
func newBoundPod(pod *corev1.Pod) boundPod {
	c := boundPod{
		uid: pod.UID, name: pod.Namespace + "/" + pod.Name, resources: podAmounts(pod), started: pod.Status.StartTime != nil, client: isClientPod(pod),
	}
	c.instanceRequests, c.wholeGPUs = parseInstanceRequests(pod)
	if condition := podcache.ScheduledCondition(pod); condition.Status == corev1.ConditionTrue {
		c.bound = condition.LastTransitionTime.Add(apiTimeResolution)
	}
	return c
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

// isUnschedulable reports whether its scheduler found no node for the pod: only then instances
// are created for it. Otherwise the pod may be in a binding cycle.
func (w *podRequest) isUnschedulable() bool { return !w.unschedulableSince.IsZero() }

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

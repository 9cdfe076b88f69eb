// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	helpers "k8s.io/component-helpers/scheduling/corev1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/kaigroup"
)

// mostAsked bounds what is believed of one pod: no node has more instances.
const mostAsked = 16 * 7

// waiting is as much as is kept of a pod that waits for MIG instances.
type waiting struct {
	want
	// placement is where it may be, as it says itself.
	placement placement
	// pools are those that it likes, by name.
	pools []string
	// group is KAI-Scheduler's PodGroup; empty for none.
	group string
}

// placement is what of a pod bounds the nodes on which it may be.
type placement struct {
	selector    map[string]string
	affinity    *corev1.Affinity
	tolerations []corev1.Toleration
}

// read is what is kept of a pod, and false for one that asks for no MIG instance or
// for which none shall be made: it has a node, goes, is held back by a gate, or its
// scheduler has not said that there is no place for it.
func read(pod *corev1.Pod) (*waiting, bool) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || workload.Ended(pod) {
		return nil, false
	}
	asks, _ := asksOf(pod)
	if len(asks) == 0 {
		return nil, false
	}
	said := scheduled(pod)
	if said == nil || said.Status != corev1.ConditionFalse || said.Reason != corev1.PodReasonUnschedulable || overQuota(said.Message) {
		return nil, false
	}
	w := &waiting{
		want: want{
			uid: pod.UID, namespace: pod.Namespace, name: pod.Name, asks: asks,
			priority: helpers.PodPriority(pod), created: pod.CreationTimestamp.Time, since: said.LastTransitionTime.Add(resolution),
			excused: missesOther(said.Message, asks),
		},
		placement: placement{selector: pod.Spec.NodeSelector, tolerations: pod.Spec.Tolerations},
		pools:     splitNames(pod.Annotations[v1alpha1.AnnotationNodePools]),
		group:     pod.Annotations[kaigroup.AnnotationGroup],
	}
	if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		w.placement.affinity = &corev1.Affinity{NodeAffinity: pod.Spec.Affinity.NodeAffinity}
	}
	return w, true
}

func splitNames(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func scheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// asksOf are the MIG instances that a pod asks for, by the scheduler's own rule,
// sorted, and how many whole GPUs.
func asksOf(pod *corev1.Pod) (asks []ask, whole int) {
	for name, quantity := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		count := int(min(quantity.Value(), mostAsked))
		if count <= 0 {
			continue
		}
		if name == v1alpha1.ResourceNVIDIAGPU {
			whole = count
		} else if profile, ok := v1alpha1.ProfileOfResource(name); ok {
			asks = append(asks, ask{profile, count})
		}
	}
	slices.SortFunc(asks, func(a, b ask) int { return strings.Compare(string(a.profile), string(b.profile)) })
	return asks, whole
}

// claimOf is what a pod that has a node needs there.
func claimOf(pod *corev1.Pod) claim {
	c := claim{uid: pod.UID}
	c.asks, c.whole = asksOf(pod)
	if said := scheduled(pod); said != nil && said.Status == corev1.ConditionTrue {
		c.bound = said.LastTransitionTime.Add(resolution)
	}
	return c
}

// kubeScheduler is how the messages of kube-scheduler, and of those built on it,
// name what is missing.
const kubeScheduler = "nodes are available"

// untolerated is how they say that a taint kept a pod out. Older ones go on with its
// key in a brace; those of Kubernetes 1.36 with "(s)", and do not say which.
const untolerated = "untolerated taint"

// missesOther tells whether a scheduler that lists what is missing does not list the
// instances: more of them would not help. On a node that is being changed it has not
// looked for them.
func missesOther(message string, asks []ask) bool {
	if !strings.Contains(message, kubeScheduler) || mayBeOurTaint(message) {
		return false
	}
	return !slices.ContainsFunc(asks, func(a ask) bool {
		return strings.Contains(message, string(v1alpha1.ResourceMIG(a.profile)))
	})
}

func mayBeOurTaint(message string) bool {
	_, after, found := strings.Cut(message, untolerated)
	return found && (!strings.HasPrefix(after, " {") || strings.Contains(after, v1alpha1.TaintRepartitioning))
}

// overQuota tells whether KAI-Scheduler says that its queue may have no more.
func overQuota(message string) bool {
	return strings.Contains(message, kaiOverQuota) || strings.Contains(message, kaiOverLimit)
}

// KAI-Scheduler's reasons for which a group waits for its queue, not for room.
const (
	kaiOverQuota = "NonPreemptibleOverQuota"
	kaiOverLimit = "OverLimit"
)

// urgent orders by priority, then by age.
func urgent(a, b *want) int {
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

// key names the pod for people.
func (w *want) key() string {
	return types.NamespacedName{Namespace: w.namespace, Name: w.name}.String()
}

// ripeAt is from when something may be made for it.
func (w *want) ripeAt() time.Time { return w.since.Add(ripe) }

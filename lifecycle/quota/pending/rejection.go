// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// QuotaRejection is the rejection of a pod by a ResourceQuota.
type QuotaRejection struct {
	// Quota is the name of the ResourceQuota.
	Quota string
	// Resource is the exceeded resource: sluice.dev/gpu-milli.dgx for the limit, or
	// sluice.dev/guaranteed-milli.dgx for the guarantee. If both are exceeded, it is the guarantee.
	Resource corev1.ResourceName
	// Charge is the GPU quota that the pod needs, more than 0.
	Charge workload.Milli
}

// NodePool returns the node pool of the resource. It is empty if several pools share the
// resource.
func (r QuotaRejection) NodePool() string { return v1alpha1.NodePoolOf(r.Resource) }

// ParseQuotaRejection parses the message of the API server's quota admission, as a
// controller repeats it in an event:
//
//	... exceeded quota: Q, requested: requests.C=500, used: ..., limited: ...
//
// It returns false if the message names no GPU quota resource.
func ParseQuotaRejection(message string) (QuotaRejection, bool) {
	_, answer, found := strings.Cut(message, "exceeded quota: ")
	quota, answer, named := strings.Cut(answer, ", requested: ")
	requested, _, complete := strings.Cut(answer, ", used: ")
	if !found || !named || !complete {
		return QuotaRejection{}, false
	}
	var rejection QuotaRejection
	for entry := range strings.SplitSeq(requested, ",") {
		name, amount, _ := strings.Cut(entry, "=")
		unit, ok := strings.CutPrefix(name, corev1.DefaultResourceRequestsPrefix)
		if !ok || !v1alpha1.IsGPUCharge(corev1.ResourceName(unit)) || v1alpha1.IsGuaranteedMilli(rejection.Resource) {
			continue
		}
		if share, err := resource.ParseQuantity(amount); err == nil && share.Value() > 0 {
			rejection = QuotaRejection{Quota: quota, Resource: corev1.ResourceName(unit), Charge: workload.Milli(share.Value())}
		}
	}
	return rejection, rejection.Resource != ""
}

// reasonFailedCreate is the reason of events in which Kubernetes controllers report that they
// could not create a pod.
const reasonFailedCreate = "FailedCreate"

// maxRejectionAge is the time after the last rejection at which an object no longer counts as
// pending. It exceeds the longest retry delay of controllers, 1000 s.
const maxRejectionAge = 20 * time.Minute

// RejectedObject is an object whose pods were rejected.
type RejectedObject struct {
	// Kind, Namespace, Name and UID identify the object.
	Kind, Namespace, Name string
	UID                   types.UID
	// QuotaRejection is the latest rejection.
	QuotaRejection
	// First and Last are the times of the first and the last rejection, in whole seconds.
	First, Last time.Time
}

// LatestRejections returns the objects whose last event is a rejection by a quota, the oldest
// first. An object with a later failure for another reason is not pending for quota.
func LatestRejections(events []corev1.Event, now time.Time) []RejectedObject {
	type latestEvent struct {
		object RejectedObject
		quota  bool
	}
	by := map[types.UID]latestEvent{}
	for i := range events {
		event := &events[i]
		about := &event.InvolvedObject
		first, last := eventTimes(event)
		if event.Reason != reasonFailedCreate || workloadKinds[about.Kind].newObject == nil || now.Sub(last) > maxRejectionAge {
			continue
		}
		rejection, quota := ParseQuotaRejection(event.Message)
		known, before := by[about.UID]
		if before && known.object.First.Before(first) {
			first = known.object.First
		}
		if before && (last.Before(known.object.Last) || last.Equal(known.object.Last) && !quota) {
			known.object.First = first
			by[about.UID] = known
			continue
		}
		by[about.UID] = latestEvent{quota: quota, object: RejectedObject{
			Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID,
			QuotaRejection: rejection, First: first, Last: last,
		}}
	}
	var latest []RejectedObject
	for e := range maps.Values(by) {
		if e.quota {
			latest = append(latest, e.object)
		}
	}
	slices.SortFunc(latest, func(a, b RejectedObject) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return latest
}

// eventTimes returns the first and last time of an event, for both event APIs.
func eventTimes(event *corev1.Event) (first, last time.Time) {
	first, last = event.FirstTimestamp.Time, event.LastTimestamp.Time
	if first.IsZero() {
		first = event.EventTime.Time
	}
	if first.IsZero() {
		first = event.CreationTimestamp.Time
	}
	if event.Series != nil && event.Series.LastObservedTime.After(last) {
		last = event.Series.LastObservedTime.Time
	}
	if last.Before(first) {
		last = first
	}
	return first, last
}

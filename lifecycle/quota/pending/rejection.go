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

// QuotaRejection is a pod that did not fit into a quota.
type QuotaRejection struct {
	// Quota is the name of the ResourceQuota.
	Quota string
	// Resource is what it counts: sluice.dev/gpu-milli.dgx.
	Resource corev1.ResourceName
	// Charge is what the pod is charged, more than 0.
	Charge workload.Milli
}

// NodePool is the node pool that alone has the currency; empty where several share it.
func (r QuotaRejection) NodePool() string {
	pool, _ := strings.CutPrefix(string(r.Resource), string(v1alpha1.ResourceGPUMilli))
	return strings.TrimPrefix(pool, ".")
}

// ParseQuotaRejection reads what the API server's quota admission answers, as a
// controller repeats it:
//
//	... exceeded quota: Q, requested: requests.C=500, used: ..., limited: ...
//
// It is false where no currency of GPUs was exceeded.
func ParseQuotaRejection(message string) (QuotaRejection, bool) {
	_, answer, found := strings.Cut(message, "exceeded quota: ")
	quota, answer, named := strings.Cut(answer, ", requested: ")
	requested, _, complete := strings.Cut(answer, ", used: ")
	if !found || !named || !complete {
		return QuotaRejection{}, false
	}
	for entry := range strings.SplitSeq(requested, ",") {
		name, amount, _ := strings.Cut(entry, "=")
		currency, ok := strings.CutPrefix(name, corev1.DefaultResourceRequestsPrefix)
		if !ok || !isGPUQuotaResource(currency) {
			continue
		}
		if share, err := resource.ParseQuantity(amount); err == nil && share.Value() > 0 {
			return QuotaRejection{Quota: quota, Resource: corev1.ResourceName(currency), Charge: workload.Milli(share.Value())}, true
		}
	}
	return QuotaRejection{}, false
}

func isGPUQuotaResource(name string) bool {
	return name == string(v1alpha1.ResourceGPUMilli) || strings.HasPrefix(name, string(v1alpha1.ResourceGPUMilli)+".")
}

// reasonFailedCreate is that of the events in which Kubernetes' controllers say
// that they could not make a pod.
const reasonFailedCreate = "FailedCreate"

// maxRejectionAge is after how long without a new refusal nobody waits any more: more than
// the longest that a controller lets pass between two tries, 1000 s.
const maxRejectionAge = 20 * time.Minute

// RejectedObject is an object whose pods were refused.
type RejectedObject struct {
	// Kind, Namespace, Name and UID are the object's.
	Kind, Namespace, Name string
	UID                   types.UID
	// Refusal is the latest.
	QuotaRejection
	// First and Last are when it was refused, to the second.
	First, Last time.Time
}

// LatestRejections are the objects of which the last that was heard is that their pods did
// not fit into a quota, oldest first. A later failure for another reason means
// that they do not wait for quota.
func LatestRejections(events []corev1.Event, now time.Time) []RejectedObject {
	type heard struct {
		refused RejectedObject
		quota   bool
	}
	by := map[types.UID]heard{}
	for i := range events {
		event := &events[i]
		about := &event.InvolvedObject
		first, last := eventTimes(event)
		if event.Reason != reasonFailedCreate || workloadKinds[about.Kind].newObject == nil || now.Sub(last) > maxRejectionAge {
			continue
		}
		refusal, quota := ParseQuotaRejection(event.Message)
		known, before := by[about.UID]
		if before && known.refused.First.Before(first) {
			first = known.refused.First
		}
		if before && (last.Before(known.refused.Last) || last.Equal(known.refused.Last) && !quota) {
			known.refused.First = first
			by[about.UID] = known
			continue
		}
		by[about.UID] = heard{quota: quota, refused: RejectedObject{
			Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID,
			QuotaRejection: refusal, First: first, Last: last,
		}}
	}
	var latest []RejectedObject
	for h := range maps.Values(by) {
		if h.quota {
			latest = append(latest, h.refused)
		}
	}
	slices.SortFunc(latest, func(a, b RejectedObject) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return latest
}

// eventTimes is from when to when an event was seen, in either form of events.
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

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/rendering/apply"
)

// Limits of triggered retries, in machine time.
const (
	// maxRetriesPerPass is the largest number of retries that one pass triggers. The next pass
	// uses the remaining quota.
	maxRetriesPerPass = 10
	// retryGracePeriod is the time for which quota is kept for a workload after a triggered retry.
	retryGracePeriod = 5 * time.Second
	// repeatedRetryInterval is when a retry is triggered again for a workload that neither created
	// its pods nor was rejected again.
	repeatedRetryInterval = 5 * time.Minute
)

// SelectToRetry returns the workloads whose next pod fits into the quota, the oldest first. Quota that a
// workload with a recent retry needs is not offered to the next.
func SelectToRetry(pending []Workload, quota *corev1.ResourceQuota, now time.Time) []Workload {
	left := remaindersOf(quota)
	var chosen []Workload
	for _, w := range pending {
		fits := left.podsThatFit(w.QuotaRejection)
		if fits == 0 {
			continue
		}
		switch since := now.Sub(w.RetriedAt); {
		case w.RetriedAt.IsZero():
		case since < retryGracePeriod: // the retry is in progress
			left.reserve(w.QuotaRejection, min(fits, w.MissingPods))
			continue
		case since < repeatedRetryInterval && w.Last.Before(w.RetriedAt.Truncate(time.Second)):
			continue
		}
		left.reserve(w.QuotaRejection, min(fits, w.MissingPods))
		if chosen = append(chosen, w); len(chosen) == maxRetriesPerPass {
			break
		}
	}
	return chosen
}

// quotaRemainders is what is left of each GPU quota unit of a project.
type quotaRemainders map[corev1.ResourceName]workload.Milli

func remaindersOf(quota *corev1.ResourceQuota) quotaRemainders {
	left := quotaRemainders{}
	if quota == nil {
		return left
	}
	for name := range quota.Status.Hard {
		unit := corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix))
		if hard, used, _ := apply.EnforcedLimit(quota, unit); v1alpha1.IsGPUCharge(unit) {
			left[unit] = max(0, workload.Milli(hard-used))
		}
	}
	return left
}

// chargedIn returns the units in which a rejected pod is charged: in that of the limit, and in that of
// the guarantee if it exceeded the guarantee.
func (r quotaRemainders) chargedIn(rejection QuotaRejection) []corev1.ResourceName {
	counts := func(unit corev1.ResourceName) bool { _, counted := r[unit]; return counted }
	if unit, ok := v1alpha1.LimitMilli(rejection.Resource, counts); ok {
		return []corev1.ResourceName{unit, rejection.Resource}
	}
	return []corev1.ResourceName{rejection.Resource}
}

// podsThatFit returns the number of such pods that fit. None fits in a unit that is not counted yet.
func (r quotaRemainders) podsThatFit(rejection QuotaRejection) int32 {
	fits := int64(1 << 20)
	for _, unit := range r.chargedIn(rejection) {
		fits = min(fits, int64(r[unit]/rejection.Charge))
	}
	return int32(fits)
}

func (r quotaRemainders) reserve(rejection QuotaRejection, pods int32) {
	for _, unit := range r.chargedIn(rejection) {
		r[unit] -= workload.Milli(pods) * rejection.Charge
	}
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
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

// SelectToRetry returns the workloads whose next pod fits into all quotas that count it, the
// oldest first. Quota that a workload with a recent retry needs is not offered to the next.
func SelectToRetry(pending []Workload, quotas []corev1.ResourceQuota, now time.Time) []Workload {
	left := remaindersOf(quotas)
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

// quotaRemainders is the remaining amount of each quota, by name and resource.
type quotaRemainders map[string]map[corev1.ResourceName]*quotaRemainder

type quotaRemainder struct {
	remaining workload.Milli
	// countsAllPods is true if the quota counts all pods, not only those of some
	// PriorityClasses.
	countsAllPods bool
}

func remaindersOf(quotas []corev1.ResourceQuota) quotaRemainders {
	all := quotaRemainders{}
	for i := range quotas {
		quota := &quotas[i]
		all[quota.Name] = map[corev1.ResourceName]*quotaRemainder{}
		for name, hard := range quota.Status.Hard {
			const prefix = corev1.DefaultResourceRequestsPrefix
			if len(name) <= len(prefix) || !v1alpha1.IsGPUMilli(name[len(prefix):]) {
				continue
			}
			used := quota.Status.Used[name]
			all[quota.Name][name[len(prefix):]] = &quotaRemainder{
				remaining:     max(0, workload.Milli(hard.Value()-used.Value())),
				countsAllPods: len(quota.Spec.Scopes) == 0 && quota.Spec.ScopeSelector == nil,
			}
		}
	}
	return all
}

// affectedBy returns the remainders that a rejected pod reduces: that of the quota that rejected
// it, and those of the quotas that count every pod.
func (r quotaRemainders) affectedBy(rejection QuotaRejection) []*quotaRemainder {
	var needed []*quotaRemainder
	for name, by := range r {
		if remainder := by[rejection.Resource]; remainder != nil && (remainder.countsAllPods || name == rejection.Quota) {
			needed = append(needed, remainder)
		}
	}
	return needed
}

// podsThatFit returns the number of such pods that fit.
func (r quotaRemainders) podsThatFit(rejection QuotaRejection) int32 {
	if r[rejection.Quota][rejection.Resource] == nil {
		return 0 // not a quota of Sluice, or not counted yet
	}
	const most = 1 << 20
	fits := int64(most)
	for _, remainder := range r.affectedBy(rejection) {
		fits = min(fits, int64(remainder.remaining/rejection.Charge))
	}
	return int32(fits)
}

func (r quotaRemainders) reserve(rejection QuotaRejection, pods int32) {
	for _, remainder := range r.affectedBy(rejection) {
		remainder.remaining -= workload.Milli(pods) * rejection.Charge
	}
}

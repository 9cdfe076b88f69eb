// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package threshold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Percentages of a limit at which the condition becomes true, and below which it is
// false again.
const (
	reached = 90
	fallen  = 80
)

// use is one node pool that is nearly used up.
type use struct {
	pool             string
	percent          int64
	allocated, limit string
}

// level are the pools that are nearly used up, the fullest first. One that was stays
// so until its use has fallen far.
func level(status *v1alpha1.ProjectStatus, was bool) (full []use) {
	threshold := int64(reached)
	if was {
		threshold = fallen
	}
	for _, pool := range status.NodePools {
		limit, allocated := pool.Limit.MilliValue(), pool.Allocated.MilliValue()
		if limit <= 0 {
			continue
		}
		if percent := allocated * 100 / limit; percent >= threshold {
			full = append(full, use{pool: pool.Name, percent: percent, allocated: pool.Allocated.String(), limit: pool.Limit.String()})
		}
	}
	slices.SortStableFunc(full, func(a, b use) int { return cmp.Compare(b.percent, a.percent) })
	return full
}

// condition says it in words.
func condition(full []use, generation int64, now metav1.Time) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionQuotaNearlyUsed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRoomLeft, Message: "each node pool has room",
		ObservedGeneration: generation, LastTransitionTime: now,
	}
	if len(full) == 0 {
		return c
	}
	var pools []string
	for _, u := range full {
		pools = append(pools, fmt.Sprintf("%s of %s GPUs in %s", u.allocated, u.limit, u.pool))
	}
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonNearlyUsed
	c.Message = "in use: " + strings.Join(pools, ", ")
	return c
}

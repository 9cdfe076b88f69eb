// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/facts"
)

// held is what strays hold of each pool.
func held(strays []Stray) map[string]workload.Milli {
	sums := map[string]workload.Milli{}
	for _, stray := range strays {
		if stray.Pool != "" {
			sums[stray.Pool] += stray.Share
		}
	}
	return sums
}

// Less are the pools as the quotas are to be rendered: with what strays hold
// taken off the limit, and what those hold that nobody may end off what is
// guaranteed too. Nothing falls below zero.
func Less(pools []facts.Pool, strays []Stray) []facts.Pool {
	less := slices.Clone(pools)
	for i := range less {
		pool := &less[i]
		for _, stray := range strays {
			if stray.Pool != pool.Name {
				continue
			}
			pool.Limit = max(0, pool.Limit-stray.Share)
			if !stray.Preemptible {
				pool.Guaranteed = max(0, pool.Guaranteed-stray.Share)
			}
		}
		pool.Guaranteed = min(pool.Guaranteed, pool.Limit)
	}
	return less
}

// noRoom is why a namespace with these strays cannot be governed yet: they hold
// more than the limit; nil where they do not.
func noRoom(pools []facts.Pool, strays []Stray) *problem {
	sums := held(strays)
	var texts []string
	for i := range pools {
		if pool := &pools[i]; sums[pool.Name] > pool.Limit {
			texts = append(texts, fmt.Sprintf("hold %s of node pool %s, and the project may have %s there",
				sums[pool.Name].InWords(), pool.Name, pool.Limit.InWords()))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return &problem{v1alpha1.ReasonNoRoomForUncounted, fmt.Sprintf(
		"the namespace is governed once there is room for the GPU pods in it, %s: they %s; this goes on by itself as they end, or an administrator of the department may raise the limit",
		named(strays), strings.Join(texts, "; "))}
}

// named lists the strays, shortened.
func named(strays []Stray) string {
	names := make([]string, 0, maxNamed)
	for _, stray := range strays[:min(maxNamed, len(strays))] {
		names = append(names, stray.Pod)
	}
	list := strings.Join(names, ", ")
	if len(strays) > maxNamed {
		list += fmt.Sprintf(" and %d more", len(strays)-maxNamed)
	}
	return list
}

// allCounted says that there are none, and in which currencies: in another one
// nobody has looked.
func allCounted(pools []facts.Pool) string {
	currencies := make([]string, 0, len(pools))
	for i := range pools {
		currencies = append(currencies, string(pools[i].Currency))
	}
	slices.Sort(currencies)
	if currencies = slices.Compact(currencies); len(currencies) == 0 {
		return "there are no node pools in which GPU pods would be counted"
	}
	return "every GPU pod is counted, in " + strings.Join(currencies, ", ")
}

func uncountedCondition(pools []facts.Pool, strays []Stray) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionUncounted, Status: metav1.ConditionFalse, Reason: ReasonAllCounted,
		Message: allCounted(pools),
	}
	if len(strays) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPodsUncounted
	sums := held(strays)
	var off []string
	for i := range pools {
		if sum := sums[pools[i].Name]; sum > 0 {
			off = append(off, fmt.Sprintf("%s of node pool %s", sum.InWords(), pools[i].Name))
		}
	}
	c.Message = "GPU pods that were there before the quota, which does not count them: " + named(strays)
	if len(off) > 0 {
		c.Message += "; until they are gone the project's limit is lower by what they hold, " + strings.Join(off, " and ")
	}
	c.Message += "; delete them, and what their controllers start in their place is counted"
	return c
}

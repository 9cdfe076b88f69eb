// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// fewerClocks is the number of clocks down to which those of ended workloads are deleted, once a namespace has more. It is so far
// below v1alpha1.MaxClocks that the webhook refuses no workload of a namespace whose clocks may go.
const fewerClocks = v1alpha1.MaxClocks * 9 / 10

// boundClocks deletes clocks of ended workloads of a namespace that has too many. The GPU time of their workloads is in the
// UsageRecord, which lifecycle counts from pods.
func (r *Reconciler) boundClocks(ctx context.Context, t *tenant, namespace string, now time.Time) error {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list clocks: %w", err)
	}
	mayGo := func(c *v1alpha1.WorkloadClock) bool {
		limits, _ := t.effectiveLimits(now, nil, c.Status.WorkloadType)
		return c.Status.State != "" && c.Status.RunningSince == nil && c.Status.StartingSince == nil &&
			!timelimit.CanContinue(&c.Status, limits.ResetAfter.Length(), now)
	}
	for _, c := range chooseClocks(clocks.Items, fewerClocks, mayGo) {
		err := r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete clock %s: %w", c.Name, err)
		}
	}
	return nil
}

// endOf returns when the workload of a clock ended, or was created if its time was reset since.
func endOf(c *v1alpha1.WorkloadClock) time.Time {
	if paused := c.Status.PausedSince; paused != nil {
		return paused.Time
	}
	return c.CreationTimestamp.Time
}

// chooseClocks returns the clocks that go if more than so many are there: of the user who has most, that whose workload ended first, until
// few enough remain or none of that user may go.
func chooseClocks(
	clocks []v1alpha1.WorkloadClock, atMost int, mayGo func(*v1alpha1.WorkloadClock) bool,
) (chosen []*v1alpha1.WorkloadClock) {
	number, mayGoOf := map[string]int{}, map[string][]*v1alpha1.WorkloadClock{} // by user
	for i := range clocks {
		user := clocks[i].Status.CreatedBy
		number[user]++
		if mayGo(&clocks[i]) {
			mayGoOf[user] = append(mayGoOf[user], &clocks[i])
		}
	}
	for _, own := range mayGoOf {
		slices.SortFunc(own, func(a, b *v1alpha1.WorkloadClock) int {
			return cmp.Or(endOf(a).Compare(endOf(b)), cmp.Compare(a.Name, b.Name))
		})
	}
	users := slices.Sorted(maps.Keys(number))
	for range len(clocks) - atMost {
		most := slices.MaxFunc(users, func(a, b string) int { return cmp.Compare(number[a], number[b]) })
		if len(mayGoOf[most]) == 0 {
			break
		}
		chosen = append(chosen, mayGoOf[most][0])
		mayGoOf[most] = mayGoOf[most][1:]
		number[most]--
	}
	return chosen
}

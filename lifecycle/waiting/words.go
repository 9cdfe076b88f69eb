// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Reasons of the events on a workload.
const (
	reasonWaiting = "WaitingForQuota"
	reasonWoken   = "QuotaAvailable"
)

// maxNamed is how many workloads the condition names before it only counts.
const maxNamed = 10

// explain says to its author why a workload waits, and what to do.
func explain(w *Workload, project *v1alpha1.Project, quotas []corev1.ResourceQuota) string {
	return fmt.Sprintf("%s for GPU quota, %s%s: %s; what is missing is made as soon as there is room, by itself; end something of the project, or ask an administrator of department %s for more",
		count(w.Pods, "pod waits", "pods wait"), each(w.Pods), share(w), uses(w, project, quotas), project.Spec.Department)
}

// uses is how much of the quota is taken, and whose it is.
func uses(w *Workload, project *v1alpha1.Project, quotas []corev1.ResourceQuota) string {
	name := corev1.DefaultResourceRequestsPrefix + w.Currency
	for i := range quotas {
		quota := &quotas[i]
		hard, ok := quota.Status.Hard[name]
		if quota.Name != w.Quota || !ok {
			continue
		}
		used := quota.Status.Used[name]
		has, may := workload.Milli(used.Value()).InWords(), workload.Milli(hard.Value()).InWords()
		if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			return fmt.Sprintf("project %s holds %s with pods that cannot be preempted, for which %s may be used at once", project.Name, has, may)
		}
		return fmt.Sprintf("project %s holds %s and may hold %s at once", project.Name, has, may)
	}
	return fmt.Sprintf("the quota %s of project %s is used up", w.Quota, project.Name)
}

// summary is the message of the condition. It has nothing that changes while
// everybody waits on.
func summary(waiting []Workload) string {
	var total workload.Milli
	for i := range waiting {
		total += waiting[i].Pending()
	}
	var names []string
	for i := range waiting[:min(maxNamed, len(waiting))] {
		w := &waiting[i]
		names = append(names, fmt.Sprintf("%s %s (%s of %s, since %s)",
			w.Root.Kind, w.Root.Name, count(w.Pods, "pod", "pods"), share(w), w.Since.UTC().Format(time.RFC3339)))
	}
	list := strings.Join(names, ", ")
	if more := len(waiting) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s for GPU quota, %s in all: %s; their pods are made as room appears, the oldest first",
		count(int32(len(waiting)), "workload waits", "workloads wait"), total.InWords(), list)
}

// share is what a pod asks for, and where.
func share(w *Workload) string {
	if pool := w.Pool(); pool != "" {
		return w.Share.InWords() + " of node pool " + pool
	}
	return w.Share.InWords()
}

func each(pods int32) string {
	if pods == 1 {
		return ""
	}
	return "each "
}

func count(n int32, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

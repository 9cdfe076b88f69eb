// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import "sluice.dev/policies/merge/value"

// The Priority plugin writes all three fields from the class. It refuses a pod
// that says another number or policy than its class, so that with a class both
// are never the author's.

func priorityClassName(c Cluster, _ Place, v any) bool {
	return c.DefaultPriorityClass != "" && value.Text(v) == c.DefaultPriorityClass
}

func priority(_ Cluster, at Place, v any) bool { return classed(at) || value.Equal(v, 0) }

func preemptionPolicy(_ Cluster, at Place, v any) bool {
	return classed(at) || value.Text(v) == "PreemptLowerPriority"
}

func classed(at Place) bool { return value.Text(at.spec()["priorityClassName"]) != "" }

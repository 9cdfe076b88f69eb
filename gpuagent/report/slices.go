// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	stdslices "slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// slices are a node's instances in a line, how many of each profile are in use of how
// many there are, the smallest first: "1g.5gb 3/8, 3g.20gb 2/2".
func slices(gpus []v1alpha1.ObservedGPU) string {
	type count struct{ used, all, size int }
	counts := map[v1alpha1.MIGProfile]count{}
	for i := range gpus {
		for _, instance := range gpus[i].Instances {
			c := counts[instance.Profile]
			c.all++
			c.size = max(c.size, int(instance.Size))
			if instance.State == v1alpha1.InstanceActive || instance.State == v1alpha1.InstanceReclaiming {
				c.used++
			}
			counts[instance.Profile] = c
		}
	}
	names := stdslices.SortedFunc(maps.Keys(counts), func(a, b v1alpha1.MIGProfile) int {
		return cmp.Or(cmp.Compare(counts[a].size, counts[b].size), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d/%d", name, counts[name].used, counts[name].all))
	}
	return strings.Join(parts, ", ")
}

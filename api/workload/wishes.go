// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strconv"
	"strings"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// workloadType fills in the type that the author's label says.
func (r *reader) workloadType(request *Request, labels map[string]string) {
	text, set := labels[v1alpha1.LabelWorkloadType]
	if !set {
		return
	}
	request.Type = v1alpha1.WorkloadType(text)
	if slices.Contains(v1alpha1.WorkloadTypes, request.Type) {
		return
	}
	known := make([]string, len(v1alpha1.WorkloadTypes))
	for i, t := range v1alpha1.WorkloadTypes {
		known[i] = string(t)
	}
	r.invalid("metadata.labels["+v1alpha1.LabelWorkloadType+"]", text, "must be one of "+strings.Join(known, ", "))
}

// mostNodePools is how many pools a pod may name: as many as a project can have.
const mostNodePools = 10

// nodePools fills in the pools that the author would like. Spaces around a name
// are allowed, since people write "a, b".
func (r *reader) nodePools(request *Request) {
	request.NodePools = []string{}
	n := r.notes.nodePools
	if !n.set {
		return
	}
	count := strings.Count(n.value, ",") + 1
	if count > mostNodePools {
		r.invalid(n.path(), n.value, "names "+strconv.Itoa(count)+" node pools; at most "+strconv.Itoa(mostNodePools)+" can be named")
		return
	}
	request.NodePools = make([]string, 0, count)
	for name := range strings.SplitSeq(n.value, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			r.invalid(n.path(), n.value, "has a name that is empty; want names of node pools with commas between them, such as dgx-h100,dgx-a100")
		case !isPoolName(name):
			r.invalid(n.path(), name, "must be the name of a node pool: lower-case letters, digits and hyphens, at most "+
				strconv.Itoa(v1alpha1.MaxNodePoolName)+", beginning and ending with a letter or digit, such as dgx-h100")
		case slices.Contains(request.NodePools, name):
			r.invalid(n.path(), name, "is named twice; name each node pool once, in order of preference")
		default:
			request.NodePools = append(request.NodePools, name)
		}
	}
}

// isPoolName reports whether text can be the name of a NodePool.
func isPoolName(text string) bool {
	for at := range len(text) {
		c := text[at]
		inner := c == '-' && at > 0 && at < len(text)-1
		if !inner && !isDigit(c) && (c < 'a' || c > 'z') {
			return false
		}
	}
	return text != "" && len(text) <= v1alpha1.MaxNodePoolName
}

// maxRuntime fills in the time limit that the author wants.
func (r *reader) maxRuntime(request *Request) {
	n := r.notes.maxRuntime
	if !n.set {
		return
	}
	limit, err := period.ParseDuration(n.value)
	if err != nil {
		r.invalid(n.path(), n.value, "must be whole numbers of d, h, m and s in this order, longer than zero, such as 30m, 6h or 1d12h")
		return
	}
	request.MaxRuntime, request.MaxRuntimeSeconds = limit, int64(limit.Length().Seconds())
}

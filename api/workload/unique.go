// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// unique refuses containers that have no name, or another's. The API server would,
// later: but by then what was granted to one of two stands on whichever is found.
func (r *reader) unique(spec *corev1.PodSpec) {
	n := len(spec.Containers) + len(spec.InitContainers) + len(spec.EphemeralContainers)
	taken := make(map[string]place, n)
	take := func(name string, at place) {
		path := at.String() + ".name"
		switch first, repeated := taken[name]; {
		case name == "":
			r.found = append(r.found, &field.Error{Type: field.ErrorTypeRequired, Field: path, BadValue: "", Detail: "every container needs a name"})
		case repeated:
			r.found = append(r.found, &field.Error{
				Type: field.ErrorTypeDuplicate, Field: path, BadValue: shown(name), Detail: "it is that of " + first.String() + "; every container needs its own",
			})
		default:
			taken[name] = at
		}
	}
	for i := range spec.Containers {
		take(spec.Containers[i].Name, place{regularContainers, i})
	}
	for i := range spec.InitContainers {
		take(spec.InitContainers[i].Name, place{initContainers, i})
	}
	for i := range spec.EphemeralContainers {
		take(spec.EphemeralContainers[i].Name, place{ephemeralContainers, i})
	}
}

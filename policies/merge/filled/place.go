// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// Place is where a value stands: as much of its surroundings as is needed to tell
// who wrote it. The zero Place is nowhere, where only fixed values are known.
type Place struct {
	// Object is the whole pod, pod template or Job.
	Object map[string]any
	// List is the list of containers, as the field is called, and Container the
	// one of it; both empty outside of containers.
	List      string
	Container map[string]any
	// Parent is the struct whose field it is, or whose dict it is an entry of.
	Parent map[string]any
	// Entry is the key in that dict.
	Entry string
}

// spec returns the pod's spec; of a Job that of its template.
func (p Place) spec() map[string]any {
	spec := value.Map(p.Object["spec"])
	if template := value.Map(spec["template"]); template != nil { // a pod's spec has no such field
		return value.Map(template["spec"])
	}
	return spec
}

// At returns the place of the fields of parent, which stands at p.
func (p Place) At(parent map[string]any) Place {
	p.Parent, p.Entry = parent, ""
	return p
}

// In returns the place of the fields of an element of the list field, which
// stands at p.
func (p Place) In(list *podschema.Field, element map[string]any) Place {
	if list != nil && containerLists[list.ID()] {
		p.List, p.Container = list.Name, element
	}
	return p.At(element)
}

// Of returns the place of a dict's entry.
func (p Place) Of(entry string) Place {
	p.Entry = entry
	return p
}

var containerLists = map[string]bool{
	"PodSpec.containers":          true,
	"PodSpec.initContainers":      true,
	"PodSpec.ephemeralContainers": true,
}

// ContainerList tells whether the field holds containers.
func ContainerList(f *podschema.Field) bool { return f != nil && containerLists[f.ID()] }

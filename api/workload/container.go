// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// place is where a container stands: spec.containers[2].
type place struct {
	list  string
	index int
}

// The lists of containers, and the two lists of a container's resources.
const (
	regularContainers   = "spec.containers"
	initContainers      = "spec.initContainers"
	ephemeralContainers = "spec.ephemeralContainers"

	limits   = "limits"
	requests = "requests"
)

func (p place) String() string { return p.list + "[" + strconv.Itoa(p.index) + "]" }

// resource is the field of one resource: spec.containers[2].resources.limits[cpu].
func (p place) resource(list string, name corev1.ResourceName) string {
	return p.String() + ".resources." + list + "[" + string(name) + "]"
}

// mostDevices is how many GPUs, slices or replicas a pod may ask for: as many as
// a quota can hold.
const mostDevices = 99999

// containers reads what all containers ask for.
func (r *reader) containers(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		r.container(&spec.Containers[i], place{regularContainers, i}, regular)
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		as := initial
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			as = sidecar
		}
		r.container(c, place{initContainers, i}, as)
	}
	for i := range spec.EphemeralContainers {
		r.misplaced(&spec.EphemeralContainers[i].Resources, place{ephemeralContainers, i}.String(),
			"ephemeral containers cannot have GPUs; ask for them in spec.containers")
	}
	if spec.Resources != nil {
		r.misplaced(spec.Resources, "spec",
			"a whole pod's resources cannot have GPUs; ask for them in a container's resources")
	}
}

// container reads what one container asks for. An extended resource has a limit,
// and a request that is absent or the same.
func (r *reader) container(c *corev1.Container, at place, as role) {
	if len(c.Resources.Limits) == 0 && len(c.Resources.Requests) == 0 {
		return
	}
	before := len(r.found)
	asked := container{place: at, name: c.Name, role: as}
	for name := range c.Resources.Limits {
		if unit := r.names.unit(name); unit != unitNone {
			r.asked(&asked, &c.Resources, name, unit)
		}
	}
	for name := range c.Resources.Requests {
		if unit := r.names.unit(name); unit != unitNone {
			if _, limited := c.Resources.Limits[name]; !limited {
				r.asked(&asked, &c.Resources, name, unit)
			}
		}
	}
	r.sized(&asked)
	r.sortFrom(before)
}

// container is one container that is being read.
type container struct {
	place
	name string
	role role
	// devices are the GPU resources that it counts, sizes those that say how large
	// each device is.
	devices, sizes []sizing
}

// sizing is an amount of a resource.
type sizing struct {
	name   corev1.ResourceName
	unit   Unit
	amount int64
}

// asked reads one resource of a container.
func (r *reader) asked(c *container, all *corev1.ResourceRequirements, name corev1.ResourceName, unit Unit) {
	list := limits
	quantity, limited := all.Limits[name]
	request, requested := all.Requests[name]
	switch {
	case unit == unitOther:
		r.others = append(r.others, string(name))
		return
	case !limited && unit != unitDeviceClass:
		r.invalid(c.resource(requests, name), request.String(), "needs the same amount as limit, in "+c.resource(limits, name))
		return
	case unit == unitDeviceClass && requested: // the API server fills an absent one in from the limit
		list, quantity = requests, request
	case requested && request.Cmp(quantity) != 0:
		r.invalid(c.resource(requests, name), request.String(), "must be the same as the limit, "+quantity.String())
		return
	}
	if unit == UnitUnread {
		r.invalid(c.resource(list, name), quantity.String(), "is not read here; ask for whole GPUs as "+
			string(v1alpha1.ResourceNVIDIAGPU)+", for a part of one by the annotation "+v1alpha1.AnnotationGPU)
		return
	}
	amount, ok := wholeAmount(quantity)
	if !ok || amount < 0 || amount > unit.most() || (amount == 0 && unit.isSize()) {
		r.invalid(c.resource(list, name), quantity.String(), unit.allowed())
		return
	}
	r.count(c, sizing{name, unit, amount})
}

// count takes in one amount that is well-formed.
func (r *reader) count(c *container, s sizing) {
	switch {
	case s.amount == 0: // the same as not asking
	case s.unit.isSize():
		c.sizes = append(c.sizes, s)
	case s.unit == unitDeviceClass:
		r.classes.of(s.name, s.unit).add(s.amount, c.role)
	default:
		if s.unit == unitMIG {
			if wrong := wrongSlice(s.name); wrong != "" {
				r.invalid(c.resource(limits, s.name), strconv.FormatInt(s.amount, 10), wrong)
				return
			}
		}
		c.devices = append(c.devices, s)
		e := r.counted.of(s.name, s.unit)
		if e.first.list == "" {
			e.first, e.container = c.place, c.name
		}
		e.add(s.amount, c.role)
	}
}

// misplaced refuses GPUs where no container can have them.
func (r *reader) misplaced(list *corev1.ResourceRequirements, path, why string) {
	before := len(r.found)
	for key, resources := range map[string]corev1.ResourceList{limits: list.Limits, requests: list.Requests} {
		for name, quantity := range resources {
			if unit := r.names.unit(name); unit != unitNone && unit != unitOther {
				r.invalid(path+".resources."+key+"["+string(name)+"]", quantity.String(), why)
			}
		}
	}
	r.sortFrom(before)
}

// otherNames are the resources outside the table, each once.
func (r *reader) otherNames() []string {
	if len(r.others) == 0 {
		return []string{}
	}
	slices.SortFunc(r.others, strings.Compare)
	return slices.Compact(r.others)
}

// wholeAmount is a quantity without a fraction, and false for any other.
func wholeAmount(q resource.Quantity) (int64, bool) {
	if value, ok := q.AsInt64(); ok {
		return value, true
	}
	value := q.Value()
	return value, q.CmpInt64(value) == 0
}

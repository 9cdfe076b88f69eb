// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
)

// containerPath is the field of a container, such as spec.containers[2].
type containerPath struct {
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

func (p containerPath) String() string { return p.list + "[" + strconv.Itoa(p.index) + "]" }

// resourcePath returns the field of one resource, such as
// spec.containers[2].resources.limits[cpu].
func (p containerPath) resourcePath(list string, name corev1.ResourceName) string {
	return p.String() + ".resources." + list + "[" + string(name) + "]"
}

// maxDevices is the largest number of GPUs, MIG instances or replicas of a pod, as many as a
// quota can hold.
const maxDevices = 99999

// parseContainers reads the resources of all containers.
func (r *parser) parseContainers(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		r.parseContainer(&spec.Containers[i], containerPath{regularContainers, i}, roleRegular)
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		as := roleInit
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			as = roleSidecar
		}
		r.parseContainer(c, containerPath{initContainers, i}, as)
	}
	for i := range spec.EphemeralContainers {
		r.rejectMisplacedGPUs(&spec.EphemeralContainers[i].Resources, containerPath{ephemeralContainers, i}.String(),
			"ephemeral containers cannot have GPUs; request them in spec.containers")
	}
	if spec.Resources != nil {
		r.rejectMisplacedGPUs(spec.Resources, "spec",
			"pod-level resources cannot have GPUs; request them in a container's resources")
	}
}

// parseContainer reads the resources of one container. An extended resource has a limit, and a
// request that is equal or absent.
func (r *parser) parseContainer(c *corev1.Container, at containerPath, as containerRole) {
	if len(c.Resources.Limits) == 0 && len(c.Resources.Requests) == 0 {
		return
	}
	before := len(r.errs)
	parsed := containerRequest{containerPath: at, name: c.Name, role: as}
	for name := range c.Resources.Limits {
		if unit := r.units.unitOf(name); unit != unitNone {
			r.parseResource(&parsed, &c.Resources, name, unit)
		}
	}
	for name := range c.Resources.Requests {
		if unit := r.units.unitOf(name); unit != unitNone {
			if _, limited := c.Resources.Limits[name]; !limited {
				r.parseResource(&parsed, &c.Resources, name, unit)
			}
		}
	}
	r.parseSizes(&parsed)
	r.sortErrorsFrom(before)
}

// containerRequest is one container that is being parsed.
type containerRequest struct {
	containerPath
	name string
	role containerRole
	// devices are its GPU resources, sizes the resources for the size of each device.
	devices, sizes []resourceAmount
}

// resourceAmount is an amount of a resource.
type resourceAmount struct {
	name   corev1.ResourceName
	unit   Unit
	amount int64
}

// parseResource reads one resource of a container.
func (r *parser) parseResource(c *containerRequest, all *corev1.ResourceRequirements, name corev1.ResourceName, unit Unit) {
	list := limits
	quantity, limited := all.Limits[name]
	request, requested := all.Requests[name]
	switch {
	case unit == unitOther:
		if !quantity.IsZero() || !request.IsZero() {
			r.otherResources = append(r.otherResources, string(name))
		}
		return
	case !limited && unit != unitDeviceClass:
		r.addInvalid(c.resourcePath(requests, name), request.String(), "needs the same amount as limit, in "+c.resourcePath(limits, name))
		return
	case unit == unitDeviceClass && requested: // the API server sets an absent request to the limit
		list, quantity = requests, request
	case requested && request.Cmp(quantity) != 0:
		r.addInvalid(c.resourcePath(requests, name), request.String(), "must be the same as the limit, "+quantity.String())
		return
	}
	if unit == UnitUnsupported {
		r.addInvalid(c.resourcePath(list, name), quantity.String(), "is not supported; request whole GPUs as "+
			string(v1alpha1.ResourceNVIDIAGPU)+", and a share of one with the annotation "+v1alpha1.AnnotationGPU)
		return
	}
	amount, ok := wholeQuantity(quantity)
	if !ok || amount < 0 || amount > unit.maxAmount() || (amount == 0 && unit.isSize()) {
		r.addInvalid(c.resourcePath(list, name), quantity.String(), unit.describeRange()+shareFix(name, quantity))
		return
	}
	r.addAmount(c, resourceAmount{name, unit, amount})
}

// shareFix returns how to request the share of a GPU that the author probably means.
func shareFix(name corev1.ResourceName, quantity resource.Quantity) string {
	milli := quantity.MilliValue()
	if name != v1alpha1.ResourceNVIDIAGPU || milli <= 0 || milli >= int64(oneGPU) {
		return ""
	}
	return "; remove it, and request a share of a GPU with the annotation " + v1alpha1.AnnotationGPU + ": " + strconv.Quote(Milli(milli).String())
}

// addAmount adds one valid amount.
func (r *parser) addAmount(c *containerRequest, s resourceAmount) {
	switch {
	case s.amount == 0: // the same as no request
	case s.unit.isSize():
		c.sizes = append(c.sizes, s)
	case s.unit == unitDeviceClass:
		r.deviceClassTally.entryFor(s.name, s.unit).add(s.amount, c.role)
	default:
		if s.unit == unitMIG {
			if problem := validateMIGResource(s.name); problem != "" {
				r.addInvalid(c.resourcePath(limits, s.name), strconv.FormatInt(s.amount, 10), problem)
				return
			}
		}
		c.devices = append(c.devices, s)
		e := r.gpuTally.entryFor(s.name, s.unit)
		if e.firstContainer.list == "" {
			e.firstContainer, e.containerName = c.containerPath, c.name
		}
		e.add(s.amount, c.role)
	}
}

// rejectMisplacedGPUs rejects GPUs in resources that cannot have them.
func (r *parser) rejectMisplacedGPUs(list *corev1.ResourceRequirements, path, reason string) {
	before := len(r.errs)
	for key, resources := range map[string]corev1.ResourceList{limits: list.Limits, requests: list.Requests} {
		for name, quantity := range resources {
			if unit := r.units.unitOf(name); unit != unitNone && unit != unitOther {
				r.addInvalid(path+".resources."+key+"["+string(name)+"]", quantity.String(), reason)
			}
		}
	}
	r.sortErrorsFrom(before)
}

// otherResourceNames returns the names of unknown extended resources, each once.
func (r *parser) otherResourceNames() []string {
	if len(r.otherResources) == 0 {
		return []string{}
	}
	slices.SortFunc(r.otherResources, strings.Compare)
	return slices.Compact(r.otherResources)
}

// wholeQuantity returns the value of a whole quantity, and false for any other.
func wholeQuantity(q resource.Quantity) (int64, bool) {
	if value, ok := q.AsInt64(); ok {
		return value, true
	}
	value := q.Value()
	return value, q.CmpInt64(value) == 0
}

// validateContainerNames rejects empty and duplicate container names. The API server rejects
// them, too, but only after the webhook has granted resources by container name.
func (r *parser) validateContainerNames(spec *corev1.PodSpec) {
	n := len(spec.Containers) + len(spec.InitContainers) + len(spec.EphemeralContainers)
	names := make(map[string]containerPath, n)
	check := func(name string, at containerPath) {
		path := at.String() + ".name"
		switch first, repeated := names[name]; {
		case name == "":
			r.errs = append(r.errs, &field.Error{Type: field.ErrorTypeRequired, Field: path, BadValue: "", Detail: "every container needs a name"})
		case repeated:
			r.errs = append(r.errs, &field.Error{
				Type: field.ErrorTypeDuplicate, Field: path, BadValue: truncateValue(name),
				Detail: "it is the name of " + first.String() + "; every container needs its own",
			})
		default:
			names[name] = at
		}
	}
	for i := range spec.Containers {
		check(spec.Containers[i].Name, containerPath{regularContainers, i})
	}
	for i := range spec.InitContainers {
		check(spec.InitContainers[i].Name, containerPath{initContainers, i})
	}
	for i := range spec.EphemeralContainers {
		check(spec.EphemeralContainers[i].Name, containerPath{ephemeralContainers, i})
	}
}

// containerRole determines how a container's resources are summed.
type containerRole uint8

const (
	roleRegular containerRole = iota
	roleInit
	roleSidecar // an init container that runs beside the regular ones
)

// resourceTally sums resources by name, as the API server does (PodRequests in
// k8s.io/component-helpers/resource): regular containers and sidecars run at the same time; an
// init container runs alone, beside the sidecars before it. Regular containers must be added
// first, then init containers in their order.
type resourceTally struct{ entries []tallyEntry }

// tallyEntry is the sum of one resource over all containers.
type tallyEntry struct {
	name corev1.ResourceName
	unit Unit
	// sum is the total of regular containers and sidecars, sidecars that of sidecars alone,
	// and peak the largest amount while an init container runs.
	sum, sidecars, peak int64
	// size is the device size in the first container with the resource.
	size deviceSize
	// firstContainer is the first container with the resource.
	firstContainer containerPath
	containerName  string
}

// entryFor returns the entry of name and creates it if necessary.
func (t *resourceTally) entryFor(name corev1.ResourceName, unit Unit) *tallyEntry {
	for i := range t.entries {
		if t.entries[i].name == name {
			return &t.entries[i]
		}
	}
	t.entries = append(t.entries, tallyEntry{name: name, unit: unit})
	return &t.entries[len(t.entries)-1]
}

// add adds the amount of one container. The sum cannot overflow: each amount is at most
// maxDevices.
func (e *tallyEntry) add(amount int64, as containerRole) {
	switch as {
	case roleRegular:
		e.sum += amount
	case roleSidecar:
		e.sum += amount
		e.sidecars += amount
	case roleInit:
		e.peak = max(e.peak, e.sidecars+amount)
	}
}

// total returns the amount of the whole pod.
func (e *tallyEntry) total() int64 { return max(e.sum, e.peak) }

// fieldPath returns the field of the first container with the resource.
func (e *tallyEntry) fieldPath() string { return e.firstContainer.resourcePath(limits, e.name) }

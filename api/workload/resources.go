// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// applyResources sets the request from the containers' resources.
func (r *parser) applyResources(request *Request) {
	request.Resources = r.gpuTally.amounts(0)
	if len(r.gpuTally.entries) == 0 {
		return
	}
	requested := &r.gpuTally.entries[0]
	total := requested.total()
	for i := range r.gpuTally.entries[1:] {
		second := &r.gpuTally.entries[1+i]
		r.addInvalid(second.fieldPath(), strconv.FormatInt(second.total(), 10), second.describeConflict(requested))
	}
	if total > requested.unit.maxAmount() {
		r.addInvalid(requested.fieldPath(), strconv.FormatInt(total, 10), "is the sum over the containers, and "+requested.unit.describeRange())
	}
	request.Container = requested.containerName
	request.Devices = total
	switch requested.unit {
	case UnitReplica:
		request.Form = FormReplica
	case unitMIG:
		request.Form = FormMIG
		request.MIGProfile, _ = v1alpha1.MIGProfileOf(requested.name)
	case UnitPercent:
		r.applyPercent(request, requested)
	default:
		if each := requested.unit.namedGPUs(); each > 0 {
			request.Form, request.Share = FormWhole, oneGPU
			if each < oneGPU {
				request.Form, request.Share = FormShare, each
			}
			request.GPUs = Milli(total) * each
			return
		}
		request.applySize(requested.size)
	}
	request.countGPUs()
}

// applyPercent sets the request from hundredths of a GPU.
func (r *parser) applyPercent(request *Request, requested *tallyEntry) {
	switch total := requested.total(); {
	case total < 100:
		request.Form, request.Devices, request.Share = FormShare, 1, Milli(total)*10
	case total%100 == 0:
		request.Form, request.Devices, request.Share = FormWhole, total/100, oneGPU
	default:
		r.addInvalid(requested.fieldPath(), strconv.FormatInt(total, 10),
			"is hundredths of a GPU, and must be less than 100 or whole hundreds: a share is on one GPU")
	}
}

// applySize sets the size of each device.
func (request *Request) applySize(z deviceSize) {
	request.ComputeShare = Milli(z.computePercent) * 10
	switch {
	case z.memoryMiB > 0:
		request.Form, request.MemoryMiB = FormMemory, z.memoryMiB
	case z.memoryPercent > 0 && z.memoryPercent < 100:
		request.Form, request.Share = FormShare, Milli(z.memoryPercent)*10
	default:
		request.Form, request.Share = FormWhole, oneGPU
	}
}

// countGPUs sets the number of physical GPUs as far as the pod determines it.
func (request *Request) countGPUs() {
	each := oneGPU
	if request.Form == FormShare {
		each = request.Share
	}
	request.GPUs = Milli(request.Devices) * each
}

// describeConflict returns the error for a second GPU resource.
func (e *tallyEntry) describeConflict(first *tallyEntry) string {
	if e.unit == unitMIG && first.unit == unitMIG {
		return "is a second MIG profile beside " + first.fieldPath() +
			"; a pod uses one profile, put the others into separate pods"
	}
	return "is a second kind of GPU beside " + first.fieldPath() + "; a pod requests one kind, keep one of the two"
}

// amounts returns the totals by name, without the first cut bytes of each name.
func (t *resourceTally) amounts(prefix int) Amounts {
	if len(t.entries) == 0 {
		return Amounts{}
	}
	slices.SortFunc(t.entries, func(a, b tallyEntry) int { return strings.Compare(string(a.name), string(b.name)) })
	totals := make(Amounts, len(t.entries))
	for i := range t.entries {
		totals[i] = Amount{Name: string(t.entries[i].name)[prefix:], Count: t.entries[i].total()}
	}
	return totals
}

// deviceSize is the size of each device of a container. Sizes are not summed. All zero means
// whole devices.
type deviceSize struct{ memoryMiB, memoryPercent, computePercent int64 }

// maxMemoryMiB is the largest memory request, 16 TiB, far more than any GPU has. Larger values
// were probably meant in another unit.
const maxMemoryMiB = 16 << 20

// namedGPUs returns what a resource that a NodePool names as its GPU is; 0 for others.
func (u Unit) namedGPUs() Milli { return Milli(max(u, unitNamed) - unitNamed) }

func (u Unit) isSize() bool { return u >= UnitMemoryMiB && u <= UnitComputePercent }

// maxAmount returns the largest amount of a resource of this unit in one container.
func (u Unit) maxAmount() int64 {
	switch u {
	case UnitMemoryMiB:
		return maxMemoryMiB
	case UnitMemoryPercent, UnitComputePercent:
		return 100
	case UnitPercent:
		return 100 * maxDevices
	default:
		return maxDevices
	}
}

// describeRange returns the allowed amounts of a resource of this unit.
func (u Unit) describeRange() string {
	from := "0"
	if u.isSize() {
		from = "1"
	}
	return "must be a whole number from " + from + " to " + strconv.FormatInt(u.maxAmount(), 10)
}

// parseSizes reads the device sizes of a container. All containers of a pod must request the same
// size.
func (r *parser) parseSizes(c *containerRequest) {
	for _, s := range c.sizes {
		if !slices.ContainsFunc(c.devices, s.isSizeOf) {
			r.addInvalid(c.resourcePath(limits, s.name), strconv.FormatInt(s.amount, 10),
				"sets the size of each GPU; the same container must request the number of GPUs as "+string(r.units.countingResource(s.name)))
		}
	}
	for _, device := range c.devices {
		var size deviceSize
		for _, s := range c.sizes {
			if s.isSizeOf(device) {
				size.setDimension(s)
			}
		}
		if size.memoryMiB > 0 && size.memoryPercent > 0 {
			r.addInvalid(c.resourcePath(limits, device.name), strconv.FormatInt(device.amount, 10),
				"has its memory both in MiB and in percent; keep one of the two")
			size.memoryPercent = 0
		}
		e := r.gpuTally.entryFor(device.name, device.unit)
		switch {
		case e.firstContainer == c.containerPath:
			e.size = size
		case e.size != size:
			r.addInvalid(c.resourcePath(limits, device.name), strconv.FormatInt(device.amount, 10),
				"is for "+size.String()+", in "+e.firstContainer.String()+" for "+e.size.String()+
					"; all containers of a pod must request the same, or go into separate pods")
		}
	}
}

// isSizeOf reports whether s is the size of device.
func (s resourceAmount) isSizeOf(device resourceAmount) bool {
	return device.unit == UnitGPU && resourceDomain(device.name) == resourceDomain(s.name)
}

func (z *deviceSize) setDimension(s resourceAmount) {
	switch s.unit {
	case UnitMemoryMiB:
		z.memoryMiB = max(z.memoryMiB, s.amount)
	case UnitMemoryPercent:
		z.memoryPercent = max(z.memoryPercent, s.amount)
	case UnitComputePercent:
		z.computePercent = max(z.computePercent, s.amount)
	}
}

// String formats the size for messages: "8000 MiB of each GPU".
func (z deviceSize) String() string {
	text := "whole GPUs"
	switch {
	case z.memoryMiB > 0:
		text = strconv.FormatInt(z.memoryMiB, 10) + " MiB of each GPU"
	case z.memoryPercent > 0:
		text = strconv.FormatInt(z.memoryPercent, 10) + " % of each GPU's memory"
	}
	if z.computePercent > 0 {
		text += " with " + strconv.FormatInt(z.computePercent, 10) + " % of its compute"
	}
	return text
}

// countingResource returns the resource that counts the devices of a size resource, the first by
// name if there are several.
func (n ResourceUnits) countingResource(size corev1.ResourceName) corev1.ResourceName {
	found := corev1.ResourceName("")
	for name, unit := range n {
		if unit == UnitGPU && resourceDomain(name) == resourceDomain(size) && (found == "" || strings.Compare(string(name), string(found)) < 0) {
			found = name
		}
	}
	if found == "" {
		return v1alpha1.ResourceNVIDIAGPU
	}
	return found
}

// Amount is a named number.
type Amount struct {
	// Name is the name of the resource.
	Name string
	// Count is more than 0.
	Count int64
}

// Amounts are sorted by unique name. In JSON they are one object: {"nvidia.com/gpu": 2}.
type Amounts []Amount

// Get returns the count of name, or 0.
func (a Amounts) Get(name string) int64 {
	for i := range a {
		if a[i].Name == name {
			return a[i].Count
		}
	}
	return 0
}

// MarshalJSON encodes the amounts as one object.
func (a Amounts) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i := range a {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(a[i].Name)
		if err != nil {
			return nil, fmt.Errorf("encode name %q: %w", a[i].Name, err)
		}
		out = append(append(out, name...), ':')
		out = strconv.AppendInt(out, a[i].Count, 10)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON decodes one object of whole numbers.
func (a *Amounts) UnmarshalJSON(raw []byte) error {
	var object map[string]int64
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if err := decoder.Decode(&object); err != nil {
		return fmt.Errorf("amounts %s: want an object of whole numbers: %w", raw, err)
	}
	*a = make(Amounts, 0, len(object))
	for name, count := range object {
		*a = append(*a, Amount{Name: name, Count: count})
	}
	slices.SortFunc(*a, func(x, y Amount) int { return strings.Compare(x.Name, y.Name) })
	return nil
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// fromResources fills in what the containers' resources ask for.
func (r *reader) fromResources(request *Request) {
	request.Resources = r.counted.amounts(0)
	if len(r.counted.entries) == 0 {
		return
	}
	asked := &r.counted.entries[0]
	total := asked.total()
	for i := range r.counted.entries[1:] {
		second := &r.counted.entries[1+i]
		r.invalid(second.path(), strconv.FormatInt(second.total(), 10), second.beside(asked))
	}
	if total > asked.unit.most() {
		r.invalid(asked.path(), strconv.FormatInt(total, 10), "is the sum over the containers, and "+asked.unit.allowed())
	}
	request.Container = asked.container
	request.Devices = total
	switch asked.unit {
	case UnitReplica:
		request.Form = FormReplica
	case unitMIG:
		request.Form = FormMIG
		request.MIGProfile, _ = v1alpha1.ProfileOfResource(asked.name)
	case UnitPercent:
		r.fromPercent(request, asked)
	default:
		request.fromSize(asked.size)
	}
	request.countGPUs()
}

// fromPercent reads hundredths of a GPU.
func (r *reader) fromPercent(request *Request, asked *entry) {
	switch total := asked.total(); {
	case total < 100:
		request.Form, request.Devices, request.Share = FormShare, 1, Milli(total)*10
	case total%100 == 0:
		request.Form, request.Devices, request.Share = FormWhole, total/100, one
	default:
		r.invalid(asked.path(), strconv.FormatInt(total, 10),
			"is hundredths of a GPU, and must be less than 100 or whole hundreds: a part lies on one GPU")
	}
}

// fromSize fills in how large each device is.
func (request *Request) fromSize(z size) {
	request.ComputeShare = Milli(z.computePercent) * 10
	switch {
	case z.memoryMiB > 0:
		request.Form, request.MemoryMiB = FormMemory, z.memoryMiB
	case z.memoryPercent > 0 && z.memoryPercent < 100:
		request.Form, request.Share = FormShare, Milli(z.memoryPercent)*10
	default:
		request.Form, request.Share = FormWhole, one
	}
}

// countGPUs adds up physical GPUs, as far as the pod can tell.
func (request *Request) countGPUs() {
	each := one
	if request.Form == FormShare {
		each = request.Share
	}
	request.GPUs = Milli(request.Devices) * each
}

// beside is the refusal of a second GPU resource.
func (e *entry) beside(first *entry) string {
	if e.unit == unitMIG && first.unit == unitMIG {
		return "is a second MIG profile beside " + first.path() +
			"; the slices of a pod are of one profile, put the others into pods of their own"
	}
	return "is a second kind of GPU beside " + first.path() + "; a pod asks for one kind, keep one of the two"
}

// amounts are the totals by name, without the first cut bytes of each name.
func (t *tally) amounts(cut int) Amounts {
	if len(t.entries) == 0 {
		return Amounts{}
	}
	slices.SortFunc(t.entries, func(a, b entry) int { return strings.Compare(string(a.name), string(b.name)) })
	totals := make(Amounts, len(t.entries))
	for i := range t.entries {
		totals[i] = Amount{Name: string(t.entries[i].name)[cut:], Count: t.entries[i].total()}
	}
	return totals
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// Observe returns the state of all GPUs of the node, by index, with their holders. desired is the
// GPUNode's spec: it decides which instances are foreign, may be adopted, or have to go. Observe
// writes nothing. The error is that of listing the GPUs; a problem with one GPU is in its Health
// and Message.
func (e *Engine) Observe(ctx context.Context, desired []v1alpha1.DesiredGPU, inUse InUse) ([]v1alpha1.ObservedGPU, error) {
	gpus, err := e.listGPUs()
	if err != nil {
		return nil, err
	}
	observed := make([]v1alpha1.ObservedGPU, 0, len(gpus))
	for _, gpu := range gpus {
		observed = append(observed, e.observeGPU(ctx, gpu, desired, inUse))
	}
	slices.SortFunc(observed, func(a, b v1alpha1.ObservedGPU) int { return cmp.Compare(a.Index, b.Index) })
	return observed, nil
}

// observeAll returns nil instead of an error, and whether any instance is foreign or cannot be
// read.
func (e *Engine) observeAll(ctx context.Context, desired []v1alpha1.DesiredGPU, inUse InUse) (observed []v1alpha1.ObservedGPU,
	foreign bool,
) {
	observed, err := e.Observe(ctx, desired, inUse)
	if err != nil {
		e.Log.Error(err, "Failed to observe GPUs")
		return nil, true
	}
	for i := range observed {
		foreign = foreign || observed[i].Health != v1alpha1.GPUHealthy ||
			slices.ContainsFunc(observed[i].Instances, func(it v1alpha1.ObservedInstance) bool { return it.Foreign })
	}
	return observed, foreign
}

func (e *Engine) observeGPU(ctx context.Context, gpu nvml.GPU, spec []v1alpha1.DesiredGPU, inUse InUse) v1alpha1.ObservedGPU {
	o := e.readStatus(ctx, gpu, spec, inUse)
	o.Message = truncate(o.Message, maxObjectMessage)
	for i := range o.Instances {
		o.Instances[i].Message = truncate(o.Instances[i].Message, maxObjectMessage)
	}
	return o
}

func (e *Engine) readStatus(ctx context.Context, gpu nvml.GPU, spec []v1alpha1.DesiredGPU, inUse InUse) v1alpha1.ObservedGPU {
	o := v1alpha1.ObservedGPU{
		UUID: v1alpha1.GPUUUID(gpu.UUID), Index: int32(gpu.Index), Model: gpu.Name, MemoryMiB: gpu.MemoryMiB,
		Health: v1alpha1.GPUHealthy,
	}
	if gpu.PCIDevice != 0 {
		o.DeviceID = fmt.Sprintf("0x%08X", gpu.PCIDevice)
	}
	p, err := e.readGPU(ctx, gpu, inUse, e.readings.computeInstances(gpu.UUID, e.now()))
	e.readings.store(gpu.UUID, p, e.now())
	if err != nil {
		o.Health, o.Message = v1alpha1.GPUUnhealthy, err.Error()
		if classify(err) == classLost {
			o.Health = v1alpha1.GPULost
		}
		return o
	}
	if why := e.unhealthyReason(gpu.UUID); why != "" {
		o.Health, o.Message = v1alpha1.GPUUnhealthy, why
	}
	o.MIG = v1alpha1.MIGMode{Current: migModeState(p, p.current), Pending: migModeState(p, p.pending)}
	if p.model != nil {
		o.MIGProfiles = profileNames(p.model)
		if len(p.profiles) > 0 {
			o.MIGPlacements = p.model.Placements()
		}
	} else if p.migCapable {
		o.Message = cmp.Or(o.Message, errUnknownModel.Error())
	}
	var want *desiredLayout
	if i := slices.IndexFunc(spec, func(d v1alpha1.DesiredGPU) bool { return string(d.UUID) == gpu.UUID }); i >= 0 {
		t := resolveLayout(p.model, spec[i])
		want = &t
	}
	var pending *PendingChange
	if change, ok := e.Journal.PendingChange(gpu.UUID); ok {
		pending = &change
	}
	markOwned(p, e.Journal.Instances(gpu.UUID), pending, want)
	for i := range p.instances {
		o.Instances = append(o.Instances, p.instanceStatus(&p.instances[i], want, pending))
	}
	slices.SortFunc(o.Instances, func(a, b v1alpha1.ObservedInstance) int { return cmp.Compare(a.Start, b.Start) })
	return o
}

func profileNames(model *mig.Model) []v1alpha1.MIGProfile {
	names := make([]v1alpha1.MIGProfile, 0, len(model.Profiles))
	for i := range model.Profiles {
		names = append(names, model.Profiles[i].Name)
	}
	return names
}

func migModeState(p *observedGPU, mode nvml.Mode) v1alpha1.MIGModeState {
	switch {
	case !p.migCapable:
		return v1alpha1.MIGModeNotSupported
	case mode == nvml.Enabled:
		return v1alpha1.MIGModeEnabled
	default:
		return v1alpha1.MIGModeDisabled
	}
}

// instanceStatus returns an instance for the GPUNode's status.
func (p *observedGPU) instanceStatus(it *instance, want *desiredLayout, pending *PendingChange) v1alpha1.ObservedInstance {
	o := v1alpha1.ObservedInstance{
		Profile: p.profileName(it), Start: int32(it.start), Size: int32(it.size), UUID: it.uuid(),
		Foreign: !it.owned, State: v1alpha1.InstanceIdle,
	}
	holder := p.holderOf(it)
	switch obsolete := it.owned && want != nil && !want.contains(it); {
	case pending != nil && it.owned && isCallTarget(it, pending.Next):
		o.State = v1alpha1.InstanceDestroying
		if pending.Next.Operation == OpCreateInstance || pending.Next.Operation == OpCreateComputeInstance {
			o.State = v1alpha1.InstanceCreating
		}
	case len(it.computes) != 1:
		o.State = v1alpha1.InstanceError
		o.Message = fmt.Sprintf("it has %d compute instances; a device for pods has one", len(it.computes))
	case it.profile != nil && !it.isUndivided():
		o.State = v1alpha1.InstanceError
		o.Message = fmt.Sprintf("its compute instance has %d of its %d slices; a device for pods has all", it.computes[0].Slices,
			it.profile.Compute)
	case holder != "" && obsolete:
		o.State, o.Message = v1alpha1.InstanceReclaiming, holder
	case holder != "":
		o.State = v1alpha1.InstanceActive
		if p.holdersUnknown != nil {
			o.Message = holder
		}
	}
	if it.holder != nil {
		o.Pod = it.holder.Pod
	}
	return o
}

// profileName returns the instance's profile. If the GPU model lacks it, the name follows from
// what the driver reports.
func (p *observedGPU) profileName(it *instance) v1alpha1.MIGProfile {
	if it.profile != nil {
		return it.profile.Name
	}
	compute, memory := it.size, int64(0)
	for _, d := range p.profiles {
		if d.ID == it.driverProfile {
			compute, memory = d.Compute, (d.MemoryMiB+1023)/1024
			break
		}
	}
	// The attribute of an unknown profile may have no name.
	return v1alpha1.MIGProfile(fmt.Sprintf("%dg.%dgb", min(max(1, compute), 8), min(max(0, memory), 9999)))
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/host"
)

// deviceNodesInterval is the interval of verifying all device nodes: other programs may remove them, and
// the container of the driver may be replaced.
const deviceNodesInterval = time.Minute

// deviceNodes makes the device nodes of MIG devices on the host. Before, no container may get a device.
type deviceNodes struct {
	host.CapabilityNodes

	verified map[v1alpha1.GPUUUID]string // deviceSignature by GPU
	verifyAt time.Time
	err      error // of the last pass
}

// invalidate has all device nodes verified in the next pass.
func (n *deviceNodes) invalidate() { n.verified = nil }

// reconcileDeviceNodes makes the device nodes of changed MIG devices, and once a minute of all. It returns
// an error if a device lacks one: then the device plugin must not offer the devices.
func (r *reconciler) reconcileDeviceNodes(o observation) error {
	n := &r.nodes
	if n.Host == "" || o.gpus == nil || len(o.conflicts) > 0 || !r.layout.recovered {
		return n.err
	}
	if now := time.Now(); n.verified == nil || !now.Before(n.verifyAt) {
		n.verified, n.verifyAt = map[v1alpha1.GPUUUID]string{}, now.Add(deviceNodesInterval)
	}
	failedBefore := n.err != nil
	n.err = nil
	for i := range o.gpus {
		gpu := &o.gpus[i]
		signature := deviceSignature(gpu)
		if !o.isDesired(gpu.UUID) || gpu.Health != v1alpha1.GPUHealthy || gpu.MIG.Current != v1alpha1.MIGModeEnabled ||
			n.verified[gpu.UUID] == signature {
			continue
		}
		made, err := r.ensureDeviceNodes(string(gpu.UUID))
		if made > 0 {
			r.log.Info("Made device nodes of MIG devices", "gpu", gpu.UUID, "nodes", made)
		}
		if err != nil {
			n.err = err
			continue
		}
		n.verified[gpu.UUID] = signature
	}
	if n.err != nil && !failedBefore {
		r.log.Error(n.err, "Failed to make device nodes of MIG devices")
	}
	return n.err
}

// ensureDeviceNodes makes the device nodes of all MIG devices of a GPU, as the driver lists them now.
func (r *reconciler) ensureDeviceNodes(gpu string) (made int, err error) {
	instances, err := r.library.Instances(gpu)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", host.ErrDeviceNodes, err)
	}
	var devices []host.MIGDevice
	for _, instance := range instances {
		computes, err := r.library.ComputeInstances(gpu, instance.ID)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", host.ErrDeviceNodes, err)
		}
		device := host.MIGDevice{Instance: instance.ID}
		for _, compute := range computes {
			device.Computes = append(device.Computes, compute.ID)
		}
		devices = append(devices, device)
	}
	return r.nodes.Ensure(gpu, devices)
}

// isDesired reports whether the spec lists a GPU.
func (o observation) isDesired(gpu v1alpha1.GPUUUID) bool {
	return slices.ContainsFunc(o.desired(), func(d v1alpha1.DesiredGPU) bool { return d.UUID == gpu })
}

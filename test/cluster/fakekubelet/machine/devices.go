// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/cluster/fakekubelet/devices"
)

// identities is the namespace of all UUIDs made here.
var identities = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("sim.sluice.dev"))

// IsDeviceResource reports whether NVIDIA's plugin counts devices under this
// name, on this machine or on another.
func IsDeviceResource(name string) bool {
	return name == string(v1alpha1.ResourceNVIDIAGPU) || strings.HasPrefix(name, v1alpha1.ResourceNVIDIAMIGPrefix)
}

// GPUID returns the UUID of a node's GPU by its index: "GPU-...".
func GPUID(node string, index int) string {
	return "GPU-" + identity(node, index, "")
}

// InstanceID returns the UUID of the MIG device on an instance: "MIG-...".
func InstanceID(node string, index int, instance Instance) string {
	return "MIG-" + identity(node, index, fmt.Sprintf("/%s@%d", instance.Profile, instance.Start))
}

func identity(node string, index int, rest string) string {
	return uuid.NewSHA1(identities, fmt.Appendf(nil, "%s/gpu%d%s", node, index, rest)).String()
}

// Devices returns what NVIDIA's plugin would report on the node: whole GPUs, and
// the instances of those that are cut; in the order of their place in the
// machine. The machine must be valid.
func (m Machine) Devices(node string) []devices.Device {
	var list []devices.Device
	for gpu, instances := range m.cuts() {
		if instances == nil {
			list = append(list, devices.Device{ID: GPUID(node, gpu), Resource: string(v1alpha1.ResourceNVIDIAGPU)})
			continue
		}
		slices.SortFunc(instances, func(a, b Instance) int { return cmp.Compare(a.Start, b.Start) })
		for _, instance := range instances {
			list = append(list, devices.Device{ID: InstanceID(node, gpu, instance), Resource: resourceOf(instance)})
		}
	}
	return list
}

// resourceOf returns the extended resource that an instance is counted as.
func resourceOf(instance Instance) string {
	return string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(instance.Profile)))
}

// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import admissionv1 "k8s.io/api/admissionregistration/v1"

// ephemeralContainers: a debug container asks for no resources, and no webhook
// changes it. It must not reach a device by the variables that NVIDIA's runtime
// reads, which its image may have: it says itself that it wants none. What was let
// in before is listed in each update, and stays.
var ephemeralContainers = door{
	name:  "ephemeral-containers",
	where: governed,
	rules: rules(on(updating, "pods/ephemeralcontainers")),
	variables: []admissionv1.Variable{
		{Name: "before", Expression: `oldObject.spec.?ephemeralContainers.orValue([]).map(c, c.name)`},
		{Name: "containers", Expression: `object.spec.?ephemeralContainers.orValue([]).filter(c, !(c.name in variables.before))`},
	},
	checks: []check{{
		expression: `variables.containers.all(c, c.?env.orValue([]).all(e, !(e.name in ` + reachingVariables + `)))`,
		message:    `'spec.ephemeralContainers: the environment variables ' + ` + reachingVariables + `.join(', ') + ' would reach a GPU that was not asked for; take them out'`,
	}, {
		expression: `variables.containers.all(c, c.?env.orValue([]).exists(e, e.name == ` + visibleDevices + `)` +
			` && c.?env.orValue([]).all(e, e.name != ` + visibleDevices + ` || e.?value.orValue('') == 'void'))`,
		message: `'spec.ephemeralContainers: an image may ask for all GPUs of the node by the variable ' + ` + visibleDevices + ` + '; set it to void: kubectl debug --env=' + ` + visibleDevices + ` + '=void'`,
	}, {
		expression: `variables.containers.all(c, !c.?securityContext.privileged.orValue(false))`,
		message:    `'spec.ephemeralContainers: a privileged container would reach every GPU of the node; take securityContext.privileged out'`,
	}, {
		expression: `variables.containers.all(c, c.?securityContext.?capabilities.?add.orValue([]).all(k, !(k.upperAscii().replace('CAP_', '') in ` + reachingCapabilities + `)))`,
		message:    `'spec.ephemeralContainers: with the capabilities ' + ` + reachingCapabilities + `.join(', ') + ' a container would reach GPUs that were not asked for; take them out of securityContext.capabilities.add'`,
	}, {
		expression: `variables.containers.all(c, c.?volumeMounts.orValue([]).all(m, !m.mountPath.contains('nvidia-container-devices'))` +
			` && c.?volumeDevices.orValue([]).all(d, !d.devicePath.contains('nvidia')))`,
		message: `'spec.ephemeralContainers: by mounts at nvidia-container-devices, and devices at nvidia, a GPU would be reached that was not asked for; choose another path'`,
	}},
}

// The following are CEL. visibleDevices is the variable by which NVIDIA's runtime
// is told which GPUs to give a container; reachingVariables are the others by
// which it is given what it was not allocated.
const (
	visibleDevices    = `'NVIDIA_VISIBLE_DEVICES'`
	reachingVariables = `['CUDA_VISIBLE_DEVICES', 'NVIDIA_MIG_CONFIG_DEVICES', 'NVIDIA_MIG_MONITOR_DEVICES', 'NVIDIA_IMEX_CHANNELS']`
	// reachingCapabilities are those that core.devices refuses.
	reachingCapabilities = `['ALL', 'SYS_ADMIN', 'SYS_MODULE', 'SYS_RAWIO', 'BPF', 'DAC_READ_SEARCH']`
)

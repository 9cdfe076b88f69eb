// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import admissionv1 "k8s.io/api/admissionregistration/v1"

// ephemeralContainers: a debug container asks for no resources, and so must not
// reach a device by the variables that NVIDIA's runtime reads.
var ephemeralContainers = door{
	name:  "ephemeral-containers",
	where: governed,
	rules: rules(on(updating, "pods/ephemeralcontainers")),
	variables: []admissionv1.Variable{
		{Name: "containers", Expression: `object.spec.?ephemeralContainers.orValue([])`},
	},
	checks: []check{{
		expression: `variables.containers.all(c, c.?env.orValue([]).all(e, !(e.name in ` + reachingVariables + `)))`,
		message:    `'spec.ephemeralContainers: the environment variables ' + ` + reachingVariables + `.join(', ') + ' would reach a GPU that was not asked for; take them out'`,
	}, {
		expression: `variables.containers.all(c, !c.?securityContext.privileged.orValue(false))`,
		message:    `'spec.ephemeralContainers: a privileged container would reach every GPU of the node; take securityContext.privileged out'`,
	}},
}

// reachingVariables is CEL: the variables by which NVIDIA's runtime is told to
// give a container devices that it was not allocated.
const reachingVariables = `['NVIDIA_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES', 'NVIDIA_MIG_CONFIG_DEVICES', 'NVIDIA_MIG_MONITOR_DEVICES']`

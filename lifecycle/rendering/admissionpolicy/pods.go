// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Who may put a pod on a node.

// podBindings: only schedulers bind. A Binding also overwrites a pod's labels and
// annotations, and passes neither the quota nor the pod's own checks.
var podBindings = definition{
	name:  "bindings",
	scope: projectNamespaces,
	rules: rules(coreRule(opsCreate, "pods/binding", "bindings")),
	validations: []validation{{
		expression: `variables.isBinder`,
		message:    `'only a scheduler may bind a pod of a project to a node, and ' + variables.user + ' is none; leave it to the scheduler of the pod\'s node pool'`,
	}},
}

// podNodeNames: a pod that names its node passes by every scheduler. Nodes name
// themselves on their mirror pods.
var podNodeNames = definition{
	name:            "node-name",
	scope:           projectNamespaces,
	rules:           rules(coreRule(opsCreate, "pods")),
	matchConditions: []string{`object.spec.?nodeName.orValue('') != ''`},
	validations: []validation{{
		expression: `variables.isBinder || variables.isNode`,
		message:    `'spec.nodeName: ' + object.spec.nodeName + ': a pod of a project does not choose its node; take it out, and name node pools with the annotation sluice.dev/node-pools'`,
	}},
}

// ephemeralContainers: a debug container asks for no resources, and no webhook
// changes it. It must not reach a device by the variables that NVIDIA's runtime
// reads, which its image may have: it says itself that it wants none. What was let
// in before is listed in each update, and stays.
var ephemeralContainers = definition{
	name:  "ephemeral-containers",
	scope: projectNamespaces,
	rules: rules(coreRule(opsUpdate, "pods/ephemeralcontainers")),
	variables: []admissionv1.Variable{
		{Name: "before", Expression: `oldObject.spec.?ephemeralContainers.orValue([]).map(c, c.name)`},
		{Name: "containers", Expression: `object.spec.?ephemeralContainers.orValue([]).filter(c, !(c.name in variables.before))`},
	},
	validations: []validation{{
		expression: `variables.containers.all(c, c.?env.orValue([]).all(e, !(e.name in ` + forbiddenVariables + `)))`,
		message:    `'spec.ephemeralContainers: the environment variables ' + ` + forbiddenVariables + `.join(', ') + ' would reach a GPU that was not asked for; take them out'`,
	}, {
		expression: `variables.containers.all(c, c.?env.orValue([]).exists(e, e.name == ` + visibleDevicesVariable + `)` +
			` && c.?env.orValue([]).all(e, e.name != ` + visibleDevicesVariable + ` || e.?value.orValue('') == 'void'))`,
		message: `'spec.ephemeralContainers: an image may ask for all GPUs of the node by the variable ' + ` + visibleDevicesVariable + ` + '; set it to void: kubectl debug --env=' + ` + visibleDevicesVariable + ` + '=void'`,
	}, {
		expression: `variables.containers.all(c, !c.?securityContext.privileged.orValue(false))`,
		message:    `'spec.ephemeralContainers: a privileged container would reach every GPU of the node; take securityContext.privileged out'`,
	}, {
		expression: `variables.containers.all(c, c.?securityContext.?capabilities.?add.orValue([]).all(k, !(k.upperAscii().replace('CAP_', '') in ` + forbiddenCapabilities + `)))`,
		message:    `'spec.ephemeralContainers: with the capabilities ' + ` + forbiddenCapabilities + `.join(', ') + ' a container would reach GPUs that were not asked for; take them out of securityContext.capabilities.add'`,
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
	visibleDevicesVariable = `'NVIDIA_VISIBLE_DEVICES'`
	forbiddenVariables     = `['CUDA_VISIBLE_DEVICES', 'NVIDIA_MIG_CONFIG_DEVICES', 'NVIDIA_MIG_MONITOR_DEVICES', 'NVIDIA_IMEX_CHANNELS']`
	// forbiddenCapabilities are those that core.devices refuses.
	forbiddenCapabilities = `['ALL', 'SYS_ADMIN', 'SYS_MODULE', 'SYS_RAWIO', 'BPF', 'DAC_READ_SEARCH']`
)

// maxGracePeriodSeconds is the time to end, in seconds, that a deletion may give a pod
// that says no longer one itself: the longest that core.limits leaves to a pod
// with GPUs, as shipped.
const maxGracePeriodSeconds = 3600

// gracePeriods: a pod that was told to end holds its GPUs until its time to end is
// over, and a later deletion that names no time does not shorten it. Whoever
// deletes a pod with a long time would keep it past every limit, and nobody could
// preempt it.
var gracePeriods = definition{
	name:  "long-ends",
	scope: projectNamespaces,
	rules: rules(coreRule(opsDelete, "pods"), coreRule(opsCreate, "pods/eviction")),
	validations: []validation{{
		expression: `request.operation != 'DELETE' || request.?options.?gracePeriodSeconds.orValue(0) <= ` + maxGracePeriod +
			` || request.options.gracePeriodSeconds <= oldObject.spec.?terminationGracePeriodSeconds.orValue(0)`,
		message: `'gracePeriodSeconds: ' + string(request.options.gracePeriodSeconds) + ': ` + gracePeriodMessage + `'`,
	}, {
		expression: `request.operation != 'CREATE' || object.?deleteOptions.?gracePeriodSeconds.orValue(0) <= ` + maxGracePeriod,
		message:    `'deleteOptions.gracePeriodSeconds: ' + string(object.deleteOptions.gracePeriodSeconds) + ': ` + gracePeriodMessage + `'`,
	}},
}

var maxGracePeriod = strconv.Itoa(maxGracePeriodSeconds)

const gracePeriodMessage = `a pod of a project is not deleted with more time to end than an hour, or than it asks for itself; leave the time out`

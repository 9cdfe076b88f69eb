// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
)

// runaiField is a field of Run:ai's workloads that pods have too.
type runaiField struct {
	// describe names the field in messages.
	describe string
	// perContainer: value is about the container c; else about the pod.
	perContainer bool
	// value is the expression of the value; undefined or null if the pod has none.
	value string
	// unit is what a limit is divided by: 1, or MiB for values in MiB.
	unit int64
	// part returns the part of a pod with a value; nil if a policy cannot set it.
	part func(value any) any
	// form is the form of a GPU request that the field is about; empty for other fields.
	form string
	// values are those that Run:ai writes differently.
	values map[string]string
}

const mebibyte = 1 << 20

// inMain returns a function that sets a value in the main container.
func inMain(path ...string) func(any) any {
	return func(value any) any { return nested(value, append([]string{"spec", "containers", "0"}, path...)...) }
}

// inAll returns a function that sets a value in all containers.
func inAll(path ...string) func(any) any {
	return func(value any) any { return nested(value, append([]string{"spec", "containers", "*"}, path...)...) }
}

func inPod(path ...string) func(any) any {
	return func(value any) any { return nested(value, path...) }
}

// asText returns a function that sets a value as text, as quantities and annotations have it.
func asText(set func(any) any) func(any) any {
	return func(value any) any { return set(scalarText(value)) }
}

// nested returns the object that has a value at a path.
func nested(value any, path ...string) any {
	for i := len(path) - 1; i >= 0; i-- {
		value = map[string]any{path[i]: value}
	}
	return value
}

// of returns the expression of a value at a path of a container or a pod.
func of(variable string, path ...string) string {
	steps := make([]string, len(path))
	for i, step := range path {
		steps[i] = literal(step)
	}
	return getAt(variable, steps, "null")
}

func resourceField(describe, list, resource string) runaiField {
	return runaiField{
		describe: describe, perContainer: true, value: of("c", "resources", list, resource), unit: 1,
		part: asText(inMain("resources", list, resource)),
	}
}

func securityField(describe, name string) runaiField {
	return runaiField{
		describe: describe, perContainer: true, unit: 1,
		value: fmt.Sprintf("object.get(c, [\"securityContext\", %s], object.get(input.object.spec, [\"securityContext\", %s], null))",
			literal(name), literal(name)),
		part: inAll("securityContext", name),
	}
}

func podField(describe, name string) runaiField {
	return runaiField{describe: describe, value: of("input.object.spec", name), unit: 1, part: inPod("spec", name)}
}

var pullPolicies = map[string]string{"always": "Always", "never": "Never", "ifnotpresent": "IfNotPresent"}

// runaiFields are the fields with a counterpart, by their path.
var runaiFields = map[string]runaiField{
	"compute.gpuDevicesRequest": {describe: "the number of GPUs", value: "input.workload.devices", unit: 1},
	"compute.gpuPortionRequest": {describe: "the share of a GPU", value: "input.workload.share", unit: 1, form: "Share"},
	"compute.gpuMemoryRequest":  {describe: "the GPU memory in MiB", value: "input.workload.memoryMiB", unit: mebibyte, form: "Memory"},
	"compute.migProfile":        {describe: "the MIG profile", value: "input.workload.migProfile", unit: 1, form: "MIG"},
	"compute.cpuCoreRequest":    resourceField("the CPU request", "requests", "cpu"),
	"compute.cpuCoreLimit":      resourceField("the CPU limit", "limits", "cpu"),
	"compute.cpuMemoryRequest":  resourceField("the memory request", "requests", "memory"),
	"compute.cpuMemoryLimit":    resourceField("the memory limit", "limits", "memory"),
	"gpu":                       {describe: "the number of GPUs", value: "gpus_requested", unit: 1},
	"image":                     {describe: "the image", perContainer: true, value: of("c", "image"), unit: 1},
	"imagePullPolicy": {
		describe: "the pull policy", perContainer: true, value: of("c", "imagePullPolicy"), unit: 1,
		part: inAll("imagePullPolicy"), values: pullPolicies,
	},
	"workingDir": {
		describe: "the working directory", perContainer: true, value: of("c", "workingDir"), unit: 1,
		part: inMain("workingDir"),
	},
	"tty": {describe: "the terminal", perContainer: true, value: of("c", "tty"), unit: 1, part: inMain("tty")},
	"stdin": {
		describe: "the standard input", perContainer: true, value: of("c", "stdin"), unit: 1,
		part: inMain("stdin"),
	},
	"terminationGracePeriodSeconds":     podField("the grace period in seconds", "terminationGracePeriodSeconds"),
	"security.hostIpc":                  podField("the host's IPC namespace", "hostIPC"),
	"security.hostNetwork":              podField("the host's network", "hostNetwork"),
	"security.runAsUid":                 securityField("the user", "runAsUser"),
	"security.runAsGid":                 securityField("the group", "runAsGroup"),
	"security.runAsNonRoot":             securityField("runAsNonRoot", "runAsNonRoot"),
	"security.allowPrivilegeEscalation": securityField("allowPrivilegeEscalation", "allowPrivilegeEscalation"),
	"security.readOnlyRootFilesystem":   securityField("readOnlyRootFilesystem", "readOnlyRootFilesystem"),
	"nodePools": {
		describe: "the list of node pools", value: of("input.object", "metadata", "annotations", "sluice.dev/node-pools"), unit: 1,
		part: func(value any) any {
			return nested(strings.Join(texts(value), ","), "metadata", "annotations", "sluice.dev/node-pools")
		},
	},
}

// oldFields are the paths of the fields of the old form, by their names.
var oldFields = map[string]string{
	"gpu": "gpu", "gpuMemory": "compute.gpuMemoryRequest", "migProfile": "compute.migProfile",
	"cpu": "compute.cpuCoreRequest", "cpuLimit": "compute.cpuCoreLimit",
	"memory": "compute.cpuMemoryRequest", "memoryLimit": "compute.cpuMemoryLimit",
	"image": "image", "imagePullPolicy": "imagePullPolicy", "workingDir": "workingDir", "tty": "tty", "stdin": "stdin",
	"hostIpc": "security.hostIpc", "hostNetwork": "security.hostNetwork", "nodePools": "nodePools",
	"allowPrivilegeEscalation": "security.allowPrivilegeEscalation", "runAsNonRoot": "security.runAsNonRoot",
	"environment": "environmentVariables", "labels": "labels", "annotations": "annotations",
	"volumes": "storage.hostPath", "pvcs": "storage.pvc",
}

// counterparts are what to do for fields without a counterpart.
var counterparts = map[string]string{
	"priorityClass":        "Sluice sets the priority class by the workload type",
	"createHomeDir":        "put it into the image, or mount a volume by defaults",
	"largeShmRequest":      "add a volume emptyDir with medium Memory by defaults",
	"largeShm":             "add a volume emptyDir with medium Memory by defaults",
	"runAsUser":            "use security.runAsUid",
	"master":               "its pods have no type of their own: write a policy on their labels",
	"worker":               "its pods have no type of their own: write a policy on their labels",
	"backoffLimit":         "write a policy that matches Job.batch",
	"completions":          "write a policy that matches Job.batch",
	"parallelism":          "write a policy that matches Job.batch",
	"nodeType":             "name node pools with nodePools",
	"allowOverQuota":       "set the limit of the project's quota",
	"ports":                "set spec.services of the department",
	"exposedUrls":          "set spec.services of the department",
	"ttlAfterFinished":     "write a policy that matches Job.batch",
	"nodeAffinityRequired": "write the rule nodes in Rego",
	"tolerations":          "write the rule append in Rego",
}

// noCounterpart adds the gap of a field.
func (w *runaiWriter) noCounterpart(fieldPath string) {
	fix := counterparts[fieldPath[strings.LastIndex(fieldPath, ".")+1:]]
	if fix == "" {
		fix = "write the rule in Rego, if pods have such a field"
	}
	w.entry.refuse(fieldPath, "it has no counterpart", fix)
}

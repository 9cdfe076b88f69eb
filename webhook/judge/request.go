// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/workload"
	"sluice.dev/policies/merge/value"
)

// aJob is the kind that makes a Job's pods.
var aJob = workload.Owner{Group: batchv1.GroupName, Kind: "Job"}

// request is what a pod asks for, or what each of a Job's pods will. The error is
// workload.Malformed where that cannot be.
func (q *Question) request(object map[string]any) (workload.Request, error) {
	template, kind := object, "pod"
	if q.Job {
		template, kind = value.Map(value.Map(object["spec"])["template"]), "Job"
	}
	var typed corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(asking(template), &typed); err != nil {
		return workload.Request{}, fmt.Errorf("reading the %s: %w", kind, err)
	}
	if err := readVariables(template, &typed.Spec); err != nil {
		return workload.Request{}, fmt.Errorf("reading the %s: %w", kind, err)
	}
	request, err := workload.Parse(&typed)
	if q.Template {
		request.Owner = q.Owner
	}
	if q.Job {
		request.Owner = aJob
		var malformed workload.Malformed
		if errors.As(err, &malformed) {
			return request, malformed.Under("spec.template")
		}
	}
	return request, err
}

// Most of a pod has nothing to do with what it asks for. To read these fields too
// would take longer than all that is read. Variables are read apart.
var (
	idleInSpec = []string{
		"affinity", "dnsConfig", "hostAliases", "imagePullSecrets", "readinessGates", "securityContext",
		"tolerations", "topologySpreadConstraints", "volumes",
	}
	idleInContainer = []string{
		"args", "command", "env", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "ports", "readinessProbe",
		"securityContext", "startupProbe", "terminationMessagePath", "terminationMessagePolicy", "volumeDevices",
		"volumeMounts", "workingDir",
	}
)

// asking is the part of a pod that may say what it asks for: its metadata, and its
// spec but for what is known to be idle.
func asking(template map[string]any) map[string]any {
	part := make(map[string]any, 2)
	for _, name := range []string{"metadata", "spec"} {
		if in, ok := template[name]; ok {
			part[name] = in
		}
	}
	spec, ok := part["spec"].(map[string]any)
	if !ok {
		return part
	}
	spec = without(spec, idleInSpec)
	for _, name := range []string{"containers", "initContainers", "ephemeralContainers"} {
		list, ok := spec[name].([]any)
		if !ok {
			continue
		}
		list = slices.Clone(list)
		for i, element := range list {
			if container, ok := element.(map[string]any); ok {
				list[i] = without(container, idleInContainer)
			}
		}
		spec[name] = list
	}
	part["spec"] = spec
	return part
}

// without is an object without some of its fields.
func without(object map[string]any, names []string) map[string]any {
	rest := make(map[string]any, len(object))
	for name, in := range object {
		if !slices.Contains(names, name) {
			rest[name] = in
		}
	}
	return rest
}

// readVariables reads the variables of all containers into a spec without them.
// Nearly all are a name and a value, and there may be very many.
func readVariables(template map[string]any, spec *corev1.PodSpec) error {
	from := value.Map(template["spec"])
	for name, containers := range map[string][]corev1.Container{"containers": spec.Containers, "initContainers": spec.InitContainers} {
		for i, container := range value.List(from[name]) {
			variables, ok := value.Map(container)["env"]
			if !ok || variables == nil {
				continue
			}
			list, ok := variables.([]any)
			if !ok {
				return fmt.Errorf("spec.%s[%d].env is no list", name, i)
			}
			containers[i].Env = make([]corev1.EnvVar, len(list))
			for j, variable := range list {
				if err := readVariable(variable, &containers[i].Env[j]); err != nil {
					return fmt.Errorf("spec.%s[%d].env[%d]: %w", name, i, j, err)
				}
			}
		}
	}
	return nil
}

func readVariable(from any, variable *corev1.EnvVar) error {
	fields, ok := from.(map[string]any)
	if !ok {
		return errors.New("it is no object")
	}
	for name, in := range fields {
		text, ok := in.(string)
		switch {
		case ok && name == "name":
			variable.Name = text
		case ok && name == "value":
			variable.Value = text
		default:
			return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, variable)
		}
	}
	return nil
}
